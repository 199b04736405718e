"""Placeholders of job files: days, ranges of them, and variables of the environment."""

import datetime

import pytest

from lpe_dask.batch.job_file import read_job
from lpe_dask.batch.placeholders import has_range

SCORE = '[score]\ndata = "in"\noutput = "out"\n'


def sources(job):
    return [(source.path, source.is_optional) for source in job.score.data]


def test_placeholders__are_filled_in_texts_and_lists(read):
    job = read(
        '[nominal]\ndata = "n"\ncolumns = ["x{date-365d}"]\n[model]\npath = "${DATA}/m"\n'
        '[score]\ndata = ["${DATA}/{date}/{date+1d}", "b"]\noutput = "{date-20d}"\n'
    )

    assert job.nominal.columns == ("x2025-11-20",)
    assert job.model.path == "s3://logs/m"
    assert sources(job) == [("s3://logs/2026-11-20/2026-11-21", False), ("b", False)]
    assert job.score.output == "2026-10-31"


def test_placeholders__in_numbers_and_tables_are_none(read):
    job = read(f"{SCORE}[model]\nmetric_params = {{}}\nalpha = 0.1")

    assert job.model.arguments == {"metric_params": {}, "alpha": 0.1}


def test_placeholders__of_the_environment_are_not_filled_again(read):
    job = read('[score]\ndata = "${DAY}"\noutput = "${DAY}-{date}"\n')

    assert sources(job) == [("{date}", False)]
    assert job.score.output == "{date}-2026-11-20"


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("{date-2d..date}", ["2026-11-18", "2026-11-19", "2026-11-20"]),
        ("{date..date}", ["2026-11-20"]),
        ("{date+10d..date+11d}", ["2026-11-30", "2026-12-01"]),
    ],
)
def test_range__is_a_source_for_each_day_that_may_be_absent(read, text, days):
    job = read(f'[score]\ndata = ["a", "in/{text}/{{date}}"]\noutput = "out"\n')

    expected = [(f"in/{day}/2026-11-20", True) for day in days]
    assert sources(job) == [("a", False), *expected]


def test_range__has_ten_years_at_most(read):
    job = read(SCORE.replace("in", "{date-3659d..date}"))

    assert len(job.score.data) == 3660


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NOT_THERE}/x", "environment variable NOT_THERE is not set, or empty. Set it"),
        ("${EMPTY}/x", "environment variable EMPTY is not set, or empty"),
        ("${}", "environment variable  is not set"),
        ("{dat}", "unknown placeholder {dat}"),
        ("{}", "unknown placeholder {}"),
        ("{date-7}", "unknown placeholder {date-7}"),
        ("{date - 7d}", "unknown placeholder {date - 7d}"),
        ("{date-7d..}", "unknown placeholder {}"),
        ("{a..date}", "unknown placeholder {a}"),
        ("{date..date..date}", "unknown placeholder {date..date}"),
        ("{date-1d..date}{date-1d..date}", "2 ranges of days are in one path"),
        ("{date..date-1d}", "has 0 days; 1 to 3660 are allowed. Write the earlier day"),
        ("{date-3660d..date}", "has 3661 days; 1 to 3660 are allowed"),
        ("{date-999999d}", "unknown placeholder {date-999999d}"),
        ("{date+" + "9" * 5000 + "d}", "unknown placeholder {date+999"),
        ("{date", "unmatched {"),
        ("date}", "unmatched }"),
        ("{{date}}", "unmatched {"),
        ("{date..date}}", "unmatched }"),
    ],
)
def test_placeholders__of_no_meaning_are_refused(refusal, text, message):
    (line,) = refusal(SCORE.replace('"in"', f'"{text}"'))

    assert line.startswith(", [score] data: ")
    assert message in line
    assert len(line) < 400


def test_date__is_today_unless_told(tmp_path, monkeypatch):
    monkeypatch.setenv("LPE_TEST_FOLDER", "folder")
    path = tmp_path / "job.toml"
    path.write_text(SCORE.replace('"in"', '"${LPE_TEST_FOLDER}/{date}"'))
    before = datetime.date.today()

    job = read_job(str(path))

    days = (before, datetime.date.today())
    assert job.score.data[0].path in [f"folder/{day}" for day in days]
    noon = datetime.datetime(2026, 1, 2, 12, 30)
    assert read_job(path, noon).score.data[0].path == "folder/2026-01-02"


def test_has_range__tells_a_range_from_two_dots():
    assert has_range("in/{date-7d..date}/*")
    assert not has_range("../{date}/${A..B}")

"""What would fit where a run would take too long: each remedy is tried as it is named."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.batch import Run, score_job
from lpe_dask.batch.job_file import read_job
from lpe_dask.forecast import remedies
from lpe_dask.forecast.estimate import forecaster_of
from lpe_dask.forecast.remedies import MARGIN, check_in_time, time_option
from lpe_dask.search.trial import Cost, SampledRows
from lpe_dask.tasks import Workers, seconds_of

ONE_THREAD = Workers(1, 1, 2**33)
MORE = [(f"--workers {n}", replace(ONE_THREAD, n_threads=n)) for n in (2, 4, 8)]

NOMINAL_ROWS = 3000


@pytest.fixture
def cost_pairs(monkeypatch):
    """Let searches take a known time for each pair of rows, on all machines."""

    def take(seconds):
        monkeypatch.setattr(
            SampledRows,
            "cost",
            lambda sampled, n, *given, **options: Cost(float(n), seconds * n),
        )

    return take


@pytest.fixture(autouse=True)
def known_costs(cost_pairs):
    cost_pairs(1e-6)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a table of so many rows to a new current folder."""
    monkeypatch.chdir(tmp_path)

    def write(name, n_rows):
        rows = np.random.default_rng(0).standard_normal((n_rows, 2))
        pd.DataFrame(rows, columns=["x", "y"]).to_parquet(name, row_group_size=500)

    return write


@pytest.fixture
def fitted(write):
    """A run that fits 3,000 rows, 9 s, and scores 100 rows, .3 s."""
    write("nominal.parquet", NOMINAL_ROWS)
    write("data.parquet", 100)
    return prepared()


def prepared(**given):
    job = score_job(
        "data.parquet", "out", nominal="nominal.parquet", algorithm="brute", **given
    )
    return Run.prepare(job, "refuse")


def check(run, seconds, larger=(), workers=ONE_THREAD):
    return check_in_time(
        run, lambda sizes: workers, lambda: seconds, "is late", lambda than: larger
    )


def refusal(run, seconds, larger=()):
    with pytest.raises(ValueError, match="the run is late, but is forecast to ta") as found:
        check(run, seconds, larger)
    return str(found.value)


def test_run__passes_unless_its_forecast_is_beyond_the_margin(fitted):
    seconds = check(fitted, 100.0).seconds

    assert 9.3 < seconds < 12
    check(fitted, seconds / MARGIN + 0.5)
    assert "more time" in refusal(fitted, seconds / MARGIN - 0.5)


def test_calibration_size__that_is_named_is_in_time(fitted):
    message = refusal(fitted, 4.0)

    size = int(re.search(r"--calibration-size (\d+) instead of 3000", message)[1])
    assert 1000 <= size < 1300
    assert check(prepared(calibration_size=size), 4.0).seconds <= 4.0


def test_calibration_size__is_a_key_of_a_job(fitted, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(
        '[nominal]\ndata = "nominal.parquet"\n[model]\nalgorithm = "brute"\n'
        '[score]\ndata = "data.parquet"\noutput = "out"\n'
    )
    assert "calibration_size = 1" in refusal(Run.prepare(read_job(path)), 4.0)


@pytest.mark.parametrize(
    ("seconds", "given"),
    [(2.5, {}), (4.0, {"alpha": 0.001}), (4.0, {"by": ["y"], "columns": ["x"]})],
)
def test_calibration_size__is_not_named_if_too_few_rows_or_groups(fitted, seconds, given):
    if "by" in given:
        for name in ("nominal.parquet", "data.parquet"):
            table = pd.read_parquet(name)
            table.assign(y=1).to_parquet(name)
    assert "calibration" not in refusal(prepared(**given), seconds)


def test_workers__are_the_first_that_are_in_time(fitted, write, cost_pairs):
    """Of more rows, which more than a task or two compare with each other."""
    write("nominal.parquet", 40_000)
    cost_pairs(1e-8)
    run = prepared()
    message = refusal(run, 6.0, MORE)

    assert "--workers 4 (" in message
    workers = dict(MORE)["--workers 4"]
    assert check(run, 6.0, workers=workers).seconds <= 6.0


def test_rows__that_are_named_are_in_time(fitted, write):
    lpe_dask.LPE(algorithm="brute").fit(pd.read_parquet("nominal.parquet")).save("model")
    write("data.parquet", 5000)
    job = score_job("data.parquet", "out", model="model")
    message = refusal(Run.prepare(job, "refuse"), 5.0)

    assert "calibration" not in message
    n_rows = int(
        re.search(r"at most ([\d,]+) of the 5,000 rows", message)[1].replace(",", "")
    )
    assert 1000 <= n_rows <= 1700
    write("data.parquet", n_rows)
    assert check(Run.prepare(job, "refuse"), 5.0).seconds <= 5.0


@pytest.mark.parametrize("seconds", [1.0, 0.01, -5.0])
def test_time__is_named_always_and_is_enough(fitted, seconds):
    message = refusal(fitted, seconds, MORE[:1])

    (text,) = re.findall(r"is: more time, --finish-within (\w+)\.", message)
    check(fitted, seconds_of(text))


def test_rows_scored_against_each_other__have_a_forecast_too(fitted):
    job = score_job("nominal.parquet", "out", algorithm="brute")

    assert "of the 3,000 rows" not in refusal(Run.prepare(job, "refuse"), 1.0)


def test_check_of_the_calibration__counts_as_a_fit(fitted):
    def steps(**given):
        return forecaster_of(lambda sizes: ONE_THREAD, prepared(**given)).forecast().steps

    assert "check calibration" not in steps()
    checked = steps(check_calibration=True)
    assert checked["check calibration"] >= checked["search among nominal rows"] > 8


def test_remedies__are_left_out_if_no_forecast_of_them_is_in_time(fitted, monkeypatch):
    attempts = []
    monkeypatch.setattr(remedies, "_rounded", lambda size: attempts.append(size) or 2000)

    assert "calibration" not in refusal(fitted, 4.0)
    assert len(attempts) >= remedies.N_TRIES


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.001, "1s"), (59.2, "60s"), (600, "600s"), (601, "11min"), (7201, "121min")],
)
def test_time_option__is_rounded_up(seconds, text):
    assert time_option(seconds) == text
    assert seconds_of(text) >= seconds


@pytest.mark.parametrize(
    ("size", "rounded"), [(-3.0, 0), (0.9, 0), (7.9, 7), (1234.5, 1200), (98765, 98000)]
)
def test_rounded__has_two_digits(size, rounded):
    assert remedies._rounded(size) == rounded


def test_first_partitions__have_the_first_rows():
    assert remedies._first_partitions([500, 500, 500], 1200) == [500, 500, 200]
    assert remedies._first_partitions([500, 500, 500], 500) == [500]

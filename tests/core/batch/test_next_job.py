"""Starts after midnight: which day a job is started for, and what is said about others."""

import datetime
import errno
import os
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import lpe_dask
from breaking import at
from choosing import mostly_full
from lpe_dask.batch import fingerprint, parts, resume
from lpe_dask.batch.dated_output import DatedOutput
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.placeholders import Placeholders
from lpe_dask.cli.commands import cli
from lpe_dask.storage.lock import locked
from storages import BreakingFileSystem, Death

JOB = """
[score]
data = "in/{date}/*.parquet"
output = "out/{date}"
"""
LATE, EARLY = "2026-11-19T23:30", "2026-11-20T00:05"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with a job and the rows of four days."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for day in (17, 18, 19, 20):
        path = Path(f"in/2026-11-{day}")
        path.mkdir(parents=True)
        rows = pd.DataFrame(rng.standard_normal((20, 2)), columns=["x", "y"])
        rows.to_parquet(path / "a.parquet")
    Path("job.toml").write_text(JOB)
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time of this machine."""

    def set_to(text):
        now = datetime.datetime.fromisoformat(text).astimezone()
        for module in (fingerprint, resume):
            monkeypatch.setattr(module, "now", lambda: now)

    return set_to


def interrupt(job="job.toml", error=RuntimeError, **options):
    """Start a job that breaks off at its first part."""

    def stop(*arguments):
        raise error("the end of it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts.PartFolder, "publish", stop)
        with pytest.raises((RunError, error), match="the end of it"):
            lpe_dask.run(job, **options)


def plan_by_command(job):
    result = CliRunner().invoke(cli, ["plan", job, "--scheduler", "threads"])
    assert result.exit_code == 0, result.output
    return result.stdout


def days_done():
    return [path.parent.name for path in sorted(Path("out").glob("*/_summary.json"))]


def test_run__first_finishes_the_run_that_was_interrupted_before_midnight(clock, caplog):
    clock(LATE)
    interrupt()
    clock(EARLY)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert "the run of 2026-11-19 was interrupted: only this run is finished" in caplog.text
    lpe_dask.run("job.toml")
    assert days_done() == ["2026-11-19", "2026-11-20"]
    assert sorted(os.listdir("out")) == days_done()


@pytest.mark.parametrize(("began", "done"), [("11:55", 20), ("12:10", 19)])
def test_run__counts_twelve_hours_from_the_first_beginning(clock, began, done):
    """A run that fails each time does not keep the next day from being done."""
    for time in (began, "23:30"):
        clock(f"2026-11-19T{time}")
        interrupt()
    clock("2026-11-20T00:00")

    lpe_dask.run("job.toml")

    assert days_done() == [f"2026-11-{done}"]


@pytest.mark.parametrize(
    "date",
    mostly_full(
        ["2026-11-18", datetime.date(2026, 11, 18), datetime.datetime(2026, 11, 18, 9)],
        ["2026-11-18"],
    ),
)
def test_date__may_be_a_text(date):
    forecast = lpe_dask.plan("job.toml", date=date)
    planned = CliRunner().invoke(cli, ["plan", "job.toml", "--date", "2026-11-18"])
    summary = lpe_dask.run("job.toml", date=date)

    assert forecast.n_rows == summary["rows"] == 20
    assert planned.exit_code == 0, planned.stderr
    assert planned.stdout.splitlines()[0] == str(forecast).splitlines()[0]
    assert Path("out/2026-11-18/_summary.json").exists()
    with pytest.raises(FileExistsError, match="out/2026-11-18 exists already"):
        lpe_dask.plan("job.toml", date=date)


@pytest.mark.parametrize("function", [lpe_dask.run, lpe_dask.plan])
@pytest.mark.parametrize("date", ["20.11.", "2026-11-200", 2026.5])
def test_date__must_be_a_day(function, date):
    with pytest.raises(ValueError, match=rf"date={date!r} is no day\. Give one as YYYY"):
        function("job.toml", date=date)


def test_date__is_for_jobs():
    with pytest.raises(ValueError, match="is for the path of a job file"):
        lpe_dask.plan("in/2026-11-18/a.parquet", date="2026-11-18")
    result = CliRunner().invoke(
        cli, ["plan", "in/2026-11-18/a.parquet", "--date", "2026-11-18"]
    )
    assert result.exit_code == 2
    assert "--date) is for the path of a job file, which ends in .toml." in result.stderr


def test_run__looks_for_no_day_before_yesterday(clock, caplog):
    clock("2026-11-18T23:59")
    interrupt()
    clock(EARLY)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert not caplog.records


def test_run__looks_for_no_other_day_where_one_is_given(clock, caplog):
    clock(LATE)
    interrupt()
    clock(EARLY)

    lpe_dask.run("job.toml", date=datetime.date(2026, 11, 20))

    assert days_done() == ["2026-11-20"]
    assert not caplog.records


def test_run__leaves_a_run_that_is_at_work_alone(clock, caplog):
    caplog.set_level("INFO")
    clock(LATE)
    interrupt()
    clock(EARLY)

    with locked("out/2026-11-19", "score a table"):
        lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "the run of 2026-11-19 is still running elsewhere" in caplog.text


@pytest.mark.parametrize(
    ("time", "is_finished"),
    mostly_full([("11:59", True), ("12:01", False)], [("11:59", True)]),
)
def test_run__finishes_a_run_that_was_killed_while_it_fitted(
    clock, folder, caplog, time, is_finished
):
    """There is nothing but its lock then, of the last start; the first was before today."""
    fsspec.register_implementation("breaking", BreakingFileSystem, clobber=True)
    model = f'[model]\npath = "breaking://{folder}/model"\n'
    nominal = '[nominal]\ndata = "in/2026-11-17/*.parquet"\n'
    job = nominal + model + JOB.replace("out/", f"breaking://{folder}/out/")
    Path("job.toml").write_text(job)
    today = datetime.datetime.now().astimezone().date()
    yesterday = today - datetime.timedelta(days=1)
    for made, day in (("2026-11-18", yesterday), ("2026-11-19", today)):
        Path(f"in/{made}").rename(f"in/{day}")
    BreakingFileSystem.repair(at(5, "dies"))
    with pytest.raises(Death):
        lpe_dask.run("job.toml", date=yesterday)
    BreakingFileSystem.repair()
    assert os.listdir(f"out/{yesterday}") == ["_lock.json"]
    for lock in folder.rglob("_lock.json"):
        os.utime(lock, (1, 1))
    clock(f"{today}T{time}")

    lpe_dask.run("job.toml")

    assert days_done() == [str(yesterday if is_finished else today)]
    assert (f"the run of {yesterday} was interrupted" in caplog.text) == is_finished


def test_run__takes_no_run_of_another_job_that_writes_there(clock, caplog):
    other = JOB.replace("[score]", "[model]\nn_neighbors = 3\n[score]")
    Path("other.toml").write_text(other.replace("out/{date}", "out/{date}/other"))
    clock(LATE)
    interrupt("other.toml")
    clock(EARLY)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert not caplog.records


def test_run__finishes_one_of_two_runs_of_a_file_with_other_variables(
    clock, caplog, monkeypatch
):
    Path("job.toml").write_text(JOB.replace("out/{date}", "out/{date}/${TABLE}"))
    monkeypatch.setenv("TABLE", "b")
    clock(LATE)
    interrupt()
    clock("2026-11-20T00:20")
    monkeypatch.setenv("TABLE", "a")
    lpe_dask.run("job.toml")
    assert not caplog.records
    monkeypatch.setenv("TABLE", "b")

    lpe_dask.run("job.toml")

    done = sorted(str(path.parent) for path in Path("out").rglob("_summary.json"))
    assert done == ["out/2026-11-19/b", "out/2026-11-20/a"]


@pytest.mark.parametrize("change", mostly_full(["job", "input", "error"], ["job", "error"]))
def test_run__takes_today_where_yesterday_would_be_refused(clock, caplog, change):
    clock(LATE)
    interrupt()
    clock(EARLY)
    if change == "job":
        Path("job.toml").write_text(JOB + "alpha = 0.2\n")
    else:
        rows = [1.0, 2.0, 3.0] if change == "input" else ["a", "b", "c"]
        pd.DataFrame({"x": rows}).to_parquet("in/2026-11-19/a.parquet")

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "the run of 2026-11-19 cannot be finished now: " in caplog.text


@pytest.mark.parametrize(
    "content",
    mostly_full(
        ["", "{", "[]", '{"started": 3}', '{"started": "soon"}'], ["{", '{"started": 3}']
    ),
)
def test_run__takes_today_where_no_start_is_known(clock, caplog, content):
    clock(LATE)
    interrupt()
    Path("out/2026-11-19/_run.json").write_text(content)
    clock(EARLY)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert not caplog.records


def test_run__takes_today_where_yesterday_cannot_be_read(clock, caplog, monkeypatch):
    def refuse(path, *arguments, **options):
        if "2026-11-19" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, *arguments, **options)

    clock(LATE)
    interrupt()
    clock(EARLY)
    open_file = os.open
    monkeypatch.setattr(os, "open", refuse)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "the run of 2026-11-19 cannot be finished now: PermissionError" in caplog.text


def test_command__finishes_the_other_day_and_says_so(clock):
    clock(LATE)
    interrupt()
    clock(EARLY)
    command = ["run", "job.toml", "--scheduler", "threads"]

    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 0, result.output
    assert (
        "the run of 2026-11-19 was interrupted: only this run is finished" in result.stderr
    )
    assert "written to out/2026-11-19" in result.stderr
    assert days_done() == ["2026-11-19"]


@pytest.mark.parametrize(
    "plan",
    mostly_full([lpe_dask.plan, plan_by_command], [lpe_dask.plan]),
    ids=["api", "command"],
)
def test_plan__is_of_the_day_that_is_run_next(clock, plan):
    """The table of the day before has 20 rows, that of today 30."""
    rows = pd.DataFrame(np.random.default_rng(1).standard_normal((30, 2)))
    rows.rename(columns=str).to_parquet("in/2026-11-20/a.parquet")
    clock(LATE)
    interrupt()
    clock(EARLY)

    assert "20 to score" in str(plan("job.toml"))

    lpe_dask.run("job.toml")
    assert days_done() == ["2026-11-19"]
    assert "30 to score" in str(plan("job.toml"))


def test_run__finishes_yesterday_on_other_storages(clock):
    Path("job.toml").write_text(JOB.replace("out/", "memory://next/"))
    clock(LATE)
    interrupt()
    clock(EARLY)

    outputs = [lpe_dask.run("job.toml")["output"][-2:] for _ in range(2)]

    fsspec.filesystem("memory").store.clear()
    assert outputs == ["19", "20"]


# Outputs of other days


@pytest.mark.parametrize(
    ("template", "folder"),
    [
        ("out/{date}", "out"),
        ("out/{date}/a", "out"),
        ("/srv/a/day-{date-1d}", "/srv/a"),
        ("{date}", "."),
        ("/{date}", "/"),
        ("${PLACE}/{date}", "s3://bucket/logs"),
        ("s3://bucket/{date}/a", "s3://bucket"),
    ],
)
def test_dated_output__has_the_folder_that_all_days_share(template, folder):
    placeholders = Placeholders(datetime.date(2026, 1, 1), {"PLACE": "s3://bucket/logs"})

    assert DatedOutput.of(template, placeholders).folder == folder


@pytest.mark.parametrize("template", ["s3://{date}/a", "out", "${PLACE}/out"])
def test_dated_output__there_is_none_without_a_day_in_a_folder(template):
    placeholders = Placeholders(datetime.date(2026, 1, 1), {"PLACE": "s3://bucket/logs"})

    assert DatedOutput.of(template, placeholders) is None


NAMES = [
    "2026-01-01", "2025-12-31", "2025-12-31.old", "day-2025-12-29-2025-12-30", "notes",
    "day-2025-12-28-2025-12-30", "9999-12-31", "2026-13-01", "2025-W52-3",
    "a-2025-12-01-b",
]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "days"),
    [
        ("{date}", ["2025-12-31", "9999-12-31"]),
        ("{date-1d}", ["2026-01-02"]),
        ("{date}/${TABLE}/a", ["2025-12-31", "9999-12-31"]),
        ("day-{date-1d}-{date}", ["2025-12-30"]),
        ("${TABLE}-{date}-b/{date}", ["2025-12-01"]),
        ("${TABLE}-{date}", []),
    ],
)
def test_others__are_the_days_of_the_same_template(folder, template, days):
    placeholders = Placeholders(datetime.date(2026, 1, 1), {"TABLE": "a"})
    for name in NAMES:
        (folder / "days" / name).mkdir(parents=True)

    found = DatedOutput.of(f"{folder}/days/{template}", placeholders).others()

    assert list(map(str, found)) == days

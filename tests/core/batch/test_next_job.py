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
from lpe_dask.storage import Lock
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


@pytest.fixture
def early(clock):
    """It is after midnight, and the run of the day before was interrupted."""
    clock(LATE)
    interrupt()
    clock(EARLY)


def interrupt():
    """Start a job that breaks off at its first part."""

    def stop(*arguments):
        raise RuntimeError("the end of it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts.PartFolder, "publish", stop)
        with pytest.raises(RunError, match="the end of it"):
            lpe_dask.run("job.toml")


def days_done():
    return [path.parent.name for path in sorted(Path("out").glob("*/_summary.json"))]


@pytest.mark.parametrize(
    ("starts", "time", "done"),
    [
        ([LATE], EARLY, 19),
        (["2026-11-18T23:59"], EARLY, 20),
        # Twelve hours from the first start: a run that fails each time does not keep the
        # next day from being done.
        (["2026-11-19T11:55", LATE], "2026-11-20T00:00", 20),
        (["2026-11-19T12:10", LATE], "2026-11-20T00:00", 19),
    ],
)
def test_run__first_finishes_the_run_that_was_interrupted_before_midnight(
    clock, caplog, starts, time, done
):
    for start in starts:
        clock(start)
        interrupt()
    clock(time)

    lpe_dask.run("job.toml")

    said = "the run of 2026-11-19 was interrupted: only this run is finished" in caplog.text
    assert days_done() == [f"2026-11-{done}"]
    assert said == (done == 19)
    if done == 19:
        lpe_dask.run("job.toml")
        assert sorted(os.listdir("out")) == days_done() == ["2026-11-19", "2026-11-20"]


@pytest.mark.parametrize(
    "date",
    mostly_full(
        ["2026-11-18", datetime.date(2026, 11, 18), datetime.datetime(2026, 11, 18, 9)],
        ["2026-11-18"],
    ),
)
def test_date__may_be_a_text(date):
    forecast = lpe_dask.plan("job.toml", date=date)
    planned = command("plan", "--date", "2026-11-18").stdout
    summary = lpe_dask.run("job.toml", date=date)

    assert forecast.n_rows == summary["rows"] == 20
    assert planned.splitlines()[0] == str(forecast).splitlines()[0]
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


def test_run__looks_for_no_other_day_where_one_is_given(early, caplog):
    lpe_dask.run("job.toml", date=datetime.date(2026, 11, 20))

    assert days_done() == ["2026-11-20"]
    assert not caplog.records


def test_run__leaves_a_run_that_is_at_work_alone(early, caplog):
    caplog.set_level("INFO")
    with Lock("out/2026-11-19").hold("score a table"):
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


def write_rows(values):
    pd.DataFrame({"x": values}).to_parquet("in/2026-11-19/a.parquet")


def write_start(content):
    return lambda: Path("out/2026-11-19/_run.json").write_text(content)


#: What has changed since an interruption, and whether yesterday would be refused now.
CHANGES = {
    "job": (lambda: Path("job.toml").write_text(JOB + "alpha = 0.2\n"), True),
    "input": (lambda: write_rows([1.0, 2.0, 3.0]), True),
    "bad input": (lambda: write_rows(["a", "b", "c"]), True),
    "no start": (write_start(""), False),
    "half a start": (write_start("{"), False),
    "a list": (write_start("[]"), False),
    "a number": (write_start('{"started": 3}'), False),
    "no time": (write_start('{"started": "soon"}'), False),
}


@pytest.mark.parametrize(
    "name", mostly_full(CHANGES, ["job", "bad input", "half a start", "a number"])
)
def test_run__takes_today_where_yesterday_cannot_be_finished(early, caplog, name):
    change, is_refused = CHANGES[name]
    change()

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    said = "the run of 2026-11-19 cannot be finished now: " in caplog.text
    assert said == bool(caplog.records) == is_refused


def test_run__takes_today_where_yesterday_cannot_be_read(early, caplog, monkeypatch):
    def refuse(path, *arguments, **options):
        if "2026-11-19" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, *arguments, **options)

    open_file = os.open
    monkeypatch.setattr(os, "open", refuse)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "the run of 2026-11-19 cannot be finished now: PermissionError" in caplog.text


def test_plan__is_of_the_day_that_is_run_next(early):
    """The table of the day before has 20 rows, that of today 30."""
    rows = pd.DataFrame(np.random.default_rng(1).standard_normal((30, 2)))
    rows.rename(columns=str).to_parquet("in/2026-11-20/a.parquet")
    for day, n_rows in ((19, 20), (20, 30)):
        plans = [str(lpe_dask.plan("job.toml")), command("plan").stdout]
        assert all(f"{n_rows} to score" in plan for plan in plans)
        said = command("run").stderr
        assert days_done()[-1] == f"2026-11-{day}"
        assert f"written to out/2026-11-{day}" in said
        assert ("the run of 2026-11-19 was interrupted: only" in said) == (day == 19)


def command(name, *options):
    given = [name, "job.toml", "--scheduler", "threads", *options]
    result = CliRunner().invoke(cli, given)
    assert result.exit_code == 0, result.output
    return result


def test_run__finishes_yesterday_on_other_storages(clock):
    Path("job.toml").write_text(JOB.replace("out/", "memory://next/"))
    clock(LATE)
    interrupt()
    clock(EARLY)

    outputs = [lpe_dask.run("job.toml")["output"][-2:] for _ in range(2)]

    fsspec.filesystem("memory").store.clear()
    assert outputs == ["19", "20"]


# Outputs of other days


@pytest.mark.parametrize("template", ["s3://{date}/a", "out", "${PLACE}/out"])
def test_dated_output__there_is_none_without_a_day_in_a_folder(template):
    placeholders = Placeholders(datetime.date(2026, 1, 1), {"PLACE": "s3://bucket/logs"})

    assert DatedOutput.of(template, placeholders) is None
    assert DatedOutput.of("/{date}", placeholders).folder == "/"


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

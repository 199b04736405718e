"""Starts after midnight: which day a job is started for, and what is said about others."""

import datetime
import errno
import json
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from fsspec.implementations.local import LocalFileSystem

import lpe_dask
from lpe_dask.batch import days, parts, runs, unfinished
from lpe_dask.batch.fit import RunError
from lpe_dask.batch.job_file import read_job
from lpe_dask.batch.placeholders import Placeholders
from lpe_dask.cli.commands import cli
from lpe_dask.storage.lock import hold

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
    with dask.config.set(scheduler="sync"):
        yield tmp_path


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time of this machine."""

    def set_to(text):
        now = datetime.datetime.fromisoformat(text).astimezone()
        for module in (days, unfinished):
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


def notes():
    return sorted(path.name[-15:-5] for path in Path("out/_runs").glob("*.json"))


def test_run__first_finishes_the_run_that_was_interrupted_before_midnight(clock, caplog):
    clock(LATE)
    interrupt()
    clock(EARLY)
    assert notes() == ["2026-11-19"]

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert "the run of 2026-11-19 was interrupted: only this run is finished" in caplog.text
    assert notes() == []
    lpe_dask.run("job.toml")
    assert days_done() == ["2026-11-19", "2026-11-20"]
    assert notes() == []


def test_run__takes_today_twelve_hours_later_and_names_the_other_day(clock, caplog):
    clock("2026-11-18T09:00")
    interrupt()
    clock(LATE)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert "unfinished run of 2026-11-18 (--date 2026-11-18)" in caplog.text
    lpe_dask.run("job.toml", date=datetime.date(2026, 11, 18))
    assert days_done() == ["2026-11-18", "2026-11-19"]
    assert notes() == []


def test_run__forgets_an_older_run_that_is_finished_after_all(clock, caplog):
    """It was killed between its summary and the end, and the job was edited since."""
    clock("2026-11-18T09:00")
    interrupt()
    left = {path: path.read_text() for path in Path("out/_runs").iterdir()}
    lpe_dask.run("job.toml")
    for path, text in left.items():
        path.write_text(text)
    Path("job.toml").write_text(JOB + "alpha = 0.2\n")
    clock(LATE)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-18", "2026-11-19"]
    assert not caplog.records
    assert notes() == []


def test_run__says_nothing_of_an_older_run_that_is_at_work(clock, caplog):
    clock("2026-11-18T09:00")
    interrupt()
    clock(LATE)

    with hold("out/2026-11-18", "score a table"):
        lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert not caplog.records
    assert notes() == ["2026-11-18"]


def test_run__names_an_older_run_of_which_it_cannot_tell(clock, caplog, monkeypatch):
    def fail(place):
        raise OSError("the storage is away")

    clock("2026-11-18T09:00")
    interrupt()
    clock(LATE)
    monkeypatch.setattr(days, "is_held", fail)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert "unfinished run of 2026-11-18 (--date 2026-11-18)" in caplog.text


def test_run__counts_the_hours_from_the_first_beginning(clock):
    """A run that fails each time does not keep the next days from being done."""
    clock("2026-11-18T23:00")
    interrupt()
    clock("2026-11-19T10:00")
    interrupt()
    assert notes() == ["2026-11-18"]
    clock("2026-11-19T11:00")

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]


def test_run__looks_for_no_other_day_where_one_is_given(clock, caplog):
    clock(LATE)
    interrupt()
    clock(EARLY)

    lpe_dask.run("job.toml", date=datetime.date(2026, 11, 20))

    assert days_done() == ["2026-11-20"]
    assert notes() == ["2026-11-19"]
    assert not caplog.records


def test_run__leaves_a_run_that_is_at_work_alone(clock, caplog):
    caplog.set_level("INFO")
    clock(LATE)
    interrupt()
    clock(EARLY)

    with hold("out/2026-11-19", "score a table"):
        lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "the run of 2026-11-19 is still running elsewhere" in caplog.text


def test_run__takes_no_run_of_another_job_that_writes_there(clock, caplog):
    other = JOB.replace("[score]", "[model]\nn_neighbors = 3\n[score]")
    Path("other.toml").write_text(other.replace("out/{date}", "out/{date}/other"))
    clock(LATE)
    interrupt("other.toml")
    clock(EARLY)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert not caplog.records
    assert notes() == ["2026-11-19"]


def test_run__finishes_one_of_two_runs_of_a_file_with_other_variables(
    clock, caplog, monkeypatch
):
    Path("job.toml").write_text(JOB.replace("out/{date}", "out/{date}/${TABLE}"))
    monkeypatch.setenv("TABLE", "b")
    clock(LATE)
    interrupt()
    monkeypatch.setenv("TABLE", "a")
    clock("2026-11-19T23:40")
    lpe_dask.run("job.toml")
    assert notes() == ["2026-11-19"]
    clock("2026-11-20T00:20")
    lpe_dask.run("job.toml")
    assert not caplog.records
    monkeypatch.setenv("TABLE", "b")
    clock("2026-11-20T00:30")

    lpe_dask.run("job.toml")

    done = sorted(str(path.parent) for path in Path("out").rglob("_summary.json"))
    assert done == ["out/2026-11-19/a", "out/2026-11-19/b", "out/2026-11-20/a"]
    assert notes() == []


def test_run__names_the_day_of_a_job_that_was_edited(clock, caplog):
    clock(LATE)
    interrupt()
    clock(EARLY)
    Path("job.toml").write_text(JOB + "alpha = 0.2\n")

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "--date 2026-11-19" in caplog.text
    lpe_dask.run("job.toml", date=datetime.date(2026, 11, 19), overwrite=True)
    assert notes() == []


def test_run__takes_today_where_the_other_day_would_be_refused(clock, caplog):
    clock(LATE)
    interrupt()
    clock(EARLY)
    pd.DataFrame({"x": [1.0, 2.0, 3.0]}).to_parquet("in/2026-11-19/a.parquet")

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-20"]
    assert "the run of 2026-11-19 cannot be finished now: FileExistsError" in caplog.text


def test_run__notes_nothing_of_a_run_that_was_refused(clock):
    clock(LATE)

    interrupt(error=KeyboardInterrupt)
    assert notes() == ["2026-11-19"]
    Path("job.toml").write_text(JOB + "[model]\nn_neighbors = 99\n")
    with pytest.raises(ValueError, match="n_neighbors=99"):
        lpe_dask.run("job.toml", overwrite=True)

    assert notes() == []


def test_run__forgets_a_run_that_is_finished_after_all(clock):
    """It was killed between its summary and the end."""
    clock(LATE)
    interrupt()
    left = {path: path.read_text() for path in Path("out/_runs").iterdir()}
    lpe_dask.run("job.toml")
    for path, text in left.items():
        path.write_text(text)
    Path("out/_runs/damaged.json").write_text("{")
    clock(EARLY)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19", "2026-11-20"]
    assert notes() == ["damaged"[-10:]]


def test_run__removes_the_half_of_a_note_that_it_left_when_it_was_killed(clock):
    clock(LATE)
    interrupt()
    (note,) = Path("out/_runs").iterdir()
    note.rename(note.with_name(f".{note.name}.0a1b.tmp"))

    lpe_dask.run("job.toml")

    assert not list(Path("out/_runs").iterdir())


def test_run__that_is_resumed_keeps_its_note_where_workers_are_refused(clock, monkeypatch):
    """They may be repaired: the next start then ends that day, not the one after it."""
    clock(LATE)
    interrupt()

    def refuse(run, lock):
        raise ImportError("a worker has another version")

    clock(EARLY)
    with monkeypatch.context() as patch:
        patch.setattr(runs.Run, "fit_and_score", refuse)
        with pytest.raises(ImportError):
            lpe_dask.run("job.toml")

    assert notes() == ["2026-11-19"]
    assert lpe_dask.run("job.toml")["rows"] == 20
    assert Path("out/2026-11-19/_summary.json").exists()


def test_run__works_where_nothing_can_be_noted(clock, caplog):
    Path("out").mkdir()
    Path("out/_runs").write_text("a file")
    clock(LATE)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert "cannot write the note of the run of 2026-11-19 to out/_runs" in caplog.text
    assert "resume it with --date 2026-11-19" in caplog.text


def test_run__takes_today_where_notes_cannot_be_read(clock, caplog, monkeypatch):
    def refuse(self, path, **options):
        if str(path).endswith("_runs"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(self, path, **options)

    listed = LocalFileSystem.ls
    monkeypatch.setattr(LocalFileSystem, "ls", refuse)
    clock(LATE)

    lpe_dask.run("job.toml")

    assert days_done() == ["2026-11-19"]
    assert "the notes in out/_runs cannot be read: PermissionError" in caplog.text


def test_run__notes_nothing_where_the_output_has_no_day(clock, folder):
    Path("job.toml").write_text(JOB.replace("out/{date}", "scored"))
    clock(LATE)

    interrupt()

    assert not list(folder.glob("**/_runs"))


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


@pytest.mark.parametrize("plan", [lpe_dask.plan, plan_by_command], ids=["api", "command"])
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


def test_read_job__tells_jobs_apart_by_what_they_say():
    def job(text, day=20):
        Path("job.toml").write_text(text)
        return read_job("job.toml", datetime.date(2026, 11, day)).today.job

    same = job(JOB)

    assert job(JOB, day=19) == same
    assert job("# why\n" + JOB + "[cluster]\nworkers = 2\n") == same
    assert job(JOB + "alpha = 0.01\n") != same
    assert job(JOB.replace("out/", "out/b/")) != same


@pytest.mark.parametrize(
    ("output", "folder"),
    [
        ("out/{date}", "out"),
        ("out/{date}/a", "out"),
        ("/srv/a/day-{date-1d}", "/srv/a"),
        ("{date}", "."),
        ("/{date}", "/"),
        ("${PLACE}/{date}", "s3://bucket/logs"),
        ("s3://bucket/{date}/a", "s3://bucket"),
        ("s3://{date}/a", None),
        ("out", None),
        ("${PLACE}/out", None),
    ],
)
def test_folder_of_days__is_what_all_days_share(output, folder):
    placeholders = Placeholders(datetime.date(2026, 1, 1), {"PLACE": "s3://bucket/logs"})

    assert placeholders.folder_of_days(output) == folder


def test_notes__say_what_people_want_to_know(clock, folder):
    clock(LATE)
    interrupt()

    (note,) = Path("out/_runs").iterdir()

    said = json.loads(note.read_text())
    assert said["job"] == str(folder / "job.toml")
    assert said["date"] == "2026-11-19"
    assert datetime.datetime.fromisoformat(said["began"]) == unfinished.now()

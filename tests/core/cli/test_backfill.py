"""A range of days: which are done, in which order, on which workers, and what is left."""

import datetime
import gc
import json
import logging
import re
import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pandas as pd
import pytest

from calling import THREADS, invoke
from lpe_dask.batch import ClusterSection
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.runs import Run
from lpe_dask.cli import backfill, cluster
from lpe_dask.cli.backfill import Backfill
from lpe_dask.cli.interrupts import DeadlineTimeout, StallTimeout, Terminated
from lpe_dask.cli.json_lines import JsonFormatter
from lpe_dask.cli.outcome import DRIFTED, REFIT_REJECTED, UnavailableError
from lpe_dask.cli.shared_workers import SharedWorkers
from waiting import eventually

JOB = """
[nominal]
data = "nominal.parquet"
[model]
path = "model"
[score]
data = "in/{date}.parquet"
output = "out/{date}"
report = false
"""
DAYS = [f"2026-11-{day:02d}" for day in range(1, 6)]
ALL = f"{DAYS[0]}..{DAYS[-1]}"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A current folder with a job, nominal rows, and the rows of five days."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("in").mkdir()
    names = ["nominal.parquet", *(f"in/{day}.parquet" for day in DAYS)]
    for name in names:
        rows = rng.standard_normal((60, 2))
        pd.DataFrame(rows, columns=["x", "y"]).to_parquet(name)
    Path("job.toml").write_text(JOB)


def run(days=ALL, *options):
    return invoke("run", "job.toml", "--date", days, *THREADS, *options)


def summary(day, place="out"):
    return json.loads(Path(place, day, "_summary.json").read_text())


def done_days():
    return sorted(path.parent.name for path in Path("out").glob("*/_summary.json"))


def list_of(result):
    """The list at the end of what a command says."""
    lines = result.stderr.splitlines()
    return lines[lines.index(next(x for x in lines if re.match(r"\d+ days: ", x))) :]


# In order, one series, what is finished


def test_range__does_its_days_in_order_with_one_model_and_one_series():
    invoke("run", "job.toml", "--date", DAYS[0], *THREADS)
    result = run()

    assert result.exit_code == 0, result.stderr
    assert done_days() == DAYS
    followed = [summary(day)["drift"]["predecessor"] for day in DAYS]
    assert [of and of["date"] for of in followed] == [None, *DAYS[:-1]]
    assert len({summary(day)["model_checksum"] for day in DAYS}) == 1
    said = result.stderr
    assert f"{DAYS[0]}: nothing to do, finished before\n" in said
    assert re.findall(r"^(2026-11-\d\d):$", said, re.MULTILINE) == DAYS[1:]
    assert list_of(result) == ["5 days: 1 finished before, 4 done"]


def test_range__says_once_which_days_are_finished():
    run()
    shutil.rmtree(Path("out", DAYS[2]))
    result = run()

    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if "nothing to do" in line]
    assert lines == [
        f"{DAYS[0]}..{DAYS[1]}: nothing to do, finished before",
        f"{DAYS[3]}..{DAYS[4]}: nothing to do, finished before",
    ]


def test_range__of_one_day_is_that_day():
    assert list_of(run(f"{DAYS[1]}..{DAYS[1]}")) == ["1 days: 1 done"]
    assert done_days() == [DAYS[1]]


def test_range__fits_the_model_of_each_day_where_it_has_one():
    Path("job.toml").write_text(JOB.replace('"model"', '"models/{date}"'))
    result = run()

    assert result.exit_code == 0, result.stderr
    models = [summary(day)["model"] for day in DAYS]
    assert [Path(model).name for model in models] == DAYS


def test_range__makes_no_page_on_request():
    Path("job.toml").write_text(JOB.replace("report = false", "report = true"))
    run(f"{DAYS[0]}..{DAYS[1]}", "--no-report")

    assert done_days() == DAYS[:2]
    assert not list(Path("out").glob("*/_report.html"))


# Days that fail


@pytest.fixture
def without_third_day():
    """A range whose third day has no rows; a function that brings them back."""
    there, away = Path(f"in/{DAYS[2]}.parquet"), Path("away.parquet")
    there.rename(away)
    return lambda: away.rename(there)


def test_range__ends_at_a_day_without_rows(without_third_day):
    result = run()

    assert (result.exit_code, done_days()) == (2, DAYS[:2])
    listed = list_of(result)
    assert listed[0] == "5 days: 2 done, 1 failed, 2 left"
    assert re.match(f"  {DAYS[2]} failed, exit code 2: there is no table at", listed[1])
    assert len(listed) == 3

    rest = re.search(r"with --date (\S+) it goes on without it", listed[2])[1]
    assert run(rest).exit_code == 0
    assert done_days() == DAYS[:2] + DAYS[3:]


def test_range__keeps_going_on_request(without_third_day):
    result = run(ALL, "--keep-going")

    assert (result.exit_code, done_days()) == (2, DAYS[:2] + DAYS[3:])
    listed = list_of(result)
    assert listed[0] == "5 days: 4 done, 1 failed"
    assert listed[2] == "The same command tries again what failed."

    without_third_day()
    again = run(ALL, "--keep-going")
    assert (again.exit_code, done_days()) == (0, DAYS)
    assert list_of(again) == ["5 days: 4 finished before, 1 done"]


def test_range__resumes_an_interrupted_day(monkeypatch):
    publish = PartFolder.publish

    def interrupt(folder, *arguments):
        if DAYS[1] in folder.url:
            raise KeyboardInterrupt
        return publish(folder, *arguments)

    with monkeypatch.context() as context:
        context.setattr(PartFolder, "publish", interrupt)
        result = run(ALL, "--keep-going")

    assert (result.exit_code, done_days()) == (130, DAYS[:1])
    assert list_of(result) == [
        "5 days: 1 done, 4 left",
        f"left: {DAYS[1]}..{DAYS[4]}. The same command goes on with them.",
        "Interrupted.",
    ]
    assert run().exit_code == 0
    assert done_days() == DAYS


# Exit codes


class Days:
    """Days that end as they are told to: with a code, or an error."""

    def __init__(self, *endings):
        self.endings = dict(enumerate(endings))
        self.begun = []
        first = datetime.date(2026, 11, 1)
        days = [first + datetime.timedelta(days=i) for i in self.endings]
        self.backfill = Backfill("job.toml", days, self._job_of, self._execute)

    def _job_of(self, day):
        return SimpleNamespace(place=str(day), day=day)

    def _execute(self, job, workers, announce):
        number = job.day.day - 1
        self.begun.append(number)
        ending = self.endings[number]
        announce(job, ending is None)
        if isinstance(ending, BaseException):
            raise ending
        return ending or 0

    def run(self, keep_going):
        return self.backfill.run(cluster.WorkerChoice(SECTION), keep_going=keep_going)


SECTION = SimpleNamespace(scheduler="threads")


@pytest.fixture
def said(caplog):
    """Return a function that gives the lines of all messages so far."""
    caplog.set_level(logging.INFO, logger="lpe_dask.cli")
    return lambda: "\n".join(caplog.messages).splitlines()


@pytest.mark.parametrize("keep_going", [False, True])
@pytest.mark.parametrize(
    ("endings", "code"),
    [
        ((0, None, 0), 0),
        ((0, DRIFTED, REFIT_REJECTED), DRIFTED),
        ((REFIT_REJECTED, 0, 0), REFIT_REJECTED),
        ((DRIFTED, 0, ValueError("odd")), 2),
        ((DRIFTED, 0, RuntimeError("lost")), 1),
    ],
)
def test_code__is_of_the_first_failed_day_or_else_of_the_first_other(
    said, endings, code, keep_going
):
    days = Days(*endings)

    assert days.run(keep_going) == code
    assert days.begun == [0, 1, 2]
    listed = [line for line in said() if "exit code" in line]
    assert len(listed) == sum(ending not in (0, None) for ending in endings)


@pytest.mark.parametrize(
    "error", [ValueError("a"), RuntimeError("b"), DeadlineTimeout("c"), OSError("d")]
)
def test_failed_day__ends_a_range_that_does_not_keep_going(error):
    for keep_going, begun in (False, [0, 1]), (True, [0, 1, 2]):
        days = Days(0, error, ValueError("later"))

        assert days.run(keep_going) in (1, 2)
        assert days.begun == begun


def test_workers_that_are_not_there__end_every_range():
    days = Days(0, UnavailableError("no scheduler answers"), 0)

    assert days.run(keep_going=True) == 75
    assert days.begun == [0, 1]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), Terminated(), StallTimeout("nothing moves")]
)
def test_signals_and_stalls__end_every_range(said, error):
    days = Days(0, error, 0)

    with pytest.raises(type(error)):
        days.run(keep_going=True)

    assert days.begun == [0, 1]
    assert "left: 2026-11-02..2026-11-03. The same" in said()[-1]


def test_list__has_one_line_for_each_failure_and_no_secrets(said):
    days = Days(ValueError("s3://user:hunter2@host/x\nand more " + 500 * "x"), 0)
    days.run(keep_going=True)

    *_, failed, last = said()
    assert failed.startswith("  2026-11-01 failed, exit code 2: s3://")
    assert "hunter2" not in failed
    assert last == "The same command tries again what failed."


# Workers


@pytest.fixture
def opened(monkeypatch):
    """The choices of workers that have been opened, and how many have been closed."""
    found = SimpleNamespace(choices=[], n_closed=0, runs=[])

    @contextmanager
    def start(choice):
        found.choices.append(choice)
        found.runs.append(JsonFormatter.run)
        with dask.config.set(scheduler="sync"):
            yield
        found.n_closed += 1

    monkeypatch.setattr(cluster.WorkerChoice, "_distributed", start)
    return found


def test_workers__are_opened_once_and_not_for_finished_days(opened):
    def in_workers(*options):
        done = invoke("run", "job.toml", "--date", ALL, "--workers", 1, *options)
        assert done.exit_code == 0
        return len(opened.choices), opened.n_closed

    assert in_workers() == (1, 1)
    assert in_workers() == (1, 1)
    assert in_workers("--overwrite") == (2, 2)


def test_workers__are_of_no_day(opened):
    """So that no line of theirs names a day that is over."""
    invoke("run", "job.toml", "--date", ALL, "--workers", 1, "--log-format", "json")
    invoke("run", "job.toml", "--date", DAYS[0], "--workers", 1, "--overwrite")
    assert opened.runs[0] is None
    assert opened.runs[1].endswith(f"/out/{DAYS[0]}")


def test_workers__are_opened_anew_after_a_day_that_failed_at_work(opened, monkeypatch):
    publish = PartFolder.publish

    def fail(folder, *arguments):
        if DAYS[1] in folder.url:
            raise RuntimeError("a worker is ill")
        return publish(folder, *arguments)

    monkeypatch.setattr(PartFolder, "publish", fail)
    command = ("run", "job.toml", "--date", ALL, "--workers", 1, "--keep-going")

    assert invoke(*command).exit_code == 1
    assert (len(opened.choices), opened.n_closed) == (2, 2)
    assert done_days() == DAYS[:1] + DAYS[2:]


def test_shared_workers__are_this_process_until_a_run_needs_others(opened, monkeypatch):
    """What threads do at once has no other workers started for it, but uses those there."""
    monkeypatch.setattr(cluster, "START_SECONDS", 10)
    monkeypatch.setattr(
        "lpe_dask.tasks.worker_pool.memory_of_machine", lambda: 2**33
    )  # so that each fits
    choice = cluster.WorkerChoice(ClusterSection())
    with ExitStack() as stack:
        shared = SharedWorkers(choice, stack)
        in_process = []
        for seconds in (1, 1, 99, 1, 99):
            workers = shared.resolve(lambda seconds=seconds: sized(seconds))
            in_process.append(workers is not shared)
            with workers.open():
                pass
        assert in_process == [True, True, False, False, False]
        assert (len(opened.choices), opened.n_closed) == (1, 0)
    assert opened.n_closed == 1


def sized(seconds):
    return SimpleNamespace(seconds=lambda n_threads: seconds, fit_into=lambda workers: True)


@pytest.mark.cluster
def test_range__leaves_nothing_on_a_cluster_from_day_to_day(client, monkeypatch):
    """Each day begins with a scheduler that knows no task of the days before."""
    prepared, prepare = [], Run.prepare.__func__

    def n_tasks():
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    def prepare_on_idle_cluster(cls, *arguments):
        eventually(lambda: n_tasks() == 0)  # it hears a little later that all is released
        prepared.append(n_tasks())
        return prepare(cls, *arguments)

    monkeypatch.setattr(Run, "prepare", classmethod(prepare_on_idle_cluster))
    address = client.scheduler.address
    gc.disable()  # a command seldom collects, either
    try:
        result = invoke("run", "job.toml", "--date", ALL, "--scheduler", address)
    finally:
        gc.enable()

    assert result.exit_code == 0, result.stderr
    assert (prepared, done_days()) == ([0] * 5, DAYS)


# What is refused


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ("2026-11-05..2026-11-01", "ends before it begins. Write the earlier day first"),
        ("1999-01-01..2026-11-01", "has 10167 days; at most 3660 are allowed"),
        ("2026-11-01..", "is no range of days. Write its first and its last day"),
        ("..2026-11-01", "is no range of days"),
        ("2026-11-01...2026-11-02", "is no range of days"),
        ("2026-11-01..2026-11-02..2026-11-03", "is no range of days"),
        ("2026-11-01..2026-11-31", "is no range of days"),
        ("2026-11-31", "does not match the format"),
    ],
)
def test_range__is_refused(days, said):
    result = run(days)

    assert result.exit_code == 2
    assert said in result.stderr
    assert not Path("out").exists()


def test_keep_going__is_refused_without_a_range():
    result = run(DAYS[0], "--keep-going")

    assert result.exit_code == 2
    assert "--keep-going is for a range of days" in result.stderr


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (JOB.replace("out/{date}", "out"), "[score] output"),
        (JOB.partition("[score]")[0], "[model] path"),
    ],
)
def test_range__is_refused_where_days_would_replace_each_other(text, key):
    Path("job.toml").write_text(text)
    result = run()

    assert result.exit_code == 2
    assert f"{key}: " in result.stderr
    assert 'Write {date} into it, for example "out/{date}"' in result.stderr
    assert not Path("model").exists()


def test_plan__takes_one_day():
    result = invoke("plan", "job.toml", "--date", ALL)

    assert result.exit_code == 2
    assert "does not match the format" in result.stderr


def test_reason__is_cut():
    assert backfill._shorten("a" * 300) == "a" * 200 + " ..."
    assert backfill._shorten("first\nsecond") == "first"

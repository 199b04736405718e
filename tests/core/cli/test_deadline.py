"""Runs that would not be done in time: refused before, ended early, or late and said so."""

import json
import math
import re
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dask
import pandas as pd
import pytest

from calling import SCORE, THREADS, invoke, write_tables
from lpe_dask.batch.parts import PartFolder
from lpe_dask.cli import deadline as deadlines
from lpe_dask.cli import interrupts
from lpe_dask.cli.cluster import WorkerChoice
from lpe_dask.cli.deadline import HALF, TENTH, Deadline, RateCheck
from lpe_dask.tasks import Computation, RowCount, Workers, seconds_of

N_THREADS = 2
WORKERS = Workers(N_THREADS, 1, 2**33)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Rows:
    """A computation whose results come at known times, of 10 rows each."""

    def __init__(self, verb="scored", n_results=100, is_counted=True):
        total = 10 * n_results if is_counted else None
        self.computation = Computation(n_results, RowCount(verb, lambda n: n, total))

    def come(self, check, clock, times):
        """Let a result come at each time; returns the share that was done at the end."""
        check.listen(self.computation)
        for seconds in times:
            clock.now = 1000.0 + seconds
            self.computation.add(10)
            check.listen(self.computation)
            if check.ended:
                break
        return self.computation.n_done / self.computation.n_results


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def checking(monkeypatch, clock):
    """A function that makes a check of a deadline, which notes why it ends the run."""

    def check(seconds, later=0.0, larger=()):
        made = RateCheck(Deadline(seconds, clock), WORKERS, lambda than: larger)
        made.deadline.later["measured"] = later
        made.ended = []
        monkeypatch.setattr(deadlines, "interrupt_main", made.ended.append)
        return made

    return check


def steady(seconds, n_results=100, start=0.0):
    """Times of results that come one after the other until some seconds after a start."""
    return [start + seconds * (i + 1) / n_results for i in range(n_results)]


def in_pairs(seconds, n_results=100):
    """Times of results of two threads, which come at the same time."""
    times = steady(seconds, n_results)
    return [
        min(times[-1], times[i] + (1 - i % 2) * seconds / n_results)
        for i in range(n_results)
    ]


# The rate of the first rows


@pytest.mark.parametrize("pace", [steady, in_pairs])
@pytest.mark.parametrize("n_results", [10, 100])
@pytest.mark.parametrize("is_counted", [True, False])
def test_rate__ends_a_run_that_is_too_slow(checking, clock, pace, n_results, is_counted):
    check, rows = checking(1000), Rows("scored", n_results, is_counted)

    share = rows.come(check, clock, pace(3000, n_results))

    assert TENTH <= share <= HALF
    (reason,) = check.ended
    assert f"within 0:16:40 of its start (--finish-within), but {share:.0%}" in str(reason)
    assert "start the same run again to resume" in str(reason)


@pytest.mark.parametrize("verb", ["measured", "scored"])
@pytest.mark.parametrize("pace", [steady, in_pairs])
@pytest.mark.parametrize("n_results", [3, 10, 100])
def test_rate__lets_be_what_is_done_in_time(checking, clock, pace, n_results, verb):
    check, rows = checking(1000), Rows(verb, n_results)

    assert rows.come(check, clock, pace(995, n_results)) == 1
    assert check.ended == []


def test_rate__is_not_that_of_what_comes_before_the_first_result(checking, clock):
    """The blocks of all nominal rows are made first, or a kernel is compiled."""
    check, rows = checking(1000), Rows()

    assert rows.come(check, clock, steady(400, start=590)) == 1
    assert check.ended == []


def test_rate__of_nominal_rows_leaves_time_for_what_comes_later(checking, clock):
    check, rows = checking(1000, later=1600), Rows("measured")
    rows.come(check, clock, steady(600))
    assert len(check.ended) == 1

    check, rows = checking(1000, later=800), Rows("measured")
    clock.now = 1000.0
    rows.come(check, clock, steady(600))
    assert check.ended == []


def test_rate__that_falls_later_ends_nothing(checking, clock):
    check, rows = checking(1000), Rows()
    times = steady(900)
    slower = [*times[:51], *(times[50] + 300 * i for i in range(1, 50))]

    assert rows.come(check, clock, slower) == 1
    assert check.ended == []


def test_rate__is_that_of_each_computation(checking, clock):
    check = checking(1000)
    rows = Rows("measured")
    rows.come(check, clock, steady(300))
    rows.computation.is_open = False
    check.listen(rows.computation)
    check.listen(Computation(7))  # of no rows

    Rows("scored").come(check, clock, steady(3000, start=300))

    assert len(check.ended) == 1
    assert "of the rows are scored" in str(check.ended[0])


def test_remedies_of_a_slow_run__are_enough_to_resume_it(checking, clock):
    """The rows that are done are not done again, but all that comes before them is."""
    larger = [(f"{n} times the workers", Workers(2 * n, 1, 2**33)) for n in (2, 4, 8)]
    check, rows = checking(1000, larger=larger), Rows()
    share = rows.come(check, clock, steady(3000, start=100))

    text = str(check.ended[0])
    given = re.search(r"with --finish-within (\w+), or with (\d) times the workers", text)
    left = round(100 * (1 - share))
    seconds_a_result = 30.0
    for seconds, factor in (seconds_of(given[1]), 1), (1000, int(given[2])):
        check, clock.now = checking(seconds), 1000.0
        needed = left * seconds_a_result / factor
        assert 100 + needed <= seconds
        Rows("scored", left).come(check, clock, steady(needed, left, start=100))
        assert check.ended == []


def test_fit_after_the_rows_are_scored__is_not_ended(checking, clock):
    """A model that is fitted again by policy."""
    check, rows = checking(1000), Rows("scored")
    rows.come(check, clock, steady(300))
    rows.computation.is_open = False
    check.listen(rows.computation)

    Rows("measured").come(check, clock, steady(9000, start=300))
    check.time_is_over()

    assert check.ended == []


# The deadline itself


@pytest.mark.parametrize(
    ("n_done", "is_open", "n_ended"),
    [(0, True, 1), (9, True, 1), (10, True, 0), (0, False, 0)],
)
def test_end_of_the_time__ends_what_has_not_done_a_tenth(
    checking, clock, n_done, is_open, n_ended
):
    check, rows = checking(1e9), Rows()
    rows.come(check, clock, steady(1)[:n_done])
    rows.computation.is_open = is_open
    check.listen(rows.computation)

    check.time_is_over()

    assert len(check.ended) == n_ended
    assert all("a tenth of the rows is not scored by now" in str(of) for of in check.ended)


def test_end_of_the_time__ends_a_run_that_has_not_begun_with_rows(checking):
    check = checking(1)
    check.time_is_over()

    assert "but no row is done by now" in str(check.ended[0])


def test_watched__ends_a_run_at_its_deadline(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(deadlines, "interrupt_main", lambda reason: ended.set())

    with Deadline(0.05).watched(SimpleNamespace(larger=None)):
        assert ended.wait(20)


def test_watched__asks_for_nothing_without_a_deadline():
    with Deadline(math.inf).watched(SimpleNamespace()) as listen:
        listen(Computation(3))
        assert not [of for of in threading.enumerate() if isinstance(of, threading.Timer)]


def test_late__is_said_with_by_how_much(clock, caplog):
    deadline = Deadline(60.0, clock)
    deadline.show_late()
    assert caplog.messages == []

    clock.now += 200
    deadline.show_late()
    assert caplog.messages == [
        "done 2.3 minutes too late: it is to be done within 0:01:00 of its start "
        "(--finish-within)"
    ]


# Commands


JOB = """
[nominal]
data = "nominal.parquet"
[model]
path = "model"
[score]
data = "data.parquet"
output = "out"
report = false
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A current folder with tables, and a job that is to be done within 1 ms."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    Path("job.toml").write_text(f"{JOB}[cluster]\nfinish_within = '1ms'\n")


COMMANDS = {
    "score": (*SCORE, "--finish-within", "1ms"),
    "fit": ("fit", "nominal.parquet", "--model", "model", "--finish-within", "1ms"),
    "run": ("run", "job.toml"),
    "range": ("run", "job.toml", "--date", "2026-11-01..2026-11-01"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("workers", [(), ("--workers", 1), THREADS])
def test_deadline__refuses_before_workers_are_started(files, monkeypatch, name, workers):
    monkeypatch.setattr(WorkerChoice, "_distributed", lambda choice: pytest.fail("started"))
    result = invoke(*COMMANDS[name], *workers)

    assert result.exit_code == 2
    assert re.search(
        r"Error: the run is to be done within 0:00:00.001000 of its start "
        r"\(--finish-within\), but is forecast to take about .* more time, "
        r"--finish-within \d+s\.\n",
        result.stderr,
    )
    assert not Path("out").exists()
    assert not Path("model").exists()


def test_deadline__refuses_what_a_cluster_would_do(files, client):
    result = invoke(*COMMANDS["score"], "--scheduler", client.scheduler.address)

    assert result.exit_code == 2
    assert "is forecast to take about" in result.stderr
    assert not Path("out").exists()


def test_deadline__that_is_far_away_changes_nothing(files):
    job = invoke("run", "job.toml", *THREADS, "--finish-within", "10h")

    assert job.exit_code == 0, job.stderr
    assert "late" not in job.stderr
    assert "forecast" not in job.stderr
    assert invoke("run", "job.toml").exit_code == 0  # nothing is to be done


def test_deadline__of_one_that_may_be_late_is_said(files, monkeypatch):
    monkeypatch.setattr("lpe_dask.forecast.check_in_time", forecast_of(30.0))
    result = invoke(*SCORE, *THREADS, "--finish-within", "20s")

    assert result.exit_code == 0
    assert (
        "the run is forecast to take about 30 s, and is to be done within 0:00:20 of its "
        "start (--finish-within): whether it is shows after a tenth of the rows\n"
    ) in result.stderr


@pytest.mark.parametrize("value", ["0h", "-1h", "soon", "", "2"])
def test_deadline__is_refused_if_it_is_no_time(files, value):
    result = invoke(*SCORE, *THREADS, "--finish-within", value)

    assert result.exit_code == 2
    assert (
        f"--finish-within='{value}' must be a time above 0, as a text with its unit or in "
        f'seconds. For example: --finish-within="2h".'
    ) in result.stderr


def forecast_of(seconds):
    """Return a check before the start that any run passes."""
    found = SimpleNamespace(seconds=seconds, scoring_seconds=0.0)
    return lambda *given: found


@pytest.fixture
def slow_rows(tmp_path, monkeypatch):
    """40 parts, each of which takes ten minutes by a clock."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    table = pd.read_parquet("data.parquet")
    Path("data").mkdir()
    for i in range(40):
        table.to_parquet(f"data/{i:02d}.parquet")
    clock, publish = Clock(), PartFolder.publish

    def publish_late(folder, *arguments):
        clock.now += 600
        return publish(folder, *arguments)

    monkeypatch.setattr(PartFolder, "publish", publish_late)
    monkeypatch.setattr(deadlines, "Deadline", partial(Deadline, clock=clock))
    monkeypatch.setattr("lpe_dask.forecast.check_in_time", forecast_of(1.0))
    yield clock
    interrupts._reasons.clear()


def test_slow_run__is_ended_and_resumed(slow_rows, caplog):
    command = (SCORE[0], "data", *SCORE[2:], *THREADS)
    with dask.config.set(num_workers=1):
        result = invoke(*command, "--finish-within", "2h")

    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: the run was ended, as it is to be done within 2:00:00")
    n_parts = len(list(Path("out").glob("part-*")))
    assert 4 <= n_parts <= 20
    assert not Path("out/_summary.json").exists()

    given = re.search(r"with --finish-within (\w+)", error)[1]
    with dask.config.set(num_workers=1):
        again = invoke(*command, "--finish-within", given)
    assert again.exit_code == 0, again.stderr
    assert "an earlier run has done a part" in again.stderr
    assert f"{n_parts} of 40 parts exist already" in again.stderr
    assert "late" not in again.stderr
    assert json.loads(Path("out/_summary.json").read_text())["rows"] == 40 * 20


def test_late_run__is_done_and_says_so(slow_rows, monkeypatch):
    monkeypatch.setattr(RateCheck, "listen", lambda check, computation: None)
    command = (SCORE[0], "data", *SCORE[2:], *THREADS)
    result = invoke(*command, "--finish-within", "2h")

    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1].startswith("done 4.7 hours too late: it is to")


@pytest.fixture
def three_days():
    """A job and the rows of three days."""
    table = pd.read_parquet("data.parquet")
    Path("job.toml").write_text(
        JOB.replace("data.parquet", "{date}.parquet").replace('"out"', '"out/{date}"')
    )
    for day in (1, 2, 3):
        table.to_parquet(f"2026-11-0{day}.parquet")
    return ("run", "job.toml", "--date", "2026-11-01..2026-11-03")


def test_days_of_a_range__have_the_time_each(slow_rows, three_days):
    result = invoke(*three_days, *THREADS, "--finish-within", "15min")

    assert result.exit_code == 0, result.stderr
    assert "late" not in result.stderr


def test_days_of_a_range__are_forecast_for_workers_that_have_started(
    files, three_days, monkeypatch
):
    starts, passing = [], forecast_of(1.0)

    def check(run, choose, left, limit, larger):
        workers = choose(None)
        starts.append(workers.start_seconds)
        assert list(larger(workers)) == []  # all cores work
        return passing()

    monkeypatch.setattr("lpe_dask.forecast.check_in_time", check)
    in_process = dask.config.set(scheduler="sync")
    monkeypatch.setattr(WorkerChoice, "_distributed", lambda choice: in_process)
    result = invoke(*three_days, "--workers", 1, "--finish-within", "10h")

    assert result.exit_code == 0, result.stderr
    assert starts == [10.0, 0.0, 0.0]

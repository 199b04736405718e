"""What happens where no task is done: a line a minute, and an end."""

import asyncio
import logging
import math
import threading
import time

import pytest

from lpe_dask.cli import stall_detection
from lpe_dask.cli.stall_detection import StallDetector, detect_stalls
from lpe_dask.kernels import compilation
from lpe_dask.tasks import Computation, compute, new_tasks
from waiting import eventually

AT_WORK = {"tcp://a:1": ["x", "y", "z"], "tcp://b:1": []}


class Run:
    """A detector with a clock, and when it gave up."""

    def __init__(self, monkeypatch, answer=AT_WORK, give_up_after=math.inf):
        self.now = 0.0
        self.answer = answer
        self.n_notices = 0
        self.given_up = []
        monkeypatch.setattr(stall_detection, "interrupt_main", self._give_up)
        ask = None if answer == "this process" else self._ask
        self.detector = StallDetector(ask, give_up_after, lambda: self.now)
        self.computation = Computation(7)
        self.detector.listen(self.computation)

    def _ask(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer, self.n_notices

    def _give_up(self, reason):
        self.given_up.append((self.now, str(reason)))

    def check_until(self, seconds):
        while self.now < seconds:
            self.now += 10
            self.detector.check()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="lpe_dask.cli.stall_detection")
    return lambda: caplog.messages


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (AT_WORK, ", workers: 2; tasks at tcp://a:1: 3; tasks at tcp://b:1: 0"),
        ({}, ", workers: 0; start some, or wait until the cluster does"),
        (OSError("connection lost"), "; the scheduler does not answer"),
        (asyncio.CancelledError(), "; the scheduler does not answer"),
        ("this process", ", in this process"),
    ],
)
def test_stall__is_told_each_minute(monkeypatch, lines, answer, state):
    Run(monkeypatch, answer).check_until(140)

    assert lines() == [
        f"no task was done for 0:0{minutes}:00: results that are open: 7{state}"
        for minutes in (1, 2)
    ]


@pytest.mark.parametrize("moves", ["a result", "another task at work"])
def test_stall__ends_with_what_moves(monkeypatch, lines, moves):
    run = Run(monkeypatch)
    for i in range(1, 6):
        run.check_until(50 * i)
        if moves == "a result":
            run.detector.listen(run.computation)
        else:
            run.answer = {"tcp://a:1": [f"task-{i}"]}

    assert lines() == []


def test_stall__begins_anew_with_a_notice_of_a_worker(monkeypatch, lines):
    """It compiles, and has said so."""
    run = Run(monkeypatch)
    run.check_until(50)
    run.n_notices = 1
    run.check_until(100)
    assert lines() == []
    run.check_until(120)

    assert [line.partition(":")[0] for line in lines()] == ["no task was done for 0"]


def test_stall__is_none_while_this_process_compiles(monkeypatch, lines):
    monkeypatch.setattr(compilation.compiler, "is_compiling", True)
    Run(monkeypatch, "this process").check_until(1000)

    assert lines() == []


def test_stall__is_none_while_nothing_is_computed(monkeypatch, lines):
    run = Run(monkeypatch, give_up_after=100)
    run.computation.is_open = False
    run.check_until(1000)

    assert lines() == []
    assert run.given_up == []


def test_stall__is_given_up(monkeypatch):
    run = Run(monkeypatch, give_up_after=90)
    run.check_until(170)

    ((when, reason),) = run.given_up
    assert when == 100  # the first check saw what is at work
    assert "results that are open: 7, workers: 2" in reason
    assert "start the same run again to resume" in reason


@pytest.mark.cluster
def test_detect_stalls__sees_what_is_at_work_on_a_cluster(client, monkeypatch, lines):
    monkeypatch.setattr(stall_detection, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(stall_detection, "QUERY_SECONDS", 0.05)

    with detect_stalls(math.inf) as detect, Computation.observed(detect):
        compute(*new_tasks("slow", [(time.sleep, 2)]))

    assert any("workers: 2; tasks at tcp://" in line for line in lines())
    assert "lpe-stall-detection" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.cluster
def test_detect_stalls__does_not_wait_long_for_the_last_answer(client, monkeypatch):
    asked, answer = threading.Event(), threading.Event()
    monkeypatch.setattr(stall_detection, "QUERY_SECONDS", 0.01)
    monkeypatch.setattr(stall_detection, "LAST_QUERY_SECONDS", 0.1)
    monkeypatch.setattr(client, "sync", lambda *args, **kw: asked.set() or answer.wait(30))

    began = time.monotonic()
    with detect_stalls(math.inf) as detect:
        detect(Computation(1))
        assert eventually(asked.is_set)
    seconds = time.monotonic() - began
    answer.set()

    assert seconds < 10

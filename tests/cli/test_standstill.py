"""What happens where nothing moves: a line a minute, help for the workers, and an end."""

import logging
import math

import dask
import pytest

from lpe_dask.cli import standstill
from lpe_dask.cli.standstill import Standstill
from lpe_dask.tasks import Look

#: Of a run in which nothing moves.
STILL = Look(n_open=7, n_workers=2, holders=[("tcp://a:1", 3, 4.2)])


CLUSTER = object()


class Run:
    """A standstill with a clock, and what it did."""

    def __init__(self, monkeypatch, give_up_after=math.inf, client=CLUSTER):
        self.now = 0.0
        self.done = []
        self.separates = False
        for name in ("restart_silent", "separate", "interrupt_main"):
            monkeypatch.setattr(standstill, name, self.note(name))
        self.standstill = Standstill(client, give_up_after, lambda: self.now)

    def note(self, name):
        def noting(*args):
            self.done.append((self.now, name))
            return self.separates

        return noting

    def see(self, look, until):
        while self.now < until:
            self.now += 10
            self.standstill.see(look)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="lpe_dask.cli.standstill")
    return lambda: caplog.messages


def test_standstill__is_told_each_minute(monkeypatch, lines):
    run = Run(monkeypatch)
    run.see(STILL, 130)

    assert lines() == [
        f"no task was done for 0:0{minutes}:00: 7 are open, workers: 2; tcp://a:1 has 3 "
        f"(last heartbeat 4 s ago)"
        for minutes in (1, 2)
    ]
    assert run.done == [(60, "restart_silent"), (120, "restart_silent"), (120, "separate")]


def test_standstill__is_ended_sooner_where_workers_were_separated_before(monkeypatch):
    run = Run(monkeypatch)
    run.separates = True
    run.see(STILL, 120)
    run.see(Look(n_finished=1, n_open=7), 130)
    run.see(STILL, 250)

    assert [when for when, what in run.done if what == "separate"] == [120, 200]


def test_standstill__ends_with_a_task_that_is_done(monkeypatch, lines):
    run = Run(monkeypatch)
    for n_finished in range(5):
        run.see(Look(n_finished=n_finished, n_open=7), 50 * (n_finished + 1))

    assert lines() == []


def test_standstill__is_none_while_no_task_is_open(monkeypatch, lines):
    Run(monkeypatch, give_up_after=100).see(Look(), 1000)

    assert lines() == []


@pytest.mark.parametrize(
    ("look", "state"),
    [
        (None, "the scheduler does not answer"),
        (Look(n_open=3), "3 are open, workers: 0; start some"),
    ],
)
def test_standstill__of_silence_and_without_workers(monkeypatch, lines, look, state):
    run = Run(monkeypatch)
    run.see(look, 60)

    assert f"no task was done for 0:01:00: {state}" in lines()[0]
    assert run.done == ([] if look is None else [(60, "restart_silent")])


def test_standstill__gives_up(monkeypatch):
    run = Run(monkeypatch, give_up_after=90)
    run.see(STILL, 170)

    assert [when for when, what in run.done if what == "interrupt_main"] == [90]


def test_standstill__of_this_process_has_no_workers_to_look_after(monkeypatch, lines):
    run = Run(monkeypatch, client=None)
    run.see(Look(n_open=1), 120)

    assert lines()[0] == "no task was done for 0:01:00: 1 are open in this process"
    assert run.done == []


def test_standstill__takes_its_patience_from_the_configuration(monkeypatch, lines):
    with dask.config.set({"lpe-dask.timeouts.standstill": "2min"}):
        run = Run(monkeypatch)
    run.see(STILL, 130)

    assert [line[:26] for line in lines()] == ["no task was done for 0:02:"]

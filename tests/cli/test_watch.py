"""What is shown while a run computes, and that watching never stands in its way."""

import asyncio
import io
import logging
import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import dask
import pytest
from distributed import Client, LocalCluster
from rich.console import Console

from lpe_dask.cli import progress
from lpe_dask.cli import watch as watching
from lpe_dask.cli.watch import watch
from lpe_dask.tasks import Look


@pytest.fixture
def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


@pytest.fixture
def records(caplog):
    """What is logged where there is no terminal."""
    caplog.set_level(logging.INFO, logger="lpe_dask.cli")
    return caplog


def tiles(n, search="0a1b" * 8, seconds=0.0):
    """Tasks that are named like the tiles of one search."""
    return [
        dask.delayed(time.sleep)(seconds, dask_key_name=(f"lpe-join-{search}", i))
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def client():
    options = {
        "protocol": "tcp://",
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    }
    with (
        LocalCluster(
            processes=False, n_workers=1, threads_per_worker=2, **options
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


# Schedulers of this process


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_watch__counts_on_local_schedulers(terminal, scheduler):
    other = dask.delayed(abs)(-1)

    with watch(console=terminal):
        dask.compute(*tiles(5, "a"), other, scheduler=scheduler)
        dask.compute(*tiles(3, "b"), scheduler=scheduler)

    text = terminal.file.getvalue()
    assert "0 of 5 tiles" in text
    assert "3 of 3 tiles" in text


def test_watch__says_nothing_where_nothing_is_measured(terminal, records):
    with watch(console=terminal), watch(console=Console(file=io.StringIO())):
        dask.compute(dask.delayed(abs)(-1), scheduler="sync")

    assert "tiles" not in terminal.file.getvalue()
    assert records.messages == []


@pytest.mark.parametrize(
    ("seconds", "logged"),
    [(0.0, ["0 of 3", "1 of 3", "2 of 3", "3 of 3"]), (99.0, ["3 of 3"])],
)
def test_watch__logs_where_there_is_no_terminal(records, monkeypatch, seconds, logged):
    monkeypatch.setattr(progress, "LOG_SECONDS", seconds)

    with watch(console=Console(file=io.StringIO())):
        dask.compute(*tiles(3), scheduler="sync")

    assert records.messages == [f"measured {counts} tiles" for counts in logged]


def test_watch__writes_to_standard_error(capsys, records):
    with watch(), dask.config.set(scheduler="sync"):
        dask.compute(*tiles(1))

    assert capsys.readouterr().out == ""
    assert records.messages == ["measured 1 of 1 tiles"]


def test_watch__lets_errors_pass(terminal):
    with pytest.raises(ZeroDivisionError), watch(console=terminal):
        dask.compute(dask.delayed(divmod)(1, 0), scheduler="sync")


# A cluster


@pytest.mark.cluster
def test_watch__polls_a_cluster(client, terminal, monkeypatch):
    monkeypatch.setattr(watching, "LINE_SECONDS", 0.02)

    with watch(console=terminal):
        client.gather(client.compute(tiles(8, seconds=0.1)))

    text = terminal.file.getvalue()
    assert "0 of 8 tiles" in text or "2 of 8 tiles" in text
    assert "8 of 8 tiles" in text
    assert "lpe-watch" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.cluster
def test_watch__does_not_take_a_failed_search_for_done(client, records, monkeypatch):
    monkeypatch.setattr(watching, "LINE_SECONDS", 0.02)
    lost = dask.delayed(divmod)(1, 0)

    with pytest.raises(ZeroDivisionError), watch(console=Console(file=io.StringIO())):
        client.gather(client.compute([*tiles(8, "2c3d" * 8, seconds=0.1), lost]))

    assert not any("8 of 8" in message for message in records.messages)


class Deaf:
    """An observation of a scheduler that does not answer, or late."""

    client = object()
    last = Look()

    def __init__(self, answer):
        self.answer = answer
        self.asked = threading.Event()

    def look(self):
        self.asked.set()
        return self.answer()


def watch_deaf(monkeypatch, answer):
    deaf = Deaf(answer)
    monkeypatch.setattr(watching, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(watching, "observed", lambda: nullcontext(deaf))
    return deaf


@pytest.mark.parametrize("error", [OSError("connection lost"), asyncio.CancelledError()])
def test_watch__survives_a_scheduler_that_does_not_answer(terminal, monkeypatch, error):
    def refuse():
        raise error

    deaf = watch_deaf(monkeypatch, refuse)
    with watch(console=terminal):
        assert deaf.asked.wait(10)

    assert "lpe-watch" not in [thread.name for thread in threading.enumerate()]


def test_watch__does_not_wait_long_for_the_last_answer(terminal, monkeypatch):
    answer = threading.Event()
    deaf = watch_deaf(monkeypatch, lambda: answer.wait(30) and Look())
    monkeypatch.setattr(watching, "LAST_LOOK_SECONDS", 0.1)

    began = time.monotonic()
    with watch(console=terminal):
        deaf.asked.wait(10)
    seconds = time.monotonic() - began
    answer.set()

    assert seconds < 10


def test_watch__tells_who_comes_and_goes(records, monkeypatch):
    looks = [
        Look(n_workers=2, events=[("joined", "tcp://a:1"), ("joined", "tcp://b:1")]),
        Look(n_workers=1, n_lost=1, n_repeated=3, events=[("lost", "tcp://a:1")]),
        Look(
            n_workers=5, n_repeated=3, events=[("joined", f"tcp://{i}:1") for i in "cdef"]
        ),
    ]
    ended = threading.Event()

    def answer():
        if not looks:
            ended.set()
            return replace(Deaf.last, events=[])
        Deaf.last = looks.pop(0)
        return Deaf.last

    monkeypatch.setattr(Deaf, "last", Look())
    monkeypatch.setattr(watching, "LOG_SECONDS", 0.01)
    watch_deaf(monkeypatch, answer)
    with watch(console=Console(file=io.StringIO())):
        assert ended.wait(10)

    assert records.messages == [
        "joined: tcp://a:1, tcp://b:1; workers: 2",
        "lost: tcp://a:1; workers: 1",
        "tasks done again, as their workers are gone: 3",
        "joined: 4 workers; workers: 5",
    ]

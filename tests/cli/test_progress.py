"""What is shown while a search runs, and that it never stands in its way."""

import asyncio
import io
import logging
import threading
import time
from types import SimpleNamespace

import dask
import pytest
from distributed import Client, LocalCluster
from rich.console import Console

from lpe_dask.cli import progress
from lpe_dask.cli.progress import Tally, count_tiles, show_progress


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shown(clock):
    """A tally and the list of what it has shown."""
    lines = []
    return Tally(lambda search, now: lines.append(search.describe(now)), clock), lines


@pytest.fixture
def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


@pytest.fixture
def records(caplog):
    """What is logged where there is no terminal."""
    caplog.set_level(logging.INFO, logger="lpe_dask.cli.progress")
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


# Counting


def test_tally__shows_rate_and_time_left(shown, clock):
    tally, lines = shown

    tally.put("a", 0, 40)
    clock.now += 5
    tally.put("a", 10, 40)

    assert lines == ["0 of 40 tiles", "10 of 40 tiles, 2.00/s, 0:00:15 left"]


def test_tally__shows_rows_where_they_are_known(shown, clock):
    tally, lines = shown

    tally.expect(2_000_000)
    tally.put("a", 0, 40)
    clock.now += 5
    tally.put("a", 10, 40)
    tally.expect(None)
    tally.put("b", 1, 3)

    assert lines == [
        "0 of 40 tiles, 0 of 2,000,000 rows",
        "10 of 40 tiles, 500,000 of 2,000,000 rows, 100,000 rows/s, 0:00:15 left",
        "1 of 3 tiles",
    ]


def test_tally__shows_no_rate_before_it_means_something(shown, clock):
    tally, lines = shown

    tally.put("a", 0, 4)
    clock.now += 0.1
    tally.put("a", 3, 4)

    assert lines[-1] == "3 of 4 tiles"


def test_tally__lets_the_time_left_run_between_tiles(clock):
    searches = []
    tally = Tally(lambda search, now: searches.append(search), clock)
    tally.put("a", 0, 4)
    clock.now += 10
    tally.put("a", 2, 4)

    later = [searches[-1].describe(clock.now + seconds) for seconds in (0, 4, 400)]

    assert [text.split(", ")[-1] for text in later] == [
        "0:00:10 left",
        "0:00:06 left",
        "0:00:00 left",
    ]


def test_tally__shows_only_what_moved(shown):
    tally, lines = shown

    for done in (0, 0, 1, 1):
        tally.put("a", done, 2)

    assert len(lines) == 2


def test_tally__counts_forgotten_tiles_as_done(shown):
    """A scheduler lets go of results that have been used, then of the whole search."""
    tally, lines = shown

    tally.put_open({"a": (4, 4)})
    tally.put_open({"a": (2, 3)})
    tally.put_open({"b": (1, 1)})

    assert lines == ["0 of 4 tiles", "2 of 4 tiles", "4 of 4 tiles", "0 of 1 tiles"]


@pytest.mark.parametrize(
    ("key", "search"),
    [
        (("lpe-join-0a1b", 3, 0), "0a1b"),
        ("lpe-join-0a1b-3", "0a1b"),
        ("lpe-walk-0a1b-300", "0a1b"),
        ("lpe-join", ""),
        ("lpe-joiner-0a1b", None),
        (("lpe-pack-0a1b", 3), None),
        (7, None),
    ],
)
def test_count_tiles__tells_tiles_from_other_tasks(key, search):
    states = {"waiting": 1, "no-worker": 2, "queued": 3, "processing": 4}
    states |= {"memory": 5, "released": 6, "erred": 0, "forgotten": 7}
    name = key[0] if isinstance(key, tuple) else key
    group = SimpleNamespace(name=name, states=states)
    scheduler = SimpleNamespace(task_prefixes={"lpe-join": SimpleNamespace(groups=[group])})

    counts = count_tiles(scheduler)

    assert counts == ({} if search is None else {search: (10, 21)})


def test_count_tiles__finds_none_on_a_new_scheduler():
    assert count_tiles(SimpleNamespace(task_prefixes={})) == {}


# Schedulers of this process


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_show_progress__counts_on_local_schedulers(terminal, scheduler):
    other = dask.delayed(abs)(-1)

    with show_progress(terminal):
        dask.compute(*tiles(5, "a"), other, scheduler=scheduler)
        dask.compute(*tiles(3, "b"), scheduler=scheduler)

    text = terminal.file.getvalue()
    assert "0 of 5 tiles" in text
    assert "3 of 3 tiles" in text


def test_show_progress__says_nothing_where_nothing_is_measured(terminal, records):
    with show_progress(terminal), show_progress(Console(file=io.StringIO())):
        dask.compute(dask.delayed(abs)(-1), scheduler="sync")

    assert "tiles" not in terminal.file.getvalue()
    assert records.messages == []


@pytest.mark.parametrize(
    ("seconds", "logged"),
    [(0.0, ["0 of 3", "1 of 3", "2 of 3", "3 of 3"]), (99.0, ["3 of 3"])],
)
def test_show_progress__logs_where_there_is_no_terminal(
    records, monkeypatch, seconds, logged
):
    monkeypatch.setattr(progress, "LOG_SECONDS", seconds)

    with show_progress(Console(file=io.StringIO())):
        dask.compute(*tiles(3), scheduler="sync")

    assert records.messages == [f"measured {counts} tiles" for counts in logged]


def test_show_progress__writes_to_standard_error(capsys, records):
    with show_progress(), dask.config.set(scheduler="sync"):
        dask.compute(*tiles(1))

    assert capsys.readouterr().out == ""
    assert records.messages == ["measured 1 of 1 tiles"]


def test_show_progress__lets_errors_pass(terminal):
    with pytest.raises(ZeroDivisionError), show_progress(terminal):
        dask.compute(dask.delayed(divmod)(1, 0), scheduler="sync")


# A cluster


@pytest.mark.cluster
def test_show_progress__polls_a_cluster(client, terminal, monkeypatch):
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.02)

    with show_progress(terminal):
        client.gather(client.compute(tiles(8, seconds=0.1)))

    text = terminal.file.getvalue()
    assert "0 of 8 tiles" in text or "2 of 8 tiles" in text
    assert "8 of 8 tiles" in text
    assert "lpe-progress" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.cluster
def test_show_progress__does_not_take_a_failed_search_for_done(
    client, records, monkeypatch
):
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.02)
    lost = dask.delayed(divmod)(1, 0)

    with pytest.raises(ZeroDivisionError), show_progress(Console(file=io.StringIO())):
        client.gather(client.compute([*tiles(8, "2c3d" * 8, seconds=0.1), lost]))

    assert not any("8 of 8" in message for message in records.messages)


@pytest.mark.parametrize("error", [OSError("connection lost"), asyncio.CancelledError()])
def test_show_progress__survives_a_scheduler_that_does_not_answer(
    terminal, monkeypatch, error
):
    asked = threading.Event()

    def refuse(function):
        asked.set()
        raise error

    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    client = SimpleNamespace(run_on_scheduler=refuse)
    monkeypatch.setattr(progress, "active_client", lambda: client)

    with show_progress(terminal):
        assert asked.wait(10)

    assert "lpe-progress" not in [thread.name for thread in threading.enumerate()]


def test_show_progress__does_not_wait_long_for_the_last_answer(terminal, monkeypatch):
    answer, asked = threading.Event(), threading.Event()

    def wait(function):
        asked.set()
        answer.wait(30)
        return {}

    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(progress, "LAST_POLL_SECONDS", 0.1)
    client = SimpleNamespace(run_on_scheduler=wait)
    monkeypatch.setattr(progress, "active_client", lambda: client)

    began = time.monotonic()
    with show_progress(terminal):
        asked.wait(10)
    seconds = time.monotonic() - began
    answer.set()

    assert seconds < 10

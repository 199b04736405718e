"""What is seen of the workers of a run, and told in its summary."""

import os
import signal
import time
from types import SimpleNamespace

import dask
import pytest
from distributed import Client

from lpe_dask.tasks import (
    compute,
    new_tasks,
    observed,
    observed_counts,
    peak_worker_bytes,
)
from waiting import eventually

NOTHING = {"workers_lost": 0, "tasks_repeated": 0, "bytes_spilled": 0}


def test_observed__sees_nothing_without_a_cluster():
    with observed() as observation, dask.config.set(scheduler="sync"):
        compute(*new_tasks("plain", [(int, 1)]))

        assert observed_counts() == NOTHING
        assert not observation.look().events


def killed_once(file):
    """Kill the process that runs this, the first time."""
    if not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


@pytest.mark.cluster
def test_observed__counts_what_is_lost_and_done_again(client, tmp_path):
    with observed() as observation:
        tasks = [(killed_once, tmp_path / "killed"), *[(int, i) for i in range(9)]]
        compute(*new_tasks("killed", tasks))

        counts = observed_counts()
        assert counts["workers_lost"] == 1
        assert 1 <= counts["tasks_repeated"] <= 9
        assert eventually(lambda: observation.look().n_workers == 2)
        assert observation.last.n_finished == 10
        assert observation.last.n_open == 0

    assert observed_counts() == NOTHING
    assert client.run_on_scheduler(left_over) == []


def left_over(dask_scheduler):
    """Return the names under which observers are still known."""
    known = [*dask_scheduler.plugins, *dask_scheduler.handlers]
    return [name for name in known if name.startswith("lpe-")]


@pytest.mark.cluster
def test_observed__tells_each_event_once(client):
    with observed() as observation, observed() as inner:
        assert inner is observation
        address = next(iter(client.scheduler_info()["workers"]))
        client.retire_workers([address])
        assert ("left", address) in observation.look().events
        assert not observation.look().events
        assert observation.last.n_lost == 0
        client.cluster.scale(3)  # so that others find two
        client.wait_for_workers(2)


@pytest.mark.cluster
def test_observed__names_who_holds_a_run_up(client):
    with observed() as observation:
        futures = client.map(time.sleep, [2.0, 2.1], pure=False)
        assert eventually(lambda: len(observation.look().holders) == 2)
        (address, n_tasks, silence), _ = observation.last.holders
        client.cancel(futures)

    assert address in client.scheduler_info()["workers"]
    assert n_tasks == 1
    assert 0 <= silence < 10


@pytest.mark.cluster
def test_observed__counts_the_tasks_of_its_client_alone(client, cluster):
    with Client(cluster, set_as_default=False) as other, observed() as observation:
        stuck = other.map(time.sleep, [2, 2, 2], pure=False)
        assert eventually(lambda: any(other.processing().values()))
        look = observation.look()
        assert (look.n_open, look.n_finished, len(look.holders)) == (0, 0, 0)

        own = client.submit(time.sleep, 0.2, priority=1)
        assert eventually(lambda: observation.look().n_open == 1)
        own.release()
        other.cancel(stuck)


@pytest.mark.cluster
def test_observed__knows_what_was_sent_before(client):
    sent = client.submit(time.sleep, 1, pure=False)
    assert eventually(lambda: any(client.processing().values()))
    with observed() as observation:
        assert observation.look().n_open == 1
        sent.result()
        assert observation.look().n_open == 0


@pytest.mark.cluster
def test_observed__lasts_until_the_last_that_uses_it(client):
    first, second = observed(), observed()
    first.__enter__()
    observation = second.__enter__()
    first.__exit__(None, None, None)
    assert observation.look().n_workers == 2
    second.__exit__(None, None, None)

    assert client.run_on_scheduler(left_over) == []


@pytest.mark.cluster
def test_observed__is_begun_at_a_later_look_if_nobody_answers(client, monkeypatch):
    ask, failures = client.run_on_scheduler, [TimeoutError(), TimeoutError()]

    def late(*args, **options):
        if failures:
            raise failures.pop()
        return ask(*args, **options)

    monkeypatch.setattr(client, "run_on_scheduler", late)
    with observed() as observation:
        with pytest.raises(TimeoutError):
            observation.look()
        assert observation.look().n_workers == 2


@pytest.mark.cluster
def test_observed__is_blind_where_no_functions_are_run(client, monkeypatch):
    def refuse(*args, **options):
        raise ValueError("The 'run_function' handler has been explicitly disallowed")

    monkeypatch.setattr(client, "run_on_scheduler", refuse)
    with observed() as observation:
        assert observation.client is None
        assert observed_counts() == NOTHING


@pytest.mark.cluster
def test_peak_worker_bytes__is_not_waited_for_long(client):
    """A run that is complete is not held up by a worker that hangs."""
    stopped = next(iter(client.run(os.getpid).values()))
    os.kill(stopped, signal.SIGSTOP)
    try:
        with dask.config.set({"lpe-dask.timeouts.look": 1}):
            assert peak_worker_bytes() is None
    finally:
        os.kill(stopped, signal.SIGCONT)

    assert peak_worker_bytes() > 2**26


@pytest.mark.cluster
def test_observed__ends_with_its_client(cluster):
    with Client(cluster) as other:
        with Client(cluster):
            observation = observed()
            observation.__enter__()
            assert other.run_on_scheduler(left_over)
        assert eventually(lambda: other.run_on_scheduler(left_over) == [])


@pytest.mark.cluster
def test_observed__asks_without_a_line_in_the_log_of_the_scheduler(client, caplog):
    caplog.set_level("INFO", logger="distributed")
    with observed() as observation:
        caplog.clear()
        for _ in range(3):
            observation.look()

    assert not [line for line in caplog.messages if "look" in line.lower()]


@pytest.mark.cluster
def test_counts__are_those_of_the_last_look_if_nobody_answers(client, monkeypatch):
    with observed() as observation:
        monkeypatch.setattr(observation, "look", lambda: 1 / 0)

        assert observed_counts() == NOTHING


def test_bytes_spilled__adds_what_was_written_to_disk():
    from lpe_dask.tasks.scheduler_plugin import _bytes_spilled

    metrics = {
        ("execute", "lpe-join", "disk-write", "bytes"): 100,
        ("memory-monitor", "disk-write", "bytes"): 20,
        ("execute", "lpe-join", "disk-write", "seconds"): 0.5,
        ("get-data", "disk-read", "bytes"): 7,
        "latency": 1.0,
    }
    assert _bytes_spilled(SimpleNamespace(cumulative_worker_metrics=metrics)) == 120

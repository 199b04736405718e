"""Workers that cannot work are restarted or removed, and all others are left alone."""

import os
import signal

import dask
import pytest
from distributed import Client

from lpe_dask.cli import rescue
from lpe_dask.cli.rescue import cut_off, restart_silent, separate
from lpe_dask.tasks import Look
from processes import local_cluster
from waiting import eventually


@pytest.mark.parametrize(
    ("links", "removed"),
    [
        ([], []),
        ([("a", "b")], ["b"]),
        ([("a", "b"), ("b", "a")], ["b"]),
        ([("a", "b"), ("a", "c"), ("d", "a")], ["a"]),
        ([("a", "b"), ("c", "d")], ["d", "b"]),
    ],
)
def test_cut_off__names_few_workers(links, removed):
    assert cut_off(links) == removed


@pytest.fixture
def client():
    """Of two workers that no other test needs."""
    with local_cluster() as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def addresses(client):
    return sorted(client.scheduler_info()["workers"])


def pids(client):
    return client.run(os.getpid)


@pytest.mark.cluster
def test_restart_silent__brings_back_a_worker_that_was_stopped(client, addresses):
    before = pids(client)
    stopped, other = addresses
    os.kill(before[stopped], signal.SIGSTOP)

    restart_silent(client, Look(holders=[(stopped, 1, 99.0), (other, 1, 0.1)]), 60.0)

    assert eventually(lambda: len(client.scheduler_info()["workers"]) == 2)
    now = pids(client)
    assert now[other] == before[other]
    assert len(set(now.values()) - set(before.values())) == 1


@pytest.mark.cluster
def test_restart_silent__leaves_workers_that_are_heard_of(client, addresses):
    before = pids(client)

    restart_silent(client, Look(holders=[(a, 1, 59.0) for a in addresses]), 60.0)

    assert pids(client) == before


def busy(addresses):
    """What is seen of workers that have tasks."""
    return Look(n_workers=2, holders=[(address, 1, 0.1) for address in addresses])


@pytest.mark.cluster
def test_unreached__are_those_that_do_not_answer(client, addresses):
    nobody = "tcp://127.0.0.1:1"
    links = [(here, there) for here in addresses for there in (*addresses, nobody)]

    answers = client.run(rescue._unreached, links, 1.0)

    assert answers == {address: [nobody] for address in addresses}
    with dask.config.set({"lpe-dask.timeouts.reach": 1}):
        assert rescue._broken_links(client, links) == [(here, nobody) for here in addresses]


@pytest.mark.cluster
def test_separate__leaves_workers_that_reach_each_other(client, addresses, caplog):
    caplog.set_level("INFO")
    separate(client, busy(addresses))

    assert sorted(client.scheduler_info()["workers"]) == addresses
    assert "could not look after" not in caplog.text


@pytest.mark.cluster
@pytest.mark.parametrize("n_attempts", [1, 2])
def test_separate__removes_one_that_twice_did_not_answer(
    client, addresses, monkeypatch, caplog, n_attempts
):
    first, second = addresses
    answers = [[(first, second)]] * n_attempts + [[]]
    monkeypatch.setattr(rescue, "_broken_links", lambda client, links: answers.pop(0))

    separate(client, busy(addresses))

    if n_attempts == 1:
        assert sorted(client.scheduler_info()["workers"]) == addresses
    else:
        assert f"worker {second} and {first} do not reach each other" in caplog.text
        assert eventually(lambda: list(client.scheduler_info()["workers"]) == [first])


@pytest.mark.cluster
def test_separate__removes_nobody_where_most_would_go(client, addresses, monkeypatch):
    nobody = [(address, "tcp://10.0.0.9:1") for address in addresses]
    links = [*nobody, *[(address, address) for address in addresses]]
    monkeypatch.setattr(rescue, "_broken_links", lambda client, asked: links)

    separate(client, busy(addresses))

    assert sorted(client.scheduler_info()["workers"]) == addresses

"""What is kept in a spool stays as long as a task of some scheduler needs it."""

import asyncio
import gc
import os
import pickle
import signal
import threading
import time

import dask
import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client

from lpe_dask.tasks import spool_cleaner
from lpe_dask.tasks.shared_storage import is_storage_shared
from lpe_dask.tasks.spool import spool_at
from lpe_dask.tasks.transfer import LITERAL_BYTES, to_task
from lpe_dask.tasks.worker_pool import active_client
from processes import local_cluster
from waiting import eventually

pytestmark = pytest.mark.cluster


def kill_holder(client, future):
    (address,) = client.who_has(future).values()
    os.kill(client.run(os.getpid)[address[0]], signal.SIGKILL)


def twice(value):
    return 2 * value


def test_entry__stays_while_a_result_on_a_cluster_needs_it(client, tmp_path, monkeypatch):
    value = np.arange(LITERAL_BYTES / 4)
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 0.1)
    monkeypatch.setattr(spool_cleaner, "_QUESTION_SECONDS", 0.1)
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        doubled = delayed(twice)(to_task(value, "lpe-test")).persist()
        (future,) = doubled.dask.values()
        np.testing.assert_array_equal(future.result(), 2 * value)

        gc.collect()
        time.sleep(0.5)  # the scheduler is asked meanwhile
        assert len(list(tmp_path.glob("*/value-*"))) == 1
        kill_holder(client, future)
        np.testing.assert_array_equal(doubled.compute(), 2 * value)  # read again

        del doubled, future
        gc.collect()
        assert eventually(lambda: list(tmp_path.iterdir()) == [])


def test_entry__of_a_graph_on_its_way_stays(client, tmp_path, monkeypatch):
    """A scheduler that does not know it yet may know it soon."""
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 1.2)
    monkeypatch.setattr(spool_cleaner, "_QUESTION_SECONDS", 0.1)
    entry = spool_at(str(tmp_path)).folder("blocks")
    pickle.dumps(entry)
    del entry

    time.sleep(0.5)  # the scheduler would be asked meanwhile
    assert len(list(tmp_path.glob("*/blocks-*"))) == 1
    assert eventually(lambda: list(tmp_path.iterdir()) == [])


def test_entries__that_are_pending_go_when_the_client_does(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 1000)
    with Client(cluster):
        entry = spool_at(str(tmp_path)).folder("blocks")
        pickle.dumps(entry)
        del entry
        assert len(list(tmp_path.iterdir())) == 1

    assert eventually(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.full
def test_entries__let_go_by_many_threads_all_go(client, tmp_path, monkeypatch):
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 0.1)

    def make_and_let_go():
        for _ in range(100):
            pickle.dumps(spool_at(str(tmp_path)).folder("blocks"))

    threads = [threading.Thread(target=make_and_let_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert eventually(lambda: list(tmp_path.iterdir()) == [])


def test_is_place_shared__is_asked_for_once_by_each_client(client, tmp_path):
    runs = []
    run = client.run

    def counted(*args, **kwargs):
        runs.append(args)
        return run(*args, **kwargs)

    client.run = counted
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        assert [is_storage_shared(client) for _ in range(3)] == [True] * 3
    assert len(runs) == 1


@pytest.mark.parametrize("place", ["memory://lpe-spools", "unknown://", "file"])
def test_is_place_shared__where_no_spool_can_be(client, tmp_path, place):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file") if place == "file" else place

    with dask.config.set({"lpe-dask.spool": place}):
        assert not is_storage_shared(client)


def test_is_place_shared__while_there_are_no_workers():
    """An adaptive cluster may have none; what is lazy is built at once all the same."""
    with local_cluster(n_workers=0) as cluster, Client(cluster) as client:
        assert is_storage_shared(client)
        with dask.config.set({"lpe-dask.spool": "memory://lpe-spools"}):
            assert not is_storage_shared(client)
            cluster.scale(1)
            client.wait_for_workers(1)
            assert not is_storage_shared(client)


def test_active_client__passes_over_an_asynchronous_one(cluster):
    """Dask computes nothing with it, but lazy results are built beside it."""

    async def active():
        async with Client(cluster.scheduler_address, asynchronous=True):
            return active_client()

    assert asyncio.run(active()) is None

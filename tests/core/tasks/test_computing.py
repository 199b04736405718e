"""Computing on a cluster: results are taken once, and tasks may compute themselves."""

import os
import pickle
import signal
import threading
import time
from collections import Counter
from contextlib import nullcontext

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Future, worker_client

from choosing import mostly_slow
from lpe_dask import LPE
from lpe_dask.tasks import Workers, compute, new_tasks
from processes import local_cluster
from waiting import eventually

pytestmark = pytest.mark.cluster

N_TASKS = 12


def noted(folder, number, last):
    """Write down that this task ran, and where; the last one waits for a file."""
    (folder / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    while number == last and not (folder / "go").exists():
        time.sleep(0.01)
    return number


def runs_of(folder):
    return [tuple(map(int, path.name.split("-"))) for path in folder.glob("*-*-*")]


def test_compute__runs_no_task_again_whose_worker_is_lost_later(client, tmp_path):
    last = N_TASKS - 1
    tasks = new_tasks("noted", [(noted, tmp_path, i, last) for i in range(N_TASKS)])
    results = []
    thread = threading.Thread(target=lambda: results.extend(compute(*tasks)))
    thread.start()
    # All others are done and forgotten, whichever worker they ran on.
    assert eventually(lambda: client.run_on_scheduler(n_noted) == 1)
    busy = next(pid for number, pid, _ in runs_of(tmp_path) if number == last)
    for pid in {pid for _, pid, _ in runs_of(tmp_path)} - {busy}:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    thread.join(60)

    assert results == list(range(N_TASKS))
    counts = Counter(number for number, _, _ in runs_of(tmp_path))
    assert counts == dict.fromkeys(range(N_TASKS), 1)


def n_noted(dask_scheduler):
    return sum(str(key).startswith("lpe-noted") for key in dask_scheduler.tasks)


def fails(number):
    if number == 3:
        raise ValueError("three")
    time.sleep(0.2)
    return number


def test_compute__raises_the_error_of_a_task_and_leaves_no_other(client):
    tasks = new_tasks("fails", [(fails, i) for i in range(20)])

    with pytest.raises(ValueError, match="three"):
        compute(*tasks)

    assert eventually(lambda: client.run_on_scheduler(n_tasks) == 0)


def test_compute__ends_where_its_tasks_are_cancelled(client, tmp_path):
    tasks = new_tasks("noted", [(noted, tmp_path, i, 1) for i in range(2)])
    errors = []

    def run():
        try:
            compute(*tasks)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert eventually(lambda: client.run_on_scheduler(n_noted) == 1)
    client.cancel([Future(key, client) for key in list(client.futures)], force=True)
    (tmp_path / "go").touch()
    thread.join(20)

    assert "Cancelled" in type(errors[0]).__name__


def n_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


@pytest.mark.parametrize("scheduler", ["client", "threads", "sync"])
def test_compute__gives_results_in_order_also_of_equal_tasks(scheduler, cluster):
    first, second = new_tasks("plain", [(int, 1), (int, 2)])
    with (
        Client(cluster) as client,
        dask.config.set(scheduler=client if scheduler == "client" else scheduler),
    ):
        assert compute(second, first, second) == (2, 1, 2)
        assert compute() == ()


def test_compute__uses_a_client_that_is_not_the_default(cluster):
    """Neither where there is no default, nor where it is one of another cluster."""
    tasks = new_tasks("plain", [(int, i) for i in range(9)])
    with Client(cluster, set_as_default=False) as client:
        with dask.config.set(scheduler=client):
            assert compute(*tasks) == tuple(range(9))
        with (
            local_cluster(1, processes=False) as other,
            Client(other),
            dask.config.set(scheduler=client),
        ):
            assert compute(*tasks) == tuple(range(9))


# Fits and scorings within tasks: each computes in its own thread, or uses the cluster


ROWS = np.random.default_rng(0).integers(0, 300, (5000, 2)) * 0.1
FRAME = pd.DataFrame(ROWS, columns=["x", "y"])
QUERIES = ROWS[:300] + 0.05


@pytest.fixture(scope="module")
def expected():
    return LPE(5).fit(ROWS).score_samples(QUERIES)


def copy_of_a_model():
    """Return one that was fitted on the active cluster, with its rows."""
    return pickle.loads(pickle.dumps(LPE(5).fit(ROWS)))


@pytest.mark.full
def test_score_samples__by_more_tasks_than_threads(client, expected):
    model = client.scatter(copy_of_a_model(), broadcast=True)  # tasks share one object
    tasks = [client.submit(_scored, model, start) for start in range(0, 300, 10)]
    np.testing.assert_array_equal(np.concatenate(client.gather(tasks)), expected)


def _scored(model, start):
    return model.score_samples(QUERIES[start : start + 10])


@pytest.mark.parametrize("scale", mostly_slow([None, "minmax", "standard"], ["minmax"]))
def test_fit__by_more_tasks_than_threads(client, scale):
    tasks = [client.submit(_own_p_values, k, scale) for k in range(1, 6)]
    here = [_own_p_values(k, scale) for k in range(1, 6)]
    np.testing.assert_array_equal(client.gather(tasks), here)


def _own_p_values(n_neighbors, scale):
    return LPE(n_neighbors, scale=scale).fit(ROWS[:500]).p_values_


@pytest.mark.parametrize(
    ("place", "uses_the_cluster"), [(nullcontext, False), (worker_client, True)]
)
def test_fit__uses_the_cluster_if_asked_to(client, place, uses_the_cluster):
    assert client.submit(_has_tasks_on_the_cluster, place).result() == uses_the_cluster


def _has_tasks_on_the_cluster(place):
    with place():
        model = LPE(5).fit(ROWS[:500])
    with worker_client() as client:
        known = client.run_on_scheduler(_own_keys)
    del model  # whose blocks are there until now
    return bool(known)


def _own_keys(dask_scheduler):
    return [key for key in dask_scheduler.tasks if "lpe-" in str(key)]


def test_fit__within_a_task_computes_in_its_thread(client):
    own, of_blocks = client.submit(_threads_of_a_fit).result()

    assert of_blocks == {own}


def _threads_of_a_fit():
    of_blocks = set()

    def noted(block):
        of_blocks.add(threading.get_ident())
        return block

    rows = da.from_array(ROWS[:500], chunks=(100, -1))
    LPE(5).fit(rows.map_blocks(noted, meta=rows[:0].compute()))
    return threading.get_ident(), of_blocks


def test_fit__of_rows_persisted_on_the_cluster(client):
    assert client.submit(_fit_persisted, worker_client).result() == len(ROWS)
    with pytest.raises(RuntimeError, match="worker_client"):
        client.submit(_fit_persisted, nullcontext).result()


def _fit_persisted(place):
    with place():
        return LPE(5).fit(dd.from_pandas(FRAME, npartitions=4).persist()).n_samples_


def test_workers__within_a_task_are_its_thread(client):
    planned = client.submit(Workers.active).result()
    limits = client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit)
    assert (planned.n_threads, planned.threads) == (1, 1)
    assert planned.memory_limit in limits.values()  # a worker here has one thread

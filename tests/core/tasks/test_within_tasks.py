"""Fits and scorings within tasks: each computes in its own thread, or uses the cluster."""

import pickle
from contextlib import nullcontext

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import worker_client

from choosing import mostly_slow
from lpe_dask import LPE
from lpe_dask.tasks.worker_pool import active_workers

pytestmark = pytest.mark.cluster

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


def test_fit__of_rows_persisted_on_the_cluster(client):
    assert client.submit(_fit_persisted, worker_client).result() == len(ROWS)
    with pytest.raises(RuntimeError, match="worker_client"):
        client.submit(_fit_persisted, nullcontext).result()


def _fit_persisted(place):
    with place():
        return LPE(5).fit(dd.from_pandas(FRAME, npartitions=4).persist()).n_samples_


def test_workers__within_a_task_are_its_thread(client):
    planned = client.submit(active_workers).result()
    limits = client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit)
    assert (planned.n_threads, planned.threads) == (1, 1)
    assert planned.memory_limit in limits.values()  # a worker here has one thread

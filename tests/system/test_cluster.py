"""What only processes can get wrong: the same bits, small graphs, lost workers, memory."""

import itertools
import os
import signal
import threading
import time
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.sizeof import sizeof
from distributed import Client, futures_of

from choosing import mostly_slow
from lpe_dask import LPE
from lpe_dask.model import fitted_of
from lpe_dask.tasks.transfer import LITERAL_BYTES
from processes import local_cluster

pytestmark = pytest.mark.cluster

QUERIES = np.random.default_rng(1).integers(-3, 13, (200, 3)) * 0.1 + 5.0
NOMINAL = np.random.default_rng(0).integers(0, 10, (500, 3)) * 0.1 + 5.0
CONTINUOUS = np.random.default_rng(2).standard_normal((500, 3)) * [1.0, 1e3, 1e-3]


@pytest.fixture(scope="module")
def client():
    with local_cluster() as cluster, Client(cluster) as client:
        yield client


TABLES = {"lattice": NOMINAL, "continuous": CONTINUOUS}
SCALES = None, "minmax", "standard", "quantile", "minmax+quantile"
ARGUMENTS = {
    "euclidean": {"metric": "euclidean"},
    "weights": {"metric": "euclidean", "metric_params": {"w": [1.0, 0.3, 2.0]}},
    "seuclidean": {"metric": "seuclidean"},
    "mahalanobis": {"metric": "mahalanobis"},
    "radius": {"graph": "radius", "radius": 0.3},
}


@pytest.mark.parametrize(
    ("table", "scale", "name"),
    mostly_slow(
        itertools.product(TABLES, SCALES, ARGUMENTS),
        [
            ("lattice", None, "euclidean"),
            ("continuous", "minmax", "weights"),
            ("lattice", "standard", "radius"),
            ("continuous", None, "mahalanobis"),
            ("lattice", "minmax+quantile", "weights"),
        ],
    ),
)
def test_p_values__same_bits_everywhere(client, table, scale, name):
    """NumPy; Dask in three chunkings; this thread, threads, two processes."""
    nominal, arguments = TABLES[table], ARGUMENTS[name]
    with dask.config.set(scheduler="sync"):
        expected = LPE(scale=scale, **arguments).fit(nominal)
        p_values, own = expected.score_samples(QUERIES), expected.p_values_

    cuts = [("sync", 500, 200), ("threads", 61, 77), (client, 200, 30), (client, 101, 200)]
    for scheduler, nominal_chunks, query_chunks in cuts:
        with dask.config.set(scheduler=scheduler, **{"lpe-dask.block-rows": 128}):
            model = LPE(scale=scale, **arguments)
            model.fit(da.from_array(nominal, chunks=(nominal_chunks, 2)))
            queries = da.from_array(QUERIES, chunks=(query_chunks, 3))
            np.testing.assert_array_equal(model.score_samples(queries).compute(), p_values)
            np.testing.assert_array_equal(model.p_values_.compute(), own)
    in_numpy = LPE(scale=scale, **arguments).fit(nominal)
    np.testing.assert_array_equal(in_numpy.score_samples(QUERIES), p_values)


@pytest.mark.parametrize("metric", ["euclidean", "seuclidean"])
def test_quantiles__of_many_columns_are_the_same_on_workers(client, metric):
    """Their knots are too many to ride in a graph."""
    rng = np.random.default_rng(0)
    nominal, queries = rng.standard_t(3, (1200, 80)), rng.standard_t(3, (50, 80))
    arguments = {"scale": "quantile", "metric": metric, "calibration": "loo"}
    with dask.config.set(scheduler="sync"):
        expected = LPE(5, **arguments).fit(nominal).score_samples(queries)

    model = LPE(5, **arguments).fit(da.from_array(nominal, chunks=(500, 80)))

    assert sizeof(fitted_of(model).reference.space) > LITERAL_BYTES
    scored = model.score_samples(da.from_array(queries, chunks=(30, 80))).compute()
    np.testing.assert_array_equal(scored, expected)


def log_bell(rows):
    return -((rows - 5.0) ** 2).sum(axis=1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"metric": "geodesic", "metric_params": {"n_neighbors": 5}},
        {"metric": "geodesic", "metric_params": {"graph": "union"}, "calibration": "split"},
        {"calibration": "conformal", "calibration_size": 100},
        {"calibration_size": 50, "anomaly_log_density": log_bell},
        {"aggregation": "mean", "scale": "standard", "alpha": 0.2},
        {"aggregation": "mean", "metric": "geodesic", "calibration": "split"},
    ],
    ids=["geodesic", "geodesic split", "conformal", "density", "mean", "geodesic mean"],
)
def test_other_estimators__same_bits_everywhere(client, arguments):
    with dask.config.set(scheduler="sync"):
        expected = LPE(random_state=0, **arguments).fit(NOMINAL)
        p_values, own = expected.score_samples(QUERIES), expected.p_values_
        labels = np.where(p_values <= expected.alpha, -1, 1)

    for scheduler, nominal_chunks, query_chunks in (("threads", 61, 77), (client, 200, 30)):
        with dask.config.set(scheduler=scheduler, **{"lpe-dask.block-rows": 128}):
            model = LPE(random_state=0, **arguments)
            model.fit(da.from_array(NOMINAL, chunks=(nominal_chunks, 2)))
            queries = da.from_array(QUERIES, chunks=(query_chunks, 3))
            np.testing.assert_array_equal(model.score_samples(queries).compute(), p_values)
            np.testing.assert_array_equal(model.predict(queries).compute(), labels)
            np.testing.assert_array_equal(model.p_values_.compute(), own)


def test_numpy_input__is_not_written_into_the_graph(client):
    nominal = np.random.default_rng(0).random((70_000, 2))
    queries = np.random.default_rng(1).random((70_000, 2))

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Dask warns of large graphs
        model = LPE(3).fit(nominal)
        p_values = model.score_samples(queries[:1000])
        lazy = model.score_samples(da.from_array(queries, chunks=(1000, 2)))

    sizes = {k: dask.sizeof.sizeof(v) for k, v in dict(lazy.__dask_graph__()).items()}
    own = {key: size for key, size in sizes.items() if str(key[0]).startswith("lpe-")}
    assert max(own.values()) < 2**20
    threads = LPE(3)
    with dask.config.set(scheduler="threads"):
        threads.fit(nominal)
        np.testing.assert_array_equal(threads.score_samples(queries[:1000]), p_values)


def test_frames__keep_their_index_on_a_cluster(client):
    frame = pd.DataFrame(QUERIES, columns=list("abc"), index=np.arange(200) * 2)
    ddf = dd.from_pandas(frame, npartitions=3)
    nominal = dd.from_pandas(pd.DataFrame(NOMINAL, columns=list("abc")), npartitions=4)

    model = LPE(5).fit(nominal)
    actual = model.score_samples(ddf).compute()

    with dask.config.set(scheduler="threads"):
        expected = LPE(5).fit(NOMINAL).score_samples(frame)
    pd.testing.assert_series_equal(actual, expected)


def test_model__fitted_in_this_process_scores_on_a_cluster(client):
    with dask.config.set(scheduler="threads"):
        model = LPE(5).fit(NOMINAL)
        expected = model.score_samples(QUERIES)

    actual = model.score_samples(da.from_array(QUERIES, chunks=(50, 3))).compute()

    np.testing.assert_array_equal(actual, expected)


def test_fit__survives_the_loss_of_a_worker():
    """A worker that is killed in mid-run costs time, not the result."""
    points = da.random.default_rng(0).standard_normal((30_000, 16), chunks=(2000, -1))
    with dask.config.set(scheduler="threads"):
        expected = LPE(20).fit(points).calibration_

    with local_cluster() as cluster, Client(cluster) as client:
        first, *_ = client.run(os.getpid).values()
        killer = threading.Thread(target=_kill_when_busy, args=(client, first))
        killer.start()
        actual = LPE(20).fit(points).calibration_
        killer.join()

    np.testing.assert_array_equal(actual, expected)


def test_geodesic__survives_the_loss_of_the_worker_that_holds_the_graph():
    points = da.random.default_rng(0).standard_normal((6000, 3), chunks=(1000, -1))
    model = LPE(20, metric="geodesic")
    with dask.config.set(scheduler="threads"):
        expected = model.fit(points).score_samples(points[:500]).compute()

    with local_cluster() as cluster, Client(cluster) as client:
        model.fit(points)
        kept = futures_of(fitted_of(model).reference.graph._persisted)
        (holders,) = client.who_has(kept).values()
        os.kill(client.run(os.getpid)[holders[0]], signal.SIGKILL)
        actual = model.score_samples(points[:500]).compute()

    np.testing.assert_array_equal(actual, expected)


def _kill_when_busy(client, pid):
    """End a worker process once some joins are done and others are not."""
    for _ in range(1000):
        if client.run_on_scheduler(_some_joins_are_done):
            break
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)


def _some_joins_are_done(dask_scheduler):
    states = (
        dask_scheduler.task_prefixes["lpe-join"].states
        if ("lpe-join" in dask_scheduler.task_prefixes)
        else {}
    )
    return states.get("memory", 0) > 0 and states.get("processing", 0) > 0

"""What only processes can get wrong: the same bits, small graphs, lost workers, memory."""

import itertools
import os
import signal

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
from problems import SCALES
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


def log_bell(rows):
    return -((rows - 5.0) ** 2).sum(axis=1)


GEODESIC = {"metric": "geodesic", "metric_params": {"n_neighbors": 5}}
ARGUMENTS = {
    "euclidean": {},
    "weights": {"metric": "euclidean", "metric_params": {"w": [1.0, 0.3, 2.0]}},
    "seuclidean": {"metric": "seuclidean"},
    "mahalanobis": {"metric": "mahalanobis"},
    "radius": {"graph": "radius", "radius": 0.3},
    "geodesic": GEODESIC,
    "geodesic split": GEODESIC | {"calibration": "split"},
    "conformal": {"calibration": "conformal", "calibration_size": 100},
    "density": {"calibration_size": 50, "anomaly_log_density": log_bell},
    "mean": {"aggregation": "mean", "alpha": 0.2},
    "geodesic mean": GEODESIC | {"aggregation": "mean", "calibration": "split"},
}
OTHERS = list(ARGUMENTS)[5:]

#: All but a density where the scale is not linear, which is refused.
CASES = [
    (table, scale, name)
    for table, scale, name in itertools.product(TABLES, SCALES, ARGUMENTS)
    if name != "density" or scale in (None, "minmax", "standard")
]


@pytest.mark.parametrize(
    ("table", "scale", "name"),
    mostly_slow(
        CASES,
        [
            ("lattice", None, "euclidean"),
            ("continuous", "minmax", "weights"),
            ("lattice", "standard", "radius"),
            ("continuous", None, "mahalanobis"),
            ("lattice", "minmax+quantile", "weights"),
            ("lattice", "standard", "mean"),
            *(("lattice", None, name) for name in OTHERS if name != "mean"),
        ],
    ),
)
def test_results__same_bits_everywhere(client, table, scale, name):
    """NumPy; Dask in three chunkings; this thread, threads, two processes."""
    nominal, arguments = TABLES[table], ARGUMENTS[name] | {"scale": scale}
    with dask.config.set(scheduler="sync"):
        expected = LPE(random_state=0, **arguments).fit(nominal)
        p_values, own = expected.score_samples(QUERIES), expected.p_values_
        labels = np.where(p_values <= expected.alpha, -1, 1)

    cuts = [("sync", 500, 200), ("threads", 61, 77), (client, 200, 30), (client, 101, 200)]
    for scheduler, nominal_chunks, query_chunks in cuts:
        with dask.config.set(scheduler=scheduler, **{"lpe-dask.block-rows": 128}):
            model = LPE(random_state=0, **arguments)
            model.fit(da.from_array(nominal, chunks=(nominal_chunks, 2)))
            queries = da.from_array(QUERIES, chunks=(query_chunks, 3))
            np.testing.assert_array_equal(model.score_samples(queries).compute(), p_values)
            np.testing.assert_array_equal(model.predict(queries).compute(), labels)
            np.testing.assert_array_equal(model.p_values_.compute(), own)
    in_numpy = LPE(random_state=0, **arguments).fit(nominal)
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


def test_geodesic__survives_the_loss_of_the_worker_that_holds_the_graph():
    points = da.random.default_rng(0).standard_normal((6000, 3), chunks=(1000, -1))
    model = LPE(20, metric="geodesic")
    with dask.config.set(scheduler="threads"):
        expected = model.fit(points).score_samples(points[:500]).compute()

    with local_cluster() as cluster, Client(cluster) as client:
        model.fit(points)
        kept = futures_of(fitted_of(model).reference.graph._made._persisted)
        (holders,) = client.who_has(kept).values()
        os.kill(client.run(os.getpid)[holders[0]], signal.SIGKILL)
        actual = model.score_samples(points[:500]).compute()

    np.testing.assert_array_equal(actual, expected)

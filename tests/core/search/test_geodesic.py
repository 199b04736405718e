"""Geodesic distances as users see them: right, distributed, and the same bits anyhow."""

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.sizeof import sizeof

from lpe_dask import LPE
from lpe_dask.kernels.neighbor_graph import NeighborGraph
from lpe_dask.model import calibration_warnings, fitted_of

kinds = pytest.mark.parametrize("kind", ["directed", "union"])


def curved_sheet(n_rows, seed=0):
    """Points on a rolled-up sheet, in steps of 0.1, so that distances tie."""
    rng = np.random.default_rng(seed)
    turn, height = rng.uniform(3, 12, n_rows), rng.uniform(0, 5, n_rows)
    sheet = np.c_[turn * np.cos(turn), height, turn * np.sin(turn)]
    return np.round(sheet, 1)


def geodesic(n_edges, kind="directed", **arguments):
    params = {"n_neighbors": n_edges, "graph": kind}
    return LPE(
        metric="geodesic", metric_params=params, **{"calibration": "loo"} | arguments
    )


@pytest.mark.parametrize("n_neighbors", [1, 4, 6])
def test_geodesic__is_euclidean_where_a_row_has_as_many_edges_as_neighbors(n_neighbors):
    nominal, queries = curved_sheet(300), curved_sheet(60, 1)

    along = geodesic(6, n_neighbors=n_neighbors).fit(nominal)
    straight = LPE(n_neighbors).fit(nominal)

    np.testing.assert_array_equal(along.calibration_, straight.calibration_)
    np.testing.assert_array_equal(along.statistic(queries), straight.statistic(queries))


def test_geodesic__goes_along_the_sheet():
    """A row between two windings is near in space, and far along the sheet."""
    rng = np.random.default_rng(0)
    turn = rng.uniform(3, 12, 3000)
    sheet = np.c_[turn * np.cos(turn), rng.uniform(0, 3, 3000), turn * np.sin(turn)]
    model = geodesic(6, n_neighbors=400).fit(sheet)
    straight = LPE(400).fit(sheet)

    assert (model.calibration_ >= straight.calibration_).all()
    # Along a ribbon 3 wide, 400 rows reach further than in a ball that cuts its windings.
    assert np.median(model.calibration_) > 1.2 * np.median(straight.calibration_)


@kinds
@pytest.mark.parametrize(
    "arguments",
    [{}, {"aggregation": "mean"}, {"graph": "radius", "radius": 2.0}],
    ids=["kth", "mean", "radius"],
)
def test_predict__gives_the_labels_of_the_p_values(kind, arguments):
    nominal = curved_sheet(400)
    queries = np.concatenate([curved_sheet(80, 1), curved_sheet(40, 2) + 0.7])
    model = geodesic(5, kind, alpha=0.1, **arguments).fit(nominal)

    labels = model.predict(queries)

    p_values = model.score_samples(queries)
    np.testing.assert_array_equal(labels, np.where(p_values <= 0.1, -1, 1))
    assert set(labels) == {-1, 1}


def test_geodesic__default_edges_are_documented():
    nominal = curved_sheet(300)

    default = LPE(20, metric="geodesic").fit(nominal)
    few = LPE(1, metric="geodesic").fit(nominal[:3])

    np.testing.assert_array_equal(
        default.calibration_, geodesic(5, n_neighbors=20).fit(nominal).calibration_
    )
    assert np.isfinite(few.calibration_).all()


def shares_below_one_half(kind, calibration):
    rng = np.random.default_rng(0)
    model = geodesic(5, kind, n_neighbors=9, calibration=calibration, random_state=0)
    with dask.config.set(scheduler="sync"):
        p_values = [
            model.fit(rng.standard_normal((300, 10))).score_samples(
                rng.standard_normal((100, 10))
            )
            for _ in range(20)
        ]
    return (np.array(p_values) <= 0.5).mean()


@pytest.mark.full
def test_calibration__of_both_graphs_is_as_documented():
    """New rows have K' edges; nominal ones as many, or, in the union, more."""
    assert shares_below_one_half("directed", "loo") == pytest.approx(0.5, abs=0.03)
    assert shares_below_one_half("union", "loo") > 0.57
    assert shares_below_one_half("union", "conformal") == pytest.approx(0.5, abs=0.03)


def test_fit__warns_where_walks_end_too_early(caplog, monkeypatch):
    """With few edges many nominal rows reach too few, and then nothing can be anomalous."""
    monkeypatch.setattr(calibration_warnings, "_warned", set())
    nominal = np.random.default_rng(0).standard_normal((300, 2))

    model = geodesic(2, n_neighbors=12, alpha=0.05).fit(nominal)

    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "no row can be flagged at alpha=0.05" in warning
    assert "metric_params['n_neighbors']" in warning
    assert model.predict([[1e9, 1e9]]) == 1


def test_fit__does_not_warn_of_few_such_rows(caplog):
    geodesic(6, n_neighbors=12).fit(np.random.default_rng(0).standard_normal((300, 2)))

    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_fit__has_one_graph_and_few_computes(at_most_computes):
    nominal = da.from_array(curved_sheet(300), chunks=(50, -1))

    with at_most_computes(5):
        model = geodesic(4).fit(nominal)
    with at_most_computes(0):
        lazy = model.score_samples(nominal)

    tasks = dict(lazy.__dask_graph__())
    graphs = [key for key, task in tasks.items() if isinstance(_value(task), NeighborGraph)]
    joins = [key for key in tasks if str(key).startswith("lpe-join")]
    assert len(graphs) == 1
    assert len(joins) >= 6
    for key in joins:
        assert graphs[0] in tasks[key]


def _value(task):
    """What a task gives that holds a value of this process."""
    if isinstance(task, tuple) and len(task) == 1 and callable(task[0]):
        return task[0]()
    return task


def test_graph__is_a_dependency_and_no_literal():
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((30_000, 2))
    model = geodesic(5, n_neighbors=8).fit(nominal)
    frame = dd.from_pandas(pd.DataFrame(rng.random((100, 2))), npartitions=10)

    for X in (da.zeros((1000, 2), chunks=(100, 2)), frame):
        graph = dict(model.score_samples(X).__dask_graph__())
        joins = {k: v for k, v in graph.items() if "join" in str(k)}
        large = [key for key, task in graph.items() if sizeof(task) > 2**20]

        assert len(joins) >= 10
        assert all(len(pickle.dumps(task)) < 20_000 for task in joins.values())
        # The rows, their graph, and nothing else: once each.
        assert len(large) <= len(fitted_of(model).reference.blocks) + 1


@pytest.mark.parametrize("graph", ["knn", "radius"])
def test_geodesic__of_no_row_and_of_rows_that_are_not_measured(graph):
    arguments = {"graph": graph, "radius": 1.0 if graph == "radius" else None}
    model = geodesic(4, **arguments).fit(curved_sheet(50))

    assert model.score_samples(np.empty((0, 3))).shape == (0,)
    assert np.isnan(model.score_samples(np.full((3, 3), np.nan))).all()


def test_geodesic__of_few_nominal_rows():
    """One row has no edge; with K = n - 1 every other row has to be reached."""
    one = LPE(metric="geodesic", graph="radius", radius=2.0).fit([[0.0]])
    line = geodesic(2, n_neighbors=3).fit([[0.0], [1.0], [2.0], [3.0]])

    assert one.statistic([[2.0], [2.5]]).tolist() == [1.0, 0.0]
    assert one.calibration_.tolist() == [0.0]
    assert line.calibration_.tolist() == [2.0, 2.0, 3.0, 3.0]
    assert line.statistic([[10.0]]).tolist() == [9.0]

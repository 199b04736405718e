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
from lpe_dask.model import calibration_warnings, fitted_of


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


def test_graph__is_a_dependency_and_no_literal(at_most_computes):
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((30_000, 2))
    with at_most_computes(5):
        model = geodesic(5, n_neighbors=8).fit(da.from_array(nominal, chunks=(5000, -1)))
    frame = dd.from_pandas(pd.DataFrame(rng.random((100, 2))), npartitions=10)

    for X in (da.zeros((1000, 2), chunks=(100, 2)), frame):
        with at_most_computes(0):
            graph = dict(model.score_samples(X).__dask_graph__())
        joins = {k: v for k, v in graph.items() if "join" in str(k)}
        large = [key for key, task in graph.items() if sizeof(task) > 2**20]

        assert len(joins) >= 10
        assert all(len(pickle.dumps(task)) < 20_000 for task in joins.values())
        # The rows, their graph, and nothing else: once each.
        assert len(large) <= len(fitted_of(model).reference.blocks) + 1


def test_geodesic__of_few_nominal_rows():
    """One row has no edge; with K = n - 1 every other row has to be reached."""
    one = LPE(metric="geodesic", graph="radius", radius=2.0).fit([[0.0]])
    line = geodesic(2, n_neighbors=3).fit([[0.0], [1.0], [2.0], [3.0]])

    assert one.statistic([[2.0], [2.5]]).tolist() == [1.0, 0.0]
    assert one.calibration_.tolist() == [0.0]
    assert line.calibration_.tolist() == [2.0, 2.0, 3.0, 3.0]
    assert line.statistic([[10.0]]).tolist() == [9.0]
    assert line.score_samples(np.empty((0, 1))).shape == (0,)

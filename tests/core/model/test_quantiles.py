"""Knots of quantile scales: the definition's for any chunks, also if rows are sampled."""

import pickle
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np
import pytest
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt, mostly_full
from lpe_dask import LPE
from lpe_dask.model.calibration_split import split_calibration
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.learning import quantiles
from lpe_dask.model.learning.column_facts import AskedFacts, read_facts
from lpe_dask.model.learning.scaling import learn_scaling
from lpe_dask.search import Preparation
from lpe_dask.tasks.transfer import LocalValueTask
from strategies import point_sets, row_chunks

SCALES = ["quantile", "minmax+quantile"]


def few(n_sampled=100_000, n_knots=1000):
    """Constants so low that small tables take the path of large ones."""
    return patch.multiple(quantiles, MAX_SAMPLED_ROWS=n_sampled, MAX_KNOTS=n_knots)


def knots_of(points, chunks=(7, -1), seed=None):
    rows = da.from_array(points, chunks=chunks)
    facts = read_facts(rows, AskedFacts(ranges=True, sample=True), random_state=seed)
    return quantiles.knots_of(facts.sample, facts.low, facts.high)


def around(points):
    """The points, and others between, on and beyond them."""
    others = [points + 0.3, points - 1e-9, 9 * points - 4, [[np.nan] * points.shape[1]]]
    return np.concatenate([points, *others])


@given(
    data=st.data(),
    points=point_sets(min_rows=5, max_rows=30),
    n_sampled=st.integers(1, 12),
    n_knots=st.integers(2, 5),
    seed=st.sampled_from([None, 0, 7, 2**63]),
)
def test_learn_knots__of_a_sample_and_of_order_statistics(
    data, points, n_sampled, n_knots, seed
):
    chunks = data.draw(row_chunks(len(points)))
    sample = definitions.sampled_rows(points, n_sampled, seed or 0)
    queries = around(points)

    with few(n_sampled, n_knots):
        actual = knots_of(points, (chunks, -1), seed).apply(queries)

    expected = definitions.quantiles(queries, points, sample, n_knots)
    np.testing.assert_array_equal(actual, expected)


def test_learn_knots__of_more_than_1000_distinct_values():
    points = np.random.default_rng(0).standard_normal((1500, 1))
    points[:300] = points[300:600]

    knots = knots_of(points, (400, -1))

    assert 900 < len(knots.values[0]) < 1000  # of 1200 values, some more than once
    queries = around(points[::30])
    expected = definitions.quantiles(queries, points)
    np.testing.assert_array_equal(knots.apply(queries), expected)


@pytest.mark.parametrize(("most", "expected"), [(40, 10), (100, 25), (8, 4)])
def test_learn_knots__of_a_wide_table_come_from_fewer_rows(most, expected, monkeypatch):
    monkeypatch.setattr(quantiles, "MAX_NUMBERS", most)
    points = np.random.default_rng(0).random((30, 4))

    with few(25, 4):
        knots = knots_of(points)

    assert knots.n_sampled == expected


@given(points=point_sets(n_features=1), scale=st.sampled_from(SCALES))
def test_apply__is_monotone_and_finite(points, scale):
    numbers = np.unique(
        np.concatenate([
            around(points)[:-1].ravel(), np.linspace(points.min(), points.max(), 50),
            [-np.finfo(float).max, -1e300, -0.0, 5e-324, 1e300, np.finfo(float).max],
        ])
    )  # fmt: skip
    scaling = learn_scaling(da.from_array(points), scale, "a")

    prepared = Preparation(scaling).apply(numbers[:, None])

    assert np.isfinite(prepared).all()
    assert (np.diff(prepared[:, -1]) >= 0).all()


# In a model


def lattice(n_rows, seed, low=0, high=30):
    return np.random.default_rng(seed).integers(low, high, (n_rows, 2)) * 0.1


FITS = SCALES, ["loo", "split", "conformal"], [0, 3]


@pytest.mark.parametrize(
    ("scale", "calibration", "seed"),
    mostly_dealt(*FITS),
)
def test_fit__learns_from_a_sample_of_the_rows_that_are_searched(scale, calibration, seed):
    nominal, queries = lattice(60, 0), lattice(20, 1, -5, 40)
    division = split_calibration(calibration, 60, None, seed)
    arguments = {"scale": scale, "calibration": calibration, "random_state": seed}

    with few(15, 6), dask.config.set({"lpe-dask.block-rows": 64}):
        models = [
            LPE(3, **arguments).fit(rows)
            for rows in (nominal, da.from_array(nominal, chunks=(17, 2)))
        ]
        found = [model.statistic(queries) for model in models]

    searched = nominal if division.reference is None else nominal[division.reference]
    learned = searched if calibration == "conformal" else nominal
    sample = definitions.sampled_rows(learned, 15, seed)

    def scaled(rows):
        heights = definitions.quantiles(rows, learned, sample, 6)
        return heights if scale == "quantile" else np.hstack([rows, heights])

    w = definitions.weights_of_forms(learned, scale)
    expected = definitions.knn_radii(scaled(queries), scaled(searched), 3, w=w)
    for statistic in found:
        np.testing.assert_array_equal(statistic, expected)


def test_fit__follows_the_seed_as_0_without_one():
    nominal, queries = lattice(200, 0), lattice(20, 1)

    with few(20):
        default, zero, one = (
            LPE(3, scale="quantile", calibration="loo", random_state=seed)
            .fit(nominal)
            .statistic(queries)
            for seed in (None, 0, 1)
        )

    np.testing.assert_array_equal(default, zero)
    assert (zero != one).any()


@pytest.mark.parametrize("scale", mostly_full(SCALES, SCALES[:1]))
def test_score_samples__of_knots_of_many_columns_has_a_small_graph(scale):
    """They are more than a megabyte, and nothing that large rides in a graph."""
    rng = np.random.default_rng(0)
    nominal = rng.random((1500, 70))
    model = LPE(3, scale=scale, calibration="loo", algorithm="brute").fit(nominal)
    space = fitted_of(model).reference.space
    n_knots = sum(map(len, space.preparation.scaling.knots.values))
    assert n_knots == 70 * 1000
    assert sizeof(space) > 16 * n_knots > 2**20

    graph = dict(model.score_samples(da.from_array(nominal, chunks=(100, -1))).dask)

    assert max(sizeof(task) for task in graph.values()) < 2**20
    large = [task for task in graph.values() if len(pickle.dumps(task)) > 2**20]
    assert all(is_held(task) for task in large)


def is_held(task):
    """Whether it is a value of this process that goes to the spool when it is sent."""
    return isinstance(task, tuple) and isinstance(task[0], LocalValueTask)


def test_fit__of_quantiles_with_weights_has_one_for_each_column():
    nominal, queries = lattice(80, 0), lattice(20, 1)
    weights = {
        "scale": "minmax+quantile",
        "calibration": "loo",
        "metric_params": {"w": [4, 0]},
    }

    found = LPE(3, **weights).fit(nominal).statistic(queries)

    alone = LPE(3, scale="minmax+quantile", calibration="loo").fit(nominal[:, :1])
    np.testing.assert_array_equal(found, 2 * alone.statistic(queries[:, :1]))
    with pytest.raises(
        ValueError, match=r"shape \(4,\), but the rows have 2 columns: give"
    ):
        LPE(3, **weights | {"metric_params": {"w": [1, 1, 1, 1]}}).fit(nominal)
    weights |= {"metric": "seuclidean", "metric_params": {"V": [1, 1]}}
    with pytest.raises(
        ValueError, match=r"2 columns, which the scale makes 4: give an arr"
    ):
        LPE(3, **weights).fit(nominal)


def test_fit__of_a_covariance_of_both_forms_names_the_column_that_repeats():
    nominal = lattice(80, 0)
    nominal[:, 1] = nominal[:, 1] > 1  # two values: both forms are the same, but for units
    arguments = {"scale": "minmax+quantile", "metric": "mahalanobis", "calibration": "loo"}

    with pytest.raises(ValueError, match="singular, because column 1 is determined"):
        LPE(3, **arguments).fit(nominal)

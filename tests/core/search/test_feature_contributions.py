"""What columns add to distances, and which numbers prepared rows came from."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import dealt, mostly_full, mostly_slow
from lpe_dask.model.learning.scaling import learn_preparation
from lpe_dask.search.feature_contributions import (
    inverse_transform,
    is_weighted,
    squared_parts,
    typical_values,
)
from lpe_dask.search.preparation import Preparation, Scaling
from strategies import point_sets

SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]
METRICS = [
    ("euclidean", None),
    ("euclidean", {"w": [1.0, 0.3, 7.0]}),
    ("seuclidean", None),
    ("seuclidean", {"V": [0.1, 2.0, 3.0]}),
]
CASES = [(scale, *metric) for scale in SCALES for metric in METRICS]
ALWAYS = [(scale, *metric) for scale, metric in dealt(SCALES, METRICS)]


def learned(rows, scale=None, metric="euclidean", params=None, categorical=()):
    if params is not None and "V" in params and scale == "minmax+quantile":
        params = {"V": [*params["V"], 1.5, 0.5, 1.0]}
    names = [f"column {i}" for i in range(rows.shape[1])]
    return learn_preparation(
        da.from_array(rows, chunks=(-1, -1)), scale, metric, params, names, categorical
    )


def with_codes(rows, preparation):
    """Rows with two columns of codes in between, and a preparation that knows them."""
    codes, n_features = np.random.default_rng(0), rows.shape[1]
    codes = codes.integers(-1, 3, (len(rows), 2))
    rows = np.insert(rows, [1, n_features], codes, axis=1)
    weights = np.append(preparation.weights_of(preparation.n_numbers(n_features)), [0.3, 4])
    return rows, replace(preparation, categorical=(1, n_features + 1), weights=weights)


# What columns add


@pytest.mark.parametrize(("scale", "metric", "params"), mostly_slow(CASES, ALWAYS))
@given(data=st.data())
def test_squared_parts__are_the_definition(scale, metric, params, data):
    nominal = data.draw(point_sets(min_rows=2, n_features=3))
    rows = data.draw(point_sets(min_rows=len(nominal), max_rows=len(nominal), n_features=3))
    preparation = learned(nominal, scale, metric, params)
    queries, others = preparation.apply(rows), preparation.apply(nominal)

    parts = squared_parts(preparation, queries, others, 3)

    if params is not None and "V" in params and scale == "minmax+quantile":
        params = {"V": [*params["V"], 1.5, 0.5, 1.0]}
    w = definitions.weights_of_forms(nominal, scale, metric, params)
    pairs = [definitions.forms(some, nominal, scale) for some in (rows, nominal)]
    right = [definitions.squared_parts(x, y, 3, w=w) for x, y in zip(*pairs, strict=True)]
    np.testing.assert_array_equal(parts, right)
    distances = [definitions.distance(x, y, w=w) for x, y in zip(*pairs, strict=True)]
    np.testing.assert_allclose(np.sqrt(parts.sum(axis=1)), distances, rtol=1e-14)


@pytest.mark.parametrize("scale", [None, "minmax+quantile"])
def test_squared_parts__of_categories_are_their_weights(scale):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, (60, 3)) * 0.1
    rows, preparation = with_codes(numbers, learned(numbers, scale))
    queries, others = preparation.apply(rows[:30]), preparation.apply(rows[30:])

    parts = squared_parts(preparation, queries, others, 5)

    for x, y, of_row in zip(queries, others, parts, strict=True):
        right = definitions.squared_parts(x, y, 3, [0.3, 4.0], preparation.weights[:-2])
        assert of_row[[0, 2, 3, 1, 4]].tolist() == right


def test_squared_parts__of_categories_alone():
    preparation = Preparation(categorical=(0, 1), weights=np.array([1.0, 0.0, 2.0]))
    rows = np.array([[1.0, 1.0], [2.0, 3.0], [-1.0, 3.0]])

    parts = squared_parts(
        preparation, preparation.apply(rows), preparation.apply(rows[::-1]), 2
    )

    assert parts.tolist() == [[0.0, 2.0], [0.0, 0.0], [0.0, 2.0]]


@pytest.mark.parametrize("scale", [None, "standard", "minmax+quantile"])
def test_squared_parts__of_correlated_columns_add_up_to_the_distance(scale):
    rng = np.random.default_rng(0)
    nominal = rng.standard_normal((200, 3)) @ [[1, 0.9, 0], [0, 0.1, 0], [0, 0.3, 1]]
    preparation = learned(nominal, scale, "mahalanobis")
    queries, others = preparation.apply(nominal[:100]), preparation.apply(nominal[100:])

    parts = squared_parts(preparation, queries, others, 3)

    factor = preparation.matrix
    scaled = preparation.scaling.apply(nominal)
    for i, of_row in enumerate(parts):
        pair = scaled[i], scaled[100 + i]
        right = definitions.mahalanobis_parts(*pair, factor @ factor.T, 3)
        np.testing.assert_allclose(
            of_row, right, rtol=1e-9, atol=1e-12 * np.abs(right).sum()
        )
        square = definitions.distance(queries[i], others[i]) ** 2
        assert abs(of_row.sum() - square) <= 1e-12 * np.abs(of_row).sum()
    assert (parts < 0).any()


def test_squared_parts__of_no_rows_and_of_overflown_ones():
    both = learned(np.arange(6.0).reshape(2, 3), "minmax+quantile")
    assert squared_parts(both, np.zeros((0, 6)), np.zeros((0, 6)), 3).shape == (0, 3)
    largest = np.finfo(float).max

    queries, others = [[1e200, 1.0], [largest, 0.0]], [[0.0, 0.0], [-largest, 0.0]]
    parts = squared_parts(Preparation(), np.array(queries), np.array(others), 2)

    assert parts.tolist() == [[np.inf, 1.0], [np.inf, 0.0]]


# Which numbers they came from


def _few_decimals():
    rng = np.random.default_rng(0)
    return {
        "whole": rng.integers(-50, 50, (120, 3)) * 1.0,
        "large": rng.integers(-(10**9), 10**9, (120, 3)) * 1000.0,
        "one decimal": rng.integers(-50, 50, (120, 3)) / 10,
        "prices": rng.integers(0, 10**7, (120, 3)) / 100,
        "ratios": rng.integers(0, 10**6, (120, 3)) / 10**6,
        "small": rng.integers(-99, 99, (120, 3)) / 10**12,
        "offset": 10**6 + rng.integers(0, 99, (120, 3)) / 1000,
        "of all kinds": np.c_[
            rng.integers(0, 2, 120), rng.integers(0, 10**8, 120) / 100,
            rng.integers(0, 99, 120) / 10**9,
        ],
        "heavy-tailed": (rng.standard_cauchy((120, 3)) ** 3).round(2),
    }  # fmt: skip


FEW_DECIMALS = _few_decimals()


@pytest.mark.parametrize(("scale", "metric", "params"), mostly_full(CASES, ALWAYS))
def test_restored__numbers_with_few_decimals_come_back(scale, metric, params):
    for rows in FEW_DECIMALS.values():
        preparation = learned(rows[:100], scale, metric, params)

        # The last ones are not nominal, so that some are beyond the ends.
        numbers = inverse_transform(preparation, preparation.apply(rows), 3)

        np.testing.assert_array_equal(numbers, rows)


@pytest.mark.parametrize(("scale", "metric", "params"), mostly_slow(CASES, ALWAYS))
@given(data=st.data())
def test_restored__numbers_become_the_same(scale, metric, params, data):
    """Repeated rows, constant columns, and grids that are not exact in binary."""
    nominal = data.draw(point_sets(min_rows=2, n_features=3))
    rows = data.draw(st.sampled_from([nominal, data.draw(point_sets(n_features=3))]))
    preparation = learned(nominal, scale, metric, params)
    prepared = preparation.apply(rows)

    numbers = inverse_transform(preparation, prepared, 3)

    np.testing.assert_array_equal(preparation.apply(numbers), prepared)


@pytest.mark.parametrize("kind", ["normal", "float32", "heavy-tailed", "wide", "far"])
@pytest.mark.parametrize(("scale", "metric", "params"), ALWAYS)
def test_restored__numbers_with_all_digits_come_back(scale, metric, params, kind):
    rng = np.random.default_rng(1)
    rows = {
        "normal": rng.standard_normal((150, 3)),
        "float32": rng.standard_normal((150, 3)).astype(np.float32),
        "heavy-tailed": rng.standard_cauchy((150, 3)) ** 3,
        "wide": rng.standard_normal((150, 3)) * [1e12, 1e-12, 1],
        "far": rng.standard_normal((150, 3)) * 1e-3 + 1e9,
    }[kind]
    preparation = learned(rows[:100], scale, metric, params)

    for prepared in (preparation.apply(rows), preparation.apply_float32(rows)):
        numbers = inverse_transform(preparation, prepared, 3)

        if scale != "quantile":  # whose inverse is rounded
            np.testing.assert_array_equal(preparation.apply(numbers), prepared)
        assert (np.abs(numbers - rows) <= 1e-9 * np.abs(rows).max(axis=0)).all()


@pytest.mark.parametrize("scale", SCALES)
def test_restored__of_a_column_without_weight_is_missing(scale):
    """The others come back all the same."""
    rows = FEW_DECIMALS["prices"]
    preparation = learned(rows, scale, params={"w": [0.3, 0.0, 7.0]})

    numbers = inverse_transform(preparation, preparation.apply(rows), 3)

    assert np.isnan(numbers[:, 1]).all()
    np.testing.assert_array_equal(numbers[:, [0, 2]], rows[:, [0, 2]])
    normal = np.random.default_rng(0).standard_normal((50, 3))
    prepared = preparation.apply(normal)
    numbers = inverse_transform(preparation, prepared, 3)
    numbers[:, 1] = 0
    np.testing.assert_array_equal(preparation.apply(numbers), prepared)


@pytest.mark.parametrize("scale", SCALES)
def test_restored__of_constant_columns(scale):
    nominal = np.full((20, 3), [0.1, 7.0, 1e7]) + np.c_[np.zeros((20, 2)), np.arange(20)]
    rows = np.concatenate([nominal, nominal[:3] + np.array([0.2, -1.0, 30.5])])
    preparation = learned(nominal, scale)

    numbers = inverse_transform(preparation, preparation.apply(rows), 3)

    prepared = preparation.apply(rows)
    np.testing.assert_array_equal(preparation.apply(numbers), prepared)
    np.testing.assert_array_equal(numbers[:20], nominal)


def test_restored__numbers_of_linear_scales_are_exact():
    """Also beside 1e9."""
    rows = np.array([[-1e9], [0.12345678901], [1e9], [0.25]])
    preparation = learned(rows, "minmax")

    numbers = inverse_transform(preparation, preparation.apply(rows), 1)[:, 0]

    assert numbers.tolist() == rows[:, 0].tolist()


@pytest.mark.parametrize("scale", [None, "standard", "minmax+quantile"])
@pytest.mark.parametrize("units", [[1, 1, 1], [1e5, 1e-5, 1], [1e8, 1e-8, 1]], ids=str)
def test_restored__numbers_that_a_matrix_has_mixed(scale, units):
    """Columns of any units: what rounds one to whole numbers leaves nothing of others."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 3)) @ [[1, 1, 0], [0, 1, 0], [0, 0.5, 1]]
    few = rows.round(2)
    for given_rows, tolerance in ((few, 1e-13), (rows, 1e-9)):
        nominal = given_rows * units
        preparation = learned(nominal, scale, "mahalanobis")

        numbers = inverse_transform(preparation, preparation.apply(nominal), 3)

        error = np.abs(numbers / units - given_rows)
        assert (error <= tolerance * np.maximum(1, np.abs(given_rows))).all()
    if units == [1, 1, 1]:
        preparation = learned(few, scale, "mahalanobis")
        np.testing.assert_array_equal(
            inverse_transform(preparation, preparation.apply(few), 3), few
        )


@pytest.mark.parametrize("scale", [None, "standard", "minmax+quantile"])
def test_restored__leaves_codes_as_they_are(scale):
    numbers = FEW_DECIMALS["prices"]
    rows, preparation = with_codes(numbers, learned(numbers, scale))

    back = inverse_transform(preparation, preparation.apply(rows), 5)

    np.testing.assert_array_equal(back, rows)
    assert set(rows[:, 1]) == {-1, 0, 1, 2}
    alone = Preparation(categorical=(0, 1), weights=None)
    codes = rows[:, [1, 4]]
    np.testing.assert_array_equal(inverse_transform(alone, alone.apply(codes), 2), codes)


@pytest.mark.parametrize(("scale", "metric", "params"), ALWAYS)
def test_restored__of_missing_rows_and_of_none(scale, metric, params):
    rows = FEW_DECIMALS["prices"]
    preparation = learned(rows, scale, metric, params)
    prepared = preparation.apply(rows).copy()
    assert inverse_transform(preparation, prepared[:0], 3).shape == (0, 3)
    prepared[5] = np.nan

    numbers = inverse_transform(preparation, prepared, 3)

    assert np.isnan(numbers[5]).all()
    others = np.delete(np.arange(len(rows)), 5)
    np.testing.assert_array_equal(numbers[others], rows[others])


OVERFLOWING = {
    "small factor": Preparation(factor=np.array([2.0**-1000, 1.0])),
    "large factor": Preparation(factor=np.array([2.0**1000, 1.0])),
    "shift": Preparation(Scaling(shift=np.array([-1e308, 0.0]), factor=np.ones(2))),
    "other shift": Preparation(Scaling(shift=np.array([1e308, 0.0]), factor=np.ones(2))),
}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_restored__of_overflown_numbers_does_not_fail(name):
    """They are at distance inf from all, and so never the nearest."""
    preparation = OVERFLOWING[name]
    rows = np.array([[1e308, 0.1], [-1e308, 0.2], [0.0, 0.3]])

    numbers = inverse_transform(preparation, preparation.apply(rows), 2)

    np.testing.assert_array_equal(numbers[:, 1], rows[:, 1])
    assert numbers[2, 0] == 0.0


def test_restored__of_two_forms_of_no_number_is_that_of_the_linear_one():
    nominal = np.arange(0.0, 100.0, 3.0)[:, None]
    preparation = learned(nominal, "minmax+quantile")
    prepared = preparation.apply(np.array([[17.3], [40.0]]))
    prepared[0, 1] = 0.9

    numbers = inverse_transform(preparation, prepared, 1)

    np.testing.assert_allclose(numbers, [[17.3], [40.0]], rtol=1e-12)


# What is usual


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("metric", ["euclidean", "mahalanobis"])
def test_usual_of__has_quantiles_and_frequent_values_of_the_input(scale, metric):
    rng = np.random.default_rng(0)
    numbers = np.c_[rng.exponential(size=500).round(2), rng.integers(0, 3, 500) * 0.1]
    rows, preparation = numbers, learned(numbers, scale, metric)
    if metric == "euclidean":
        rows, preparation = with_codes(numbers, preparation)

    usual = typical_values(preparation, preparation.apply(rows), rows.shape[1])

    right = np.sort(rows, axis=0)[[4, 249, 494]]  # of 500 rows
    np.testing.assert_allclose(usual.quantiles, right, rtol=1e-8, atol=1e-12)
    for column, found in zip(rows.T, usual.frequent, strict=True):
        values, counts = np.unique(column, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        if len(values) > 3 and not set(values) <= {-1, 0, 1, 2}:
            assert found == []
            continue
        expected = [(values[i], counts[i] / 500) for i in order[:3]]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_has_weight__of_columns_without_one():
    rows = np.random.default_rng(0).random((30, 3))
    for scale in SCALES:
        preparation = learned(rows, scale, params={"w": [1.0, 0.0, 2.0]})
        assert is_weighted(preparation, 3).tolist() == [True, False, True]
        weights = np.r_[preparation.weights_of(preparation.n_numbers(3)), 1.0, 0.0]
        codes = replace(preparation, categorical=(0, 3), weights=weights)
        assert is_weighted(codes, 5).tolist() == [True, True, False, False, True]
    assert is_weighted(learned(rows), 3).all()

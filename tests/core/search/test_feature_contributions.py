"""What becomes of rows before they are measured, and which numbers they came from.

What columns add to distances is tested by shares, in tests/core/model/test_explanation.py.
"""

import dask.array as da
import numpy as np
import pytest

from choosing import dealt, mostly_full
from lpe_dask.model.learning.scaling import learn_preparation
from lpe_dask.search.feature_contributions import (
    directions,
    inverse_transform,
    squared_parts,
)
from lpe_dask.search.preparation import Preparation, Scaling
from problems import SCALES

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


def test_squared_parts__of_no_rows_and_of_overflown_ones():
    both = learned(np.arange(6.0).reshape(2, 3), "minmax+quantile")
    assert squared_parts(both, np.zeros((0, 6)), np.zeros((0, 6)), 3).shape == (0, 3)
    largest = np.finfo(float).max

    queries, others = [[1e200, 1.0], [largest, 0.0]], [[0.0, 0.0], [-largest, 0.0]]
    parts = squared_parts(Preparation(), np.array(queries), np.array(others), 2)

    assert parts.tolist() == [[np.inf, 1.0], [np.inf, 0.0]]


@pytest.mark.parametrize(
    ("scale", "metric", "params"), [*CASES, *((of, "mahalanobis", None) for of in SCALES)]
)
def test_directions__are_those_of_the_input(scale, metric, params):
    """Whatever a scale or a matrix makes of it; 0 for categories."""
    rows = np.random.default_rng(2).integers(-20, 20, (60, 3)) / 10
    categorical = (1,) if (metric, params) == ("euclidean", None) else ()
    rows[:, list(categorical)] = np.round(np.abs(rows[:, list(categorical)]))
    preparation = learned(rows, scale, metric, params, categorical)
    prepared, others = preparation.apply(rows), preparation.apply(rows[::-1])

    found = directions(preparation, prepared, others, rows.shape[1])

    right = np.sign(rows - rows[::-1])
    right[:, list(categorical)] = 0
    is_known = (right != 0) | (metric != "mahalanobis")  # else there is rounding
    np.testing.assert_array_equal(found[is_known], right[is_known])


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


ROWS = np.array([[2.0, 1.0, 0.0, 4.0], [1.0, 3.0, -1.0, 8.0], [0.0, 5.0, 1.0, 0.0]])


def test_apply__puts_codes_after_the_numbers_as_they_are():
    preparation = learned(ROWS, "minmax", categorical=(0, 2))

    prepared = preparation.apply(ROWS)

    expected = [[0.25, 0.5, 2, 0], [0.75, 1, 1, -1], [1.25, 0, 0, 1]]
    np.testing.assert_array_equal(prepared, expected)
    np.testing.assert_array_equal(preparation.apply_float32(ROWS), expected)
    assert preparation.n_prepared(4) == 4


def test_apply__of_categories_alone_has_a_column_of_zeros():
    preparation = learned(ROWS, "standard", categorical=(0, 1, 2, 3))

    prepared = preparation.apply(ROWS)

    np.testing.assert_array_equal(prepared, np.hstack([np.zeros((3, 1)), ROWS]))
    assert preparation.n_prepared(4) == 5


def test_apply__keeps_missing_codes_and_overflown_numbers_apart():
    preparation = Preparation(factor=np.array([2.0**1000]), categorical=(1,))

    prepared = preparation.apply(np.array([[1e300, 2.0], [1.0, np.nan], [np.nan, 1.0]]))

    largest = np.finfo(float).max
    expected = [[largest, 2.0], [2.0**1000, np.nan], [np.nan, 1.0]]
    np.testing.assert_array_equal(prepared, expected)


def test_learn_preparation__says_which_column_cannot_be_scaled_among_categories():
    rows = ROWS.copy()
    rows[:, 1] = [-1.7e308, 0.0, 1.7e308]

    with pytest.raises(ValueError, match="range of column 1 is too large"):
        learned(rows, "minmax", categorical=(0, 2))

"""What becomes of rows before they are measured."""

import dask.array as da
import numpy as np
import pytest

from lpe_dask.model.learning.scaling import learn_preparation
from lpe_dask.search.preparation import Preparation

ROWS = np.array([[2.0, 1.0, 0.0, 4.0], [1.0, 3.0, -1.0, 8.0], [0.0, 5.0, 1.0, 0.0]])


def learned(rows, **given):
    arguments = {"scale": "minmax", "metric": "euclidean", "metric_params": None} | given
    names = [f"column {i}" for i in range(rows.shape[1])]
    return learn_preparation(
        da.from_array(rows, chunks=(1, -1)), columns=names, **arguments
    )


def test_apply__puts_codes_after_the_numbers_as_they_are():
    preparation = learned(ROWS, categorical=(0, 2))

    prepared = preparation.apply(ROWS)

    expected = [[0.25, 0.5, 2, 0], [0.75, 1, 1, -1], [1.25, 0, 0, 1]]
    np.testing.assert_array_equal(prepared, expected)
    np.testing.assert_array_equal(preparation.apply_float32(ROWS), expected)
    assert preparation.n_prepared(4) == 4


def test_apply__of_categories_alone_has_a_column_of_zeros():
    preparation = learned(ROWS, categorical=(0, 1, 2, 3), scale="standard")

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
        learned(rows, categorical=(0, 2))

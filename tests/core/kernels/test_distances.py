"""The definition itself, as the kernels compute it."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import definitions
from compiling import from_python
from lpe_dask.kernels import squares as module
from lpe_dask.kernels.distances import largest_square_within, last_of_same_root
from search_checks import with_codes
from searching import in_blocks

fill_squares = from_python(module.fill_squares)


@given(radius=st.floats(0, 1e300))
@example(0.0)
@example(5e-324)
@example(1e-162)
@example(1e154)
@example(1e200)
def test_largest_square_within__is_the_last_one_within(radius):
    square = largest_square_within(radius)

    assert math.sqrt(square) <= radius
    assert math.sqrt(math.nextafter(square, math.inf)) > radius


@given(squares=st.lists(st.floats(0, math.inf), min_size=1, max_size=5))
@example([0.0, 5e-324, 1e-160, 1.0, 2.0, 1.7e308, math.inf])
def test_last_of_same_root__is_the_last_one(squares):
    last = last_of_same_root(np.array(squares))

    np.testing.assert_array_equal(np.sqrt(last), np.sqrt(squares))
    assert (last >= squares).all()
    with np.errstate(over="ignore"):
        following = np.nextafter(last, np.inf)
    assert ((np.sqrt(following) > np.sqrt(last)) | (following == np.inf)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [1, 3, 13, 64, 700])
@pytest.mark.parametrize("n_codes", [0, 5])
def test_fill_squares__sums_in_the_order_of_the_columns(dtype, n_features, n_codes):
    """Magnitudes differ so much that any other order would round differently."""
    rng = np.random.default_rng(n_features)
    shape = (20, n_features)
    points = rng.standard_normal(shape) * 10.0 ** rng.integers(-8, 8, shape)
    rows, queries = with_codes(points.astype(dtype), n_codes)
    rows = rows.astype(dtype)
    w, weights = rng.uniform(1, 4, n_features), 10.0 ** rng.integers(-8, 8, n_codes)
    block = in_blocks("brute", rows, weights=weights).blocks[0]
    query, of_columns = queries[3].astype(float), np.append(w, weights)

    for n_places in range(1, 20):
        places = rng.permutation(20)[:n_places]
        squares = np.full(32, -1.0)
        fill_squares(query, block, places, n_places, squares, of_columns, n_codes)

        near = rows[block.numbers[places]]
        expected = [definitions.distance(query, row, weights, w) for row in near]
        np.testing.assert_array_equal(np.sqrt(squares[:n_places]), expected)
        assert (squares[-(-n_places // 8) * 8 :] == -1.0).all()


def test_fill_squares__of_no_place_fills_nothing():
    reference = in_blocks("brute", np.zeros((3, 2))).blocks[0]
    squares = np.full(2, -1.0)

    places = np.zeros(2, np.int64)
    fill_squares(np.zeros(2), reference, places, 0, squares, np.ones(2), 0)

    np.testing.assert_array_equal(squares, [-1.0, -1.0])

"""Queries beside boxes, and moved to the centers of cells: against plain arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from lpe_dask.kernels import boxes, simd
from lpe_dask.kernels.arrays import LANES, TILE_ROWS


# Not cached on disk: numba would not notice that what it calls has changed.
@njit
def _queries_near_box(singles, start, low, high, bars, lowered):
    return boxes.queries_near_box(singles, start, low, high, bars, lowered)


@njit
def _take_nearer_box(singles, start, low, high, gaps, lowered, places, place):
    boxes.take_nearer_box(singles, start, low, high, gaps, lowered, places, place)


@njit
def _move_to_center(points, i, centers, lows, highs, cell, n_numbers, moved):
    return boxes.move_to_center(points, i, centers, lows, highs, cell, n_numbers, moved)


@njit
def _round_offset(moved, n_numbers, per_step, offsets, r):
    boxes.round_offset(moved, n_numbers, per_step, offsets, r)


@njit
def _insert_sorted(numbers, i, number):
    simd.insert_sorted(numbers, i, number)


def _lattice(rng, *shape):
    """Return numbers of which sums of squares are exact in float32."""
    return rng.integers(-8, 9, shape).astype(np.float32) / 4


def _gaps(singles, low, high, lowered):
    """Return the squared distances of columns of numbers and codes to a box."""
    n_numbers = len(low) - len(lowered)
    gap = np.maximum(np.maximum(low[:, None] - singles, singles - high[:, None]), 0)
    squares = (gap[:n_numbers] ** 2).sum(axis=0)
    for j, weight in enumerate(lowered):
        squares += weight * (gap[n_numbers + j] > 0)
    return squares


def _tile_and_box(rng, n_numbers, n_codes):
    singles = _lattice(rng, n_numbers + n_codes, TILE_ROWS)
    low = _lattice(rng, n_numbers + n_codes)
    high = low + np.abs(_lattice(rng, n_numbers + n_codes))
    return singles, low, high, rng.integers(1, 9, n_codes).astype(np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 3))
def test_queries_near_box__are_those_not_beyond_their_bars(seed, n_numbers, n_codes):
    rng = np.random.default_rng(seed)
    singles, low, high, lowered = _tile_and_box(rng, n_numbers, n_codes)
    gaps = _gaps(singles, low, high, lowered)
    bars = rng.choice(gaps, TILE_ROWS)
    bars[rng.random(TILE_ROWS) < 0.2] = -1.0
    singles[0, rng.random(TILE_ROWS) < 0.1] = np.inf  # at no finite distance
    gaps = np.where(singles[0] == np.inf, np.inf, gaps)

    for start in range(0, TILE_ROWS, LANES):
        word = int(_queries_near_box(singles, start, low, high, bars, lowered))

        bits = [bool(word >> i & 1) for i in range(LANES)]
        run = slice(start, start + LANES)
        assert bits == (gaps[run] <= bars[run]).tolist()


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 3))
def test_take_nearer_box__keeps_the_first_of_the_nearest(seed, n_numbers, n_codes):
    rng = np.random.default_rng(seed)
    singles, low, high, lowered = _tile_and_box(rng, n_numbers, n_codes)
    found = np.full(TILE_ROWS, np.inf, np.float32)
    places = np.full(TILE_ROWS, -1, np.int32)
    all_gaps = []

    for place in range(4):
        all_gaps.append(_gaps(singles, low, high, lowered))
        for start in range(0, TILE_ROWS, LANES):
            _take_nearer_box(
                singles, start, low, high, found, lowered, places, np.int32(place)
            )
        low, high = low + 1, high + 1

    np.testing.assert_array_equal(found, np.min(all_gaps, axis=0))
    np.testing.assert_array_equal(places, np.argmin(all_gaps, axis=0))


@pytest.mark.parametrize("n_numbers", [1, 7, 8, 9, 16, 19])
def test_move_to_center__gives_offset_length_and_gap(n_numbers):
    rng = np.random.default_rng(n_numbers)
    n_features = n_numbers + 2  # the last two are codes, and stay
    points = _lattice(rng, 5, n_features).astype(float)
    centers = _lattice(rng, 3, n_features).astype(float)
    lows = _lattice(rng, 3, n_features)
    highs = lows + np.abs(_lattice(rng, 3, n_features))
    moved = np.full(n_features, 7.0, np.float32)

    square, gap = _move_to_center(points, 4, centers, lows, highs, 1, n_numbers, moved)

    offset = (points[4] - centers[1])[:n_numbers]
    of_box = lows[1, :n_numbers], highs[1, :n_numbers]
    beyond = np.maximum(np.maximum(of_box[0] - offset, offset - of_box[1]), 0)
    np.testing.assert_array_equal(moved[:n_numbers], offset)
    assert (square, gap) == ((offset**2).sum(), (beyond**2).sum())
    assert (moved[n_numbers:] == 7.0).all()


@pytest.mark.parametrize("n_numbers", [1, 7, 8, 9, 16, 19])
def test_round_offset__gives_the_nearest_whole_numbers(n_numbers):
    rng = np.random.default_rng(n_numbers)
    moved = (1000 * rng.standard_normal(n_numbers + 1)).astype(np.float32)
    moved[0] = 40_000 / 8  # beyond 16 bits
    offsets = np.full((4, n_numbers + 1), 7, np.int16)

    _round_offset(moved, n_numbers, np.float32(8), offsets, 2)

    expected = np.clip(np.rint(8.0 * moved.astype(float)), -32767, 32767)[:n_numbers]
    np.testing.assert_array_equal(offsets[2, :n_numbers], expected)
    assert offsets[2, n_numbers] == 7
    assert (np.delete(offsets, 2, axis=0) == 7).all()


@pytest.mark.parametrize("size", [16, 48])
def test_insert_sorted__keeps_the_smallest(size):
    rng = np.random.default_rng(size)
    given_numbers = rng.integers(-20, 20, 100).astype(np.float32)
    given_numbers[::30] = np.inf
    rows = np.full((3, size), np.inf, np.float32)

    for number in given_numbers:
        _insert_sorted(rows, 1, number)

    np.testing.assert_array_equal(rows[1], np.sort(given_numbers)[:size])
    assert (rows[[0, 2]] == np.inf).all()

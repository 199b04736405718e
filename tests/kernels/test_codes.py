"""Codes of rows: few, small, and no further apart than the rows."""

import numpy as np
import pytest

from lpe_dask.kernels.codes import (
    BEYOND_RANGE,
    LARGEST_CODE,
    MOST_AXES,
    Codes,
    codes_of,
    square_of_codes,
)
from lpe_dask.kernels.compiled import compiled
from searching import HARD_POINTS, all_distances


def _flat_rows(n_rows, n_features, offset=0.0):
    """Rows that vary in a few directions only, and a little in all others."""
    rng = np.random.default_rng(n_features)
    few = rng.standard_normal((n_rows, 4)) @ rng.standard_normal((4, n_features))
    return few + 0.01 * rng.standard_normal((n_rows, n_features)) + offset


def test_codes__have_few_axes_where_rows_are_flat_and_none_where_they_are_not():
    rng = np.random.default_rng(0)

    assert Codes.of(_flat_rows(500, 64)).rows.shape == (500, 16)
    assert Codes.of(rng.standard_normal((4000, 256))).rows.shape == (4000, 0)
    assert Codes.of(rng.standard_normal((500, 3))).rows.shape == (500, 0)
    assert Codes.of(np.ones((70, 64))).rows.shape == (70, 0)


def _far_out(rows):
    """A row so far out that its codes end before it does, and one so far that all do."""
    rows[7] += 1e4
    rows[8] += 1e200
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        *(_flat_rows(300, 64, offset) for offset in (0.0, 1e3, 1e9)),
        _far_out(_flat_rows(3000, 64)[:300]),
        np.repeat(_flat_rows(2, 64), [299, 1], axis=0),
        *HARD_POINTS.values(),
    ],
)
def test_codes__are_no_further_apart_than_rows(rows):
    """But for rounding, as far as a search allows for it."""
    with np.errstate(over="ignore"):
        codes = Codes.of(rows)
        of_queries, reaches = codes.coded(rows.astype(float))
        distances = all_distances(rows, rows)
    apart = of_queries[:, None].astype(float) - codes.rows
    steps = np.sqrt((apart**2).sum(axis=-1))
    factor = 2.0**codes.basis.exponent
    slack = 2.0**-22 * np.sqrt(reaches + codes.reach) / codes.step
    slack += np.sqrt(codes.rows.shape[1])
    offset = 1e-9 * factor * np.abs(rows[np.isfinite(rows)]).max() / codes.step

    allowed = distances * factor / codes.step * (1 + 1e-9) + slack[:, None]

    assert (steps <= allowed + offset).all()


def test_codes__show_what_is_too_far():
    """They are close to the distances of rows that few directions tell apart."""
    rows = _flat_rows(500, 64)
    codes = Codes.of(rows)
    steps = np.sqrt(((codes.rows[:, None].astype(float) - codes.rows) ** 2).sum(axis=-1))

    distances = all_distances(rows, rows) * 2.0**codes.basis.exponent / codes.step

    is_within = np.abs(codes.rows).max(axis=1) < LARGEST_CODE
    far = (distances > np.median(distances)) & is_within[:, None] & is_within
    assert (steps[far] >= 0.98 * distances[far]).all()


def test_codes__of_most_rows_are_within_their_range():
    rows = _flat_rows(4000, 64)

    codes = Codes.of(rows)

    is_at_end = np.abs(codes.rows) == LARGEST_CODE
    assert is_at_end.mean() <= 2 * BEYOND_RANGE
    assert np.abs(codes.rows).max() == LARGEST_CODE


@compiled
def _square(one, other):
    return square_of_codes(one, other)


def test_square_of_codes__has_room_for_the_largest():
    one = np.full(MOST_AXES, LARGEST_CODE, np.int16)

    assert _square(one, -one) == MOST_AXES * (2 * LARGEST_CODE) ** 2
    assert _square(one, one) == 0


def test_codes__are_made_again_of_their_arrays():
    codes = Codes.of(_flat_rows(300, 64))

    again = codes_of(*codes.arrays())

    for array, other in zip(again.arrays(), codes.arrays(), strict=True):
        np.testing.assert_array_equal(array, other)

"""The basis of a filter, and the proof that the filter is never more wrong than it says."""

import functools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from choosing import mostly_dealt
from lpe_dask.kernels import Basis, Block, QueryTiles
from lpe_dask.kernels.accumulators import error_bounds
from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.basis import FURTHEST, learn_basis
from lpe_dask.kernels.blocks import Arrangement
from lpe_dask.kernels.bounds import (
    empty_tile,
    find_near_queries,
    list_queries,
    load_tile,
    move_to_cell,
)
from lpe_dask.kernels.filters import QUERIES, filter_pack, prepare_group
from searching import all_squares
from strategies import point_sets

#: Pairs of a group that are checked one by one, in exact fractions.
N_PAIRS = 20


# Not cached on disk: numba would not notice that what it calls has changed.
@njit
def _filtered(queries, reference, errors, limits):
    """Do what a fold does for one tile and one cell, up to the sums of its pairs."""
    n_queries, n_features = queries.points.shape
    tile = empty_tile(reference, queries)
    reach = reference.reaches.max()
    load_tile(queries, 0, n_queries, limits, reach, errors, tile)
    find_near_queries(n_queries, reference, 0, tile)
    move_to_cell(queries, 0, reference, 0, limits, errors, tile)
    list_queries(tile.near, tile.near, tile)
    prepare_group(0, 1, n_features, reference, tile)
    filter_pack(0, 1, 0, n_features, reference, tile)
    return tile


def _bounds_hold(queries, rows, basis, rounded=1):
    """Return whether D2 is within its bounds for some pairs of queries and 64 rows.

    D2 is the exact square as well as that of the definition. ``rounded`` is by what the
    bound of rounding to whole numbers is multiplied.
    """
    arrangement = Arrangement(np.arange(len(rows)), np.array([0, len(rows)]), bounded=True)
    block = Block.build(rows, np.arange(len(rows)), lambda points: arrangement, basis)
    one_tile = Arrangement(np.arange(QUERIES), np.array([0, QUERIES]), bounded=True)
    tiles = QueryTiles(queries, basis.points(queries), one_tile)
    errors = error_bounds(basis)
    tile = _filtered(tiles.arrays, block, errors, np.full(QUERIES, np.inf))
    sums = tile.sums.reshape(-1, LANES)
    points = (basis.points(block.rows) - block.centers[0]).astype(np.float32)
    assert np.isfinite(tile.errors[:QUERIES]).all()
    assert len(block.steps) == 1

    c = Fraction(errors.relative)
    unit = Fraction(errors.factor) ** 2
    defined = all_squares(queries, rows)
    rng = np.random.default_rng(0)
    for i, j in {
        (int(rng.integers(QUERIES)), int(rng.integers(LANES))) for _ in range(N_PAIRS)
    }:
        a_square = Fraction(float(tile.lengths[i]))
        b_square = Fraction(sum(_exact(points[j]) ** 2), _UNIT**2)
        error = Fraction(tile.errors[i])
        error += (
            rounded * Fraction(float(tile.spans[i])) * Fraction(float(block.roundings[0]))
        )
        error += (
            rounded * Fraction(float(tile.roundings[i])) * Fraction(float(block.spans[0]))
        )
        lower = Fraction(float(sums[i, j])) + a_square * (1 - c) - error
        upper = lower + 2 * c * (a_square + b_square) + 2 * error
        square = sum((_exact(queries[i]) - _exact(rows[j])) ** 2)
        exact = Fraction(square, _UNIT**2) * unit
        if not lower <= exact <= upper:
            return False
        if not lower <= Fraction(float(defined[i, j])) * unit <= upper:
            return False
    return True


#: All float64 are multiples of 1 / _UNIT.
_UNIT = 2**1074


def _exact(row):
    """Return numbers times `_UNIT`, as whole numbers that Python does not round."""
    ratios = (float(x).as_integer_ratio() for x in row)
    return np.array([above * (_UNIT // below) for above, below in ratios], object)


def _mixed(points):
    rng = np.random.default_rng(0)
    return points * 10.0 ** rng.integers(-30, 30, points.shape)


def _repeated(points):
    points[QUERIES : 2 * QUERIES] = points[:QUERIES]
    return points


#: What is made of normally distributed rows, of which a basis is learned or not.
KINDS = {
    "continuous": (np.positive, True),
    "lattice": (lambda points: np.round(2 * points) * 0.1, True),
    "offset": (lambda points: points + 1e7, True),
    "near pairs far from the center": (lambda points: 1e6 + 1e-6 * points, False),
    "mixed magnitudes": (_mixed, True),
    "underflow": (lambda points: points * 1e-165, True),
    "underflow of float32": (lambda points: points * 1e-23, False),
    "some rows equal": (_repeated, True),
}


def _pairs(kind, n_features):
    """Return queries, rows, and the sample that a basis is learned from."""
    normal = np.random.default_rng(n_features).standard_normal(
        (QUERIES + LANES, n_features)
    )
    make, is_known = KINDS[kind]
    points = make(normal.copy())
    sample = points if is_known else np.concatenate([normal, -normal])
    return points[:QUERIES], points[QUERIES:], sample


@functools.cache
def _axes(n_features):
    """Return the principal axes of some rows; for 700 columns that takes a while."""
    sample = np.random.default_rng(0).standard_normal((100, n_features))
    return learn_basis(sample, rotate=True).rotation


def _learned(sample, *, rotate):
    """Return a basis around a sample, with the axes of another one."""
    basis = learn_basis(sample, rotate=False)
    rotation = _axes(sample.shape[1]) if rotate else None
    return Basis(basis.center, basis.exponent, rotation)


@pytest.mark.parametrize(
    ("kind", "n_features", "rotate"), mostly_dealt(KINDS, [1, 3, 64, 700], [False, True])
)
def test_basis__bounds_every_filtered_square(kind, n_features, rotate):
    """|a|^2 (1-c) + |b|^2 (1-c) - 2ab - A <= D2 <= the same + 2cS + 2A, exactly."""
    queries, rows, sample = _pairs(kind, n_features)
    basis = _learned(sample, rotate=rotate)

    assert _bounds_hold(queries, rows, basis)


def _opposite_pairs(n_features):
    """Pairs on opposite sides of the center, in which roundings add up."""
    numbers = np.random.default_rng(0).uniform(1, 2, QUERIES + LANES)
    points = np.repeat(numbers[:, None], n_features, axis=1)
    points[1::2] *= -1
    return points[:QUERIES], points[QUERIES:]


@pytest.mark.parametrize("n_features", [1, 3, 64, 700])
def test_rounding_to_whole_numbers__would_be_too_small_by_a_factor_of_10(n_features):
    """Where roundings add up, the filter is off by more than a tenth of its bound."""
    queries, rows = _opposite_pairs(n_features)
    basis = Basis(np.zeros(n_features), 0)

    assert _bounds_hold(queries, rows, basis)
    assert not _bounds_hold(queries, rows, basis, Fraction(1, 10))


class _CarelessBasis(Basis):
    @property
    def rounding(self):
        return 0.0


def test_rounding__is_needed_far_from_the_center():
    """Rotation rounds points far out; without its bound near ones would be told apart.

    Of few columns: of many, what rounding to whole numbers may be off is more.
    """
    queries, rows, sample = _pairs("near pairs far from the center", 3)
    basis = _learned(sample, rotate=True)

    assert _bounds_hold(queries, rows, basis)
    careless = _CarelessBasis(basis.center, basis.exponent, basis.rotation)
    assert not _bounds_hold(queries, rows, careless)


@given(points=point_sets())
def test_points__are_shifted_and_scaled_with_one_rounding(points):
    basis = learn_basis(points, rotate=False)

    actual = basis.points(points)

    factor = Fraction(2) ** basis.exponent
    expected = [
        [
            float((Fraction(x) - Fraction(c)) * factor)
            for x, c in zip(row, basis.center, strict=True)
        ]
        for row in points.tolist()
    ]
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("rotate", [False, True])
def test_points__of_rows_far_out_or_not_finite(rotate):
    """They end at a finite distance, without a warning; NaN stays NaN."""
    basis = learn_basis(np.random.default_rng(0).standard_normal((50, 3)), rotate=rotate)
    rows = np.array([[1e300, 0, 0], [np.inf, 0, 0], [-np.inf, 0, 0], [np.nan, 0, 0]])

    before = rows.copy()

    points = basis.points(rows)

    np.testing.assert_array_equal(rows, before)
    np.testing.assert_allclose(np.linalg.norm(points[:3], axis=1), FURTHEST)
    np.testing.assert_array_equal(points[0], points[1])
    assert np.isnan(points[3]).any()


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e7, 1e30])
def test_learn_basis__has_its_sample_at_most_1_from_the_center(scale, dtype, rotate):
    sample = (scale * np.random.default_rng(0).standard_normal((101, 4))).astype(dtype)

    basis = learn_basis(sample, rotate=rotate)

    shifted = Basis(basis.center, basis.exponent).points(sample)
    np.testing.assert_array_equal(basis.center, np.median(sample.astype(float), axis=0))
    assert scale == 0 or 0.25 <= np.abs(shifted).max() <= 1


@pytest.mark.parametrize("scale", [1e-300, 1e-320, 1e300, 1.7e308])
@pytest.mark.parametrize("rotate", [False, True])
def test_learn_basis__takes_the_extremes_of_float64(scale, rotate):
    """Also an even number of rows whose sum overflows; and nothing warns."""
    sample = scale * np.random.default_rng(0).uniform(0.9, 1.0, (100, 3))

    basis = learn_basis(sample, rotate=rotate)

    assert np.isfinite(basis.center).all()
    assert np.isfinite(basis.points(sample)).all()


def test_learn_basis__rotates_along_the_longest_axis_of_most_rows():
    """One row far out does not decide where the axes are."""
    rng = np.random.default_rng(0)
    along, across = np.array([0.6, 0.8]), np.array([-0.8, 0.6])
    sample = np.outer(rng.standard_normal(500), along)
    sample += 0.01 * np.outer(rng.standard_normal(500), across)
    sample[7] = 1e6 * across

    rotation = learn_basis(sample, rotate=True).rotation

    np.testing.assert_allclose(rotation.T @ rotation, np.eye(2), atol=1e-14)
    np.testing.assert_allclose(np.abs(rotation[:, 0]), along, atol=0.01)


@pytest.mark.parametrize("sample", [np.zeros((5, 3)), np.full((1, 3), 1e7)])
def test_learn_basis__takes_a_sample_without_extent(sample):
    basis = learn_basis(sample, rotate=True)

    np.testing.assert_array_equal(basis.points(sample), np.zeros(sample.shape))
    assert basis.points(sample + 1).any()


@given(exponent=st.integers(-300, 300), square=st.floats(1e-100, 1e100))
def test_squares__are_in_units_of_the_basis(exponent, square):
    actual = Basis(np.zeros(2), exponent).squares(square)

    assert actual == float(Fraction(square) * Fraction(4) ** exponent)

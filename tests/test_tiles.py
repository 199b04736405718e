"""The exact kernel against the definition, on the edges of its tiles."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import definitions
from lpe_dask.kernels.tiles import CountState, NearestState, largest_square_within, pack
from strategies import point_sets


def radii(queries, blocks, n_neighbors, offsets=None):
    state = NearestState(np.asarray(queries, dtype=float), n_neighbors)
    for i, block in enumerate(blocks):
        if offsets is None:
            state.fold(pack(block))
        else:
            state.fold(pack(block), offsets[i])
    return state.finish()


@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 25))
def test_nearest_state__equals_definition_for_any_blocks(data, points, n_neighbors):
    cut = data.draw(st.integers(0, len(points)))
    blocks = [points[cut:], points[:cut]]

    actual = radii(points, blocks, n_neighbors, offsets=[-cut, 0])

    expected = definitions.knn_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(actual, expected)


@given(data=st.data(), n_features=st.integers(1, 20), radius=st.integers(0, 40))
def test_count_state__equals_definition_for_any_blocks(data, n_features, radius):
    points = data.draw(point_sets(max_rows=20, n_features=n_features))
    cut = data.draw(st.integers(0, len(points)))
    radius = 0.1 * radius

    state = CountState(points, radius)
    state.fold(pack(points[cut:]), -cut)
    state.fold(pack(points[:cut]), 0)

    expected = definitions.neighbor_counts(points, points, radius, exclude_self=True)
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.parametrize("n_features", [1, 3, 7, 8, 9, 16, 17, 64, 130, 700])
@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 200])
def test_nearest_state__equals_definition_at_tile_edges(n_features, n_rows):
    rng = np.random.default_rng(n_features * 1000 + n_rows)
    reference = rng.standard_normal((n_rows, n_features))
    queries = np.concatenate([rng.standard_normal((5, n_features)), reference[:3]])

    actual = radii(queries, [reference], min(20, n_rows))

    expected = definitions.knn_radii(queries, reference, min(20, n_rows))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "points",
    [
        np.random.default_rng(1).standard_normal((150, 4)) + 1e7,
        np.concatenate(
            [
                np.random.default_rng(2).standard_normal((70, 4)) * 1e-3 + far
                for far in (1e6, -1e6)
            ]
        ),
        np.repeat(np.random.default_rng(3).standard_normal((4, 3)), 40, axis=0),
        np.random.default_rng(4).integers(0, 4, (200, 3)) * 0.1,
        np.concatenate(
            [np.random.default_rng(5).standard_normal((100, 2)), [[1e6, -1e6]] * 2]
        ),
        np.random.default_rng(6).standard_normal((90, 2)) * 1e-170,
        np.random.default_rng(7).standard_normal((90, 2)) * 1e160,
    ],
    ids=[
        "offset",
        "far clusters",
        "duplicates",
        "lattice",
        "outliers",
        "underflow",
        "overflow",
    ],
)
@pytest.mark.parametrize("n_neighbors", [1, 5, 39, 40, 89])
def test_nearest_state__equals_definition_on_hard_data(points, n_neighbors):
    actual = radii(points, [points], n_neighbors, offsets=[0])

    with np.errstate(over="ignore"):
        expected = definitions.knn_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(actual, expected)


def test_nearest_state__selects_among_more_rows_than_the_reservoir_holds():
    """Rows that come nearer and nearer refill the reservoir again and again."""
    reference = np.linspace(100.0, 0.0, 3000)[:, None]

    actual = radii([[0.0]], [reference], 7)

    assert actual == np.sort(reference[:, 0])[6]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_states__do_not_measure_a_row_that_is_not_finite(value):
    reference = np.zeros((70, 2))
    queries = np.array([[0.0, 0.0], [value, 0.0], [1.0, 0.0]])

    nearest = radii(queries, [reference], 3)
    counts = CountState(queries, 1.0)
    counts.fold(pack(reference))

    np.testing.assert_array_equal(nearest, [0.0, np.nan, 1.0])
    np.testing.assert_array_equal(counts.finish(), [70.0, np.nan, 70.0])


def test_states__without_a_block():
    queries = np.zeros((2, 3))

    assert (NearestState(queries, 1).finish() == np.inf).all()
    assert (CountState(queries, 1.0).finish() == 0).all()
    assert NearestState(queries[:0], 1).finish().shape == (0,)


@given(
    n_rows=st.integers(1, 200),
    start=st.integers(0, 199),
    length=st.integers(0, 200),
    n_features=st.integers(1, 5),
)
def test_packed_block__gives_its_rows_back(n_rows, start, length, n_features):
    rows = np.arange(n_rows * n_features, dtype=float).reshape(n_rows, n_features)
    start = min(start, n_rows)
    stop = min(start + length, n_rows)

    block = pack(rows)

    np.testing.assert_array_equal(block.rows(start, stop), rows[start:stop])
    assert block.n_rows == n_rows


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

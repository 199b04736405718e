"""The nearest rows, and counts within a radius, against the definition, in every bit."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt, mostly_paired
from compiling import from_python
from lpe_dask.kernels import nearest
from lpe_dask.kernels.nearest import TOLERANCE, _upper_bits, reservoir_size
from searching import (
    EXACT,
    HARD_POINTS,
    SAMPLES,
    all_distances,
    in_blocks,
    normal_basis,
    parts_of,
    search_nearest,
    search_within,
    smallest,
)
from strategies import point_sets, row_parts

_bits_of = from_python(nearest._bits_within)

pytestmark = pytest.mark.usefixtures("either_way")


def _bits_within(uppers, n_neighbors, limit):
    places = np.zeros(len(uppers), np.int64)
    return _bits_of(keys_of(uppers), places, np.uint64(len(uppers)), n_neighbors, limit)


def test_reservoir_size__leaves_room_beyond_k():
    assert all(reservoir_size(k) > k for k in (1, 2, 32, 33, 1000))


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(total=finite, rise=finite.map(abs))
def test_upper_bits__are_just_above_the_exact_sum(total, rise):
    bits = _upper_bits(np.float32(total), np.float32(rise), np.float32(1))

    upper = np.uint32(bits).view(np.float32)
    exact = max(0, Fraction(total) + Fraction(rise))
    assert upper == np.inf or Fraction(float(upper)) > exact
    two_below = np.nextafter(np.nextafter(upper, np.float32(0)), np.float32(-1))
    assert Fraction(float(two_below)) <= exact


@pytest.mark.parametrize(
    ("total", "rise"), [(-np.inf, np.inf), (5, np.inf), (np.inf, 1), (3e38, 3e38)]
)
def test_upper_bits__are_those_of_inf_where_nothing_is_known(total, rise):
    with np.errstate(over="ignore"):
        bits = _upper_bits(np.float32(total), np.float32(rise), np.float32(1))

    assert np.uint32(bits).view(np.float32) == np.inf


def keys_of(uppers):
    """Return upper bounds as a reservoir holds them, each with the place it has here."""
    bits = np.asarray(uppers, np.float32).view(np.uint32).astype(np.uint64)
    return bits << np.uint64(32) | np.arange(len(uppers), dtype=np.uint64)


uppers = st.one_of(
    st.integers(0, 3).map(float),
    st.floats(0, 10, width=32),
    st.sampled_from([1e-30, 1e30, np.inf]),
)


@given(
    uppers=st.lists(uppers, min_size=1, max_size=80),
    limit=st.one_of(uppers, st.sampled_from([3e38, 1e60])),
    data=st.data(),
)
def test_bits_within__are_those_of_a_bound_that_k_pairs_do_not_exceed(uppers, limit, data):
    """Whatever the limit says of where to look."""
    n_neighbors = data.draw(st.integers(1, len(uppers)))

    bits = _bits_within(uppers, n_neighbors, limit)

    bound = np.uint32(bits).view(np.float32)
    assert (np.float32(uppers) <= bound).sum() >= n_neighbors
    kth = np.sort(np.float32(uppers))[n_neighbors - 1]
    assert bound <= kth or bound <= np.nextafter(np.float32(limit), np.float32(np.inf))


@pytest.mark.parametrize("limit", [1.0, 1.9, 0.2, 6.0, np.inf])
def test_bits_within__are_close_where_pairs_differ(limit):
    """By counting where the limit is near the K-th (1, 1.9), and else by selection."""
    uppers = np.random.default_rng(0).random(400)

    bits = _bits_within(uppers, 250, limit)

    n_within = (uppers <= np.uint32(bits).view(np.float32)).sum()
    assert 250 <= n_within <= 250 * (1 + TOLERANCE)


def check_counts(reference, queries, distances, radii, numbers=None):
    """Compare counts within some radii with those of all distances."""
    for radius in radii:
        actual = search_within(reference, queries, radius, numbers).finish()

        np.testing.assert_array_equal(actual, (distances <= radius).sum(axis=1))


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 25))
def test_folds__equal_definition_for_any_blocks(algorithm, data, points, n_neighbors):
    """However the rows are cut into blocks, and in whatever order these come.

    Also at radii that are distances between rows.
    """
    distances = np.unique(all_distances(points, points))
    radius = data.draw(st.sampled_from([*distances, 0.1, 1.0]))
    parts = data.draw(row_parts(len(points)))
    sample = points[: data.draw(st.integers(1, len(points)))]
    reference = in_blocks(algorithm, points, parts, sample=sample)
    numbers = np.arange(len(points))

    for own, leaves_out in ((None, False), (numbers, True)):
        nearest = search_nearest(reference, points, n_neighbors, own)
        counted = search_within(reference, points, radius, own)

        expected = definitions.knn_radii(points, points, n_neighbors, leaves_out)
        np.testing.assert_array_equal(nearest.finish(), expected)
        expected = definitions.neighbor_counts(points, points, radius, leaves_out)
        np.testing.assert_array_equal(counted.finish(), expected)


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=9), n_neighbors=st.integers(1, 200))
def test_fold_nearest__equals_definition_for_many_duplicates(
    algorithm, data, points, n_neighbors
):
    """More equal rows than a cell, a reservoir or K holds."""
    rows = np.repeat(points, data.draw(st.integers(1, 40)), axis=0)
    parts = data.draw(row_parts(len(points)))
    parts = [np.flatnonzero(np.isin(np.arange(len(rows)) % len(points), p)) for p in parts]
    reference = in_blocks(algorithm, rows, parts)
    numbers = np.arange(len(rows))

    state = search_nearest(reference, rows, n_neighbors, numbers, with_numbers=True)

    expected = smallest(all_distances(rows, rows, exclude_self=True), n_neighbors)
    np.testing.assert_array_equal(state.finish(), expected[0][:, -1])
    np.testing.assert_array_equal(state.neighbors()[1], expected[1])


TILES = EXACT, [np.float32, np.float64], [1, 3, 700], [1, 63, 64, 65, 200]


@pytest.mark.parametrize(
    ("algorithm", "dtype", "n_features", "n_rows"),
    mostly_paired(*TILES),
)
def test_folds__equal_definition_at_the_edges_of_tiles(
    algorithm, dtype, n_features, n_rows
):
    rng = np.random.default_rng(1000 * n_features + n_rows)
    rows = rng.standard_normal((n_rows, n_features)).astype(dtype)
    queries = np.concatenate([rng.standard_normal((3, n_features)).astype(dtype), rows[:2]])
    reference = in_blocks(algorithm, rows, basis=normal_basis(algorithm, n_features))
    distances = all_distances(queries, rows)

    for n_neighbors in {1, min(5, n_rows), max(1, n_rows - 1), n_rows, n_rows + 1}:
        actual = search_nearest(reference, queries, n_neighbors).finish()

        np.testing.assert_array_equal(actual, smallest(distances, n_neighbors)[0][:, -1])
    expected = definitions.knn_radii(queries, rows, 1)
    np.testing.assert_array_equal(search_nearest(reference, queries, 1).finish(), expected)
    radii = np.quantile(distances, [0.0, 0.1, 0.5, 1.0], method="nearest")
    check_counts(reference, queries, distances, radii)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("n_queries", [1, 5, 6, 7, 255, 256, 257, 600])
def test_folds__take_any_number_of_queries(algorithm, n_queries):
    rng = np.random.default_rng(n_queries)
    rows, queries = rng.standard_normal((130, 3)), rng.standard_normal((n_queries, 3))
    reference, distances = in_blocks(algorithm, rows), all_distances(queries, rows)

    actual = search_nearest(reference, queries, 4).finish()

    np.testing.assert_array_equal(actual, smallest(distances, 4)[0][:, -1])
    check_counts(reference, queries, distances, [1.0])


@pytest.mark.parametrize(
    ("name", "algorithm"),
    mostly_dealt(HARD_POINTS, EXACT),
)
def test_fold_nearest__equals_definition_for_blocks_of_one_row(name, algorithm):
    points = HARD_POINTS[name]
    points = np.concatenate([points[:40], points[-3:]])
    reference = in_blocks(algorithm, points, parts_of(43, 43))

    for n_neighbors in (1, 5):
        actual = search_nearest(reference, points, n_neighbors, np.arange(43)).finish()

        expected = definitions.knn_radii(points, points, n_neighbors, exclude_self=True)
        np.testing.assert_array_equal(actual, expected)


HARD = HARD_POINTS, [1, 3], SAMPLES, EXACT


@pytest.mark.parametrize(
    ("name", "n_parts", "sample", "algorithm"),
    mostly_paired(*HARD),
)
def test_folds__equal_definition_on_hard_data(name, n_parts, sample, algorithm):
    """Also at radii that are distances between rows, and next to them."""
    points = HARD_POINTS[name]
    n_rows, numbers = len(points), np.arange(len(points))
    parts = parts_of(n_rows, n_parts)
    reference = in_blocks(algorithm, points, parts, sample=points[: SAMPLES[sample]])
    distances = all_distances(points, points, exclude_self=True)

    for n_neighbors in (1, 5, 40, n_rows - 1, n_rows + 3):
        actual = search_nearest(reference, points, n_neighbors, numbers).finish()

        np.testing.assert_array_equal(actual, smallest(distances, n_neighbors)[0][:, -1])
    finite = distances[np.isfinite(distances)]
    radii = np.quantile(finite, [0, 0.03, 0.5, 1], method="nearest") if len(finite) else [1]
    radii = [0.0, *radii, *np.nextafter(radii, 0), 1e301]
    check_counts(reference, points, distances, radii, numbers)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", HARD_POINTS)
def test_fold_nearest__finds_rows_by_distance_and_number_on_hard_data(
    name, sample, algorithm
):
    """Of rows at equal distances the first are neighbors, in whatever order they come."""
    points = HARD_POINTS[name]
    parts = [part[::-1] for part in reversed(parts_of(len(points), 3))]
    reference = in_blocks(algorithm, points, parts, sample=points[: SAMPLES[sample]])
    queries = points[::3] * 1.01

    for n_neighbors in (1, 7, 60):
        state = search_nearest(reference, queries, n_neighbors, with_numbers=True)

        distances, numbers = state.neighbors()
        expected = smallest(all_distances(queries, points), n_neighbors)
        np.testing.assert_array_equal(distances, expected[0])
        np.testing.assert_array_equal(numbers, expected[1])


@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_nearest__takes_different_squares_with_one_root_as_a_tie(algorithm):
    """Neighbors are those of the smallest (distance, number), not (square, number)."""
    rows = np.random.default_rng(0).integers(0, 10, (2000, 3)) * 0.1
    reference = in_blocks(algorithm, rows, parts_of(2000, 2))

    state = search_nearest(reference, rows[:200], 20, np.arange(200), with_numbers=True)

    distances = all_distances(rows[:200], rows)
    distances[np.arange(200), np.arange(200)] = np.inf
    np.testing.assert_array_equal(state.neighbors()[1], smallest(distances, 20)[1])


@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_nearest__selects_among_more_rows_than_the_reservoir_holds(algorithm):
    """Rows that come nearer and nearer refill the reservoir again and again."""
    rows = np.linspace(100.0, 0.0, 3000)[:, None]

    actual = search_nearest(in_blocks(algorithm, rows), np.zeros((1, 1)), 7).finish()

    np.testing.assert_array_equal(actual, np.sort(rows[:, 0])[6])


def _many_points(name):
    rng = np.random.default_rng(0)
    if name == "clusters":
        centers = 30 * rng.standard_normal((20, 3))
        return centers[rng.integers(0, 20, 4000)] + rng.standard_normal((4000, 3))
    if name == "lattice":
        return rng.integers(0, 10, (4000, 3)) * 0.1
    if name == "duplicates":
        return np.repeat(rng.standard_normal((20, 3)), 200, axis=0)
    if name == "narrow":
        narrow = rng.standard_normal((3000, 2)) @ rng.standard_normal((2, 64))
        return (narrow + 1e-3 * rng.standard_normal((3000, 64))).astype(np.float32)
    return rng.standard_normal((3000, 8)) * 1e-5 + 1e7  # "offset": hardly told apart


MANY = ["clusters", "lattice", "duplicates", "narrow", "offset"], [1, 33, 250], EXACT


@pytest.mark.parametrize(
    ("name", "n_neighbors", "algorithm"),
    mostly_dealt(*MANY),
)
def test_folds__equal_definition_for_thousands_of_rows(name, n_neighbors, algorithm):
    """Reservoirs are refilled, narrowed and settled, and most cells are left out."""
    points = _many_points(name)
    numbers = np.random.default_rng(1).permutation(len(points))[:300]
    reference = in_blocks(algorithm, points, parts_of(len(points), 3), cell_rows=256)

    state = search_nearest(
        reference, points[numbers], n_neighbors, numbers, with_numbers=True
    )
    without_numbers = search_nearest(reference, points[numbers], n_neighbors, numbers)

    distances = all_distances(points[numbers], points)
    distances[np.arange(300), numbers] = np.inf
    expected = smallest(distances, n_neighbors)
    np.testing.assert_array_equal(state.neighbors()[0], expected[0])
    np.testing.assert_array_equal(state.neighbors()[1], expected[1])
    np.testing.assert_array_equal(state.finish(), expected[0][:, -1])
    np.testing.assert_array_equal(without_numbers.finish(), expected[0][:, -1])
    radii = np.quantile(expected[0], [0.0, 0.1, 0.5, 1.0], method="nearest")
    check_counts(reference, points[numbers], distances, radii, numbers)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_folds__survive_an_outlier_in_a_cell_of_many(algorithm, sample):
    """A row at 1e300 moves the center of its cell away from all others of the cell."""
    points = np.random.default_rng(0).standard_normal((2000, 2))
    points[1000] = [1e300, 0.0]
    reference = in_blocks(algorithm, points, sample=points[: SAMPLES[sample]])
    numbers = np.r_[0:200, 900:1100]

    actual = search_nearest(reference, points[numbers], 5, numbers).finish()

    distances = all_distances(points[numbers], points)
    distances[np.arange(400), numbers] = np.inf
    np.testing.assert_array_equal(actual, smallest(distances, 5)[0][:, -1])
    check_counts(reference, points[numbers], distances, [0.1], numbers)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("distance", [1e12, 1e13, 1e30, 1e300])
def test_folds__equal_definition_for_queries_far_outside(algorithm, distance):
    """Whether the rows near them are known to the basis or not."""
    inside = np.random.default_rng(0).standard_normal((200, 2))
    outside = np.array([[distance, 0.0], [0.0, -distance]])
    queries = np.concatenate([outside, 1.0001 * outside, 0.9 * outside, inside[:3]])

    for rows in (inside, np.concatenate([inside, outside])):
        reference = in_blocks(algorithm, rows, sample=inside)
        distances = all_distances(queries, rows)

        actual = search_nearest(reference, queries, 1).finish()

        np.testing.assert_array_equal(actual, smallest(distances, 1)[0][:, -1])
        check_counts(reference, queries, distances, (1.0, 0.01 * distance, distance))


@pytest.mark.usefixtures("compiled_kernels")
def test_folds__compare_all_pairs_by_brute_force_and_few_by_pruning():
    """A count, not a time."""
    points = _many_points("clusters")
    n_pairs = len(points) ** 2

    for algorithm in EXACT:
        reference = in_blocks(algorithm, points)
        nearest = search_nearest(reference, points, 5, np.arange(len(points)))
        counted = search_within(reference, points, 0.5)

        for state in (nearest, counted):
            if algorithm == "brute":
                assert state.n_compared == n_pairs
            else:
                assert state.n_compared < n_pairs / 10

"""Counts within a radius against the definition, and what "enough" leaves out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from searching import (
    EXACT,
    HARD_POINTS,
    SAMPLES,
    all_distances,
    in_blocks,
    normal_basis,
    parts_of,
    search_within,
)
from strategies import point_sets, row_parts


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20))
def test_fold_counts__equals_definition_for_any_blocks(algorithm, data, points):
    """However the rows are cut, also at radii that are distances between them."""
    distances = np.unique(all_distances(points, points))
    radius = data.draw(st.sampled_from([*distances, 0.1, 1.0]))
    parts = data.draw(row_parts(len(points)))
    sample = points[: data.draw(st.integers(1, len(points)))]
    reference = in_blocks(algorithm, points, parts, sample=sample)

    with_self = search_within(reference, points, radius)
    without_self = search_within(reference, points, radius, np.arange(len(points)))

    expected = definitions.neighbor_counts(points, points, radius)
    np.testing.assert_array_equal(with_self.finish(), expected)
    expected = definitions.neighbor_counts(points, points, radius, exclude_self=True)
    np.testing.assert_array_equal(without_self.finish(), expected)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [1, 3, 700])
@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 200])
def test_fold_counts__equals_definition_at_the_edges_of_tiles(
    algorithm, dtype, n_features, n_rows
):
    rng = np.random.default_rng(1000 * n_features + n_rows)
    rows = rng.standard_normal((n_rows, n_features)).astype(dtype)
    queries = np.concatenate([rng.standard_normal((3, n_features)).astype(dtype), rows[:2]])
    distances = all_distances(queries, rows)
    reference = in_blocks(algorithm, rows, basis=normal_basis(algorithm, n_features))

    for radius in np.quantile(distances, [0.0, 0.1, 0.5, 1.0], method="nearest"):
        actual = search_within(reference, queries, radius).finish()

        np.testing.assert_array_equal(actual, (distances <= radius).sum(axis=1))


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("n_queries", [1, 5, 6, 7, 255, 256, 257, 600])
def test_fold_counts__takes_any_number_of_queries(algorithm, n_queries):
    rng = np.random.default_rng(n_queries)
    rows, queries = rng.standard_normal((130, 3)), rng.standard_normal((n_queries, 3))

    actual = search_within(in_blocks(algorithm, rows), queries, 1.0).finish()

    expected = (all_distances(queries, rows) <= 1.0).sum(axis=1)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("name", HARD_POINTS)
def test_fold_counts__equals_definition_on_hard_data(name, n_parts, sample, algorithm):
    """At radii that are distances between rows, and next to them."""
    points = HARD_POINTS[name]
    distances = all_distances(points, points, exclude_self=True)
    finite = distances[np.isfinite(distances)]
    radii = np.quantile(finite, [0, 0.03, 0.5, 1], method="nearest") if len(finite) else [1]
    parts = parts_of(len(points), n_parts)
    reference = in_blocks(algorithm, points, parts, sample=points[: SAMPLES[sample]])

    for radius in [0.0, *radii, *np.nextafter(radii, 0), 1e301]:
        actual = search_within(reference, points, radius, np.arange(len(points))).finish()

        np.testing.assert_array_equal(actual, (distances <= radius).sum(axis=1))


@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_counts__equals_definition_for_thousands_of_rows(algorithm):
    rng = np.random.default_rng(0)
    points = rng.integers(0, 10, (4000, 3)) * 0.1
    numbers = rng.permutation(4000)[:300]
    reference = in_blocks(algorithm, points, parts_of(4000, 3), cell_rows=256)
    distances = all_distances(points[numbers], points)
    distances[np.arange(300), numbers] = np.inf

    for radius in (0.0, 0.1, 0.2, 0.1 + 0.2, 1.0):
        actual = search_within(reference, points[numbers], radius, numbers).finish()

        np.testing.assert_array_equal(actual, (distances <= radius).sum(axis=1))


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_counts__survives_an_outlier_in_a_cell_of_many(algorithm, sample):
    """A row at 1e300 moves the center of its cell away from all others of the cell."""
    points = np.random.default_rng(0).standard_normal((2000, 2))
    points[1000] = [1e300, 0.0]
    numbers = np.r_[0:200, 900:1100]
    reference = in_blocks(algorithm, points, sample=points[: SAMPLES[sample]])

    actual = search_within(reference, points[numbers], 0.1, numbers).finish()

    distances = all_distances(points[numbers], points)
    distances[np.arange(400), numbers] = np.inf
    np.testing.assert_array_equal(actual, (distances <= 0.1).sum(axis=1))


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("distance", [1e12, 1e13, 1e30, 1e300])
def test_fold_counts__equals_definition_for_queries_far_outside(algorithm, distance):
    inside = np.random.default_rng(0).standard_normal((200, 2))
    outside = np.array([[distance, 0.0], [0.0, -distance]])
    queries = np.concatenate([outside, 1.0001 * outside, 0.9 * outside, inside[:3]])
    rows = np.concatenate([inside, outside])
    reference = in_blocks(algorithm, rows, sample=inside)

    for radius in (1.0, 0.01 * distance, distance):
        actual = search_within(reference, queries, radius).finish()

        expected = (all_distances(queries, rows) <= radius).sum(axis=1)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20))
def test_fold_counts__decides_alike_when_told_what_is_enough(algorithm, data, points):
    radius = data.draw(st.sampled_from(np.unique(all_distances(points, points))))
    enough = data.draw(st.integers(1, len(points) + 1))
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks(algorithm, points, parts)
    numbers = np.arange(len(points))

    counts = search_within(reference, points, radius, numbers, enough=enough).finish()

    expected = definitions.neighbor_counts(points, points, radius, exclude_self=True)
    np.testing.assert_array_equal(counts >= enough, expected >= enough)
    np.testing.assert_array_equal(counts[expected < enough], expected[expected < enough])


@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_counts__leaves_out_queries_that_have_enough(algorithm):
    """A count of pairs, not a time: what is decided is not looked at again."""
    rng = np.random.default_rng(0)
    dense, sparse = 0.1 * rng.standard_normal((3000, 2)), 9 * rng.standard_normal((200, 2))
    points = rng.permutation(np.concatenate([dense, sparse]))
    reference = in_blocks(algorithm, points, parts_of(3200, 4))
    numbers = np.arange(3200)

    all_counted = search_within(reference, points, 0.3, numbers)
    decided = search_within(reference, points, 0.3, numbers, enough=20)

    is_enough = all_counted.finish() >= 20
    assert 0 < is_enough.sum() < 3200
    np.testing.assert_array_equal(decided.finish() >= 20, is_enough)
    assert decided.n_compared < all_counted.n_compared / 3


def test_fold_counts__compares_all_pairs_by_brute_force_and_few_by_pruning():
    """A count, not a time."""
    rng = np.random.default_rng(0)
    centers = 30 * rng.standard_normal((20, 3))
    points = centers[rng.integers(0, 20, 4000)] + rng.standard_normal((4000, 3))

    n_compared = {
        algorithm: search_within(in_blocks(algorithm, points), points, 0.5).n_compared
        for algorithm in EXACT
    }

    assert n_compared["brute"] == 4000**2
    assert n_compared["pruned"] < 4000**2 / 10

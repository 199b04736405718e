"""Rows with codes of categories in their last columns, against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt
from compiling import from_python
from lpe_dask.kernels import squares as module
from lpe_dask.kernels.accumulators import KNearestAccumulator
from searching import (
    EXACT,
    HARD_POINTS,
    SAMPLES,
    all_distances,
    folded,
    in_blocks,
    parts_of,
    query_tiles,
    search_nearest,
    search_within,
    smallest,
)
from strategies import point_sets, row_parts

fill_squares = from_python(module.fill_squares)

pytestmark = pytest.mark.usefixtures("either_way")

#: Of no effect, of ordinary ones, of some that round, and of what float32 does not hold.
WEIGHTS = [0.0, 1.0, 0.25, 0.1, 3.0, 1e-3, 1e-18, 1e14, 1e-300, 1e300]


#: Weights of numbers, as they are left beside powers of two.
W = [1.0, 1.0, 1.5, 2.0, 1.1, 3.9]


def with_codes(points, n_codes, seed, n_levels=3):
    """Return rows with codes after the numbers; queries may have a code of no row, -1."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_levels, (len(points), n_codes))
    rows, queries = np.hstack([points, codes]), np.hstack([points, codes])
    is_unknown = rng.random(codes.shape) < 0.1
    queries[:, points.shape[1] :][is_unknown] = -1
    return rows, queries


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_features", [1, 8, 13])
def test_fill_squares__adds_weights_in_order_after_the_numbers(dtype, n_features):
    """Magnitudes differ so much that any other order would round differently."""
    rng = np.random.default_rng(n_features)
    rows, queries = with_codes(rng.standard_normal((40, n_features)).astype(dtype), 5, 0)
    rows = rows.astype(dtype)
    weights = 10.0 ** rng.integers(-8, 8, 5) * rng.random(5)
    block = in_blocks("brute", rows, weights=weights).blocks[0]
    places, squares = np.arange(40), np.empty(40)
    w = rng.uniform(1, 4, n_features)
    of_columns = np.append(w, weights)

    for query in queries[:10]:
        fill_squares(query, block, places, 40, squares, of_columns, 5)

        expected = [definitions.distance(query, row, weights, w) for row in rows]
        np.testing.assert_array_equal(np.sqrt(squares), np.array(expected)[block.numbers])


@pytest.mark.parametrize("algorithm", EXACT)
@given(
    data=st.data(),
    points=point_sets(max_rows=20),
    n_neighbors=st.integers(1, 25),
    weights=st.lists(st.sampled_from(WEIGHTS), max_size=4),
    seed=st.integers(0, 999),
    enough=st.one_of(st.none(), st.integers(1, 9)),
)
def test_folds__equal_definition_for_any_weights(
    algorithm, data, points, n_neighbors, weights, seed, enough
):
    """Also at radii that are distances of pairs."""
    rows, queries = with_codes(points, len(weights), seed)
    w = [data.draw(st.sampled_from(W)) for _ in range(points.shape[1])]
    parts = data.draw(row_parts(len(rows)))
    sample = rows[: data.draw(st.integers(1, len(rows)))]
    distances = all_distances(queries, rows, weights=weights, w=w).ravel()
    radius = float(data.draw(st.sampled_from(distances[np.isfinite(distances)].tolist())))
    reference = in_blocks(algorithm, rows, parts, sample=sample, weights=weights, w=w)

    new = search_nearest(reference, queries, n_neighbors).finish()
    own = search_nearest(reference, rows, n_neighbors, np.arange(len(rows))).finish()
    counts = search_within(reference, queries, radius, enough=enough).finish()

    expected = definitions.knn_radii(queries, rows, n_neighbors, False, weights, w)
    np.testing.assert_array_equal(new, expected)
    expected = definitions.knn_radii(rows, rows, n_neighbors, True, weights, w)
    np.testing.assert_array_equal(own, expected)
    expected = definitions.neighbor_counts(queries, rows, radius, False, weights, w)
    if enough is not None:
        counts, expected = np.minimum(counts, enough), np.minimum(expected, enough)
    np.testing.assert_array_equal(counts, expected)


HARD = HARD_POINTS, SAMPLES, EXACT


@pytest.mark.parametrize(("name", "sample", "algorithm"), mostly_dealt(*HARD))
def test_fold_nearest__equals_definition_on_hard_data_with_codes(name, sample, algorithm):
    points = HARD_POINTS[name]
    n_rows = len(points)
    for i, weights in enumerate([(1.0,), (0.1, 1e-3, 0.0), (1e300, 1e-300, 1.0)]):
        rows, queries = with_codes(points, len(weights), seed=i, n_levels=2 + 20 * i)
        reference = in_blocks(
            algorithm, rows, parts_of(n_rows, 2), sample=rows[: SAMPLES[sample]],
            weights=np.array(weights),
        )  # fmt: skip
        own = all_distances(rows, rows, exclude_self=True, weights=weights)
        new = all_distances(queries, rows, weights=weights)

        for n_neighbors in (1, 5, 40, n_rows - 1):
            state = search_nearest(reference, rows, n_neighbors, np.arange(n_rows))
            expected = smallest(own, n_neighbors)[0][:, -1]
            np.testing.assert_array_equal(state.finish(), expected)
            actual = search_nearest(reference, queries, n_neighbors).finish()
            expected = smallest(new, n_neighbors)[0][:, -1]
            np.testing.assert_array_equal(actual, expected)


PARTS = EXACT, [1, 127, 128, 129, 300]


@pytest.mark.parametrize(("algorithm", "n_features"), mostly_dealt(*PARTS))
def test_fold_nearest__equals_definition_where_features_are_summed_in_parts(
    algorithm, n_features
):
    """Codes are compared with the last part alone, and when first limits are set."""
    rng = np.random.default_rng(n_features)
    rows, queries = with_codes(rng.standard_normal((500, n_features)), 2, 0, n_levels=30)
    weights = np.array([0.5 * n_features, 2.0])
    reference = in_blocks(algorithm, rows, weights=weights, cell_rows=256)

    for n_neighbors in (1, 20, 60):
        actual = search_nearest(reference, queries, n_neighbors).finish()

        distances = all_distances(queries, rows, weights=weights)
        np.testing.assert_array_equal(actual, smallest(distances, n_neighbors)[0][:, -1])


@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_nearest__takes_limits_of_a_sample_with_codes(algorithm):
    rng = np.random.default_rng(0)
    rows, queries = with_codes(rng.integers(0, 4, (600, 2)) * 0.1, 2, 0)
    weights = np.array([0.01, 1.0])
    reference = in_blocks(algorithm, rows, weights=weights)
    sample = in_blocks(algorithm, rows[::16], basis=reference.basis)
    tiles = query_tiles(reference, queries)
    sampled = folded(KNearestAccumulator(tiles, reference.basis, 3), sample)

    state = KNearestAccumulator(tiles, reference.basis, 48)
    state.guess(sampled)
    folded(state, reference)
    if state.missed():
        folded(state, reference)

    expected = smallest(all_distances(queries, rows, weights=weights), 48)[0][:, -1]
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("weight", [1e-4, 0.1, 1.0, 100.0])
def test_fold_nearest__leaves_out_most_pairs_of_clusters_with_categories(weight):
    """By boxes of numbers where weights are small, and by codes where they are large."""
    rng = np.random.default_rng(0)
    centers = rng.random((50, 4))
    points = centers[rng.integers(0, 50, 20_000)] + 0.01 * rng.standard_normal((20_000, 4))
    rows, _ = with_codes(points, 3, 0, n_levels=8)
    reference = in_blocks("pruned", rows, cell_rows=256, weights=np.full(3, weight))

    state = search_nearest(reference, rows, 10, np.arange(len(rows)))

    assert state.n_compared < 0.2 * len(rows) ** 2
    chosen = slice(None, None, 400)
    distances = all_distances(rows[chosen], rows, weights=[weight] * 3)
    expected = np.sort(distances, axis=1)[:, 10]  # the first one is the row itself
    np.testing.assert_array_equal(state.finish()[chosen], expected)


def test_fold_nearest__compares_categories_alone():
    """As prepared rows have it: a column of zeros before the codes."""
    rows, queries = with_codes(np.zeros((200, 1)), 3, 0, n_levels=4)
    weights = np.array([1.0, 2.0, 0.5])
    for algorithm in EXACT:
        reference = in_blocks(algorithm, rows, weights=weights)
        actual = search_nearest(reference, queries, 7).finish()

        expected = definitions.knn_radii(queries, rows, 7, weights=weights)
        np.testing.assert_array_equal(actual, expected)

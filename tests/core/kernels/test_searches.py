"""The nearest rows, and counts within a radius, against the definition, in every bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt, mostly_paired
from lpe_dask.kernels import ALGORITHMS
from lpe_dask.kernels.filters import PAIRS_AT_ONCE
from search_checks import check_searches, fold_needed, with_codes
from searching import (
    EXACT,
    HARD_POINTS,
    SAMPLES,
    all_distances,
    folded,
    in_blocks,
    normal_basis,
    parts_of,
    search_nearest,
    search_within,
    smallest,
)
from strategies import point_sets, row_parts

pytestmark = pytest.mark.usefixtures("either_way")

#: Of no effect, of ordinary ones, of some that round, and of what float32 does not hold.
WEIGHTS = [0.0, 1.0, 0.25, 0.1, 3.0, 1e-3, 1e-18, 1e14, 1e-300, 1e300]

#: Weights of numbers, as they are left beside powers of two.
W = [1.0, 1.0, 1.5, 2.0, 1.1, 3.9]


# The judge of the kernels is itself judged.


@pytest.mark.parametrize("weights", [(), (0.1, 3.0)])
@pytest.mark.parametrize("name", HARD_POINTS)
def test_all_distances__are_those_of_the_definition(name, weights):
    rows, queries = with_codes(HARD_POINTS[name], len(weights))
    queries = np.concatenate([queries[:7], queries[-3:]])
    w = np.linspace(1, 2, HARD_POINTS[name].shape[1])

    actual = all_distances(queries, rows, weights=weights, w=w)

    expected = [[definitions.distance(x, y, weights, w) for y in rows] for x in queries]
    np.testing.assert_array_equal(actual, expected)


def test_smallest__are_in_the_order_of_distance_and_number():
    values, columns = smallest(np.array([[2.0, np.inf, 1.0, 1.0]]), 4)

    np.testing.assert_array_equal(values, [[1.0, 1.0, 2.0, np.inf]])
    np.testing.assert_array_equal(columns, [[2, 3, 0, -1]])


# Any rows


@given(
    data=st.data(),
    points=point_sets(max_rows=20),
    n_neighbors=st.integers(1, 25),
    weights=st.lists(st.sampled_from(WEIGHTS), max_size=4),
    seed=st.integers(0, 999),
)
def test_searches__equal_definition_for_any_blocks(
    algorithm, data, points, n_neighbors, weights, seed
):
    """However the rows are cut into blocks, and in whatever order these come.

    Also where a block that may not be needed is left out, and what is enough is known.
    """
    rows, queries = with_codes(points, len(weights), seed)
    settings = {
        "parts": data.draw(row_parts(len(rows))),
        "sample": rows[: data.draw(st.integers(1, len(rows)))],
        "weights": weights,
        "w": [data.draw(st.sampled_from(W)) for _ in range(points.shape[1])],
        "n_neighbors": [n_neighbors],
        "quantiles": [data.draw(st.floats(0, 1))],
        "radii": [0.1, 1.0],
        "enough": data.draw(st.integers(1, 9)),
    }

    for fold in (folded, fold_needed):
        check_searches(algorithm, rows, queries, fold=fold, **settings)
        check_searches(algorithm, rows, fold=fold, **settings)


@given(data=st.data(), points=point_sets(max_rows=9), n_neighbors=st.integers(1, 200))
def test_searches__equal_definition_for_many_duplicates(
    algorithm, data, points, n_neighbors
):
    """More equal rows than a cell, a reservoir or K holds."""
    rows = np.repeat(points, data.draw(st.integers(1, 40)), axis=0)
    parts = data.draw(row_parts(len(points)))
    parts = [np.flatnonzero(np.isin(np.arange(len(rows)) % len(points), p)) for p in parts]

    check_searches(algorithm, rows, n_neighbors=[n_neighbors], parts=parts)


HARD = (
    HARD_POINTS, [1, 3, 43], SAMPLES, EXACT,
    [(), (1.0,), (0.1, 1e-3, 0.0), (1e300, 1e-300, 1.0)],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "n_parts", "sample", "algorithm", "weights"), mostly_paired(*HARD)
)
def test_searches__equal_definition_on_hard_data(name, n_parts, sample, algorithm, weights):
    """Also where the last rows come first, and where blocks have one row."""
    points = HARD_POINTS[name]
    if n_parts == 43:
        points = np.concatenate([points[:40], points[-3:]])
    n_rows = len(points)
    rows, queries = with_codes(points, len(weights), n_levels=2 + n_parts)
    queries[:, : queries.shape[1] - len(weights)] *= 1.01
    parts = parts_of(n_rows, n_parts)
    settings = {"sample": rows[: SAMPLES[sample]], "weights": np.array(weights)}

    check_searches(
        algorithm, rows, n_neighbors=(1, 5, 40, n_rows - 1, n_rows + 3), parts=parts,
        quantiles=(0, 0.03, 0.5, 1), radii=(0.0, 1.0, 1e301), **settings,
    )  # fmt: skip
    check_searches(
        algorithm, rows, queries[::3], n_neighbors=(1, 7, 60), quantiles=(0.1,),
        parts=[part[::-1] for part in reversed(parts)], **settings,
    )  # fmt: skip


# Where rows, tiles, cells and parts of features end

TILES = EXACT, [np.float32, np.float64], [1, 3, 700], [1, 63, 64, 65, 200]


@pytest.mark.parametrize(
    ("algorithm", "dtype", "n_features", "n_rows"), mostly_paired(*TILES)
)
def test_searches__equal_definition_at_the_edges_of_tiles(
    algorithm, dtype, n_features, n_rows
):
    rng = np.random.default_rng(1000 * n_features + n_rows)
    rows = rng.standard_normal((n_rows, n_features)).astype(dtype)
    queries = np.concatenate([rng.standard_normal((3, n_features)).astype(dtype), rows[:2]])
    n_neighbors = {1, min(5, n_rows), max(1, n_rows - 1), n_rows, n_rows + 1}

    check_searches(
        algorithm, rows, queries, n_neighbors=n_neighbors,
        basis=normal_basis(algorithm, n_features),
    )  # fmt: skip


@pytest.mark.parametrize("n_queries", [0, 1, 5, 6, 7, 255, 256, 257, 600])
def test_searches__take_any_number_of_queries(algorithm, n_queries):
    rng = np.random.default_rng(n_queries)
    rows, queries = rng.standard_normal((130, 3)), rng.standard_normal((n_queries, 3))

    check_searches(algorithm, rows, queries, n_neighbors=[4], radii=[1.0])


AT_ONCE = 2 * PAIRS_AT_ONCE
PARTS = EXACT, [1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 600]


@pytest.mark.parametrize(("algorithm", "n_features"), mostly_dealt(*PARTS))
@pytest.mark.parametrize("weights", [(), (0.5, 2.0)])
def test_searches__equal_definition_where_features_are_summed_in_parts(
    algorithm, n_features, weights
):
    """Codes are compared with the last part alone, and when first limits are set."""
    rng = np.random.default_rng(n_features)
    points = rng.standard_normal((500, n_features))
    rows, queries = with_codes(points, len(weights), n_levels=30)

    check_searches(
        algorithm, rows, queries, n_neighbors=(1, 20, 60), cell_rows=256,
        weights=np.array(weights) * n_features,
    )  # fmt: skip


def test_searches__take_rows_and_queries_in_any_layout(algorithm):
    """Kernels read along a row, whatever the order of a table in memory is."""
    points = np.random.default_rng(0).standard_normal((300, 9))
    for rows in (np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2]):
        check_searches(algorithm, rows, rows[:200], n_neighbors=[5])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_searches__do_not_measure_a_row_that_is_not_finite(algorithm, value, dtype):
    """Its radius and count are NaN, it has no neighbors, and other rows do not notice."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 2)).astype(dtype)
    queries = rng.standard_normal((300, 2)).astype(dtype)
    is_bad = np.arange(300) % 7 == 2
    queries[is_bad, rng.integers(0, 2, is_bad.sum())] = value

    check_searches(algorithm, rows, queries, n_neighbors=[3], parts=parts_of(300, 2))


def test_searches__compare_categories_alone():
    """As prepared rows have it: a column of zeros before the codes."""
    rows, queries = with_codes(np.zeros((200, 1)), 3, n_levels=4)
    for algorithm in EXACT:
        check_searches(algorithm, rows, queries, n_neighbors=[7], weights=[1.0, 2.0, 0.5])


def test_searches__take_different_squares_with_one_root_as_a_tie(algorithm):
    """Neighbors are those of the smallest (distance, number), not (square, number)."""
    rows = np.random.default_rng(0).integers(0, 10, (2000, 3)) * 0.1

    check_searches(
        algorithm, rows, rows[:200], np.arange(200), n_neighbors=[20],
        parts=parts_of(2000, 2),
    )  # fmt: skip


def test_searches__select_among_more_rows_than_the_reservoir_holds(algorithm):
    """Rows that come nearer and nearer refill the reservoir again and again."""
    rows = np.linspace(100.0, 0.0, 3000)[:, None]

    check_searches(algorithm, rows, np.zeros((1, 1)), n_neighbors=[7])


@pytest.mark.parametrize("n_features", [2, 12])
def test_searches__end_where_half_of_the_rows_are_equal(n_features, algorithm):
    """The square of a query among equal rows is no start for that of the next one."""
    rows = np.random.default_rng(0).standard_normal((2000, n_features))
    rows[::2] = rows[0]

    check_searches(algorithm, rows, n_neighbors=[20], quantiles=(), cell_rows=256)


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


@pytest.mark.parametrize(("name", "n_neighbors", "algorithm"), mostly_dealt(*MANY))
def test_searches__equal_definition_for_thousands_of_rows(name, n_neighbors, algorithm):
    """Reservoirs are refilled, narrowed and settled, and most cells are left out."""
    points = _many_points(name)
    numbers = np.random.default_rng(1).permutation(len(points))[:300]

    check_searches(
        algorithm, points, points[numbers], numbers, n_neighbors=[n_neighbors],
        quantiles=(0.0, 0.001, 0.01, 0.1), parts=parts_of(len(points), 3), cell_rows=256,
    )  # fmt: skip


# Rows far out


@pytest.mark.parametrize("sample", SAMPLES)
def test_searches__survive_an_outlier_in_a_cell_of_many(algorithm, sample):
    """A row at 1e300 moves the center of its cell away from all others of the cell."""
    points = np.random.default_rng(0).standard_normal((2000, 2))
    points[1000] = [1e300, 0.0]
    numbers = np.r_[0:200, 900:1100]

    check_searches(
        algorithm, points, points[numbers], numbers, n_neighbors=[5],
        quantiles=(0.01,), sample=points[: SAMPLES[sample]],
    )  # fmt: skip


@pytest.mark.parametrize("distance", [1e12, 1e13, 1e30, 1e300])
def test_searches__equal_definition_for_queries_far_outside(algorithm, distance):
    """Whether the rows near them are known to the basis or not."""
    inside = np.random.default_rng(0).standard_normal((200, 2))
    outside = np.array([[distance, 0.0], [0.0, -distance]])
    queries = np.concatenate([outside, 1.0001 * outside, 0.9 * outside, inside[:3]])
    radii = 1.0, 0.01 * distance, distance

    for rows in (inside, np.concatenate([inside, outside])):
        check_searches(
            algorithm, rows, queries, n_neighbors=[1], radii=radii, sample=inside
        )


# How many pairs are compared: a count, not a time


@pytest.mark.usefixtures("compiled_kernels")
def test_searches__compare_all_pairs_by_brute_force_and_few_by_pruning():
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


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("weight", [1e-4, 0.1, 1.0, 100.0])
def test_searches__leave_out_most_pairs_of_clusters_with_categories(weight):
    """By boxes of numbers where weights are small, and by codes where they are large."""
    rng = np.random.default_rng(0)
    centers = rng.random((50, 4))
    points = centers[rng.integers(0, 50, 20_000)] + 0.01 * rng.standard_normal((20_000, 4))
    rows, _ = with_codes(points, 3, n_levels=8)
    reference = in_blocks("pruned", rows, cell_rows=256, weights=np.full(3, weight))

    state = search_nearest(reference, rows, 10, np.arange(len(rows)))

    assert state.n_compared < 0.2 * len(rows) ** 2
    chosen = slice(None, None, 400)
    distances = all_distances(rows[chosen], rows, weights=[weight] * 3)
    expected = np.sort(distances, axis=1)[:, 10]  # the first one is the row itself
    np.testing.assert_array_equal(state.finish()[chosen], expected)


def test_searches__leave_out_queries_that_have_enough(algorithm):
    """What is decided is not looked at again."""
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


@pytest.mark.usefixtures("compiled_kernels")
def test_searches__compare_few_pairs_of_rows_that_are_in_no_cell_together():
    """New rows that lie anywhere begin with their own cells, as rows of one cell do."""
    rng = np.random.default_rng(0)
    points, new = rng.standard_normal((20_000, 3)), rng.standard_normal((1000, 3))
    reference = in_blocks("pruned", points, cell_rows=64)
    cell = reference.blocks[0].rows[:1024]

    of_cells = search_nearest(reference, cell, 10)
    anywhere = search_nearest(reference, new, 10)

    assert anywhere.n_compared / len(new) < 1.3 * of_cells.n_compared / len(cell)


@pytest.mark.usefixtures("compiled_kernels")
def test_searches__compare_fewer_pairs_where_groups_of_cells_have_boxes():
    points = np.random.default_rng(0).standard_normal((20_000, 4))

    compared = {
        cell_rows: search_nearest(
            in_blocks("pruned", points, cell_rows=cell_rows), points[:2000], 10
        ).n_compared
        for cell_rows in (64, 1024, 2048)
    }

    assert max(compared.values()) < 1.2 * compared[64]


# Rows that are not measured, and blocks without a row that matters


@pytest.mark.parametrize("n_features", [3, 50])
@pytest.mark.parametrize("cell_rows", [64, 512])
def test_searches__find_no_row_with_nan(algorithm, n_features, cell_rows):
    """Also where they fill whole groups, of which no sum is written."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((700, n_features))
    rows = points.copy()
    rows[:256] = np.nan
    reference = in_blocks(algorithm, rows, cell_rows=cell_rows, sample=points)

    for queries in (points, points + 5):
        expected = smallest(all_distances(queries, rows[256:]), 5)[0][:, -1]
        for _ in range(3):  # memory that is not filled has other numbers each time
            state = search_nearest(reference, queries, 5)
            np.testing.assert_array_equal(state.finish(), expected)


def test_searches__find_nothing_in_blocks_of_other_groups():
    """A tile whose separating code no row of the block has meets no cell."""
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.standard_normal((500, 2)), np.ones((500, 1))])
    queries = rows[:100].copy()
    queries[:, -1] = rng.integers(2, 9, 100)
    basis = ALGORITHMS["pruned"].basis(rows, np.ones(3), 1, separates=True)
    reference = in_blocks("pruned", rows, basis=basis, weights=[1.0])

    for _ in range(10):
        assert np.isinf(search_nearest(reference, queries, 3).finish()).all()

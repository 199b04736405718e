"""What a search knows: which blocks it needs, and what a guess may do to it."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt
from compiling import WAYS, taking
from lpe_dask.kernels.accumulators import CountAccumulator, KNearestAccumulator
from lpe_dask.kernels.blocks import block_of
from lpe_dask.kernels.nearest import fold_nearest
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

pytestmark = pytest.mark.usefixtures("either_way")


def _fold_needed(state, reference):
    """Fold the blocks that may be needed; return how many were left out."""
    n_left_out = 0
    for block in reference.blocks:
        if state.may_need(block.low, block.high):
            state.fold(block)
        else:
            n_left_out += 1
    return n_left_out


def _two_clusters(n_rows=200):
    """Rows around 0, and as many around 100."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.standard_normal((n_rows, 3)) + far for far in (0, 100)])


def test_fold__compiles_nothing_more_for_a_block_from_a_message():
    """What arrives may be read-only, which numba takes for another type."""
    rows = _two_clusters()
    reference = in_blocks("pruned", rows)
    first = search_nearest(reference, rows, 5).finish()
    n_compiled = len(fold_nearest.signatures)
    buffers = []
    message = pickle.dumps(reference.blocks[0], 5, buffer_callback=buffers.append)
    arrived = pickle.loads(message, buffers=[bytes(buffer.raw()) for buffer in buffers])
    assert not arrived.numbers.flags.writeable

    reference.blocks[0] = arrived

    np.testing.assert_array_equal(search_nearest(reference, rows, 5).finish(), first)
    assert len(fold_nearest.signatures) == n_compiled


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 8))
def test_may_need__never_leaves_out_a_neighbor(algorithm, data, points, n_neighbors):
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks(algorithm, points, parts)
    numbers = np.arange(len(points))
    queries = query_tiles(reference, points, numbers)
    radius = data.draw(st.sampled_from(np.unique(all_distances(points, points))))

    nearest = KNearestAccumulator(queries, reference.basis, n_neighbors)
    _fold_needed(nearest, reference)
    counted = CountAccumulator(queries, reference.basis, radius)
    _fold_needed(counted, reference)

    expected = definitions.knn_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(nearest.finish(), expected)
    expected = definitions.neighbor_counts(points, points, radius, exclude_self=True)
    np.testing.assert_array_equal(counted.finish(), expected)


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 21))
def test_finish__is_the_mean_by_definition(algorithm, data, points, n_neighbors):
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks(algorithm, points, parts)
    queries = query_tiles(reference, points, np.arange(len(points)))

    state = KNearestAccumulator(queries, reference.basis, n_neighbors, aggregation="mean")
    _fold_needed(state, reference)

    expected = definitions.mean_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("name", HARD_POINTS)
def test_finish__is_the_mean_on_hard_data(name, algorithm):
    """Also of distances whose sum overflows."""
    points = HARD_POINTS[name]
    reference = in_blocks(algorithm, points, parts_of(len(points), 3))
    queries = query_tiles(reference, points, np.arange(len(points)))

    state = KNearestAccumulator(queries, reference.basis, 5, aggregation="mean")
    _fold_needed(state, reference)

    nearest = smallest(all_distances(points, points, exclude_self=True), 5)[0]
    expected = [definitions.mean_of_smallest(row, 5) for row in nearest.tolist()]
    np.testing.assert_array_equal(state.finish(), expected)


HARD = HARD_POINTS, SAMPLES, EXACT


@pytest.mark.parametrize(("name", "sample", "algorithm"), mostly_dealt(*HARD))
def test_may_need__never_leaves_out_a_neighbor_on_hard_data(name, sample, algorithm):
    """One query at a time, against blocks of near rows."""
    points = HARD_POINTS[name]
    order = np.lexsort(points.T)
    parts = [order[part] for part in parts_of(len(points), 8)]
    reference = in_blocks(algorithm, points, parts, sample=points[: SAMPLES[sample]])
    expected = smallest(all_distances(points, points, exclude_self=True), 3)[0][:, -1]

    for row in [*range(0, len(points), 9), len(points) - 1]:
        queries = query_tiles(reference, points[[row]], np.array([row]))
        state = KNearestAccumulator(queries, reference.basis, 3)
        _fold_needed(state, reference)

        assert state.finish() == expected[row]


def test_may_need__leaves_out_blocks_too_far_for_the_nearest():
    """Nothing is ruled out before K rows are known, and then what is far is."""
    points = _two_clusters()
    reference = in_blocks("pruned", points, parts_of(400, 8))
    queries = query_tiles(reference, points[:200], np.arange(200))
    state = KNearestAccumulator(queries, reference.basis, 5)
    boxes = [(block.low, block.high) for block in reference.blocks]
    far = [False] * 4 + [True] * 4

    before = [state.may_need(*box) for box in boxes]
    state.fold(reference.blocks[0])
    after = [state.may_need(*box) for box in boxes]

    assert before == [True] * 8
    assert after == [not is_far for is_far in far]


def test_may_need__leaves_out_blocks_outside_the_radius():
    points = _two_clusters()
    reference = in_blocks("pruned", points, parts_of(400, 8))
    # A row that is not measured needs no block, and lets none be needed.
    rows = np.concatenate([[[np.nan, 0, 0]], points[201:], [[0, np.inf, 0]]])
    queries = query_tiles(reference, rows)

    small = CountAccumulator(queries, reference.basis, 1.0)
    large = CountAccumulator(queries, reference.basis, 200.0)

    assert _fold_needed(small, reference) == 4
    assert _fold_needed(large, reference) == 0
    distances = all_distances(points[201:], points)
    for state, radius in ((small, 1.0), (large, 200.0)):
        expected = [np.nan, *(distances <= radius).sum(axis=1), np.nan]
        np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.parametrize("algorithm", EXACT)
def test_may_need__leaves_out_all_blocks_once_every_query_has_enough(algorithm):
    points = _two_clusters()
    reference = in_blocks(algorithm, points, parts_of(400, 2))
    state = CountAccumulator(query_tiles(reference, points), reference.basis, 1000.0, 10)

    n_left_out = _fold_needed(state, reference)

    assert n_left_out == 1
    assert (state.finish() >= 10).all()


def test_may_need__of_brute_force_leaves_out_nothing_by_place():
    points = _two_clusters()
    reference = in_blocks("brute", points, parts_of(400, 8))
    state = KNearestAccumulator(query_tiles(reference, points), reference.basis, 5)

    assert _fold_needed(state, reference) == 0


def _guess_from(kind, algorithm, queries, points, n_neighbors):
    """Search some other rows for fewer neighbors, as a guess of how far the nearest are."""
    rows, n_fewer = {
        "sample": (points[::8], n_neighbors // 8 + 12),
        "too low": (points + 1e-9, 1),
        "too low for some": (points[:300] + 1e-9, 1),
        "zero": (points, 1),
        "infinite": (points[:3], 4),
    }[kind]
    elsewhere = in_blocks(algorithm, rows, [np.arange(len(rows))], sample=points)
    # Other rows than those that are searched: a query is among them only by its place.
    numbers = (
        np.arange(len(rows)) * 8 if kind == "sample" else 10_000 + np.arange(len(rows))
    )
    (block,) = elsewhere.blocks
    elsewhere.blocks[:] = [block_of(*block._replace(numbers=numbers[block.numbers]))]
    return folded(KNearestAccumulator(queries, elsewhere.basis, n_fewer), elsewhere)


GUESSES = (
    ["sample", "too low", "too low for some", "zero", "infinite"], [False, True], EXACT,
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "with_numbers", "algorithm"),
    mostly_dealt(*GUESSES),
)
def test_guess__does_not_change_any_bit(kind, with_numbers, algorithm):
    """However absurd: what it got wrong is missed, and searched again."""
    points = np.random.default_rng(0).standard_normal((1500, 3))
    numbers = np.arange(1500)
    reference = in_blocks(algorithm, points, parts_of(1500, 4))
    queries = query_tiles(reference, points, numbers)
    guess = _guess_from(kind, algorithm, queries, points, 20)

    state = KNearestAccumulator(queries, reference.basis, 20, with_numbers=with_numbers)
    state.guess(guess)
    folded(state, reference)
    n_before = state.n_compared
    has_missed = state.missed()
    if has_missed:
        folded(state, reference)

    expected = search_nearest(reference, points, 20, numbers, with_numbers=True)
    is_too_low = guess.finish() < expected.finish()
    assert has_missed == is_too_low.any() == (kind.startswith(("too low", "zero")))
    np.testing.assert_array_equal(state.finish(), expected.finish())
    if with_numbers:
        np.testing.assert_array_equal(state.neighbors()[1], expected.neighbors()[1])
    if algorithm == "brute":  # only what was missed is searched again
        assert state.n_compared - n_before == is_too_low.sum() * 1500


@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 8))
@pytest.mark.parametrize("algorithm", EXACT)
def test_guess__from_any_rows_equals_definition(algorithm, data, points, n_neighbors):
    """Ties, duplicates at distance 0, fewer rows than K."""
    reference = in_blocks(algorithm, points, data.draw(row_parts(len(points))))
    numbers = np.arange(len(points))
    queries = query_tiles(reference, points, numbers)
    n_sample = data.draw(st.integers(1, len(points)))
    sample = in_blocks(algorithm, points, [numbers[:n_sample]])
    n_fewer = data.draw(st.integers(1, n_neighbors))

    state = KNearestAccumulator(queries, reference.basis, n_neighbors)
    state.guess(folded(KNearestAccumulator(queries, reference.basis, n_fewer), sample))
    _fold_needed(state, reference)
    if state.missed():
        _fold_needed(state, reference)

    expected = definitions.knn_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.usefixtures("compiled_kernels")
def test_guess__leaves_out_pairs_from_the_beginning():
    """Also from the first block, however far it is: a count, not a time."""
    points = np.random.default_rng(0).standard_normal((4000, 2))
    points = points[np.argsort(points[:, 0])]
    numbers = np.arange(4000)
    reference = in_blocks("pruned", points, parts_of(4000, 8))
    queries = query_tiles(reference, points, numbers)
    guess = _guess_from("sample", "pruned", queries, points, 20)

    guessed = KNearestAccumulator(queries, reference.basis, 20)
    guessed.guess(guess)
    folded(guessed, reference)
    unguessed = folded(KNearestAccumulator(queries, reference.basis, 20), reference)

    assert not guessed.missed()
    assert guessed.n_compared < 0.8 * unguessed.n_compared


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_states__do_not_measure_a_row_that_is_not_finite(algorithm, value, dtype):
    """Its radius and count are NaN, it has no neighbors, and other rows do not notice."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 2)).astype(dtype)
    queries = rng.standard_normal((300, 2)).astype(dtype)
    is_bad = np.arange(300) % 7 == 2
    queries[is_bad, rng.integers(0, 2, is_bad.sum())] = value
    reference = in_blocks(algorithm, rows, parts_of(300, 2))

    nearest = search_nearest(reference, queries, 3, with_numbers=True)
    counted = search_within(reference, queries, 0.5)

    distances = all_distances(queries, rows)
    values, numbers = smallest(distances, 3)
    radii = np.where(is_bad, np.nan, values[:, -1])
    counts = np.where(is_bad, np.nan, (distances <= 0.5).sum(axis=1))
    np.testing.assert_array_equal(nearest.finish(), radii)
    np.testing.assert_array_equal(counted.finish(), counts)
    np.testing.assert_array_equal(
        nearest.neighbors()[0], np.where(is_bad[:, None], np.inf, values)
    )
    np.testing.assert_array_equal(
        nearest.neighbors()[1], np.where(is_bad[:, None], -1, numbers)
    )


@pytest.mark.parametrize("algorithm", EXACT)
def test_guess__does_not_measure_a_row_that_is_not_finite(algorithm):
    points = np.random.default_rng(0).standard_normal((300, 2))
    reference = in_blocks(algorithm, points, parts_of(300, 2))
    rows = points.copy()
    rows[5, 1] = np.nan
    queries = query_tiles(reference, rows)
    state = KNearestAccumulator(queries, reference.basis, 4)

    state.guess(_guess_from("sample", algorithm, queries, points, 4))
    folded(state, reference)

    assert not state.missed()
    expected = search_nearest(reference, points, 4).finish()
    expected[5] = np.nan
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.parametrize("algorithm", EXACT)
def test_states__without_a_block(algorithm):
    reference = in_blocks(algorithm, np.ones((3, 2)))
    queries = query_tiles(reference, np.array([[0.0, 0.0], [np.nan, 0.0]]))

    nearest = KNearestAccumulator(queries, reference.basis, 2, with_numbers=True)
    counted = CountAccumulator(queries, reference.basis, 1.0)

    np.testing.assert_array_equal(nearest.finish(), [np.inf, np.nan])
    np.testing.assert_array_equal(nearest.neighbors()[0], np.full((2, 2), np.inf))
    np.testing.assert_array_equal(nearest.neighbors()[1], np.full((2, 2), -1))
    np.testing.assert_array_equal(counted.finish(), [0.0, np.nan])
    assert nearest.n_compared == counted.n_compared == 0


@pytest.mark.parametrize("algorithm", EXACT)
def test_states__without_a_query(algorithm):
    reference = in_blocks(algorithm, np.ones((3, 2)))
    block = reference.blocks[0]
    nothing = np.empty((0, 2))

    nearest = search_nearest(reference, nothing, 2, with_numbers=True)
    counted = search_within(reference, nothing, 1.0)

    assert nearest.finish().shape == counted.finish().shape == (0,)
    assert [array.shape for array in nearest.neighbors()] == [(0, 2), (0, 2)]
    assert not nearest.may_need(block.low, block.high)
    assert not counted.may_need(block.low, block.high)
    assert not nearest.missed()


@pytest.mark.parametrize("algorithm", EXACT)
def test_states__may_be_asked_at_any_time(algorithm):
    """An answer is that of the rows so far, and does not end the search."""
    points = np.random.default_rng(0).standard_normal((300, 3))
    reference = in_blocks(algorithm, points, parts_of(300, 3))
    queries = query_tiles(reference, points)
    nearest = KNearestAccumulator(queries, reference.basis, 4, with_numbers=True)
    counted = CountAccumulator(queries, reference.basis, 0.5)

    for n_rows, block in zip((100, 200, 300), reference.blocks, strict=True):
        nearest.fold(block)
        counted.fold(block)

        distances = all_distances(points, points[:n_rows])
        expected = smallest(distances, 4)
        np.testing.assert_array_equal(nearest.finish(), expected[0][:, -1])
        np.testing.assert_array_equal(nearest.neighbors()[1], expected[1])
        np.testing.assert_array_equal(counted.finish(), (distances <= 0.5).sum(axis=1))


@pytest.mark.parametrize("algorithm", EXACT)
def test_states__do_not_change_what_they_are_given(algorithm):
    """Blocks and queries may be shared by searches, one after another or side by side."""
    points = np.random.default_rng(0).standard_normal((300, 3))
    reference = in_blocks(algorithm, points, parts_of(300, 3))
    queries = query_tiles(reference, points, np.arange(300))
    given_arrays = [*queries.arrays, queries.order, queries.is_measured, points]
    given_arrays += [array for block in reference.blocks for array in block]
    before = [array.tobytes() for array in given_arrays]

    nearest = folded(KNearestAccumulator(queries, reference.basis, 4), reference)
    nearest.finish()
    again = KNearestAccumulator(queries, reference.basis, 4, with_numbers=True)
    again.guess(nearest)
    if folded(again, reference).missed():
        folded(again, reference)
    again.neighbors()
    folded(CountAccumulator(queries, reference.basis, 0.5), reference).finish()

    assert [array.tobytes() for array in given_arrays] == before
    np.testing.assert_array_equal(nearest.finish(), again.finish())


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("tile_rows", [64, 128, 256])
def test_query_tiles__give_results_in_the_order_of_the_queries(algorithm, tile_rows):
    """However the queries are cut into tiles."""
    points = np.random.default_rng(0).standard_normal((500, 2))
    reference = in_blocks(algorithm, points)
    queries = query_tiles(reference, points, np.arange(500), tile_rows=tile_rows)

    state = folded(KNearestAccumulator(queries, reference.basis, 3), reference)

    distances = all_distances(points, points, exclude_self=True)
    np.testing.assert_array_equal(state.finish(), smallest(distances, 3)[0][:, -1])


@pytest.mark.parametrize("algorithm", EXACT)
def test_nearest__are_the_same_whatever_the_layout_of_queries(algorithm):
    """Kernels read along a row, whatever the order of a table in memory is."""
    points = np.random.default_rng(0).standard_normal((300, 9))
    reference = in_blocks(algorithm, points)

    expected = search_nearest(reference, points[:200], 5).finish()

    for rows in (np.asfortranarray(points[:200]), np.repeat(points, 2, axis=0)[:400:2]):
        np.testing.assert_array_equal(search_nearest(reference, rows, 5).finish(), expected)


@pytest.mark.parametrize("first", sorted(WAYS))
@pytest.mark.parametrize("with_numbers", [False, True])
@given(data=st.data(), points=point_sets(max_rows=20))
def test_fold__may_be_compiled_after_some_blocks(data, points, first, with_numbers):
    """A process compiles when its work so far is enough, in the middle of a search."""
    n_neighbors = data.draw(st.integers(1, len(points) + 1))
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks("pruned", points, parts)
    numbers = np.arange(len(points))
    radius = data.draw(st.sampled_from(np.unique(all_distances(points, points))))
    queries = query_tiles(reference, points, numbers)
    nearest = KNearestAccumulator(
        queries, reference.basis, n_neighbors, with_numbers=with_numbers
    )
    counted = CountAccumulator(queries, reference.basis, radius)

    ways = [first, *(way for way in WAYS if way != first)]
    for i, block in enumerate(reference.blocks):
        with taking(ways[min(i, 1)]):
            nearest.fold(block)
            counted.fold(block)

    distances = all_distances(points, points, exclude_self=True)
    expected = smallest(distances, n_neighbors)
    np.testing.assert_array_equal(nearest.finish(), expected[0][:, -1])
    np.testing.assert_array_equal(counted.finish(), (distances <= radius).sum(axis=1))
    if with_numbers:
        found = nearest.neighbors()
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])

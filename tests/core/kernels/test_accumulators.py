"""What a search knows: which blocks it needs, and what a guess may do to it."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choosing import mostly_dealt
from compiling import WAYS, taking
from lpe_dask.kernels import Block, CountAccumulator, KNearestAccumulator
from lpe_dask.kernels.nearest import fold_nearest
from search_checks import (
    check_counts,
    check_nearest,
    distances_of,
    fold_needed,
    with_codes,
)
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
)
from strategies import point_sets, row_parts

pytestmark = pytest.mark.usefixtures("either_way")


# Which blocks are needed; see test_searches for any blocks


def _two_clusters(n_rows=200):
    """Rows around 0, and as many around 100."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.standard_normal((n_rows, 3)) + far for far in (0, 100)])


HARD = HARD_POINTS, SAMPLES, EXACT


@pytest.mark.parametrize(("name", "sample", "algorithm"), mostly_dealt(*HARD))
def test_may_need__never_leaves_out_a_neighbor_on_hard_data(name, sample, algorithm):
    """One query at a time, against blocks of near rows."""
    points = HARD_POINTS[name]
    order = np.lexsort(points.T)
    parts = [order[part] for part in parts_of(len(points), 8)]
    reference = in_blocks(algorithm, points, parts, sample=points[: SAMPLES[sample]])

    for row in [*range(0, len(points), 9), len(points) - 1]:
        query, number = points[[row]], np.array([row])
        state = KNearestAccumulator(
            query_tiles(reference, query, number), reference.basis, 3
        )
        fold_needed(state, reference)

        check_nearest(state, distances_of(query, points, number), 3)


def test_may_need__leaves_out_blocks_too_far_for_the_nearest():
    """Nothing is ruled out before K rows are known, and then what is far is."""
    points = _two_clusters()
    reference = in_blocks("pruned", points, parts_of(400, 8))
    queries = query_tiles(reference, points[:200], np.arange(200))
    state = KNearestAccumulator(queries, reference.basis, 5)
    boxes = [block.box() for block in reference.blocks]

    before = [state.may_need(*box) for box in boxes]
    state.fold(reference.blocks[0])
    after = [state.may_need(*box) for box in boxes]

    assert before == [True] * 8
    assert after == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    ("algorithm", "radius", "enough", "n_needed"),
    [
        ("pruned", 1.0, None, 4),
        ("pruned", 200.0, None, 8),
        ("brute", 1.0, None, 8),
        ("pruned", 1000.0, 10, 1),
        ("brute", 1000.0, 10, 1),
    ],
)
def test_may_need__leaves_out_blocks_outside_the_radius(
    algorithm, radius, enough, n_needed
):
    """And all, once every query has enough."""
    points = _two_clusters()
    reference = in_blocks(algorithm, points, parts_of(400, 8))
    # A row that is not measured needs no block, and lets none be needed.
    rows = np.concatenate([[[np.nan, 0, 0]], points[201:], [[0, np.inf, 0]]])
    state = CountAccumulator(query_tiles(reference, rows), reference.basis, radius, enough)

    assert fold_needed(state, reference) == 8 - n_needed

    check_counts(state, distances_of(rows, points), radius, enough)


def test_states__without_a_query_need_no_block(algorithm):
    reference = in_blocks(algorithm, np.ones((3, 2)))
    block = reference.blocks[0]

    nearest = search_nearest(reference, np.empty((0, 2)), 2, with_numbers=True)
    counted = search_within(reference, np.empty((0, 2)), 1.0)

    assert [array.shape for array in nearest.neighbors()] == [(0, 2), (0, 2)]
    assert not nearest.may_need(*block.box())
    assert not counted.may_need(*block.box())
    assert not nearest.missed()


# Guesses


def _guess_from(kind, algorithm, queries, points, n_neighbors, weights=()):
    """Search some other rows for fewer neighbors, as a guess of how far the nearest are."""
    nearby = points + np.r_[1e-9, np.zeros(points.shape[1] - 1)]
    rows, n_fewer = {
        "sample": (points[::8], n_neighbors // 8 + 12),
        "too low": (nearby, 1),
        "too low for some": (nearby[:300], 1),
        "zero": (points, 1),
        "infinite": (points[:3], 4),
    }[kind]
    elsewhere = in_blocks(algorithm, rows, sample=points, weights=weights)
    # Other rows than those that are searched: a query is among them only by its place.
    numbers = (
        np.arange(len(rows)) * 8 if kind == "sample" else 10_000 + np.arange(len(rows))
    )
    (block,) = elsewhere.blocks
    elsewhere.blocks[:] = [
        Block.from_arrays(*block._replace(numbers=numbers[block.numbers]))
    ]
    return folded(KNearestAccumulator(queries, elsewhere.basis, n_fewer), elsewhere)


GUESSES = (
    ["sample", "too low", "too low for some", "zero", "infinite"], [False, True], EXACT,
    [(), (0.01, 1.0)],
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "with_numbers", "algorithm", "weights"), mostly_dealt(*GUESSES)
)
def test_guess__does_not_change_any_bit(kind, with_numbers, algorithm, weights):
    """However absurd: what it got wrong is missed, and searched again."""
    points = np.random.default_rng(0).standard_normal((1500, 3))
    points, _ = with_codes(points, len(weights))
    rows, numbers = points.copy(), np.arange(1500)
    rows[5, 1] = np.nan  # it is not measured, and nothing is missed of it
    reference = in_blocks(algorithm, points, parts_of(1500, 4), weights=weights)
    queries = query_tiles(reference, rows, numbers)
    guess = _guess_from(kind, algorithm, queries, points, 20, weights)
    distances = distances_of(rows, points, numbers, weights)

    state = KNearestAccumulator(queries, reference.basis, 20, with_numbers=with_numbers)
    state.guess(guess)
    folded(state, reference)
    n_before = state.n_compared
    has_missed = state.missed()
    if has_missed:
        folded(state, reference)

    is_too_low = guess.finish() < np.sort(distances, axis=1)[:, 19]
    assert has_missed == is_too_low.any() == (kind.startswith(("too low", "zero")))
    check_nearest(state, distances, 20, with_numbers=with_numbers)
    if algorithm == "brute":  # only what was missed is searched again
        assert state.n_compared - n_before == is_too_low.sum() * 1500


@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 8))
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
    fold_needed(state, reference)
    if state.missed():
        fold_needed(state, reference)

    check_nearest(state, distances_of(points, points, numbers), n_neighbors)


@pytest.mark.usefixtures("compiled_kernels")
def test_guess__leaves_out_pairs_from_the_beginning():
    """Also from the first block, however far it is: a count, not a time."""
    points = np.random.default_rng(0).standard_normal((4000, 2))
    points = points[np.argsort(points[:, 0])]
    reference = in_blocks("pruned", points, parts_of(4000, 8))
    queries = query_tiles(reference, points, np.arange(4000))

    guessed = KNearestAccumulator(queries, reference.basis, 20)
    guessed.guess(_guess_from("sample", "pruned", queries, points, 20))
    folded(guessed, reference)
    unguessed = folded(KNearestAccumulator(queries, reference.basis, 20), reference)

    assert not guessed.missed()
    assert guessed.n_compared < 0.8 * unguessed.n_compared


# States as such


def test_states__may_be_asked_at_any_time(algorithm):
    """An answer is that of the rows so far, also of none, and does not end the search."""
    points = np.random.default_rng(0).standard_normal((300, 3))
    rows = points.copy()
    rows[7, 0] = np.nan
    reference = in_blocks(algorithm, points, parts_of(300, 3))
    queries = query_tiles(reference, rows)
    nearest = KNearestAccumulator(queries, reference.basis, 4, with_numbers=True)
    counted = CountAccumulator(queries, reference.basis, 0.5)

    for n_rows in (0, 100, 200, 300):
        if n_rows > 0:
            nearest.fold(reference.blocks[n_rows // 100 - 1])
            counted.fold(reference.blocks[n_rows // 100 - 1])

        distances = distances_of(rows, points)
        distances[:, n_rows:] += np.inf
        check_nearest(nearest, distances, 4, with_numbers=True)
        check_counts(counted, distances, 0.5)


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


@pytest.mark.parametrize("tile_rows", [64, 128, 256])
def test_query_tiles__give_results_in_the_order_of_the_queries(algorithm, tile_rows):
    """However the queries are cut into tiles."""
    points, numbers = np.random.default_rng(0).standard_normal((500, 2)), np.arange(500)
    reference = in_blocks(algorithm, points)
    queries = query_tiles(reference, points, numbers, tile_rows=tile_rows)

    state = folded(KNearestAccumulator(queries, reference.basis, 3), reference)

    check_nearest(state, distances_of(points, points, numbers), 3)


# Compiled kernels


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

    distances = distances_of(points, points, numbers)
    check_nearest(nearest, distances, n_neighbors, with_numbers=with_numbers)
    check_counts(counted, distances, radius)

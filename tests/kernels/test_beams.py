"""Searches along graphs: what is found is there, and nothing is nearer than it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from indexes import CORRUPTIONS, corrupted, right_lists
from lpe_dask.kernels import beams, codes
from lpe_dask.kernels.beams import BeamState
from lpe_dask.kernels.indexes import Index, joined_lists, start_places
from lpe_dask.kernels.states import NearestState
from searching import HARD_POINTS, all_distances, in_blocks, parts_of, query_tiles, smallest
from strategies import point_sets, row_parts


def _indexed(reference, lists=right_lists):
    """Return an index for each block."""
    return [
        Index.of(block, joined_lists(lists(block.rows, i)))
        for i, block in enumerate(reference.blocks)
    ]


def _search(
    reference, found_along, rows, n_neighbors, numbers=None, *, width=None, **asked
):
    """Search all blocks one after another, from all of their starts."""
    queries = query_tiles(reference, rows, numbers)
    width = n_neighbors if width is None else width
    state = BeamState(queries, reference.basis, n_neighbors, width, **asked)
    every = np.arange(len(rows))
    for block, index in zip(reference.blocks, found_along, strict=True):
        starts = block.numbers[start_places(block.n_rows)]
        state.fold(block, index, every, np.tile(starts, (len(rows), 1)))
    return state


@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 8))
def test_finish__is_exact_where_all_rows_are_looked_at(data, points, n_neighbors):
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks("nn_descent", points, parts)
    numbers = np.arange(len(points))

    state = _search(reference, _indexed(reference), points, n_neighbors, numbers)

    expected = definitions.knn_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(state.finish(), expected)


@given(data=st.data(), points=point_sets(max_rows=20), n_neighbors=st.integers(1, 8))
def test_finish__is_the_exact_mean_where_all_rows_are_looked_at(data, points, n_neighbors):
    """Also where a beam has more rows than are asked for."""
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks("nn_descent", points, parts)
    width = n_neighbors + data.draw(st.integers(0, 3))

    state = _search(
        reference, _indexed(reference), points, n_neighbors, np.arange(len(points)),
        width=width, aggregation="mean",
    )  # fmt: skip

    expected = definitions.mean_radii(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.parametrize("name", HARD_POINTS)
def test_finish__is_exact_on_hard_data_with_wide_beams(name):
    points = HARD_POINTS[name]
    reference = in_blocks("nn_descent", points, parts_of(len(points), 3))
    numbers = np.arange(len(points))

    state = _search(reference, _indexed(reference), points, 3, numbers, width=300)

    expected = smallest(all_distances(points, points, exclude_self=True), 3)[0][:, -1]
    np.testing.assert_array_equal(state.finish(), expected)


@pytest.mark.parametrize("corruption", CORRUPTIONS)
@given(
    data=st.data(),
    points=point_sets(min_rows=2, max_rows=40),
    n_neighbors=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_finish__is_never_less_than_the_definition(
    corruption, data, points, n_neighbors, seed
):
    """Whatever an index says: K different rows, none of them the query, or inf."""
    reference = in_blocks("nn_descent", points, data.draw(row_parts(len(points))))
    lists = corrupted(corruption, seed, blocks=range(99))
    is_own = data.draw(st.booleans())
    numbers = np.arange(len(points)) if is_own else None

    state = _search(reference, _indexed(reference, lists), points, n_neighbors, numbers)

    exact = definitions.knn_radii(points, points, n_neighbors, exclude_self=is_own)
    assert (state.finish() >= exact).all()


def _sheet(n_rows, n_features, seed):
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((5, n_features))
    rng = np.random.default_rng(seed)
    noise = 0.05 * rng.standard_normal((n_rows, n_features))
    return np.sin(rng.standard_normal((n_rows, 5)) @ turn) + noise


def _found_beside(queries, reference, found_along, rows):
    order = np.random.default_rng(0).permutation(len(rows))
    alone = [
        _search(reference, found_along, rows[order[part]], 5, width=20).finish()
        for part in np.array_split(np.arange(len(rows)), 7)
    ]
    restored = np.empty(len(rows))
    restored[order] = np.concatenate(alone)
    return restored


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finish__of_a_query_depends_on_no_other(dtype):
    rows, queries = _sheet(2000, 40, 1).astype(dtype), _sheet(300, 40, 2)
    reference = in_blocks("nn_descent", rows, parts_of(2000, 3))
    found_along = _indexed(reference)

    together = _search(reference, found_along, queries, 5, width=20).finish()

    apart = _found_beside(queries, reference, found_along, queries)
    np.testing.assert_array_equal(together, apart)
    exact = smallest(all_distances(queries, rows), 5)[0][:, -1]
    assert (together == exact).mean() > 0.9  # a search, not a guess


def test_codes__change_nothing_but_the_rows_that_are_read(monkeypatch):
    rows, queries = _sheet(3000, 64, 1), _sheet(200, 64, 2)
    reference = in_blocks("nn_descent", rows, parts_of(3000, 2))
    with_codes = _indexed(reference)
    monkeypatch.setattr(codes, "MOST_AXES", 0)
    without = _indexed(reference)
    assert with_codes[0].codes.rows.shape[1] > 0
    assert without[0].codes.rows.shape[1] == 0

    states = [
        _search(reference, each, queries, 5, width=30) for each in (with_codes, without)
    ]

    np.testing.assert_array_equal(states[0].finish(), states[1].finish())
    assert states[0].n_compared < states[1].n_compared / 2


def test_narrow_beams__find_the_way_to_another_block():
    """A block is searched also where the one before has filled the beam."""
    rows = _sheet(4000, 40, 1)
    queries = _sheet(200, 40, 2)
    order = np.argsort(rows[:, 0])
    reference = in_blocks("nn_descent", rows, np.array_split(order, 2))

    found = _search(reference, _indexed(reference), queries, 5, width=20).finish()

    exact = smallest(all_distances(queries, rows), 5)[0][:, -1]
    assert (found == exact).mean() > 0.9
    assert beams.NARROW > 20


def test_take__begins_with_what_is_known():
    rows, queries = _sheet(2000, 8, 1), _sheet(100, 8, 2)
    reference = in_blocks("nn_descent", rows, parts_of(2000, 2))
    tiles = query_tiles(reference, queries)
    whole = NearestState(tiles, reference.basis, 5)
    for block in reference.blocks:
        whole.fold(block)
    state = BeamState(tiles, reference.basis, 5, 20)

    state.take(whole)

    np.testing.assert_array_equal(state.finish(), whole.finish())


def test_needing__is_for_each_query_alone():
    rows = np.concatenate([_sheet(300, 4, 1), _sheet(300, 4, 2) + 100])
    reference = in_blocks("nn_descent", rows, parts_of(600, 2))
    asked = rows[[0, 1, 300, 599, 2]]
    asked[4, 0] = np.nan  # not measured
    queries = query_tiles(reference, asked, np.array([0, 1, 300, 599, 2]))
    whole = NearestState(queries, reference.basis, 3)
    for block in reference.blocks:
        whole.fold(block)
    state = BeamState(queries, reference.basis, 3, 3)
    first = reference.blocks[0].low, reference.blocks[0].high

    every = np.arange(5)
    before = state.needing(*first, every)
    state.take(whole)
    after = state.needing(*first, every)

    assert sorted(queries.order[before]) == [0, 1, 2, 3]
    assert sorted(queries.order[after]) == [0, 1]
    np.testing.assert_array_equal(state.needing(*first, after[1:]), after[1:])
    assert len(state.needing(*first, every[:0])) == 0


def test_rows_with_nan__are_not_measured():
    rows = _sheet(500, 8, 1)
    queries = rows[:9].copy()
    queries[4, 2] = np.nan
    reference = in_blocks("nn_descent", rows)

    found = _search(reference, _indexed(reference), queries, 3, width=10).finish()

    np.testing.assert_array_equal(np.isnan(found), np.arange(9) == 4)

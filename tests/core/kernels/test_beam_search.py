"""Searches along graphs: what is found is there, and nothing is nearer than it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from indexes import CORRUPTIONS, corrupted, indexes_of
from lpe_dask.kernels import beam_search, graph_search
from lpe_dask.kernels.beam_search import BeamAccumulator
from searching import HARD_POINTS, all_distances, in_blocks, parts_of, query_tiles, smallest
from strategies import point_sets, row_parts


def _search(reference, indexes, rows, n_neighbors, numbers=None, *, width=None, **asked):
    """Search all blocks one after another, with beams of so many rows."""
    queries = query_tiles(reference, rows, numbers)
    with pytest.MonkeyPatch.context() as patch:
        if width is not None:
            patch.setattr(beam_search, "BEAM_ROWS", width - n_neighbors)
        state = BeamAccumulator(queries, reference.basis, n_neighbors, **asked)
    for block, index in zip(reference.blocks, indexes, strict=True):
        state.fold(block, index)
    return state.finish()


@pytest.mark.parametrize("aggregation", ["kth", "mean"])
@given(
    data=st.data(),
    points=point_sets(max_rows=20),
    n_neighbors=st.integers(1, 8),
    more=st.integers(0, 3),
)
def test_finish__is_exact_where_all_rows_are_looked_at(
    aggregation, data, points, n_neighbors, more
):
    reference = in_blocks("nn_descent", points, data.draw(row_parts(len(points))))

    found = _search(
        reference, indexes_of(reference), points, n_neighbors, np.arange(len(points)),
        width=n_neighbors + more, aggregation=aggregation,
    )  # fmt: skip

    defined = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}[aggregation]
    expected = defined(points, points, n_neighbors, exclude_self=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", HARD_POINTS)
def test_finish__is_exact_on_hard_data(name):
    points = HARD_POINTS[name]
    reference = in_blocks("nn_descent", points, parts_of(len(points), 3))
    numbers = np.arange(len(points))

    found = _search(reference, indexes_of(reference), points, 3, numbers)

    expected = smallest(all_distances(points, points, exclude_self=True), 3)[0][:, -1]
    np.testing.assert_array_equal(found, expected)


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
    indexes = indexes_of(reference, corrupted(corruption, seed, blocks=range(99)))
    is_own = data.draw(st.booleans())
    numbers = np.arange(len(points)) if is_own else None

    found = _search(reference, indexes, points, n_neighbors, numbers, width=n_neighbors)

    exact = definitions.knn_radii(points, points, n_neighbors, exclude_self=is_own)
    assert (found >= exact).all()


def _sheet(n_rows, n_features, seed):
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((5, n_features))
    rng = np.random.default_rng(seed)
    noise = 0.05 * rng.standard_normal((n_rows, n_features))
    return np.sin(rng.standard_normal((n_rows, 5)) @ turn) + noise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finish__of_a_query_depends_on_no_other(dtype):
    rows, queries = _sheet(2000, 40, 1).astype(dtype), _sheet(300, 40, 2)
    reference = in_blocks("nn_descent", rows, parts_of(2000, 3))
    indexes = indexes_of(reference)

    together = _search(reference, indexes, queries, 5, width=20)

    order, apart = np.random.default_rng(0).permutation(len(queries)), np.empty(300)
    for part in np.array_split(order, 7):
        apart[part] = _search(reference, indexes, queries[part], 5, width=20)
    np.testing.assert_array_equal(together, apart)
    exact = smallest(all_distances(queries, rows), 5)[0][:, -1]
    assert (together == exact).mean() > 0.9  # a search, not a guess


def test_narrow_beams__find_the_way_to_another_block():
    """A block is searched also where the one before has filled the beam."""
    rows = _sheet(4000, 40, 1)
    queries = _sheet(200, 40, 2)
    order = np.argsort(rows[:, 0])
    reference = in_blocks("nn_descent", rows, np.array_split(order, 2))

    found = _search(reference, indexes_of(reference), queries, 5, width=20)

    exact = smallest(all_distances(queries, rows), 5)[0][:, -1]
    assert (found == exact).mean() > 0.9
    assert graph_search.NARROW > 20


def test_rows_with_nan__are_not_measured():
    rows = _sheet(500, 8, 1)
    queries = rows[:9].copy()
    queries[4, 2] = np.nan
    reference = in_blocks("nn_descent", rows)

    found = _search(reference, indexes_of(reference), queries, 3)

    np.testing.assert_array_equal(np.isnan(found), np.arange(9) == 4)

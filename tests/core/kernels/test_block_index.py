"""What leads from row to row of a block."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import indexes_of
from lpe_dask.kernels.block_index import DEGREE, joined_lists, start_places
from searching import HARD_POINTS, in_blocks


def _plain_join(lists, degree):
    """Join lists as plainly as possible."""
    n_rows = len(lists)
    graph = [[] for _ in range(n_rows)]

    def lead(source, target):
        is_place = 0 <= target < n_rows and target != source
        if is_place and target not in graph[source] and len(graph[source]) < degree:
            graph[source].append(target)

    for i, places in enumerate(lists.tolist()):
        for place in places:
            lead(i, place)
    for j in range(lists.shape[1]):
        for i in range(n_rows):
            if 0 <= lists[i, j] < n_rows:
                lead(int(lists[i, j]), i)
    return [places + [-1] * (degree - len(places)) for places in graph]


@given(
    data=st.data(),
    n_rows=st.integers(1, 12),
    n_listed=st.integers(1, 6),
    degree=st.integers(1, 8),
)
def test_joined_lists__lead_there_and_back_to_each_place_once(
    data, n_rows, n_listed, degree
):
    places = st.one_of(st.integers(-2, n_rows + 1), st.just(2**31 - 1))
    flat = data.draw(
        st.lists(places, min_size=n_rows * n_listed, max_size=n_rows * n_listed)
    )
    lists = np.array(flat, np.int32).reshape(n_rows, n_listed)

    graph = joined_lists(lists, degree)

    np.testing.assert_array_equal(graph, _plain_join(lists, degree))


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 4095, 4096, 5000, 100_000])
def test_start_places__are_enough_and_not_too_many(n_rows):
    order = np.random.default_rng(0).permutation(n_rows)

    places = start_places(order)

    assert np.isin(places, order).all()
    assert min(n_rows, 64) <= len(places) <= max(128, n_rows / 64 + 1)


def _index(rows):
    def lists(points, seed):
        shape = len(points), 9
        return np.random.default_rng(seed).integers(0, len(points), shape, dtype=np.int32)

    reference = in_blocks("nn_descent", rows)
    return reference.blocks[0], indexes_of(reference, lists)[0]


@pytest.mark.parametrize("name", ["duplicates", "one point", "one row at 1e300"])
def test_index__survives_a_message(name):
    block, index = _index(HARD_POINTS[name])

    copy = pickle.loads(pickle.dumps(index, 5))

    assert copy.graph.shape == (block.n_rows, DEGREE)
    for array, other in zip(copy.arrays(), index.arrays(), strict=True):
        np.testing.assert_array_equal(array, other)


def test_places__are_where_rows_are():
    block, index = _index(HARD_POINTS["lattice"])
    numbers = np.array([[0, 199], [-1, 200], [77, 5]])

    places = index.places(numbers)

    np.testing.assert_array_equal(places[1], [-1, -1])
    np.testing.assert_array_equal(block.numbers[places[[0, 2]]], numbers[[0, 2]])

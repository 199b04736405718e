"""The graph of a search: right, lazy, small, and the same bits however it is cut."""

import dask
import dask.array as da
import numpy as np
import pytest
from dask.delayed import delayed
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask.kernels import tiles
from lpe_dask.neighbors import Search, join, pack_blocks, self_join
from lpe_dask.preparation import LinearMap, Preparation
from strategies import point_sets, row_chunks


def packed(reference, block_rows):
    rows = da.from_array(reference, chunks=(block_rows, -1))
    return pack_blocks(rows, Preparation(), "brute")


def tasks_of(collection, prefix):
    keys = dict(collection.__dask_graph__())
    return [
        key
        for key in keys
        if str(key[0] if isinstance(key, tuple) else key).startswith(prefix)
    ]


searches = st.builds(
    Search,
    st.just("brute"),
    st.none() | st.integers(1, 15),
    st.sampled_from([0.0, 0.1, 1.0, 3e-9, 1e7]),
    st.integers(1, 15),
)


def expected_statistic(queries, reference, search, exclude_self=False):
    if search.n_neighbors is None:
        return definitions.neighbor_counts(queries, reference, search.radius, exclude_self)
    return definitions.knn_radii(queries, reference, search.n_neighbors, exclude_self)


@given(data=st.data(), points=point_sets(), search=searches)
def test_self_join__equals_definition_for_any_blocks(data, points, search):
    block_rows = data.draw(st.integers(1, len(points)))

    joins = self_join(packed(points, block_rows), block_rows, search)
    actual = np.concatenate(dask.compute(*joins, scheduler="sync"))

    expected = expected_statistic(points, points, search, exclude_self=True)
    np.testing.assert_array_equal(actual, expected)


@given(data=st.data(), search=searches, n_features=st.integers(1, 3))
def test_join__equals_definition_for_any_chunks(data, search, n_features):
    reference = data.draw(point_sets(n_features=n_features))
    queries = data.draw(point_sets(n_features=n_features))
    chunks = data.draw(row_chunks(len(queries)))
    block_rows = data.draw(st.integers(1, len(reference)))
    n_shares = data.draw(st.integers(1, 4))

    actual = join(
        da.from_array(queries, chunks=(chunks, -1)),
        packed(reference, block_rows),
        Preparation(),
        search,
        n_shares,
    )

    assert actual.chunks == (chunks,)
    expected = expected_statistic(queries, reference, search)
    np.testing.assert_array_equal(actual.compute(scheduler="sync"), expected)


def test_join__prepares_queries_as_it_does_the_reference():
    points = np.random.default_rng(0).integers(0, 9, (50, 3)) * 0.1
    preparation = Preparation(linear_map=LinearMap(factor=np.array([0.1, 3.0, 7.0])))
    rows = da.from_array(points, chunks=(20, -1))

    blocks = pack_blocks(rows, preparation, "brute")
    actual = join(rows, blocks, preparation, Search("brute", 1, None, 7), 2)

    assert (actual.compute() == 0).all()


@pytest.mark.parametrize("n_shares", [1, 3])
def test_join__is_lazy_and_has_a_task_for_each_share(at_most_computes, n_shares):
    blocks = packed(np.zeros((640, 3)), 64)
    queries = da.zeros((500, 3), chunks=(50, 3))

    with at_most_computes(0):
        statistic = join(
            queries, blocks, Preparation(), Search("brute", 2, None, 64), n_shares
        )

    assert len(tasks_of(statistic, "lpe-join")) == 10 * n_shares
    assert len(tasks_of(statistic, "lpe-statistic")) == 10
    assert len(tasks_of(statistic, "lpe-preparation")) == 2  # of the blocks, of the queries
    assert len(tasks_of(statistic, "lpe-pack")) == 10


def test_self_join__has_one_task_a_block():
    joins = self_join(packed(np.zeros((640, 3)), 64), 64, Search("brute", 2, None, 64))

    keys = set().union(*(dict(join.__dask_graph__()) for join in joins))

    assert len([key for key in keys if str(key).startswith("lpe-join")]) == len(joins) == 10


def test_join__holds_no_literal_of_size():
    """A large matrix is a task of its own; what is written into a join is small."""
    n_features = 200
    preparation = Preparation(linear_map=LinearMap(matrix=np.eye(n_features)))
    blocks = [delayed(tiles.pack)(da.zeros((64, n_features)))] * 5
    queries = da.zeros((1000, n_features), chunks=(10, n_features))

    statistic = join(queries, blocks, preparation, Search("brute", 2, None, 64), 1)

    graph = dict(statistic.__dask_graph__())
    assert all(sizeof(graph[key]) < 10_000 for key in tasks_of(statistic, "lpe-join"))


def test_join__same_result_when_a_task_is_run_again():
    """Tasks change nothing that they were given, so a retry starts from the same."""
    rng = np.random.default_rng(0)
    blocks = [tiles.pack(rng.random((100, 2))) for _ in range(3)]
    queries = rng.random((50, 2))
    search = Search("brute", 5, None, 16)
    tasks = join(
        da.from_array(queries, chunks=(50, -1)),
        [delayed(block) for block in blocks],
        Preparation(),
        search,
        1,
    )

    first, second = tasks.compute(), tasks.compute()

    np.testing.assert_array_equal(first, second)
    rng = np.random.default_rng(0)
    for block in blocks:
        np.testing.assert_array_equal(block.rows(0, 100), rng.random((100, 2)))

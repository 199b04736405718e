"""Approximate searches: lists of near rows, the graph made of them, and walks along it."""

import ast
import pickle
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
import lpe_dask
from indexes import CORRUPTIONS, corrupted, curved_rows, indexes_of, right_lists
from lpe_dask.kernels import (
    BeamAccumulator,
    Index,
    beam_search,
    graph_search,
    nn_descent,
)
from lpe_dask.kernels.block_index import joined_lists, start_places
from searching import HARD_POINTS, all_distances, in_blocks, parts_of, query_tiles, smallest
from strategies import point_sets, row_parts

# Lists of near rows, by pynndescent; see tests/full for more


@pytest.mark.parametrize("n_rows", [1, 2, 29, 30])
def test_neighbor_lists__are_there_for_few_rows(n_rows):
    lists = nn_descent.neighbor_lists(curved_rows(1, n_rows), 0)

    assert lists.shape == (n_rows, min(n_rows, nn_descent.LISTED_ROWS))


def arguments_of_pynndescent():
    """Return the names of the arguments of its NNDescent, which is not imported."""
    (folder,) = find_spec("pynndescent").submodule_search_locations
    for node in ast.walk(ast.parse(Path(folder, "pynndescent_.py").read_text())):
        if isinstance(node, ast.ClassDef) and node.name == "NNDescent":
            (init,) = [of for of in node.body if getattr(of, "name", "") == "__init__"]
            return {argument.arg for argument in init.args.args}
    return set()


@pytest.fixture
def prepared(monkeypatch):
    """Compile nothing before the first build."""
    monkeypatch.setattr(nn_descent, "_prepare", lambda n_features: True)


def test_neighbor_lists__are_those_that_pynndescent_gives(monkeypatch, prepared):
    """With arguments that it has; its import alone would compile for half a minute."""
    calls = []

    def build(data, **options):
        calls.append(options)
        lists = right_lists(data).astype(np.int64)
        return SimpleNamespace(neighbor_graph=(lists, None))

    monkeypatch.setattr(nn_descent, "_library", lambda: SimpleNamespace(NNDescent=build))
    rows = curved_rows(1, 100)

    lists = nn_descent.neighbor_lists(rows, 7)

    assert calls == [
        {"n_neighbors": nn_descent.LISTED_ROWS, "random_state": 7, "n_jobs": 1}
    ]
    assert {"data", *calls[0]} <= arguments_of_pynndescent()
    assert lists.dtype == np.int32
    np.testing.assert_array_equal(lists, right_lists(rows.astype(np.float32)))


def test_build__that_fails_leaves_the_threads_as_they_were(monkeypatch, prepared):
    class Failing:
        def NNDescent(self, *args, **options):
            numba.set_num_threads(1)
            raise MemoryError("no memory")

    n_threads = numba.get_num_threads()
    monkeypatch.setattr(nn_descent, "_library", Failing)

    with pytest.raises(MemoryError, match="no memory"):
        nn_descent.neighbor_lists(curved_rows(1, 100), 0)

    assert numba.get_num_threads() == n_threads


def test_import__leaves_the_threading_layer_as_it_was_set(monkeypatch, tmp_path):
    """tests/full imports pynndescent, which sets another one where "omp" was asked for."""
    source = "import numba\nnumba.config.THREADING_LAYER = 'workqueue'\n"
    (tmp_path / "pynndescent.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(numba.config, "THREADING_LAYER", "omp")

    with patch.dict(sys.modules):  # nobody is to find this one later
        sys.modules.pop("pynndescent", None)
        library = nn_descent._library.__wrapped__()

    assert library.__file__ == str(tmp_path / "pynndescent.py")
    assert numba.config.THREADING_LAYER == "omp"


def test_builds__are_one_at_a_time_where_threads_must_not_meet(monkeypatch):
    held = []
    monkeypatch.setattr(nn_descent, "_prepare", lambda n_features: False)
    lock = nn_descent._building.lock
    monkeypatch.setattr(nn_descent, "_listed", lambda *args: held.append(lock._is_owned()))

    nn_descent.neighbor_lists(curved_rows(1, 100), 0)

    assert held == [True]


def test_nothing_else__imports_pynndescent():
    folder = Path(lpe_dask.__file__).parent
    importing = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if re.search(r"^\s*(import|from) pynndescent", path.read_text(), re.MULTILINE)
    ]

    assert importing == ["kernels/nn_descent.py"]


# The graph that leads from row to row of a block


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

    assert copy.graph.shape == (block.n_rows, Index.DEGREE)
    for array, other in zip(copy.arrays(), index.arrays(), strict=True):
        np.testing.assert_array_equal(array, other)


def test_places__are_where_rows_are():
    block, index = _index(HARD_POINTS["lattice"])
    numbers = np.array([[0, 199], [-1, 200], [77, 5]])

    places = index.places(numbers)

    np.testing.assert_array_equal(places[1], [-1, -1])
    np.testing.assert_array_equal(block.numbers[places[[0, 2]]], numbers[[0, 2]])


# Searches along it: what is found is there, and nothing is nearer than it is


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finish__of_a_query_depends_on_no_other(dtype):
    rows, queries = curved_rows(1, 2000).astype(dtype), curved_rows(2, 300)
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
    rows = curved_rows(1, 4000)
    queries = curved_rows(2, 200)
    order = np.argsort(rows[:, 0])
    reference = in_blocks("nn_descent", rows, np.array_split(order, 2))

    found = _search(reference, indexes_of(reference), queries, 5, width=20)

    exact = smallest(all_distances(queries, rows), 5)[0][:, -1]
    assert (found == exact).mean() > 0.9
    assert graph_search.NARROW > 20


def test_rows_with_nan__are_not_measured():
    rows = curved_rows(1, 500)
    queries = rows[:9].copy()
    queries[4, 2] = np.nan
    reference = in_blocks("nn_descent", rows)

    found = _search(reference, indexes_of(reference), queries, 3)

    np.testing.assert_array_equal(np.isnan(found), np.arange(9) == 4)

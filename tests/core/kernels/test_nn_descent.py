"""pynndescent: what it finds, in how many threads, and what its import leaves alone."""

import re
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

import lpe_dask
from indexes import right_lists
from lpe_dask.kernels import nn_descent
from searching import HARD_POINTS


def _rows(seed, n_rows=3000):
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((6, 20))
    return np.tanh(np.random.default_rng(seed).standard_normal((n_rows, 6)) @ turn)


def test_neighbor_lists__hold_most_of_the_nearest():
    rows = _rows(1)

    lists = nn_descent.neighbor_lists(rows, 0)

    right = right_lists(rows)
    found = [
        len(set(a) & set(b)) for a, b in zip(lists[:, :20], right[:, :20], strict=True)
    ]
    assert lists.dtype == np.int32
    assert np.mean(found) > 19


def test_neighbor_lists__are_the_same_bits_alone_and_beside_others():
    """Four builds at once, each with one thread: numba's own scheduler would abort."""
    alone = [nn_descent.neighbor_lists(_rows(seed), seed) for seed in range(4)]
    beside = [None] * 4
    n_threads = numba.get_num_threads()

    def build(seed):
        beside[seed] = nn_descent.neighbor_lists(_rows(seed), seed)

    threads = [threading.Thread(target=build, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    np.testing.assert_array_equal(beside, alone)
    assert not np.array_equal(
        nn_descent.neighbor_lists(_rows(0), 1), nn_descent.neighbor_lists(_rows(0), 0)
    )
    assert numba.get_num_threads() == n_threads


@pytest.mark.parametrize("n_rows", [1, 2, 29, 30, 31, 64, 100])
def test_neighbor_lists__are_there_for_few_rows(n_rows):
    lists = nn_descent.neighbor_lists(_rows(1, n_rows), 0)

    assert lists.shape == (n_rows, min(n_rows, nn_descent.LISTED_ROWS))


@pytest.mark.parametrize("name", HARD_POINTS)
def test_neighbor_lists__take_hard_data(name):
    lists = nn_descent.neighbor_lists(HARD_POINTS[name], 0)

    assert len(lists) == len(HARD_POINTS[name])


def test_build__that_fails_leaves_the_threads_as_they_were(monkeypatch):
    class Failing:
        def NNDescent(self, *args, **options):
            numba.set_num_threads(1)
            raise MemoryError("no memory")

    nn_descent.neighbor_lists(_rows(1, 100), 0)
    n_threads = numba.get_num_threads()
    monkeypatch.setattr(nn_descent, "_library", Failing)

    with pytest.raises(MemoryError, match="no memory"):
        nn_descent.neighbor_lists(_rows(1, 100), 0)

    assert numba.get_num_threads() == n_threads


def test_import__leaves_the_threading_layer_as_it_was_set(monkeypatch):
    """pynndescent sets another one where "omp" was asked for."""
    monkeypatch.setattr(numba.config, "THREADING_LAYER", "omp")
    nn_descent._library.cache_clear()
    for name in [name for name in sys.modules if name == "pynndescent"]:
        monkeypatch.delitem(sys.modules, name)

    nn_descent._library()

    assert numba.config.THREADING_LAYER == "omp"


def test_builds__are_one_at_a_time_where_threads_must_not_meet(monkeypatch):
    held = []
    monkeypatch.setattr(nn_descent, "_prepare", lambda n_features: False)
    lock = nn_descent._building.lock
    monkeypatch.setattr(nn_descent, "_listed", lambda *args: held.append(lock._is_owned()))

    nn_descent.neighbor_lists(_rows(1, 100), 0)

    assert held == [True]


def test_nothing_else__imports_pynndescent():
    folder = Path(lpe_dask.__file__).parent
    importing = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if re.search(r"^\s*(import|from) pynndescent", path.read_text(), re.MULTILINE)
    ]

    assert importing == ["kernels/nn_descent.py"]

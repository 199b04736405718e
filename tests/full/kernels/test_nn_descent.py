"""pynndescent itself, which is compiled for a minute in each process that uses it."""

import sys
import threading

import numba
import numpy as np
import pytest

from indexes import curved_rows, right_lists
from lpe_dask.kernels import nn_descent
from searching import HARD_POINTS


def test_neighbor_lists__hold_most_of_the_nearest():
    rows = curved_rows(1)

    lists = nn_descent.neighbor_lists(rows, 0)

    right = right_lists(rows)
    found = [
        len(set(a) & set(b)) for a, b in zip(lists[:, :20], right[:, :20], strict=True)
    ]
    assert lists.dtype == np.int32
    assert np.mean(found) > 19


def test_neighbor_lists__are_the_same_bits_alone_and_beside_others():
    """Four builds at once, each with one thread: numba's own scheduler would abort."""
    alone = [nn_descent.neighbor_lists(curved_rows(seed), seed) for seed in range(4)]
    beside = [None] * 4
    n_threads = numba.get_num_threads()

    def build(seed):
        beside[seed] = nn_descent.neighbor_lists(curved_rows(seed), seed)

    threads = [threading.Thread(target=build, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    np.testing.assert_array_equal(beside, alone)
    assert not np.array_equal(
        nn_descent.neighbor_lists(curved_rows(0), 1),
        nn_descent.neighbor_lists(curved_rows(0), 0),
    )
    assert numba.get_num_threads() == n_threads


@pytest.mark.parametrize("name", HARD_POINTS)
def test_neighbor_lists__take_hard_data(name):
    lists = nn_descent.neighbor_lists(HARD_POINTS[name], 0)

    assert len(lists) == len(HARD_POINTS[name])


@pytest.mark.parametrize("n_rows", [31, 64, 100])
def test_neighbor_lists__are_there_for_few_rows(n_rows):
    lists = nn_descent.neighbor_lists(curved_rows(1, n_rows), 0)

    assert lists.shape == (n_rows, min(n_rows, nn_descent.LISTED_ROWS))


def test_import__leaves_the_threading_layer_as_it_was_set(monkeypatch):
    """pynndescent sets another one where "omp" was asked for."""
    monkeypatch.setattr(numba.config, "THREADING_LAYER", "omp")
    nn_descent._library.cache_clear()
    for name in [name for name in sys.modules if name == "pynndescent"]:
        monkeypatch.delitem(sys.modules, name)

    nn_descent._library()

    assert numba.config.THREADING_LAYER == "omp"

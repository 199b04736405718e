"""Lists of near rows for tests: right ones, and such as a broken index would have."""

import numpy as np
from distributed import WorkerPlugin
from scipy.spatial import cKDTree

from lpe_dask.kernels import nn_descent
from lpe_dask.kernels.block_index import joined_lists
from lpe_dask.kernels.nn_descent import LISTED_ROWS
from lpe_dask.search import Preparation, Space
from searching import all_squares


def curved_rows(seed, n_rows=3000):
    """Return rows of 20 columns on a surface of 6 dimensions."""
    rng = np.random.default_rng(0)
    turn = rng.standard_normal((6, 20))
    return np.tanh(np.random.default_rng(seed).standard_normal((n_rows, 6)) @ turn)


def right_lists(points, seed=0, *, keep=True):
    """Expected result of `nn_descent.neighbor_lists`, by comparing all pairs."""
    # Blocks are the same again and again.
    key = points.shape, points.dtype.str, points.tobytes()
    if key in _RIGHT:
        return _RIGHT[key].copy()
    if len(points) > 1000:  # for few columns, and by no kernel of ours
        _, order = cKDTree(points).query(points, LISTED_ROWS)
    else:
        squares = all_squares(points, points)
        order = np.argsort(squares, axis=1, kind="stable")
    lists = order[:, :LISTED_ROWS].astype(np.int32)
    if keep:
        _RIGHT[key] = lists
    return lists.copy()


_RIGHT = {}


def _dropped(points, rng):
    lists = right_lists(points)
    lists[rng.random(lists.shape) < 0.01] = -1
    return lists


def _missing(points, rng):
    lists = right_lists(points)
    lists[rng.random(len(lists)) < 0.3] = -1
    return lists


def _repeated(points, rng):
    lists = right_lists(points)
    is_repeated = rng.random(len(lists)) < 0.9
    lists[is_repeated, 1:] = lists[is_repeated, :1]
    return lists


def _beyond(points, rng):
    lists = right_lists(points)
    lists[rng.random(lists.shape) < 0.5] = 2**31 - 1
    return lists


def _of_another_block(points, rng):
    """Those of other rows, of the same columns and about as far from each other."""
    return right_lists(np.apply_along_axis(rng.permutation, 0, points), keep=False)


def _random(points, rng):
    return rng.integers(0, len(points), right_lists(points).shape, dtype=np.int32)


#: What may be wrong with the lists of a block.
CORRUPTIONS = {
    "1 % of the edges dropped": _dropped,
    "-1": _missing,
    "duplicates": _repeated,
    "places beyond the block": _beyond,
    "those of another block": _of_another_block,
    "all random": _random,
}


def corrupted(name, seed, *, blocks=(0,)):
    """Return a function like `neighbor_lists` that is wrong for some blocks."""

    def lists(points, block):
        if block not in blocks:
            return right_lists(points)
        return CORRUPTIONS[name](points, np.random.default_rng([seed, block]))

    return lists


def indexes_of(reference, lists=right_lists):
    """Return an index for each block of a `searching.Reference`."""
    space = Space("nn_descent", Preparation(), reference.basis)
    return [
        space.linked(block, joined_lists(lists(block.rows, i))).index
        for i, block in enumerate(reference.blocks)
    ]


class RightLists(WorkerPlugin):
    """Let workers take the right lists, those that are started later, too."""

    name = "right-lists"

    def setup(self, worker):
        nn_descent.neighbor_lists = right_lists

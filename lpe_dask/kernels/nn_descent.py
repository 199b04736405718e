"""Approximate search: NNDescent finds which rows of a block are near each other.

    rows --pynndescent--> about the nearest rows of each --indexes--> what is searched along

Few of all pairs are compared, which pays where there are many rows and so many columns that
boxes leave out little. What is found this way is never nearer than what is: see
`search.approximate` for what follows, and `model.certificate` for what is certified.
Searches that have to be exact compare all pairs, as those of `brute` do.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from lpe_dask.forks import ForkSafeLock
from lpe_dask.kernels import brute, pruned
from lpe_dask.kernels.blocks import Arrangement
from lpe_dask.kernels.compilation import compiler

#: Whether a reference is divided into regions of near rows before it is cut into blocks.
KEEPS_NEAR_ROWS_TOGETHER = False

#: Whether all cells have their center in the origin, as `pairs` needs it.
SUMS_PAIRS = False

#: Most rows of a cell: boxes of smaller ones would leave out few pairs. Rows are in runs of
#: near ones within it, because a search along the graph reads these one after another.
CELL_ROWS, RUN_ROWS = 4096, 256

#: All rows are arranged together.
SLAB_ROWS = None

#: Near rows that are listed for each row, itself among them.
LISTED_ROWS = 30

#: Coordinates end here: of sums of squares in float32 none overflows.
FURTHEST_LISTED = 1e15

basis = brute.basis
tile = pruned.tile

#: Held by the first build of a process, and by each where no two may run at once.
_building = ForkSafeLock()

#: The processes that have built: this one, or those that it is a fork of.
_builders: set[int] = set()


def arrange(points: NDArray[np.float64], cell_rows: int = CELL_ROWS) -> Arrangement:
    """Return points of shape (n_rows, n_features) in runs of near ones, in large cells."""
    runs = pruned.arrange(points, min(cell_rows, RUN_ROWS), grouped=False)
    merged = max(1, cell_rows // RUN_ROWS)
    starts = np.append(runs.starts[:-1:merged], runs.starts[-1:])
    return Arrangement(runs.order, starts, bounded=True)


def neighbor_lists(points: NDArray[np.float64], seed: int) -> NDArray[np.int32]:
    """Return for each point about the nearest ones, as pynndescent finds them.

    The same bits each time, on one machine: a build uses one thread, and takes its random
    numbers from the seed.

    Parameters
    ----------
    points : ndarray of shape (n_points, n_features)
        Finite.
    seed : int
        From 0 to 2**32 - 1.

    Returns
    -------
    lists : ndarray of shape (n_points, at most LISTED_ROWS)
        Places of points, the nearest first; what is no place stands for none. A point may
        be listed for itself, or twice.

    Raises
    ------
    RuntimeError
        In a fork of a process that has built, where OpenMP would end it.
    """
    n_points = len(points)
    if n_points <= LISTED_ROWS:  # each is near all others
        shape = (n_points, n_points)
        return np.broadcast_to(np.arange(n_points, dtype=np.int32), shape)
    with np.errstate(over="ignore"):
        singles = points.astype(np.float32)
    np.clip(singles, -FURTHEST_LISTED, FURTHEST_LISTED, out=singles)
    _check_openmp()
    with _building:
        can_run_at_once = _prepare(singles.shape[1])
        if not can_run_at_once:
            return _listed(singles, seed)
    return _listed(singles, seed)


def _listed(points: NDArray[np.float32], seed: int) -> NDArray[np.int32]:
    import numba  # here and below: most searches do without

    n_threads = numba.get_num_threads()
    try:
        built = _library().NNDescent(
            points, n_neighbors=LISTED_ROWS, random_state=seed, n_jobs=1
        )
        lists: NDArray[np.int32] = built.neighbor_graph[0].astype(np.int32, copy=False)
        return lists
    finally:
        numba.set_num_threads(n_threads)  # which it leaves at 1 where it fails


def _check_openmp() -> None:
    """Raise if a build would end this process: OpenMP of GNU does not survive a fork."""
    import numba

    is_fork = bool(_builders) and os.getpid() not in _builders
    if is_fork and numba.threading_layer() == "omp":
        raise RuntimeError(
            "this process is a fork of one that has fitted with algorithm='nn_descent', "
            "and its OpenMP cannot be used after a fork. Use an exact algorithm here, "
            "start processes with multiprocessing.get_context('spawn'), or set the "
            "environment variable NUMBA_THREADING_LAYER=workqueue before the first fit."
        )


@cache
def _prepare(n_features: int) -> bool:
    """Compile what is needed, and return whether several builds may run at once.

    numba's own scheduler of threads ends the process if two threads use it at once.
    """
    import numba

    _builders.add(os.getpid())
    compiler.announce(
        "compiling pynndescent, in each process that builds an index: about 30 s"
    )
    points = np.random.default_rng(0).standard_normal((4 * LISTED_ROWS, n_features))
    _listed(points.astype(np.float32), 0)
    return numba.threading_layer() in ("omp", "tbb")


@cache
def _library() -> ModuleType:
    """Import pynndescent, and leave what schedules numba's threads as it was set."""
    import numba

    import lpe_dask.kernels.compiled  # noqa: F401 - sets the folder of numba's cache

    layer = numba.config.THREADING_LAYER
    try:
        import pynndescent  # takes seconds, and 100 MiB of workers that build no index
    finally:
        numba.config.THREADING_LAYER = layer
    # It warns if it has not found enough for some rows: what is found is audited.
    warnings.filterwarnings("ignore", "Failed to correctly find", UserWarning)
    module: ModuleType = pynndescent
    return module

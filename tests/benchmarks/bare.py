"""The kernel of ``algorithm="brute"`` without Dask: what its share of a fit is told by."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, KNearestAccumulator
from lpe_dask.search import Preparation, Space

#: Queries that a thread measures at a time, at most.
PASS_ROWS = 4096


def bare_kernel(
    rows: NDArray[np.generic], n_neighbors: int, n_threads: int
) -> NDArray[np.float64]:
    """Return the distance from each row to the K-th nearest of the others.

    Plain threads share the passes, in memory, as fast as the kernel allows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    n_neighbors : int
        K.
    n_threads : int

    Returns
    -------
    radii : ndarray of shape (n_rows,)
    """
    space = Space("brute", Preparation(), ALGORITHMS["brute"].basis(rows))
    numbers = np.arange(len(rows))
    pass_rows = min(PASS_ROWS, -(-len(rows) // n_threads))
    block = space.pack(rows, numbers).block

    def measure(start: int) -> NDArray[np.float64]:
        part = slice(start, start + pass_rows)
        queries = space.tiles(rows[part], numbers[part])
        state = KNearestAccumulator(queries, space.basis, n_neighbors)
        state.fold(block)
        return state.finish()

    with ThreadPoolExecutor(n_threads) as threads:
        return np.concatenate(list(threads.map(measure, range(0, len(rows), pass_rows))))

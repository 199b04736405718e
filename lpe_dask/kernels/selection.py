"""Keep the K smallest numbers of a stream.

A reservoir of at least K + 1 places takes whatever is below its limit; when it is full,
the K smallest move to the front and the largest of them becomes the new limit. That costs
a constant number of comparisons for each number taken, whatever K is, and the K smallest
do not depend on the order in which the numbers came.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.compiled import compiled

#: Places beyond K: room to collect before the next selection, also when K is small.
SPARE_PLACES = 32


def reservoir_size(n_neighbors: int) -> int:
    """Return the places of a reservoir that keeps the ``n_neighbors`` smallest."""
    return max(2 * n_neighbors, n_neighbors + SPARE_PLACES)


@compiled
def keep_smallest(values: NDArray[np.float64], n_values: int, n_kept: int) -> float:
    """Move the ``n_kept`` smallest of ``values[:n_values]`` to the front, in any order.

    Quickselect in place, with the median of three as pivot; equal numbers stop both scans,
    so a run of duplicates is split in the middle and stays cheap.

    Parameters
    ----------
    values : ndarray of shape (n_places,)
        Without NaN. Changed in place.
    n_values, n_kept : int
        ``1 <= n_kept <= n_values <= n_places``.

    Returns
    -------
    largest : float
        The largest of the kept numbers, which stands at ``values[n_kept - 1]``.
    """
    low = 0
    high = n_values - 1
    target = n_kept - 1
    while low < high:
        a = values[low]
        b = values[(low + high) >> 1]
        c = values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break
    largest: float = values[target]
    return largest

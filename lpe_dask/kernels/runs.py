"""Look numbers up in runs of one array, each of which is ascending: all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def ranks_in_runs(
    values: NDArray[np.float64],
    starts: NDArray[np.integer[Any]],
    stops: NDArray[np.integer[Any]],
    sought: NDArray[np.float64],
    side: str,
) -> NDArray[np.int64]:
    """Return where numbers would be in their runs, from 0, by halving.

    Parameters
    ----------
    values : ndarray of shape (n_values,)
        Without NaN.
    starts, stops : ndarray of shape (n,)
        The run of number ``i`` is ``values[starts[i] : stops[i]]``.
    sought : ndarray of shape (n,)
        NaN is beyond all others.
    side : {"left", "right"}
        As in `numpy.searchsorted`: before or after numbers that are equal.

    Examples
    --------
    >>> runs = np.array([1.0, 2.0, 5.0, 0.0, 2.0])
    >>> firsts, ends = np.array([0, 0, 3]), np.array([3, 3, 5])
    >>> ranks_in_runs(runs, firsts, ends, np.array([2.0, 9.0, 2.0]), "left").tolist()
    [1, 3, 1]
    """
    low, high = starts.astype(np.int64), stops.astype(np.int64)
    while (is_open := low < high).any():
        middle = (low + high) // 2
        known = values[np.minimum(middle, len(values) - 1)]
        # NaN is not less than a number: what is asked is whether the number is not less.
        is_before = ~(known >= sought) if side == "left" else ~(known > sought)
        low = np.where(is_open & is_before, middle + 1, low)
        high = np.where(is_open & ~is_before, middle, high)
    return low - starts

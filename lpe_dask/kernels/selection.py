"""Keep the K smallest of some numbers, in time that does not depend on K.

Quickselect in place, with the median of three as pivot; equal numbers stop both scans, so a
run of duplicates is split in the middle and stays cheap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.compiled import borrowing

#: Moves of each key after which another method finds the rest.
MOST_MOVES = 6

#: So few keys are sorted by insertion.
SORTED_SIZE = 8


@borrowing
def keep_smallest(values: NDArray[Any], n_values: int, n_kept: int) -> Any:
    """Move the ``n_kept`` smallest of ``values[:n_values]`` to the front, in any order.

    Parameters
    ----------
    values : ndarray of shape (n_places,)
        Without NaN. Changed in place.
    n_values, n_kept : int
        ``1 <= n_kept <= n_values <= n_places``.

    Returns
    -------
    largest : number
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
    return values[target]


@borrowing
def keep_smallest_keys(keys: NDArray[np.uint64], n_keys: int, n_kept: int) -> Any:
    """Move the ``n_kept`` smallest of different keys to the front; return the largest.

    Like `keep_smallest`, three times as fast for keys of which no two are equal: which
    side of the pivot a key belongs to is added up and not branched on, so that processors
    need not guess.
    """
    low = 0
    high = n_keys - 1
    target = n_kept - 1
    n_moves_left = MOST_MOVES * n_keys
    while high - low > SORTED_SIZE:
        n_moves_left -= high - low
        if n_moves_left < 0:  # in an order that gives bad pivots, as descending keys do
            return keep_smallest(keys, n_keys, n_kept)
        a = keys[low]
        b = keys[(low + high) >> 1]
        c = keys[high]
        pivot = max(min(a, b), min(max(a, b), c))  # one key at least is on either side
        border = low
        for i in range(low, high + 1):
            key = keys[i]
            keys[i] = keys[border]
            keys[border] = key
            border += 1 if key < pivot else 0
        if target < border:
            high = border - 1
        else:
            low = border
    for i in range(low + 1, high + 1):
        key = keys[i]
        j = i - 1
        while j >= low and keys[j] > key:
            keys[j + 1] = keys[j]
            j -= 1
        keys[j + 1] = key
    return keys[target]


@borrowing
def keep_smallest_pairs(
    values: NDArray[np.float64], numbers: NDArray[np.int64], n_values: int, n_kept: int
) -> None:
    """Move the ``n_kept`` smallest pairs ``(value, number)`` to the front, in any order.

    Like `keep_smallest`, for two arrays that belong together; of equal values those with
    smaller numbers are kept. No two pairs are equal.
    """
    low = 0
    high = n_values - 1
    target = n_kept - 1
    while low < high:
        middle = (low + high) >> 1
        pivot = _median_of_three(values, numbers, low, middle, high)
        pivot_value = values[pivot]
        pivot_number = numbers[pivot]
        i = low
        j = high
        while i <= j:
            while _is_before(values[i], numbers[i], pivot_value, pivot_number):
                i += 1
            while _is_before(pivot_value, pivot_number, values[j], numbers[j]):
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                numbers[i], numbers[j] = numbers[j], numbers[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break


@borrowing
def _is_before(value, number, other_value, other_number):  # type: ignore[no-untyped-def]
    return value < other_value or (value == other_value and number < other_number)


@borrowing
def _median_of_three(values, numbers, a, b, c):  # type: ignore[no-untyped-def]
    if _is_before(values[b], numbers[b], values[a], numbers[a]):
        a, b = b, a
    if _is_before(values[c], numbers[c], values[b], numbers[b]):
        b = c
        if _is_before(values[b], numbers[b], values[a], numbers[a]):
            b = a
    return b

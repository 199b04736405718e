"""The largest of some numbers, and the K smallest, in time that does not depend on K.

Quickselect in place, with the median of three as pivot. What is fastest for numbers that
differ gives up on long runs of equal ones, which another form splits in the middle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.compiled import borrowing, inlined

#: Moves of each number after which another method finds the rest.
MAX_MOVES = 6

_ZERO, _ONE = np.uintp(0), np.uintp(1)

#: So few numbers are sorted by insertion.
SORTED_SIZE = 8


@borrowing
def keep_smallest(
    values: NDArray[Any], numbers: NDArray[np.int64], n_values: int, n_kept: int
) -> Any:
    """Move the ``n_kept`` smallest of ``values[:n_values]`` to the front, in any order.

    Which side of the pivot a number belongs to is added up and not branched on, so that
    processors need not guess: three times as fast as `keep_smallest_pairs`, which takes
    over where pivots are bad.

    Parameters
    ----------
    values : ndarray of shape (n_places,)
        Without NaN. Changed in place.
    numbers : ndarray of shape (at least n_values,)
        Whatever they are; changed as well.
    n_values, n_kept : int
        ``1 <= n_kept <= n_values <= n_places``.

    Returns
    -------
    largest : number
        The largest of the kept numbers, which stands at ``values[n_kept - 1]``.
    """
    low = np.intp(0)
    high = np.intp(n_values - 1)
    target = n_kept - 1
    n_moves_left = MAX_MOVES * (high + 1)
    while high - low > SORTED_SIZE:
        n_moves_left -= high - low
        if n_moves_left < 0:  # bad pivots, as of equal or descending numbers
            keep_smallest_pairs(values, numbers, n_values, n_kept)
            return values[target]
        a = values[low]
        b = values[(low + high) >> 1]
        c = values[high]
        # Of different numbers at least one is on either side of it.
        pivot = _median(a, b, c)
        border = np.uintp(low)  # unsigned: no test whether it counts from the end
        for i in range(low, high + 1):
            value = values[np.uintp(i)]
            values[np.uintp(i)] = values[border]
            values[border] = value
            border += _ONE if value < pivot else _ZERO
        if np.uintp(target) < border:
            high = np.intp(border) - 1
        else:
            low = np.intp(border)
    for i in range(low + 1, high + 1):
        value = values[np.uintp(i)]
        j = i - 1
        while j >= low and values[np.uintp(j)] > value:
            values[np.uintp(j + 1)] = values[np.uintp(j)]
            j -= 1
        values[np.uintp(j + 1)] = value
    return values[target]


@inlined
def _median(a, b, c):  # type: ignore[no-untyped-def]
    if b < a:
        a, b = b, a
    if c < b:
        return c if a < c else a  # noqa: FURB136 - compiled for each type
    return b


@borrowing
def keep_smallest_pairs(
    values: NDArray[Any], numbers: NDArray[np.int64], n_values: int, n_kept: int
) -> None:
    """Move the ``n_kept`` smallest pairs ``(value, number)`` to the front, in any order.

    Like `keep_smallest`, for two arrays that belong together; of equal values those with
    smaller numbers are kept.
    """
    low = np.int64(0)  # a number that is known is another type
    high = np.int64(n_values) - 1
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


@borrowing
def largest_of(values: NDArray[np.float64], start: int, stop: int) -> float:
    """Return the largest of ``values[start:stop]``; -inf if there is none.

    In numba this is a loop as well, of several functions.
    """
    largest = -np.inf
    for i in range(start, stop):
        largest = values[i] if values[i] > largest else largest  # noqa: FURB136
    return largest

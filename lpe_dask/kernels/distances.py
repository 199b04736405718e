"""The definition: squared distances in float64, summed in coordinate order.

There is no other place where a distance is made; filters only choose the pairs.
"""

from __future__ import annotations

import math

import numpy as np

from lpe_dask.kernels.compiled import borrowing


def largest_square_within(radius: float) -> float:
    """Return the largest float64 whose square root, rounded, is at most ``radius``.

    The definition compares distances; comparing their squares with this number instead
    decides every pair alike, also those at exactly the radius.

    Examples
    --------
    >>> largest_square_within(0.1) >= 0.1 * 0.1
    True
    """
    square = radius * radius
    while math.sqrt(square) > radius:
        square = math.nextafter(square, 0.0)
    while math.sqrt(following := math.nextafter(square, math.inf)) <= radius:
        square = following
    return square


@borrowing
def last_of_same_root(square: float) -> float:
    """Return the largest float64 with the same square root, rounded, as ``square``.

    Pairs at equal distances then tie, also those whose squares differ.
    """
    distance = math.sqrt(square)
    following = np.nextafter(square, np.inf)
    while following < np.inf and math.sqrt(following) == distance:
        square = following
        following = np.nextafter(square, np.inf)
    return square


@borrowing
def fill_squares(row, block, places, n_places, squares):  # type: ignore[no-untyped-def]
    """Fill the squared distances of one query to some rows of a block.

    Parameters
    ----------
    row : ndarray of shape (n_features,)
    block : BlockArrays
    places : ndarray of shape (at least n_places,)
        Of the rows in the block.
    n_places : int
    squares : ndarray of shape (at least n_places,)
        Filled.
    """
    if len(block.single_rows) > 0:
        _fill_squares_of(row, block.single_rows, places, n_places, squares)
    else:
        _fill_squares_of(row, block.double_rows, places, n_places, squares)


@borrowing
def _fill_squares_of(row, rows, places, n_places, squares):  # type: ignore[no-untyped-def]
    # Four sums side by side: one alone would wait for each of its additions.
    n_features = len(row)
    last = n_places - 1
    for m in range(0, n_places, 4):
        a = places[m]
        b = places[min(m + 1, last)]
        c = places[min(m + 2, last)]
        d = places[min(m + 3, last)]
        sum_a = 0.0
        sum_b = 0.0
        sum_c = 0.0
        sum_d = 0.0
        for k in range(n_features):
            x = row[k]
            difference_a = x - float(rows[a, k])
            difference_b = x - float(rows[b, k])
            difference_c = x - float(rows[c, k])
            difference_d = x - float(rows[d, k])
            sum_a += difference_a * difference_a
            sum_b += difference_b * difference_b
            sum_c += difference_c * difference_c
            sum_d += difference_d * difference_d
        squares[m] = sum_a
        squares[min(m + 1, last)] = sum_b
        squares[min(m + 2, last)] = sum_c
        squares[min(m + 3, last)] = sum_d

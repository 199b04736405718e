"""The definition: squared distances in float64, summed in coordinate order.

The difference of two numbers is squared, and the square is multiplied by the weight of its
column: equal differences stay equal, whatever they are multiplied by. After the numbers
come the codes of categories, of which each that differs adds its weight.

There is no other place where a distance is made (its loop is in `squares`); filters only
choose the pairs.
"""

from __future__ import annotations

import math

import numpy as np

from lpe_dask.kernels.compiled import borrowing
from lpe_dask.kernels.squares import SIDE_BY_SIDE, fill_eight_squares


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
def fill_squares(row, block, places, n_places, squares, weights, n_codes):  # type: ignore[no-untyped-def]
    """Fill the squared distances of one query to some rows of a block.

    Parameters
    ----------
    row : ndarray of shape (n_features,)
    block : BlockArrays
    places : ndarray of shape (at least n_places,)
        Of the rows in the block.
    n_places : int
    squares : ndarray of shape (at least n_places, rounded up to a multiple of 8)
        Filled; what is beyond ``n_places`` has no meaning.
    weights : ndarray of shape (n_features,)
    n_codes : int
        How many of the last columns are codes.
    """
    last = n_places - 1
    for start in range(0, n_places, SIDE_BY_SIDE):
        if len(block.single_rows) > 0:
            rows = block.single_rows
            fill_eight_squares(row, rows, places, start, last, squares, weights, n_codes)
        else:
            wide = block.double_rows
            fill_eight_squares(row, wide, places, start, last, squares, weights, n_codes)

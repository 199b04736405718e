"""Bounds between distances, their squares, and squares in units of a basis: NumPy alone.

The definition of a distance itself is in `definition`, and for compiled kernels in
`squares`.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import ErrorBounds

_Squares = TypeVar("_Squares", float, NDArray[np.float64])


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


def last_of_same_root(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float64 with the same square root, rounded, as each square.

    Pairs at equal distances then tie, also those whose squares differ.

    Examples
    --------
    >>> one = last_of_same_root(np.array([1.0]))
    >>> np.sqrt(one), np.sqrt(np.nextafter(one, 2)) > 1
    (array([1.]), array([ True]))
    """
    roots = np.sqrt(squares)
    while True:
        with np.errstate(over="ignore"):
            following = np.nextafter(squares, np.inf)
        is_same = (np.sqrt(following) == roots) & (following < np.inf)
        if not is_same.any():
            return squares
        squares = np.where(is_same, following, squares)


def limit_of(square: _Squares, n_features: int, errors: ErrorBounds) -> _Squares:
    """Return a bound in the basis's units of all pairs within ``square``, as defined.

    Parameters
    ----------
    square : float or ndarray
    n_features : int
    errors : ErrorBounds
    """
    real = square * (1.0 + (n_features + 4) * 2.0**-52)
    return real * errors.factor * errors.factor * (1.0 + 2.0**-50)

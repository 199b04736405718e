r"""Tell what the columns of the input have to do with a distance between prepared rows.

    two prepared rows --squared_parts--> what each column adds to their squared distance
    a prepared row --restored--> values of the input that become the same

A column may be two in prepared rows (both forms of a scale), and a matrix mixes all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpe_dask.search.knots import Knots
from lpe_dask.search.preparation import Preparation, Scaling, numbers_of, product

#: Decimals up to which a number is tried.
MOST_DECIMALS = 16

#: How far numbers that a matrix has mixed may be from what they were, as a share.
_MIXED_ERROR = 1e-10


def squared_parts(
    preparation: Preparation,
    queries: NDArray[np.float64],
    rows: NDArray[np.float64],
    n_features: int,
) -> NDArray[np.float64]:
    r"""Return what each column of the input adds to squared distances.

    With :math:`\delta` the difference in scaled units that is :math:`w_c \delta_c^2`, of
    both forms of a column together; the weight of a category that differs; and for a
    Mahalanobis distance :math:`\delta_c (V^{-1} \delta)_c`, which adds up to the squared
    distance as well, but may be negative where columns are correlated.

    Parameters
    ----------
    preparation : Preparation
    queries, rows : ndarray of shape (n, n_prepared)
        Prepared, pair by pair.
    n_features : int
        Columns of the input.

    Returns
    -------
    parts : ndarray of shape (n, n_features)
        ``inf`` or NaN where the distance overflows.
    """
    codes = np.array(preparation.categorical, np.int64)
    n_numbers, last = n_features - len(codes), queries.shape[1] - len(codes)
    parts = np.zeros((len(queries), n_features))
    if n_numbers > 0:
        with np.errstate(over="ignore", invalid="ignore"):
            delta = queries[:, :last] - rows[:, :last]
            squares = delta * delta
            if (matrix := preparation.linear_map.matrix) is not None:
                scaled = product(delta, np.linalg.inv(matrix))
                squares = scaled * product(delta, np.ascontiguousarray(matrix.T))
            of_forms = squares.reshape(len(squares), -1, n_numbers)
            parts[:, _numbers(preparation, n_features)] = of_forms.sum(axis=1)
    parts[:, codes] = (queries[:, last:] != rows[:, last:]) * preparation.weights
    return parts


def restored(
    preparation: Preparation, prepared: NDArray[np.floating], n_features: int
) -> NDArray[np.float64]:
    """Return rows of the input that prepared rows may have come from.

    Of the numbers that are prepared to the same, those with the fewest decimals: where the
    input had few, as in most tables, they are those of the input. What a matrix has mixed
    is known up to rounding only.

    Parameters
    ----------
    preparation : Preparation
    prepared : ndarray of shape (n, n_prepared)
    n_features : int
        Columns of the input.

    Returns
    -------
    rows : ndarray of shape (n, n_features)
        With codes of categories as they are; NaN in a column of weight 0.
    """
    codes = np.array(preparation.categorical, np.int64)
    n_numbers, last = n_features - len(codes), prepared.shape[1] - len(codes)
    rows = np.empty((len(prepared), n_features))
    rows[:, codes] = prepared[:, last:]
    if n_numbers > 0:
        mapped = prepared[:, :last].astype(np.float64)
        with np.errstate(all="ignore"):
            rows[:, _numbers(preparation, n_features)] = _of_mapped(preparation, mapped)
    return rows


def _numbers(preparation: Preparation, n_features: int) -> NDArray[np.int64]:
    """Return which columns of the input are numbers."""
    places = np.arange(n_features)[None, :]
    return numbers_of(places, preparation.categorical)[0].astype(np.int64)


def _of_mapped(
    preparation: Preparation, mapped: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return numbers of the input, which rows of numbers came from."""
    scaling, linear_map = preparation.scaling, preparation.linear_map
    scaled, error = mapped, 0.0
    if linear_map.factor is not None:
        scaled = mapped / linear_map.factor
        scaled[:, linear_map.factor == 0] = np.nan
    if linear_map.divisor is not None:
        scaled = mapped * linear_map.divisor
    if linear_map.matrix is not None:
        scaled, error = product(mapped, np.linalg.inv(linear_map.matrix)), _MIXED_ERROR
    n_forms = 2 if scaling.knots is not None and scaling.shift is not None else 1
    n_numbers = mapped.shape[1] // n_forms
    exactly = _unscaled(scaling, scaled[:, :n_numbers])
    numbers, is_found = exactly.copy(), np.zeros(exactly.shape, bool)
    for decimals in range(MOST_DECIMALS + 1):
        tried = np.round(exactly, decimals)
        rescaled = scaling.apply(tried)
        gap = linear_map.apply(rescaled) - mapped if error == 0 else rescaled - scaled
        largest = np.abs(scaled).max(axis=1, initial=0, keepdims=True)
        is_same = np.abs(gap) <= error * largest
        is_new = is_same.reshape(len(tried), n_forms, n_numbers).all(axis=1) & ~is_found
        numbers[is_new] = tried[is_new]
        is_found |= is_new
    return numbers


def _unscaled(scaling: Scaling, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what linear forms, or else heights, come from, up to rounding."""
    if scaling.shift is None:
        return scaled if scaling.knots is None else _below(scaling.knots, scaled)
    numbers = scaled
    if scaling.divisor is not None:
        numbers = numbers * scaling.divisor
    if scaling.factor is not None:
        numbers = numbers / scaling.factor
    return numbers + scaling.shift


def _below(knots: Knots, heights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the numbers at such heights: the inverse of `Knots.apply`."""
    numbers = np.empty_like(heights)
    columns = zip(knots.values, knots.ranks, heights.T, strict=True)
    for k, (values, ranks, column) in enumerate(columns):
        if len(values) == 1:
            numbers[:, k] = column + values[0]
            continue
        shares = ranks / (2 * knots.n_sampled)
        beyond = (column - np.clip(column, shares[0], shares[-1])) * np.ptp(values)
        numbers[:, k] = np.interp(column, shares, values) + beyond
    return numbers

r"""Relate distances between prepared rows to the columns of the input.

    two prepared rows --squared_parts--> what each column adds to their squared distance
    a prepared row --inverse_transform--> values of the input that become the same
    prepared rows --typical_values--> quantiles of the input, and its frequent categories

A column may be two in prepared rows (both forms of a scale), and a matrix mixes all. Where
rows are prepared by their groups, each is related by what was learned of its own group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.search.preparation import MISSING_CODE, Preparation, Scaling, product
from lpe_dask.search.quantile_scale import QuantileKnots

#: Decimals up to which a number is tried.
MAX_DECIMALS = 16

#: How far numbers that a matrix has mixed may be from what they were, as a share of what
#: was added up for them.
_MIXED_ERROR = 1e-10

#: Which quantiles give typical values; how many of the most frequent values do, of codes
#: and of columns that have no more.
USUAL_LEVELS, FREQUENT_VALUES = (0.01, 0.5, 0.99), 3

#: Returns which numbers of the input become the prepared ones, bit for bit.
Same = Callable[[NDArray[np.float64]], NDArray[np.bool_]]


class TypicalValues(NamedTuple):
    """What is usual among some rows of the input.

    Attributes
    ----------
    quantiles : ndarray of shape (3, n_features)
        Of each column, at `USUAL_LEVELS`: values that occur.
    frequent : list of list of (float, float)
        Of each column: its most frequent values or codes, and their shares; empty for
        numbers of more than a few values. NaN where values are missing.
    missing : ndarray of shape (n_features,)
        The share of values that are missing, or of which that is not known, in a column of
        weight 0.
    """

    quantiles: NDArray[np.float64]
    frequent: list[list[tuple[float, float]]]
    missing: NDArray[np.float64]


def squared_parts(
    preparation: Preparation,
    queries: NDArray[np.float64],
    rows: NDArray[np.float64],
    n_features: int,
) -> NDArray[np.float64]:
    r"""Return the part of squared distances that each column of the input adds.

    With :math:`\delta` the difference in scaled units that is :math:`w_c \delta_c^2`, of
    both forms of a column together, and the weight of a gap where one of the two has one;
    the weight of a category that differs; and for a
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
        ``inf`` or NaN where the distance overflows; NaN where nothing was learned of the
        group of the query.
    """
    if preparation.groups is not None:
        return _by_group(squared_parts, preparation, (queries, rows), n_features)
    codes = np.array(preparation.categorical, np.int64)
    n_numbers, last = n_features - len(codes), queries.shape[1] - preparation.n_codes
    weights = preparation.weights_of(queries.shape[1])
    parts = np.zeros((len(queries), n_features))
    if n_numbers > 0:
        with np.errstate(over="ignore", invalid="ignore"):
            delta = queries[:, :last] - rows[:, :last]
            squares = delta * delta * weights[:last]
            if (matrix := preparation.matrix) is not None:
                scaled = product(delta, _inverse(matrix.tobytes(), len(matrix)))
                squares = scaled * product(delta, np.ascontiguousarray(matrix.T))
            squares = _with_left_out(preparation, squares, 0.0)
            n_forms = squares.shape[1] // n_numbers
            of_forms = squares.reshape(len(squares), n_forms, n_numbers)
            parts[:, preparation.number_places(n_features)] = of_forms.sum(axis=1)
    differing = (queries[:, last:] != rows[:, last:]) * weights[last:]
    of_codes, of_gaps = preparation.parted(differing)
    parts[:, codes] = of_codes
    if preparation.fill is not None:
        parts[:, preparation.number_places(n_features)] += of_gaps
    return parts


def directions(
    preparation: Preparation,
    queries: NDArray[np.float64],
    rows: NDArray[np.float64],
    n_features: int,
) -> NDArray[np.float64]:
    """Return 1 where a number of a query is larger than that of the row, -1 where smaller.

    0 where they are equal, and for categories. Parameters as for `squared_parts`; so is
    what is returned for queries of unknown groups.
    """
    if preparation.groups is not None:
        return _by_group(directions, preparation, (queries, rows), n_features)
    places, last = preparation.number_places(n_features), -preparation.n_codes or None
    found = np.zeros((len(queries), n_features))
    with np.errstate(over="ignore", invalid="ignore"):
        delta = queries[:, :last] - rows[:, :last]
        if (matrix := preparation.matrix) is not None:
            delta = product(delta, _inverse(matrix.tobytes(), len(matrix)))
    complete = _with_left_out(preparation, delta, 0.0)
    n_numbers = n_features - len(preparation.categorical)  # both forms have one order
    found[:, places] = np.sign(complete[:, :n_numbers])
    return found


def inverse_transform(
    preparation: Preparation, prepared: NDArray[np.floating], n_features: int
) -> NDArray[np.float64]:
    """Return rows of the input that prepared rows may have come from.

    Of the numbers that are prepared to the same, those with the fewest decimals: where the
    input had few, as in most tables, they are those of the input. Others are known up to
    rounding only, where a matrix has mixed them or under a quantile scale.

    Parameters
    ----------
    preparation : Preparation
    prepared : ndarray of shape (n, n_prepared)
    n_features : int
        Columns of the input.

    Returns
    -------
    rows : ndarray of shape (n, n_features)
        With codes of categories as they are; NaN in a column of weight 0, and where a value
        is missing.
    """
    if preparation.groups is not None:
        return _by_group(inverse_transform, preparation, (prepared,), n_features)
    codes = np.array(preparation.categorical, np.int64)
    n_numbers, last = n_features - len(codes), prepared.shape[1] - preparation.n_codes
    rows = np.empty((len(prepared), n_features))
    of_codes, of_gaps = preparation.parted(prepared[:, last:])
    rows[:, codes] = np.where(of_codes == MISSING_CODE, np.nan, of_codes)
    if n_numbers > 0:
        mapped = prepared[:, :last].astype(np.float64)
        with np.errstate(all="ignore"):
            numbers = _of_mapped(preparation, mapped)
        if preparation.fill is not None:
            numbers[of_gaps == 1] = np.nan
        rows[:, preparation.number_places(n_features)] = numbers
    return rows


def typical_values(
    preparation: Preparation, prepared: NDArray[np.float64], n_features: int
) -> TypicalValues:
    """Return typical values of prepared rows, at least one.

    Parameters
    ----------
    preparation, prepared, n_features
        As for `inverse_transform`.
    """
    rows = inverse_transform(preparation, prepared, n_features)
    frequent: list[list[tuple[float, float]]] = []
    for place, column in enumerate(rows.T):
        values, counts = np.unique(column, return_counts=True)
        first = np.argsort(-counts, kind="stable")[:FREQUENT_VALUES]
        is_listed = place in preparation.categorical or len(values) <= FREQUENT_VALUES
        found = [(float(values[i]), float(counts[i] / len(column))) for i in first]
        frequent.append(found if is_listed else [])
    missing, quantiles = np.isnan(rows).mean(axis=0), np.full((3, n_features), np.nan)
    known = missing < 1
    quantiles[:, known] = np.nanquantile(
        rows[:, known], USUAL_LEVELS, axis=0, method="inverted_cdf"
    )
    return TypicalValues(quantiles, frequent, missing)


def _by_group(
    function: Callable[..., NDArray[np.float64]],
    preparation: Preparation,
    prepared: tuple[NDArray[np.floating], ...],
    n_features: int,
) -> NDArray[np.float64]:
    """Return a function of prepared rows, for those of each group by its preparation.

    The groups are those of the first rows; NaN where nothing was learned of one.
    """
    found = np.full((len(prepared[0]), n_features), np.nan)
    codes = preparation.group_codes(prepared[0])
    for group in np.unique(codes[~np.isnan(codes)]).tolist():
        which = codes == group
        of_rows = (rows[which] for rows in prepared)
        found[which] = function(preparation.of_group(int(group)), *of_rows, n_features)
    return found


def _with_left_out(
    preparation: Preparation, values: NDArray[np.float64], missing: float
) -> NDArray[np.float64]:
    """Return values of prepared numbers beside ``missing`` for columns of weight 0."""
    if preparation.factor is None:
        return values
    is_kept = preparation.factor != 0
    complete = np.full((len(values), len(is_kept)), missing)
    complete[:, is_kept] = values[:, : np.count_nonzero(is_kept)]
    return complete


@lru_cache(maxsize=64)
def _inverse(content: bytes, n: int) -> NDArray[np.float64]:
    """Return the inverse of a matrix, which is asked for again and again.

    That of each group, where there are several.
    """
    inverse: Any = np.linalg.inv(np.frombuffer(content).reshape(n, n))
    return inverse


def _of_mapped(
    preparation: Preparation, mapped: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return numbers of the input, which rows of numbers came from."""
    scaling, matrix = preparation.scaling, preparation.matrix
    scaled, tolerance = mapped, np.zeros((1, 1))
    if preparation.factor is not None:
        scaled = _with_left_out(preparation, mapped, np.nan) / preparation.factor
    if matrix is not None:
        inverse = _inverse(matrix.tobytes(), len(matrix))
        scaled = product(mapped, inverse)
        tolerance = _MIXED_ERROR * product(np.abs(mapped), np.abs(inverse))
    n_forms = scaling.n_scaled(1)
    n_numbers = scaled.shape[1] // n_forms
    is_as_it_was = scaling.shift is None and (scaling.knots is None or scaling.has_both)
    if is_as_it_was and matrix is None:
        return scaled[:, :n_numbers]

    def same(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which numbers become the same."""
        is_off = np.abs(scaling.apply(numbers) - scaled) > tolerance  # not for NaN
        of_forms = is_off.reshape(len(is_off), n_forms, n_numbers)
        return np.asarray(~of_forms.any(axis=1))

    exactly = _unscaled(scaling, scaled[:, :n_numbers])
    return _shortest(exactly, same)


def _shortest(numbers: NDArray[np.float64], same: Same) -> NDArray[np.float64]:
    """Return numbers rounded to as few decimals as can be, or as they are."""
    shortest, is_found = numbers.copy(), np.zeros(numbers.shape, bool)
    for decimals in range(MAX_DECIMALS + 1):
        tried = np.round(numbers, decimals)
        is_new = same(tried) & ~is_found
        shortest[is_new] = tried[is_new]
        is_found |= is_new
        if is_found.all():
            break
    return shortest


def _unscaled(scaling: Scaling, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the origins of linear forms, or else of heights, up to rounding."""
    if scaling.knots is not None and not scaling.has_both:
        return _below(scaling.knots, scaled)
    if scaling.shift is None:
        return scaled
    numbers = scaled
    if scaling.divisor is not None:
        numbers = numbers * scaling.divisor
    if scaling.factor is not None:
        numbers = numbers / scaling.factor
    return numbers + scaling.shift


def _below(knots: QuantileKnots, heights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the numbers at such heights: the inverse of `QuantileKnots.apply`."""
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

r"""Estimate the false alarms that learning from the nominal rows themselves adds.

    rows, each --scale or metric learned without it--> how far it would be as a new row
                                                      against the others as they are

A nominal row helps to learn the scale that it is then measured in, and a new row does not.
What is learned without one row follows from what is learned with it, so that no more is
needed than the distances from each row in its own scale:

    variances    s_{-i}^2 = n / (n - 1) s^2 (1 - z_i^2 / (n - 1)),   z_i = (x_i - mean) / s
    ranges       those of the others
    quantiles    those of the others: a row alone at an end of a column is beyond their end
    covariance   S_{-i} = (n - 1) / (n - 2) (S - n / (n - 1)^2 (x_i - mean)(x_i - mean)')

Other quantiles change by no more than a share of one row. A sample of the rows is enough
to tell, and no result depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from lpe_dask.pvalues import places_flagged
from lpe_dask.search import Knots, LinearMap, Preparation, Statistic, numbers_of

#: Rows that distances are taken between, and where a matrix maps every difference.
MOST_ROWS, MOST_MAPPED_ROWS = 1024, 256

#: Ranks around that of the level over which the estimate is averaged, as a share of it.
WINDOW = 0.5


def added_false_alarms(
    rows: NDArray[np.generic],
    preparation: Preparation,
    learned: str,
    statistic: Statistic,
    n_rows: int,
    alpha: float,
) -> float:
    """Return by how much learning multiplies the false alarms at a level, about.

    Parameters
    ----------
    rows : ndarray of shape (n_sampled, n_features)
        Finite nominal rows as they came; all of them, or a sample.
    preparation : Preparation
        As learned.
    learned : str
        As `validity.what_is_learned` gives it, but for `validity.GRAPH`. Of a scale and a
        metric that are both learned, the one that multiplies them more.
    statistic : Statistic
        In prepared units.
    n_rows : int
        Nominal rows; at least 3.
    alpha : float

    Returns
    -------
    ratio : float
        At least 0; 1 where learning makes no difference.
    """
    for of_metric in ("variances", "covariance"):
        of_scale = learned.removesuffix(f" and {of_metric}")
        if of_scale != learned:
            return max(
                added_false_alarms(rows, preparation, part, statistic, n_rows, alpha)
                for part in (of_scale, of_metric)
            )
    numbers = numbers_of(rows, preparation.categorical)
    scaled = preparation.scaling.apply(numbers)
    has_matrix = preparation.linear_map.matrix is not None
    most = MOST_MAPPED_ROWS if has_matrix and learned != "covariance" else MOST_ROWS
    some = np.random.default_rng(0).permutation(len(rows))[:most]
    statistic = _among(statistic, n_rows, len(some))
    if learned == "covariance":
        mapped = preparation.linear_map.apply(scaled)
        among, alone = _without_covariance(
            mapped - mapped.mean(axis=0), some, statistic, n_rows
        )
    else:
        # Variances that a metric learns are those of what is scaled already.
        linear_map, knots = preparation.linear_map, preparation.scaling.knots
        if learned == "variances" and preparation.scaling.divisor is None:
            scaled, linear_map = linear_map.apply(scaled), LinearMap()
        moved, stretched = _left_out(learned, numbers, scaled, knots, n_rows)
        scaled, moved, stretched = scaled[some], moved[some], stretched[some]
        if preparation.categorical:  # nothing is learned from codes
            codes = _indicators(rows[some], preparation)
            linear_map = LinearMap(factor=_factors(linear_map, scaled, codes))
            scaled, moved = np.hstack([scaled, codes]), np.hstack([moved, codes])
            stretched = np.hstack([stretched, np.ones_like(codes)])
        among, alone = _without_scale(scaled, moved, stretched, linear_map, statistic)
    return _ratio(among, alone, alpha)


def _left_out(
    learned: str,
    numbers: NDArray[np.generic],
    scaled: NDArray[np.float64],
    knots: Knots | None,
    n_rows: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where each row is in the scale of the others, and how squares grow in it."""
    if learned in _STRETCHED:
        return scaled, _STRETCHED[learned](scaled, n_rows)
    moved, stretched = scaled.copy(), np.ones(scaled.shape)
    if knots is not None:
        n_linear = scaled.shape[1] - numbers.shape[1]
        moved[:, n_linear:] = _without_own_knot(numbers, scaled[:, n_linear:], knots)
        stretched[:, :n_linear] = _stretched_ranges(scaled[:, :n_linear], n_rows)
    return moved, stretched


def _indicators(rows: NDArray[np.generic], preparation: Preparation) -> NDArray[np.float64]:
    """Return columns in which rows of other categories differ by their squared weight."""
    columns = [np.empty((len(rows), 0))]
    for k, weight in zip(preparation.categorical, preparation.weights, strict=True):
        is_level = rows[:, k, None] == np.unique(rows[:, k])
        columns.append(is_level * math.sqrt(weight / 2))
    return np.hstack(columns)


def _factors(
    linear_map: LinearMap, scaled: NDArray[np.float64], codes: NDArray[np.float64]
) -> NDArray[np.float64]:
    of_numbers = linear_map.factor
    if of_numbers is None:
        of_numbers = np.ones(scaled.shape[1])
    return np.append(of_numbers, np.ones(codes.shape[1]))


def _among(statistic: Statistic, n_rows: int, n_sampled: int) -> Statistic:
    """Return what corresponds to a statistic among a sample of the rows."""
    if statistic.n_neighbors is None:
        return statistic
    share = round(statistic.n_neighbors * n_sampled / n_rows)
    return replace(statistic, n_neighbors=max(1, min(share, n_sampled - 1)))


def _of_squares(statistic: Statistic, squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the statistic by squared distances of shape (..., n_rows).

    Larger where a row is more anomalous; its own place holds inf.
    """
    if statistic.n_neighbors is None:
        assert statistic.radius is not None
        counts = (squares <= statistic.radius * statistic.radius).sum(axis=-1)
        return -np.asarray(counts, np.float64)
    k = statistic.n_neighbors - 1
    nearest: NDArray[np.float64] = np.partition(squares, k, axis=-1)[..., : k + 1]
    if statistic.aggregation == "mean":
        return np.sqrt(nearest).mean(axis=-1)
    kth: NDArray[np.float64] = nearest[..., k]
    return kth


def _stretched_variances(scaled: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return, for each row and column, s^2 / s_{-i}^2."""
    deviation = scaled.std(axis=0)
    constant = deviation == 0
    z = (scaled - scaled.mean(axis=0)) / np.where(constant, 1.0, deviation)
    left = n / (n - 1) * (1 - z * z / (n - 1))
    # A column that is constant without the row keeps its unit.
    alone = np.where(left <= 1e-9, 1 / np.where(constant, 1.0, deviation) ** 2, left)
    stretched: NDArray[np.float64] = 1 / alone
    return stretched


def _stretched_ranges(scaled: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return, for each row and column, the squared ratio of the ranges with and without it.

    Without a row that is alone at the end of a column the range ends at the next one.
    """
    ordered = np.sort(scaled, axis=0)
    whole = ordered[-1] - ordered[0]
    stretched = np.ones(scaled.shape)
    for end, without in (
        (ordered[-1], ordered[-2] - ordered[0]),
        (ordered[0], ordered[-1] - ordered[1]),
    ):
        is_end = scaled == end
        is_end &= is_end.sum(axis=0) == 1
        unit = np.where(without == 0, 1.0, without)  # constant without it: keeps its unit
        stretched = np.where(
            is_end, (np.where(whole == 0, 1.0, whole) / unit) ** 2, stretched
        )
    return stretched


def _without_own_knot(
    rows: NDArray[np.generic], heights: NDArray[np.float64], knots: Knots
) -> NDArray[np.float64]:
    """Return the heights of rows by the knots of the others.

    Only those at an end change by more than about the share of a row: without a row that
    is alone there, the range ends at the next knot, and the row is beyond it.
    """
    moved = heights.copy()
    for k, (values, ranks) in enumerate(zip(knots.values, knots.ranks, strict=True)):
        if len(values) < 3:  # the column is constant without such a row, or it is not alone
            continue
        column, shares = rows[:, k].astype(np.float64), ranks / (2 * knots.n_sampled)
        for end, following, far in ((0, 1, -1), (-1, -2, 0)):
            is_end = column == values[end]
            if is_end.sum() == 1:
                step = values[end] - values[following]
                width = abs(values[far] - values[following])
                moved[is_end, k] = shares[following] + step / width
    return moved


#: What is learned -> by what squares of differences grow, for each row and column.
_STRETCHED: dict[str, Callable[[NDArray[np.float64], int], NDArray[np.float64]]] = {
    "variances": _stretched_variances,
    "ranges": _stretched_ranges,
}


def _without_scale(
    scaled: NDArray[np.float64],
    moved: NDArray[np.float64],
    stretched: NDArray[np.float64],
    linear_map: LinearMap,
    statistic: Statistic,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the statistic of rows in the scale of all, and in that of the others.

    There a row is where ``moved`` says, and differences grow as ``stretched`` says.
    """
    squares = _squares(linear_map.apply(scaled))
    among = _of_squares(statistic, squares)
    common = _common_stretch(scaled - scaled[squares.argmin(axis=1)], stretched, linear_map)
    alone = np.empty(len(scaled))
    for i, factors in enumerate(np.sqrt(stretched)):
        own = _mapped((scaled - moved[i]) * factors, linear_map)
        squares = np.einsum("ij,ij->i", own, own) / common[i]
        squares[i] = np.inf
        alone[i] = _of_squares(statistic, squares)
    return among, alone


def _mapped(rows: NDArray[np.float64], linear_map: LinearMap) -> NDArray[np.float64]:
    """Return mapped rows, by BLAS: no result depends on how it rounds."""
    return linear_map.apply(rows) if linear_map.matrix is None else rows @ linear_map.matrix


def _common_stretch(
    steps: NDArray[np.float64], stretched: NDArray[np.float64], linear_map: LinearMap
) -> NDArray[np.float64]:
    """Return by what squared distances of the other rows grow on average, for each row.

    ``steps`` are differences of near rows, of shape (n_rows, n_features).
    """
    lengths = linear_map.apply(np.eye(steps.shape[1]))
    spread = (steps * steps).mean(axis=0) * (lengths * lengths).sum(axis=1)
    total = spread.sum()
    return (stretched * spread).sum(axis=1) / total if total > 0 else np.ones(len(steps))


def _without_covariance(
    whitened: NDArray[np.float64], some: NDArray[np.int64], statistic: Statistic, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the same, for the covariance: a change of rank one for each row."""
    rows = whitened[some]
    squares, lengths = _squares(rows), np.einsum("ij,ij->i", rows, rows)
    share = n / (n - 1) ** 2
    weight = share / np.maximum(1 - share * lengths, np.finfo(np.float64).eps)
    along = lengths[:, None] - rows @ rows.T
    own = squares + weight[:, None] * along * along
    common = 1 + weight * lengths / rows.shape[1]
    return _of_squares(statistic, squares), _of_squares(statistic, own / common[:, None])


def _squares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = cdist(rows, rows, "sqeuclidean")
    np.fill_diagonal(squares, np.inf)
    return squares


def _ratio(among: NDArray[np.float64], alone: NDArray[np.float64], alpha: float) -> float:
    """Return how many times more rows are beyond the most anomalous, around a level."""
    flagged = places_flagged(alpha, len(among))
    first = math.floor(flagged * (1 - WINDOW))
    last = min(len(among) - 2, math.ceil(flagged * (1 + WINDOW)) + 1)
    falling = np.sort(among)[::-1]
    ratios = []
    for rank in range(first, last + 1):
        # As a new row is compared with the others only. Where rows tie, none is flagged.
        others = np.where(among >= falling[rank], falling[rank + 1], falling[rank])
        if n_among := int((among > others).sum()):
            ratios.append(int((alone > others).sum()) / n_among)
    return sum(ratios) / len(ratios) if ratios else 1.0

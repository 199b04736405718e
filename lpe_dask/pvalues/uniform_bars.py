"""Bars of a histogram of p-values, and the band in which those of nominal rows stay."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lpe_dask.pvalues.group_counts import excess_p_values


def bar_densities(p_values: NDArray[np.float64], n_bars: int) -> NDArray[np.float64]:
    """Return the density of p-values in equal bars between 0 and 1.

    A bar has its right edge and not its left one, as ``p <= alpha`` is flagged; the first
    has p = 0 as well.

    Parameters
    ----------
    p_values : ndarray of shape (n_rows,)
        Without NaN, not empty.
    n_bars : int

    Examples
    --------
    >>> bar_densities(np.array([0.0, 0.5, 0.6, 1.0]), 2)
    array([1., 1.])
    """
    edges = np.arange(n_bars + 1) / n_bars  # as ranks divided by their number are rounded
    places = np.maximum(np.searchsorted(edges, p_values, side="left") - 1, 0)
    counts = np.bincount(places, minlength=n_bars).astype(np.float64)
    return counts * (n_bars / len(p_values))


def uniform_band(
    n_rows: int, n_bars: int, n_calibration: int | None = None, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return between which densities all bars of p-values of nominal rows are.

    The number of N rows in a bar is binomial, of b bars with probability 1 / b. Where all
    rows are compared with the same m calibration rows, it is beta-binomial,

    .. math:: X \sim \mathrm{BetaBinomial}(N, k, m + 1 - k),

    for the k of m + 1 places that are in the bar, over rows and calibration rows. Each bar
    leaves its interval with a probability of at most ``(1 - level) / b``, so that all are
    in theirs with at least ``level``, however they depend on each other.

    Parameters
    ----------
    n_rows : int
        N, at least 1.
    n_bars : int
        b.
    n_calibration : int, optional
        m. Exact for conformal p-values without ties; those that may be 0 are shifted by one
        place. None: independent uniform p-values, as if m were infinite.
    level : float
        In (0, 1).

    Returns
    -------
    low, high : ndarray of shape (n_bars,)

    Examples
    --------
    >>> low, high = uniform_band(1000, 10)
    >>> low.round(2).tolist()[:2], high.round(2).tolist()[:2]
    ([0.74, 0.74], [1.28, 1.28])
    >>> uniform_band(1000, 10, n_calibration=99)[1].round(2).tolist()[:2]
    [2.1, 2.1]
    """
    tail = (1 - level) / (2 * n_bars)
    if n_calibration is None:
        from scipy.stats import binom  # takes half a second, and 50 MiB

        ends = [(binom.ppf(tail, n_rows, 1 / n_bars), binom.isf(tail, n_rows, 1 / n_bars))]
        counts = np.repeat(ends, n_bars, axis=0)
    else:
        up_to = np.arange(n_bars + 1) * (n_calibration + 1) // n_bars
        counts = np.array(
            [_limits(n_rows, int(k), n_calibration, tail) for k in np.diff(up_to)]
        )
    low, high = counts.T * (n_bars / n_rows)
    return low, high


@cache
def _limits(n_rows: int, places: int, n_calibration: int, tail: float) -> tuple[int, int]:
    """Return the fewest and the most rows in a bar of so many places."""
    if places > n_calibration:  # one bar has all rows
        return n_rows, n_rows

    def more_than(n: int) -> float:
        given = (np.array([value]) for value in (n + 1, n_rows, places, n_calibration))
        return float(excess_p_values(*given)[0])

    counts = range(n_rows)
    return (
        bisect_left(counts, True, key=lambda n: more_than(n) <= 1 - tail),
        bisect_left(counts, True, key=lambda n: more_than(n) <= tail),
    )

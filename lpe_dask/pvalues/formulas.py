"""Turn a statistic into a p-value against the statistics of nominal rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.storage import SortedVector


def p_values(
    statistic: NDArray[np.float64],
    calibration: NDArray[np.float64] | SortedVector,
    is_own: NDArray[np.bool_] | None = None,
    *,
    graph: str = "knn",
    includes_self: int = 0,
) -> NDArray[np.float64]:
    r"""Return the share of nominal statistics at least as anomalous as each statistic.

    The statistic of K-LPE, a distance, grows the more anomalous a row is; that of
    epsilon-LPE, a count, falls:

    .. math::
        \hat p_K(\eta) = \frac1m \sum_{i=1}^m 1\{R(\eta) \le R(x_i)\}, \qquad
        \hat p_\epsilon(\eta) = \frac1m \sum_{i=1}^m 1\{N(\eta) \ge N(x_i)\}

    In the conformal form a row counts itself among the m others: the p-value is
    :math:`(1 + \mathrm{count}) / (m + 1)`.

    Parameters
    ----------
    statistic : ndarray of shape (n_queries,)
        ``inf`` is allowed, NaN means that the row was not measured.
    calibration : ndarray or SortedVector of shape (m,)
        The statistics of nominal rows, ascending, without NaN, not empty.
    is_own : ndarray of shape (n_queries,), optional
        Which of the rows are already among those of ``calibration``.
    graph : {"knn", "radius"}
    includes_self : {0, 1}
        1 for the conformal form.

    Returns
    -------
    p_values : ndarray of shape (n_queries,)
        In [0, 1]; whole multiples of ``1 / m``, or of ``1 / (m + 1)`` and then not 0; NaN
        for NaN. A tie with a nominal row counts for "nominal".

    References
    ----------
    .. [1] M. Zhao and V. Saligrama, "Anomaly Detection with Score functions based on
       Nearest Neighbor Graphs", NIPS 2009, equations (1) and (2).
    .. [2] V. Vovk, A. Gammerman and G. Shafer, "Algorithmic Learning in a Random World",
       Springer 2005, inductive conformal predictors.

    Examples
    --------
    >>> distances, nominal = np.array([0.5, 2.0, 9.0]), np.array([1.0, 2.0, 2.0, 3.0])
    >>> p_values(distances, nominal)
    array([1.  , 0.75, 0.  ])
    >>> p_values(distances, nominal, includes_self=1)
    array([1. , 0.8, 0.2])
    >>> p_values(np.array([0.0, 2.0, 9.0]), nominal, graph="radius")
    array([0.  , 0.75, 1.  ])
    """
    counts = _exceedance_counts(statistic, calibration, graph)
    if includes_self:
        counts = counts + (1 if is_own is None else ~is_own)
    shares = counts / (len(calibration) + includes_self)
    return np.where(np.isnan(statistic), np.nan, shares)


def needed_count(offset: float, n_calibration: int, includes_self: int = 0) -> int:
    """Return how many nominal rows are as anomalous as a row whose p-value is ``offset``.

    The fewest for which the p-value of a new row is at least that; ``n_calibration + 1``
    if there are none.

    Examples
    --------
    >>> needed_count(0.3, 4), needed_count(0.3, 4, includes_self=1)
    (2, 1)
    """
    n_places = n_calibration + includes_self
    counts = range(includes_self, n_places + 1)
    return bisect_left(counts, offset, key=lambda count: count / n_places)


class Band(NamedTuple):
    """A band around p-values.

    Attributes
    ----------
    level : float
        The probability with which no p-value against the whole distribution is outside.
    half_width : float
    """

    level: float
    half_width: float


def dkw_band(n_calibration: int, level: float = 0.95) -> Band:
    r"""Return the band of p-values against a sample of nominal rows.

    .. math:: \sqrt{\ln(2 / (1 - \mathrm{level})) / (2 m)}

    With probability ``level``, no p-value against m independent nominal statistics differs
    by more from the p-value against the whole distribution (the inequality of Dvoretzky,
    Kiefer and Wolfowitz with Massart's constant).

    Parameters
    ----------
    n_calibration : int
        m, at least 1.
    level : float
        In (0, 1).

    Examples
    --------
    >>> round(dkw_band(10_000).half_width, 4)
    0.0136
    """
    return Band(level, math.sqrt(math.log(2 / (1 - level)) / (2 * n_calibration)))


def _exceedance_counts(
    statistic: NDArray[np.float64],
    calibration: NDArray[np.float64] | SortedVector,
    graph: str,
) -> NDArray[np.int64]:
    """Return how many nominal rows are at least as anomalous as each row."""
    order = np.argsort(statistic)  # sorted values find their places in a long vector faster
    ranks = np.empty(len(statistic), np.int64)
    if graph == "knn":
        ranks[order] = calibration.searchsorted(statistic[order], side="left")
        return len(calibration) - ranks
    ranks[order] = calibration.searchsorted(statistic[order], side="right")
    return ranks

r"""What is promised about false alarms, and which calibration keeps the promise.

A row drawn like the nominal ones is flagged at level a, on average over nominal sets, with

    scale and metric given      "loo"         P(p <= a) <= (floor(a m) + 1) / (m + 1)
    learned or given            "conformal"   P(p <= a) <= a
    learned from the same rows  "loo"         about as where they are given, for many rows

for m calibration rows. For one nominal set, "conformal" only, the rate at which such rows
have one of k of the m + 1 places is Beta(k, m + 1 - k), from which `confident_places` takes
the k for ``confidence``. A learned scale or metric fits the rows from which it was learned
better than new rows, which makes new rows look more anomalous; the effect fades with the
number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.lpe_parameters import SCALES

#: What is learned -> c and the power of d, such that "loo" is right from c * d**power rows
#: on: at levels from 0.01 it raises at most a tenth more false alarms than where it is
#: given, for normal and clustered rows and for Student's t with 3 degrees of freedom
#: (`make false-alarms` measures this; docs/guide/calibration.md has the figures). With a
#: covariance every row is in part measured by itself, more so with more columns. With
#: quantiles a row at an end of a column is measured as if it were not beyond the others;
#: of few columns each decides more. Where several are learned, what they add adds up.
ROWS_FOR_LOO = {
    "ranges": (200, 1.0), "quantiles": (2000, 0.5), "variances": (70, 1.0),
    "covariance": (40, 1.5), "medians": (70, 1.0),
}  # fmt: skip

#: A neighbor graph with edges in both directions: nominal rows have more of them than new
#: ones, however many there are. (In the directed graph both have as many, and new rows
#: look rather less anomalous.)
UNION_GRAPH = "neighbor graph"

#: Metric -> what is learned for it where no parameters are given. These metrics do not
#: depend on a linear scale, so what is learned for that makes no difference.
_BY_METRIC = {"seuclidean": "variances", "mahalanobis": "covariance"}


def false_alarm_bound(alpha: float, n: int) -> float:
    """Return the largest average rate of false alarms that n calibration rows allow.

    If a new nominal row could be a neighbor of the others, its place among the n + 1
    statistics would be uniform, and ``floor(alpha n) + 1`` places are flagged. As it
    cannot, the others' statistics are more anomalous and its p-value is larger, so the rate
    is at most this, and lower by about 1 / n at most.

    Holds for "loo", for rows exchangeable with the nominal ones, and where scale and metric
    were given, not learned.

    Examples
    --------
    >>> false_alarm_bound(0.05, 200)
    0.0547
    """
    return float(flagged_places(alpha, n, includes_self=False) / (n + 1))


def flagged_places(
    alpha: float, m: NDArray[np.int64] | int, *, includes_self: bool
) -> NDArray[np.int64]:
    """Return k: so many of the m + 1 places of a row among calibration rows are flagged.

    Parameters
    ----------
    alpha : float
    m : ndarray or int
        Calibration rows.
    includes_self : bool
        Whether p-values are ``(j + 1) / (m + 1)`` for j calibration rows that are at least
        as anomalous, as of "conformal"; else they are ``j / m``.

    Returns
    -------
    k : ndarray
        1 more than the largest j whose p-value is at most alpha; 0 if there is none.

    Examples
    --------
    >>> flagged_places(0.05, np.array([9, 19, 199]), includes_self=True)
    array([ 0,  1, 10])
    >>> flagged_places(0.05, np.array([9, 19, 199]), includes_self=False)
    array([ 1,  1, 10])
    """
    return n_flagged_ranks(alpha, m + includes_self) + (not includes_self)


def decisive_places(
    alpha: float,
    m: NDArray[np.int64] | int,
    confidence: float | None,
    *,
    includes_self: bool,
) -> NDArray[np.int64]:
    """Return k: `confident_places`, or `flagged_places` without a confidence."""
    if confidence is None:
        return flagged_places(alpha, m, includes_self=includes_self)
    return confident_places(alpha, m, confidence)


def confident_places(
    alpha: float, m: NDArray[np.int64] | int, confidence: float
) -> NDArray[np.int64]:
    r"""Return the largest k for which the rate of false alarms is surely at most alpha.

    Given the nominal rows, a row like these has one of the k most anomalous of m + 1 places
    at a rate that is distributed, over the calibration rows, as

    .. math:: \mathrm{Beta}(k, m + 1 - k)

    for continuous statistics that are independent given the rows that are searched; ties
    only lower it.

    Parameters
    ----------
    alpha : float
        In (0, 1).
    m : ndarray or int
        Calibration rows.
    confidence : float
        The probability, in (0, 1), with which the rate is at most alpha.

    Returns
    -------
    k : ndarray
        Of the shape of m; 0 where there is none.

    References
    ----------
    .. [1] V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012.

    Examples
    --------
    >>> confident_places(0.01, np.array([298, 299, 10_000]), 0.95)
    array([ 0,  1, 84])
    """
    from scipy.special import betainc  # takes a moment, and is needed by few

    # Beta(k, m + 1 - k) is at most alpha with a probability that falls as k grows.
    low, m = np.zeros(np.shape(m), np.int64), np.asarray(m)
    high = m + 1
    while (is_open := high - low > 1).any():
        middle = np.where(is_open, (low + high) // 2, 1)
        is_sure = betainc(middle, np.maximum(m + 1 - middle, 1), alpha) >= confidence
        low = np.where(is_open & is_sure & (m > 0), middle, low)
        high = np.where(is_open & ~(is_sure & (m > 0)), middle, high)
    return low


def rows_for_confidence(alpha: float, confidence: float) -> int:
    """Return the fewest calibration rows with which a row can be flagged.

    Examples
    --------
    >>> rows_for_confidence(0.01, 0.95), rows_for_confidence(0.05, 0.9)
    (299, 45)
    """
    about = math.ceil(math.log1p(-confidence) / math.log1p(-alpha))
    near = np.arange(max(about - 1, 1), about + 2)  # whatever rounding did
    return int(near[confident_places(alpha, near, confidence) > 0][0])


def n_flagged_ranks(alpha: float, n: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Return how many of the p-values 1/n, 2/n, ..., 1 are at most alpha, for each n.

    Examples
    --------
    >>> n_flagged_ranks(0.29, np.array([100, 7]))  # 0.29 * 100 is 28.999... in float64
    array([29,  2])
    """
    n = np.asarray(n)
    most = np.minimum(n, np.ceil(alpha * n).astype(np.int64) + 1)
    while (is_above := (most > 0) & (most / np.maximum(n, 1) > alpha)).any():
        most = most - is_above  # as p-values are compared
    return most


def learned_components(parameters: Mapping[str, Any]) -> str | None:
    """Return the components of distances that nominal rows teach; None if there are none.

    Parameters
    ----------
    parameters : mapping
        The arguments of `LPE`, of which scale, metric and missing matter.

    Returns
    -------
    learned : str, optional
        A key of `ROWS_FOR_LOO`, several of them joined by " and ", or `UNION_GRAPH`.

    Examples
    --------
    >>> learned_components(dict(scale="minmax", metric="euclidean", metric_params=None))
    'ranges'
    """
    metric, metric_params = parameters["metric"], parameters["metric_params"]
    gaps = ("medians",) if parameters.get("missing") == "measure" else ()
    if metric == "geodesic" and (metric_params or {}).get("graph") == "union":
        return UNION_GRAPH
    scale = SCALES[parameters["scale"]]
    of_metric = None if metric_params else _BY_METRIC.get(metric)
    if of_metric is None:
        return " and ".join((*scale.learned, *gaps)) or None
    of_scale = scale.learned if scale.has_quantiles else ()
    return " and ".join((*of_scale, of_metric))


def min_rows_for_loo(learned: str, n_features: int) -> float:
    """Return how many nominal rows "loo" needs to be right.

    Parameters
    ----------
    learned : str
        As `learned_components` gives it, but for `UNION_GRAPH`, for which none are enough.
    n_features : int

    Examples
    --------
    >>> min_rows_for_loo("variances", 10), min_rows_for_loo("covariance", 16)
    (700.0, 2560.0)
    >>> min_rows_for_loo("ranges and quantiles", 4)
    4800.0
    """
    parts = learned.split(" and ")
    # A metric is learned from every form that a scale gives a column.
    n_forms = 2 if {"ranges", "quantiles"} <= set(parts) else 1
    needed = 0
    for part in parts:
        factor, power = ROWS_FOR_LOO[part]
        is_of_input = part in ("ranges", "quantiles", "medians")
        n_columns = n_features if is_of_input else n_forms * n_features
        needed += math.ceil(factor * n_columns**power)
    return float(needed)


def least_group(sizes: NDArray[np.int64], alpha: float) -> int:
    """Return the rows of the smallest group that is not small if all are measured.

    Of groups of these sizes, from which something is learned each by itself. If all are
    small, of the largest one.

    Examples
    --------
    >>> least_group(np.array([5, 60, 30]), 0.05)
    30
    """
    usable = sizes[1 / (sizes + 1) <= alpha]
    return int(usable.min(initial=sizes.max()))


def choose_calibration(
    learned: str | None, n_rows: int, n_features: int, confidence: float | None = None
) -> tuple[str, str]:
    """Return the calibration that ``"auto"`` stands for, and the reason in words.

    Parameters
    ----------
    learned : str, optional
        As `learned_components` gives it.
    n_rows : int
        Nominal rows.
    n_features : int
    confidence : float, optional
        What the promise for one nominal set is to hold with.

    Returns
    -------
    calibration : {"loo", "conformal"}
    reason : str
    """
    if confidence is not None:
        return "conformal", f"confidence={confidence:g} holds for no other"
    if learned is None:
        return "loo", "nothing is learned from the nominal rows"
    if learned == UNION_GRAPH:
        return "conformal", "in the union graph nominal rows have more edges than new ones"
    least = min_rows_for_loo(learned, n_features)
    given = f"{learned} of {n_features} columns learned from {n_rows} nominal rows"
    if n_rows >= least:
        return "loo", f"{given}; 'loo' is right from {least:.0f} rows on"
    return "conformal", f"{given}; 'loo' would need {least:.0f}"

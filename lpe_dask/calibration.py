"""Turn a statistic into a p-value against the statistics of the nominal rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def tail_fraction(
    statistic: NDArray[np.float64], calibration: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the share of nominal statistics at least as large as each statistic.

    The p-value of K-LPE, whose statistic grows the more anomalous a row is:

    .. math:: \hat p_K(\eta) = \frac1n \sum_{i=1}^n 1\{R_S(\eta) \le R_S(x_i)\}

    Parameters
    ----------
    statistic : ndarray of shape (n_queries,)
        Distances; ``inf`` is allowed, NaN means that the row was not measured.
    calibration : ndarray of shape (n_reference,)
        The statistics of the nominal rows, ascending, without NaN, not empty.

    Returns
    -------
    p_values : ndarray of shape (n_queries,)
        Whole multiples of ``1 / n_reference`` in [0, 1]; NaN for NaN. A tie with a nominal
        row counts for "nominal".

    References
    ----------
    .. [1] M. Zhao and V. Saligrama, "Anomaly Detection with Score functions based on
       Nearest Neighbor Graphs", NIPS 2009, equation (1).

    Examples
    --------
    >>> tail_fraction(np.array([0.5, 2.0, 9.0]), np.array([1.0, 2.0, 2.0, 3.0]))
    array([1.  , 0.75, 0.  ])
    """
    n_smaller = _ranks(statistic, calibration, "left")
    return _share(len(calibration) - n_smaller, statistic, calibration)


def head_fraction(
    statistic: NDArray[np.float64], calibration: NDArray[np.float64]
) -> NDArray[np.float64]:
    r"""Return the share of nominal statistics at most as large as each statistic.

    The p-value of epsilon-LPE, whose statistic, a count, falls the more anomalous a row is:

    .. math:: \hat p_\epsilon(\eta) = \frac1n \sum_{i=1}^n 1\{N_S(\eta) \ge N_S(x_i)\}

    Parameters, returned values and source are those of `tail_fraction`, equation (2).

    Examples
    --------
    >>> head_fraction(np.array([0.0, 2.0, 9.0]), np.array([1.0, 2.0, 2.0, 3.0]))
    array([0.  , 0.75, 1.  ])
    """
    n_not_larger = _ranks(statistic, calibration, "right")
    return _share(n_not_larger, statistic, calibration)


#: graph -> how its statistic becomes a p-value.
P_VALUES = {"knn": tail_fraction, "radius": head_fraction}


def _ranks(
    statistic: NDArray[np.float64], calibration: NDArray[np.float64], side: str
) -> NDArray[np.int64]:
    order = np.argsort(statistic)  # sorted needles walk through a long vector in its order
    ranks = np.empty(len(statistic), np.int64)
    ranks[order] = np.searchsorted(calibration, statistic[order], side=side)  # type: ignore[call-overload]
    return ranks


def _share(
    counts: NDArray[np.int64],
    statistic: NDArray[np.float64],
    calibration: NDArray[np.float64],
) -> NDArray[np.float64]:
    return np.where(np.isnan(statistic), np.nan, counts / len(calibration))

r"""Judge how many rows of each group are flagged, by what is promised for nominal ones.

A row is flagged if it has one of the k most anomalous of the m + 1 places among the m
calibration rows of its group. For rows drawn like these, the number X of flagged ones among
N is distributed, over calibration rows and new ones, as

.. math:: X \sim \mathrm{BetaBinomial}(N, k, m + 1 - k), \qquad E X = N k / (m + 1),

where statistics do not tie, and stochastically at most so where they do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def expected_flagged(
    n_rows: NDArray[np.int64], places: NDArray[np.int64], n_calibration: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return how many rows of groups are flagged on average at most, if all are nominal.

    Parameters
    ----------
    n_rows, places, n_calibration : ndarray of shape (n_groups,)
        N, k and m.
    """
    return n_rows * (places / (n_calibration + 1))


def excess_p_values(
    flagged: NDArray[np.int64],
    n_rows: NDArray[np.int64],
    places: NDArray[np.int64],
    n_calibration: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return how likely so many rows of groups, or more, are flagged if all are nominal.

    Parameters
    ----------
    flagged : ndarray of shape (n_groups,)
    n_rows, places, n_calibration : ndarray of shape (n_groups,)
        N, k and m, k at most m. With k = 0 none can be flagged.

    Returns
    -------
    p_values : ndarray of shape (n_groups,)
        At most so likely, where statistics tie.

    Notes
    -----
    At least x of N new rows have one of the k most anomalous places if and only if fewer
    than k calibration rows are among the x + k - 1 most anomalous of all N + m, all orders
    of which are equally likely. So the tail of the beta-binomial is one of a hypergeometric
    distribution, for which scipy does not add up all terms.

    Examples
    --------
    >>> few = np.array([3, 0]), np.array([10, 10]), np.array([1, 1]), np.array([19, 19])
    >>> excess_p_values(*few).round(4)
    array([0.0328, 1.    ])
    """
    from scipy.stats import hypergeom  # takes half a second, and 50 MiB

    p_values = np.ones(len(flagged))
    some = flagged > 0
    x, n, k, m = (of[some] for of in (flagged, n_rows, places, n_calibration))
    tail = hypergeom.cdf(k - 1, n + m, m, np.minimum(x + k - 1, n + m))
    p_values[some] = np.where(k > 0, np.clip(tail, 0.0, 1.0), 0.0)
    return p_values


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values adjusted for their number, by Holm's method.

    With a probability of at most ``a``, one or more of those up to ``a`` belong to groups
    whose rows are nominal, however the groups depend on each other.

    Parameters
    ----------
    p_values : ndarray of shape (n,)
        Without NaN.

    Examples
    --------
    >>> holm(np.array([0.01, 0.5, 0.02]))
    array([0.03, 0.5 , 0.04])
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted

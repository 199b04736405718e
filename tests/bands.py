"""Bands for how many new rows are flagged by conformal p-values, over many nominal sets."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def flagged_band(
    n_sets: int, n_new: int, alpha: float, n_calibration: int, risk: float
) -> tuple[int, int]:
    """Return between which counts the flagged rows of all sets are, but for a risk.

    Without ties the count of one set is beta-binomial, exactly; ties only lower it. Sets
    are independent, so that the law of their sum is a power of the transform.

    Parameters
    ----------
    n_sets, n_new : int
        Sets of nominal rows, and new rows of each.
    alpha : float
    n_calibration : int
        Of each set.
    risk : float
        How probable it is that the count is below the band, or above it, at most.
    """
    n_ranks = n_calibration + 1
    k = int(
        (np.arange(1, n_ranks + 1) / n_ranks <= alpha).sum()
    )  # as p-values are compared
    if k == 0:
        return 0, 0
    law = stats.betabinom(n_new, k, n_ranks - k)
    of_all = _law_of_sum(law.pmf(np.arange(n_new + 1)), n_sets)
    least, most = np.searchsorted(np.cumsum(of_all), [risk, 1 - risk])
    return int(least), int(most)


def _law_of_sum(law: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    size = 2 ** int(np.ceil(np.log2(n * (len(law) - 1) + 1)))
    return np.fft.irfft(np.fft.rfft(law, size) ** n, size)

r"""Bound how many of the rows that were flagged are false alarms.

    N, m, k of each group --> sum of BetaBinomial(N, k, m + 1 - k) --quantile--> at most F

A row drawn like the calibration rows of its group has one of the k most anomalous of m + 1
places in a number of N new rows that is so distributed, over calibration rows and new ones
together, if the rows are independent of each other. If fewer than all N are nominal, or
statistics tie, the number is smaller. Statistics have to be those of "conformal".

Where a false discovery rate decides, the cut-off depends on the rows. So the bound has to
hold for all cut-offs at once: it is that of the next of a few cut-offs that are fixed
before, each of which may fail with an equal part of the probability.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.flagged_counts import Counts
from lpe_dask.model.validity import flagged_places

#: Each of the cut-offs that are fixed before is so many times the next smaller one. Fewer
#: would each be more certain, but farther from the one that is in use.
CUT_OFF_RATIO = 1.2


def false_alarms_at_most(
    n_rows: NDArray[np.int64],
    places: NDArray[np.int64],
    n_calibration: NDArray[np.int64],
    confidence: float,
) -> int:
    """Return how many rows are false alarms at most, with a probability.

    Parameters
    ----------
    n_rows, places, n_calibration : ndarray of shape (n_groups,)
        N, k and m of each group, at least one.
    confidence : float
        The probability, in (0, 1).

    Examples
    --------
    >>> false_alarms_at_most(*np.array([[1000], [100], [9999]]), 0.95)
    16
    """
    return Counts.in_groups(n_rows, places, n_calibration).quantile(confidence)


def false_discoveries_at_most(
    cut_off: float,
    q: float,
    n_rows: NDArray[np.int64],
    n_calibration: NDArray[np.int64],
    confidence: float,
) -> int:
    """Return the same where all up to a cut-off are flagged that depends on the rows.

    Parameters
    ----------
    cut_off : float
        The largest p-value that is flagged, at most q.
    q : float
        The false discovery rate.
    n_rows, n_calibration : ndarray of shape (n_groups,)
        N and m of each group, at least one.
    confidence : float

    Examples
    --------
    >>> false_discoveries_at_most(0.01, 0.1, *np.array([[1000], [9999]]), 0.95)
    23
    """
    least = 1 / (int(n_calibration.max()) + 1)  # no p-value is smaller
    n_cut_offs = 1 + max(0, math.floor(math.log(q / least) / math.log(CUT_OFF_RATIO)))
    cut_offs = q / CUT_OFF_RATIO ** np.arange(n_cut_offs)
    next_larger = float(cut_offs[cut_offs >= cut_off].min(initial=q))
    places = flagged_places(next_larger, n_calibration, includes_self=True)
    certainty = 1 - (1 - confidence) / n_cut_offs
    return false_alarms_at_most(n_rows, places, n_calibration, certainty)

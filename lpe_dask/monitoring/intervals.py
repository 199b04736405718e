"""Intervals of shares, and how far two distributions of counts are apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from lpe_dask.monitoring.new_values import clopper_pearson_lower, clopper_pearson_upper

#: Level of the intervals that are shown.
LEVEL = 0.95


def clopper_pearson_interval(n_flagged: int, n_rows: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share.

    Examples
    --------
    >>> [round(end, 4) for end in clopper_pearson_interval(5, 100)]
    [0.0164, 0.1128]
    """
    error = (1 - LEVEL) / 2
    return clopper_pearson_lower(n_flagged, n_rows, error), clopper_pearson_upper(
        n_flagged, n_rows, error
    )


def beta_interval(k: int, n: int, error: float) -> tuple[float, float]:
    """Return the interval of the share of new rows where k of n reference rows are.

    It is distributed as Beta; with ties between two such laws. -1: none can be there.
    """
    if k < 0:
        return 0.0, 0.0
    return clopper_pearson_lower(k, n, error), clopper_pearson_upper(k, n, error)


def shift_between(
    reference: NDArray[np.float64], bulk: NDArray[np.int64]
) -> tuple[float, float]:
    """Return the shift of the distribution of p-values, and its lower limit, at `LEVEL`.

    The largest difference of the distribution functions of the two; the limit is so many
    standard deviations below, for each, that all limits hold together.

    Parameters
    ----------
    reference, bulk : ndarray of shape (n_bulk,)
        Rows of the reference and of a run in each bulk bin.
    """
    if len(bulk) < 2 or bulk.sum() == 0 or reference.sum() == 0:
        return 0.0, 0.0
    n_new, n_old = bulk.sum(), reference.sum()
    new, old = np.cumsum(bulk)[:-1], np.cumsum(reference)[:-1]
    pooled = ((new + old) / (n_new + n_old)).clip(max=1)  # but for rounding
    gaps = np.abs(new / n_new - old / n_old)
    deviation = np.sqrt(pooled * (1 - pooled) * (1 / n_new + 1 / n_old))
    limits = gaps + ndtri((1 - LEVEL) / 2 / len(gaps)) * deviation
    return float(gaps.max()), max(0.0, float(limits.max()))

"""Turn p-values, or what stands in for them, into labels at a false-alarm level."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def threshold(alpha: float) -> float:
    """Return the float64 after ``alpha``: "below it" means "at most alpha".

    Examples
    --------
    >>> 0.05 < threshold(0.05) < 0.05 + 1e-16
    True
    """
    return math.nextafter(alpha, math.inf)


def limits(places: NDArray[np.int64], m: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Return the float64 after ``places / (m + 1)``, the p-values of "conformal"; 0 for 0.

    Examples
    --------
    >>> limits(np.array([0, 1]), np.array([298, 299])) > 1 / 300
    array([False,  True])
    """
    return np.where(places > 0, np.nextafter(places / (m + 1), np.inf), 0.0)


def row_limits(
    rows: NDArray[np.generic], of_groups: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the limit of each row, by the number of its group, the last column; or 0."""
    codes = np.nan_to_num(rows[:, -1].astype(np.float64), nan=-1).astype(np.int64)
    return np.where(codes >= 0, of_groups[codes], 0.0)


def margin(
    p_values: NDArray[np.float64], limit: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Return ``p_values - limit``, which is negative exactly where a row is an anomaly.

    NaN for NaN. Two float64 that differ have a difference that is not 0.
    """
    return p_values - limit


def labels(
    values: NDArray[np.float64], limit: NDArray[np.float64] | float
) -> NDArray[np.int64]:
    """Return -1 where a p-value or a count is below its limit (an anomaly), else 1.

    1 for NaN.
    """
    return np.where(values < limit, np.int64(-1), np.int64(1))


def labels_within(distances: NDArray[np.float64], bound: float) -> NDArray[np.int64]:
    """Return -1 where a distance is above ``bound`` (an anomaly), else 1; 1 for NaN."""
    return np.where(distances > bound, np.int64(-1), np.int64(1))

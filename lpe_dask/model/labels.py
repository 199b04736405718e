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


def margin(p_values: NDArray[np.float64], offset: float) -> NDArray[np.float64]:
    """Return ``p_values - offset``, which is negative exactly where a row is an anomaly.

    NaN for NaN. Two float64 that differ have a difference that is not 0.
    """
    return p_values - offset


def labels(values: NDArray[np.float64], offset: float) -> NDArray[np.int64]:
    """Return -1 where a p-value or a count is below ``offset`` (an anomaly), else 1.

    1 for NaN.
    """
    return np.where(values < offset, np.int64(-1), np.int64(1))


def labels_within(distances: NDArray[np.float64], bound: float) -> NDArray[np.int64]:
    """Return -1 where a distance is above ``bound`` (an anomaly), else 1; 1 for NaN."""
    return np.where(distances > bound, np.int64(-1), np.int64(1))

"""Turn p-values into decisions at a false-alarm level."""

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


def labels(p_values: NDArray[np.float64], offset: float) -> NDArray[np.int64]:
    """Return -1 where the p-value is below ``offset`` (an anomaly), else 1; 1 for NaN."""
    return np.where(p_values < offset, np.int64(-1), np.int64(1))

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


def nominal_bound(
    graph: str,
    calibration: NDArray[np.float64],
    offset: float,
    shares: NDArray[np.float64],
) -> float:
    """Return the statistic up to which, or from which on, a p-value reaches ``offset``.

    Parameters
    ----------
    graph : {"knn", "radius"}
        For "knn" a row is nominal if its distance is at most the bound; for "radius" if its
        count is at least that.
    calibration : ndarray of shape (n_reference,)
        The statistics of the nominal rows, ascending.
    offset : float
        As `threshold` gives it.
    shares : ndarray of shape (n_reference + 1,)
        The p-values of rows as anomalous as 0, 1, ... nominal rows.

    Returns
    -------
    bound : float
        ``inf`` for "knn", or 0 for "radius", if every row is nominal.

    Examples
    --------
    >>> calibration, shares = np.array([1.0, 2.0, 2.0, 3.0]), np.arange(5) / 4
    >>> nominal_bound("knn", calibration, threshold(0.25), shares)
    2.0
    >>> nominal_bound("radius", calibration, threshold(0.25), shares)
    2.0
    """
    needed = int(np.searchsorted(shares, offset))
    if needed == 0:
        return math.inf if graph == "knn" else 0.0
    place = len(calibration) - needed if graph == "knn" else needed - 1
    return float(calibration[place])


def labels_by_count(counts: NDArray[np.float64], enough: int) -> NDArray[np.int64]:
    """Return 1 where at least ``enough`` rows were counted, else -1; 1 for NaN."""
    return np.where(counts < enough, np.int64(-1), np.int64(1))

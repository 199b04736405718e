"""The two densities of equation (f0f1), and random rows of both.

f0 is an equal mixture of two Gaussians around (8, 0) and (-8, 0) with the variances 1 and
9; f1 is one Gaussian around 0 with the variance 49 in each direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Distance of the two centers of f0 from the origin, along the first axis.
CENTER = 8.0

#: Standard deviations of both parts of f0, and of f1.
NOMINAL_DEVIATIONS = np.array([1.0, 3.0])
ANOMALOUS_DEVIATIONS = np.array([7.0, 7.0])


def nominal_log_density(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log f0 of rows, of shape (..., 2)."""
    center = np.array([CENTER, 0.0])
    right = _log_gaussian(rows - center, NOMINAL_DEVIATIONS)
    left = _log_gaussian(rows + center, NOMINAL_DEVIATIONS)
    log_density: NDArray[np.float64] = np.logaddexp(right, left) - np.log(2.0)
    return log_density


def anomalous_log_density(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log f1 of rows, of shape (..., 2)."""
    return _log_gaussian(rows, ANOMALOUS_DEVIATIONS)


def _log_gaussian(
    offsets: NDArray[np.float64], deviations: NDArray[np.float64]
) -> NDArray[np.float64]:
    scaled = offsets / deviations
    height: float = -np.log(2 * np.pi * deviations.prod())
    log_density: NDArray[np.float64] = height - 0.5 * (scaled**2).sum(axis=-1)
    return log_density


def draw_nominal(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return n independent rows of f0."""
    rows: NDArray[np.float64] = rng.standard_normal((n, 2)) * NOMINAL_DEVIATIONS
    rows[:, 0] += CENTER * rng.choice([-1.0, 1.0], n)
    return rows


def draw_anomalous(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return n independent rows of f1."""
    rows: NDArray[np.float64] = rng.standard_normal((n, 2)) * ANOMALOUS_DEVIATIONS
    return rows

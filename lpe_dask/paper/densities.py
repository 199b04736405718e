"""The two densities of equation (f0f1): random rows of both, and what they alone say.

f0 is an equal mixture of two Gaussians around (8, 0) and (-8, 0) with the variances 1 and
9; f1 is one Gaussian around 0 with the variance 49 in each direction. Masses are sums over
the cells of a fine grid, and no simulation.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.pvalues import Curve, ranked_curve

#: Distance of the two centers of f0 from the origin, along the first axis.
CENTER = 8.0

#: Standard deviations of both parts of f0, and of f1.
NOMINAL_DEVIATIONS = np.array([1.0, 3.0])
ANOMALOUS_DEVIATIONS = np.array([7.0, 7.0])


def nominal_log_density(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log f0 of rows, of shape (..., 2)."""
    center = np.array([CENTER, 0.0])
    sides = (_log_gaussian(rows + side, NOMINAL_DEVIATIONS) for side in (-center, center))
    log_density: NDArray[np.float64] = np.logaddexp(*sides) - np.log(2.0)
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


class Cells(NamedTuple):
    """The middles of the cells of a square around the origin, and both log densities there.

    Attributes
    ----------
    middles : ndarray of shape (n_cells, 2)
    nominal, anomalous : ndarray of shape (n_cells,)
        log f0 and log f1.
    """

    middles: NDArray[np.float64]
    nominal: NDArray[np.float64]
    anomalous: NDArray[np.float64]


def make_cells(half_side: float = 40.0, cell: float = 0.05) -> Cells:
    """Return the cells, of the side ``cell``, of a square of twice ``half_side``.

    Outside of the usual one f0 has a mass below 1e-15 and f1 one below 3e-8.
    """
    ends = np.arange(-half_side, half_side, cell) + cell / 2
    middles = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    return Cells(middles, nominal_log_density(middles), anomalous_log_density(middles))


def density_level(log_density: NDArray[np.float64], share: float) -> float:
    """Return the log density whose level set has a given share of the mass.

    Parameters
    ----------
    log_density : ndarray of shape (n_cells,)
        In cells of equal size that hold all of the mass.
    share : float
        Between 0 and 1.

    Returns
    -------
    level : float
        The highest of the given log densities down to which the share is reached.
    """
    descending = np.sort(log_density)[::-1]
    mass = np.exp(descending).cumsum()
    return float(descending[np.searchsorted(mass, share * mass[-1])])


class LevelSets(NamedTuple):
    """How much mass f0 has where it is at most so high.

    Attributes
    ----------
    heights : ndarray of shape (n_cells,)
        log f0 in cells of equal size that hold all of its mass, ascending.
    mass : ndarray of shape (n_cells + 1,)
        Of the cells before each, and of all, which is 1.
    """

    heights: NDArray[np.float64]
    mass: NDArray[np.float64]

    @classmethod
    def of(cls, log_density: NDArray[np.float64]) -> Self:
        """Return those of a log density in cells, in any order."""
        heights = np.sort(log_density)
        mass = np.append(0.0, np.exp(heights).cumsum())
        return cls(heights, mass / mass[-1])

    def p_values(self, log_density: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the paper's p-values of rows by their log f0, for uniform anomalies."""
        return self.mass[np.searchsorted(self.heights, log_density, side="right")]


def clairvoyant_curve(
    nominal_log: NDArray[np.float64], anomalous_log: NDArray[np.float64]
) -> Curve:
    """Return the ROC curve of the likelihood ratio, which no other test exceeds.

    Parameters
    ----------
    nominal_log, anomalous_log : ndarray of shape (n_cells,)
        Log densities in cells of equal size that hold all of both masses.

    Returns
    -------
    curve : Curve
        With a point for each distinct ratio: its steep start is as fine as the cells are.
    """
    return ranked_curve(
        nominal_log - anomalous_log, np.exp(nominal_log), np.exp(anomalous_log)
    )


def level_set_curve(
    nominal_log: NDArray[np.float64], anomalous_log: NDArray[np.float64]
) -> Curve:
    """Return the ROC curve of the level sets of f0: what K-LPE tends to, without f1.

    Parameters and result are those of `clairvoyant_curve`.
    """
    return ranked_curve(nominal_log, np.exp(nominal_log), np.exp(anomalous_log))

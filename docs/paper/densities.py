"""The two densities of equation (f0f1): random rows of both, and exact values from them.

f0 is an equal mixture of two Gaussians around (8, 0) and (-8, 0) with the variances 1 and
9; f1 is one Gaussian around 0 with the variance 49 in each direction. Masses are sums over
the cells of a fine grid, not simulations.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy.stats import multivariate_normal

from paper.fits import Floats
from paper.roc import Curve, ranked_curve

#: Distance of the two centers of f0 from the origin, along the first axis.
CENTER = 8.0

#: Standard deviations of both parts of f0, and of f1.
NOMINAL_DEVIATIONS = np.array([1.0, 3.0])
ANOMALOUS_DEVIATIONS = np.array([7.0, 7.0])

_LEFT, _RIGHT = (
    multivariate_normal([center, 0.0], NOMINAL_DEVIATIONS**2)
    for center in (-CENTER, CENTER)
)
_ANOMALOUS = multivariate_normal([0.0, 0.0], ANOMALOUS_DEVIATIONS**2)


def nominal_log_density(rows: Floats) -> Floats:
    """Return log f0 of rows, of shape (..., 2)."""
    log_density: Floats = np.logaddexp(_LEFT.logpdf(rows), _RIGHT.logpdf(rows)) - np.log(2)
    return log_density


def anomalous_log_density(rows: Floats) -> Floats:
    """Return log f1 of rows, of shape (..., 2)."""
    log_density: Floats = _ANOMALOUS.logpdf(rows)
    return log_density


def draw_nominal(rng: np.random.Generator, n: int) -> Floats:
    """Return n independent rows of f0."""
    rows: Floats = rng.standard_normal((n, 2)) * NOMINAL_DEVIATIONS
    rows[:, 0] += CENTER * rng.choice([-1.0, 1.0], n)
    return rows


def draw_anomalous(rng: np.random.Generator, n: int) -> Floats:
    """Return n independent rows of f1."""
    rows: Floats = rng.standard_normal((n, 2)) * ANOMALOUS_DEVIATIONS
    return rows


class Cells(NamedTuple):
    """The middles of the cells of a square around the origin, and both log densities there.

    Attributes
    ----------
    middles : ndarray of shape (n_cells, 2)
    nominal, anomalous : ndarray of shape (n_cells,)
        log f0 and log f1.
    """

    middles: Floats
    nominal: Floats
    anomalous: Floats


def make_cells(half_side: float = 40.0, cell: float = 0.05) -> Cells:
    """Return the cells, of the side ``cell``, of a square of twice ``half_side``.

    Outside of the usual one f0 has a mass below 1e-15 and f1 one below 3e-8.
    """
    ends = np.arange(-half_side, half_side, cell) + cell / 2
    middles = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    return Cells(middles, nominal_log_density(middles), anomalous_log_density(middles))


def density_level(log_density: Floats, share: float) -> float:
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
    """The mass of f0 where its density is at most a given height.

    Attributes
    ----------
    heights : ndarray of shape (n_cells,)
        log f0 in cells of equal size that hold all of its mass, ascending.
    mass : ndarray of shape (n_cells + 1,)
        Of all cells before each one; the last is the mass of all cells, 1.
    """

    heights: Floats
    mass: Floats

    @classmethod
    def of(cls, log_density: Floats) -> Self:
        """Return the level sets of a log density in cells, in any order."""
        heights = np.sort(log_density)
        mass = np.append(0.0, np.exp(heights).cumsum())
        return cls(heights, mass / mass[-1])

    def p_values(self, log_density: Floats) -> Floats:
        """Return the paper's p-values of rows by their log f0, for uniform anomalies."""
        return self.mass[np.searchsorted(self.heights, log_density, side="right")]


def clairvoyant_curve(nominal_log: Floats, anomalous_log: Floats) -> Curve:
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


def level_set_curve(nominal_log: Floats, anomalous_log: Floats) -> Curve:
    """Return the ROC curve of the level sets of f0, to which K-LPE converges without f1.

    Parameters and result are those of `clairvoyant_curve`.
    """
    return ranked_curve(nominal_log, np.exp(nominal_log), np.exp(anomalous_log))

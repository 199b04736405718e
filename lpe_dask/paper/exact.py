"""What densities alone say, by sums over the cells of a fine grid and not by simulation."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.paper.mixture import anomalous_log_density, nominal_log_density
from lpe_dask.pvalues import Curve, ranked_curve

#: Half the side of the square that is summed over, and of its cells. Outside of the square
#: f0 has a mass below 1e-15 and f1 one below 3e-8.
HALF_SIDE, CELL = 40.0, 0.05


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


def make_cells(half_side: float = HALF_SIDE, cell: float = CELL) -> Cells:
    """Return the cells, of the side ``cell``, of a square of twice ``half_side``."""
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

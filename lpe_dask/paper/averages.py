"""Averages over draws: a number with its standard error, and a ROC curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.pvalues import Curve, detection_at

#: False-alarm rates at which ROC curves are averaged.
LEVELS: NDArray[np.float64] = np.linspace(0.0, 1.0, 201)


class Average(NamedTuple):
    """The mean of one number over draws.

    Attributes
    ----------
    mean : float
    deviation : float
        Standard deviation of single draws (ddof 1).
    n_draws : int
    """

    mean: float
    deviation: float
    n_draws: int

    @property
    def standard_error(self) -> float:
        """The standard deviation of the mean."""
        return float(self.deviation / np.sqrt(self.n_draws))

    def minus(self, other: Average) -> Average:
        """Return the difference to the mean of other draws, over as many draws as here."""
        error = np.hypot(self.standard_error, other.standard_error)
        deviation = float(error * np.sqrt(self.n_draws))
        return Average(self.mean - other.mean, deviation, self.n_draws)


def average(values: Iterable[float]) -> Average:
    """Return the average of a number that was found in each draw, at least two.

    Examples
    --------
    >>> average([1.0, 2.0, 3.0])
    Average(mean=2.0, deviation=1.0, n_draws=3)
    """
    array = np.fromiter(values, dtype=np.float64)
    return Average(float(array.mean()), float(array.std(ddof=1)), len(array))


def at_levels(curve: Curve) -> Curve:
    """Return a curve at `LEVELS` only, to draw it; its area is that of the curve itself."""
    return Curve(LEVELS, detection_at(curve, LEVELS))


def average_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean detection rate of the curves at each of `LEVELS`."""
    return Curve(LEVELS, np.mean([at_levels(curve).detection for curve in curves], axis=0))

"""ROC arithmetic: false-alarm and detection rates of every threshold, and the area.

p-values, labels -> curve: (0, 0) ... one point a distinct p-value ... (1, 1)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import auc


class Curve(NamedTuple):
    """Rates of a family of tests, from the strictest to the loosest.

    Attributes
    ----------
    false_alarm, detection : ndarray of shape (n_points,)
        Shares of the nominal rows and of the anomalies that are flagged, both ascending;
        the last are 1. Between two points the curve is the straight line.
    """

    false_alarm: NDArray[np.float64]
    detection: NDArray[np.float64]


def ranked_curve(
    rank: NDArray[np.float64],
    nominal_mass: NDArray[np.float64 | np.bool_],
    anomalous_mass: NDArray[np.float64 | np.bool_],
) -> Curve:
    """Return the curve of the tests that flag the rows of the lowest ranks.

    Parameters
    ----------
    rank : ndarray of shape (n_rows,)
        The row flagged first ranks lowest; equal ranks are flagged together.
    nominal_mass, anomalous_mass : ndarray of shape (n_rows,)
        What each row adds to the two rates, in any unit: 0 or 1 for rows with a label, or
        the masses of two densities in the cells of a grid. Neither is 0 throughout.

    Returns
    -------
    curve : Curve

    Examples
    --------
    >>> curve = ranked_curve(np.array([1, 2, 2]), np.array([0, 0, 1]), np.array([1, 1, 0]))
    >>> curve.false_alarm
    array([0., 0., 1.])
    >>> curve.detection
    array([0. , 0.5, 1. ])
    """
    _, place = np.unique(rank, return_inverse=True)
    masses = [np.bincount(place, mass).cumsum() for mass in (nominal_mass, anomalous_mass)]
    return Curve(*(np.append(0.0, flagged / flagged[-1]) for flagged in masses))


def area(curve: Curve) -> float:
    """Return the area under a curve: how often an anomaly ranks before a nominal row.

    Examples
    --------
    >>> area(Curve(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.5, 1.0])))
    0.75
    """
    return float(auc(*curve))


def detection_at(curve: Curve, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the detection rate of a curve at given false-alarm rates.

    Parameters
    ----------
    curve : Curve
    levels : ndarray of shape (n_levels,)
        From 0 to 1. Where the curve is vertical, its upper end counts.

    Returns
    -------
    detection : ndarray of shape (n_levels,)

    Examples
    --------
    >>> curve = Curve(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.5, 1.0]))
    >>> detection_at(curve, np.array([0.0, 0.5]))
    array([0.5 , 0.75])
    """
    return np.interp(levels, *curve)

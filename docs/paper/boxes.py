"""Uniform rows in a box: the paper does not give its size, so several are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paper.claims import Judged, over_choices
from paper.densities import Cells
from paper.fits import Floats, Scored
from paper.roc import Curve, detection_at, ranked_curve

#: Half the side of the chosen box, and of all boxes tried.
HALF_SIDE = 12.0
HALF_SIDES = (8.0, 10.0, 11.0, HALF_SIDE, 14.0, 16.0, 20.0)

#: The exact curve is taken as straight between false-alarm rates up to this far apart from
#: the mean.
_NEAR = 0.005


def in_boxes(uniform: Floats) -> Floats:
    """Return rows of the square of half side 1, scaled to each box in turn."""
    return np.concatenate([side * uniform for side in HALF_SIDES])


def by_box(scored: Scored) -> dict[float, Scored]:
    """Return for each half side the scores of nominal rows and of the rows of its box."""
    nominal = np.flatnonzero(~scored.is_anomaly)
    boxes = np.split(np.flatnonzero(scored.is_anomaly), len(HALF_SIDES))
    chosen = [np.append(nominal, rows) for rows in boxes]
    return {
        side: Scored(scored.p_values[rows], scored.statistic[rows], scored.is_anomaly[rows])
        for side, rows in zip(HALF_SIDES, chosen, strict=True)
    }


def over_boxes(judge: Callable[[float], Judged]) -> Judged:
    """Return the number in the chosen box, and the verdict over all of them."""
    judged = {f"±{side:g}": judge(side) for side in HALF_SIDES}
    chosen = f"±{HALF_SIDE:g}"
    return judged[chosen][0], over_choices(judged, chosen, "by the box")


def contours(cells: Cells) -> dict[float, Curve]:
    """Return for each box the ROC curve of the level sets of f0 against uniform rows."""
    farthest, nominal = np.abs(cells.middles).max(axis=1), np.exp(cells.nominal)
    return {
        side: ranked_curve(cells.nominal, nominal, farthest < side) for side in HALF_SIDES
    }


def contour_gaps(contour: Curve, rates: Sequence[tuple[float, float]]) -> list[float]:
    """Return the detection rate of the exact contour minus that of K-LPE, for each draw.

    Parameters
    ----------
    contour : Curve
        Of `contours`.
    rates : sequence of (float, float)
        False-alarm rate and detection rate of each draw. The contour is that of the mean
        false-alarm rate; the difference of a draw from the mean is corrected for by the
        slope of the exact curve.
    """
    false_alarm, found = np.array(rates).T
    mean = float(false_alarm.mean())
    levels = np.array([mean, mean - _NEAR, mean + _NEAR]).clip(0.0, 1.0)
    exact, below, above = detection_at(contour, levels)
    slope = (above - below) / (2 * _NEAR)
    return list(exact + slope * (false_alarm - mean) - found)

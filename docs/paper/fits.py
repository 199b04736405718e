"""One draw: fit the nominal rows, score the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask import LPE
from paper.roc import Curve, area, ranked_curve

#: Rows of shape (n, n_features), or one number for each of n rows.
Floats = NDArray[np.float64]

#: Training rows, nominal test rows and anomalies.
Parts = tuple[Floats, Floats, Floats]


class Scored(NamedTuple):
    """Rows of a test set, scored.

    Attributes
    ----------
    p_values, statistic : ndarray of shape (n,)
    is_anomaly : ndarray of shape (n,)
        The true label.
    least_p_value : float
        The p-value of a row without any neighbor. It is above 0 if some nominal rows have
        too few neighbors along the graph.
    """

    p_values: Floats
    statistic: Floats
    is_anomaly: NDArray[np.bool_]
    least_p_value: float = 0.0

    def flagged(self, alpha: float) -> tuple[float, float]:
        """Return the shares of nominal rows and of anomalies with ``p <= alpha``."""
        return rates(self.p_values <= alpha, self.is_anomaly)

    def curve(self) -> Curve:
        """Return the ROC curve of the p-values, which flags equal ones together."""
        return ranked_curve(self.p_values, ~self.is_anomaly, self.is_anomaly)

    def area(self) -> float:
        """Return the area under this curve."""
        return area(self.curve())


def rates(
    is_flagged: NDArray[np.bool_], is_anomaly: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the shares of nominal rows and of anomalies that are flagged."""
    return float(is_flagged[~is_anomaly].mean()), float(is_flagged[is_anomaly].mean())


def generators(figure: int, n_draws: int) -> Iterator[np.random.Generator]:
    """Yield the random generator of each draw of the experiment of a figure."""
    for draw in range(n_draws):
        yield np.random.default_rng((figure, draw))


def join_test(nominal: Floats, anomalies: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the rows of a test set, the nominal ones first, and which are anomalies."""
    rows = np.concatenate([nominal, anomalies])
    return rows, np.arange(len(rows)) >= len(nominal)


def fit_and_score(
    training: Floats, nominal: Floats, anomalies: Floats, **parameters: Any
) -> Scored:
    """Fit the training rows, and return the scores of nominal rows and anomalies.

    Parameters
    ----------
    training, nominal, anomalies : ndarray of shape (n, n_features)
        All in the same units.
    **parameters
        Of `LPE`.
    """
    # Brute force is fastest for so few rows; the results of all algorithms are equal. "loo"
    # is the form of the paper.
    given = {"algorithm": "brute", "calibration": "loo", **parameters}
    model = LPE(**given).fit(training)
    rows, is_anomaly = join_test(nominal, anomalies)
    statistic = model.statistic(rows)
    farthest = np.array([np.inf if model.radius_ is None else 0.0])
    least = float(p_values_of(model, farthest)[0])
    return Scored(p_values_of(model, statistic), statistic, is_anomaly, least)


def p_values_of(model: LPE, statistic: Floats) -> Floats:
    """Return the p-values that belong to a statistic, by equations (1) and (2)."""
    calibration = model.calibration_
    if model.radius_ is None:  # distances: as large, or larger
        n_more = len(calibration) - np.searchsorted(calibration, statistic, side="left")
    else:  # counts: as few, or fewer
        n_more = np.searchsorted(calibration, statistic, side="right")
    return n_more / len(calibration)

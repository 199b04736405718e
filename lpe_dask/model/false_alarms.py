"""Warn where a model raises too many false alarms, or none at all."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.left_out import added_false_alarms
from lpe_dask.pvalues import (
    GRAPH,
    enough_rows,
    most_false_alarms,
    places_flagged,
)

logger = logging.getLogger(__name__)

#: By how much learning may multiply false alarms before a warning. A tenth more is what is
#: allowed; an estimate by one set of nominal rows may be as much too low.
WARNED_RATIO = 1.05

#: Fewer rows than these leave none out of what is learned.
LEAST_ROWS = 3


def warn_if_nothing_can_be_flagged(fitted: Fitted) -> None:
    """Warn if no p-value can be as small as the level."""
    least = fitted.calibration.least_p_value()
    if least < fitted.offset:
        return
    logger.warning(
        "no row can be flagged at alpha=%g: the p-value of a row as anomalous as can "
        "be is %.3g, with %d calibration rows. Raise alpha, or use more nominal rows; "
        "with graph='radius' a larger radius; along a neighbor graph more edges "
        "(metric_params['n_neighbors'], the graph 'union') or a lower n_neighbors.",
        fitted.parameters["alpha"], least, len(fitted.calibration.values),
    )  # fmt: skip


def warn_of_false_alarms(
    fitted: Fitted, learned: str | None, sample: NDArray[np.generic]
) -> None:
    """Warn if what is learned from nominal rows makes new ones look too anomalous.

    Parameters
    ----------
    fitted : Fitted
    learned : str, optional
        As `validity.what_is_learned` gives it.
    sample : ndarray of shape (n_sampled, n_features)
        Some nominal rows, as they came.
    """
    calibration, n_rows = fitted.calibration_kind, fitted.n_samples
    alpha, reference = fitted.parameters["alpha"], fitted.reference
    least = enough_rows(learned, fitted.n_numbers)
    if calibration == "conformal" or learned in (None, GRAPH):
        return
    if n_rows >= least or len(sample) < LEAST_ROWS:
        return
    ratio = added_false_alarms(
        sample,
        reference.space.preparation,
        str(learned),
        reference.shape.statistic,
        n_rows,
        alpha,
    )
    bound = most_false_alarms(alpha, len(fitted.calibration.values))
    if not is_told(alpha, n_rows):
        rate = f"perhaps on more than {100 * bound:.2g} %"
    elif ratio > WARNED_RATIO:
        about = 100 * min(1.0, ratio * bound)
        rate = f"on about {about:.2g} %, instead of at most {100 * bound:.2g} %,"
    else:
        return
    logger.warning(
        "calibration=%r raises false alarms %s of rows like the nominal ones at alpha=%g: "
        "scale or metric (%s of %d columns) are learned from the same %d rows that are "
        "then measured with them. Use calibration='auto' or 'conformal', give scale and "
        "metric instead of having them learned, or give %.0f rows or more.",
        calibration, rate, alpha, learned, fitted.n_numbers, n_rows, least,
    )  # fmt: skip


def is_told(alpha: float, n_rows: int) -> bool:
    """Return whether so many rows tell at all what learning adds to the alarms at a level.

    If none of them is flagged, the estimate counts single rows beyond all others.
    """
    return places_flagged(alpha, n_rows) > 0

"""Settle the calibration, and warn where the one asked for raises too many alarms."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.left_out import Asked, added_false_alarms
from lpe_dask.pvalues import (
    GRAPH,
    choose_calibration,
    enough_rows,
    most_false_alarms,
    places_flagged,
)
from lpe_dask.search import Preparation

logger = logging.getLogger(__name__)

#: By how much learning may multiply false alarms before a warning. A tenth more is what is
#: allowed; an estimate by one set of nominal rows may be as much too low.
WARNED_RATIO = 1.05

#: Fewer rows than these leave none out of what is learnt.
LEAST_ROWS = 3


def settle_calibration(
    calibration: str, learnt: str | None, n_rows: int, n_features: int
) -> str:
    """Return the calibration to use; a log line says what "auto" took, and why."""
    if calibration != "auto":
        return calibration
    taken, reason = choose_calibration(learnt, n_rows, n_features)
    logger.info("calibration=%s: %s", taken, reason)
    return taken


def warn_of_false_alarms(
    calibration: str,
    learnt: str | None,
    sample: NDArray[np.generic],
    preparation: Preparation,
    asked: Asked,
    n_rows: int,
    n_calibration: int,
    alpha: float,
) -> None:
    """Warn if what is learnt from nominal rows makes new ones look too anomalous.

    Parameters
    ----------
    calibration : {"loo", "split", "conformal"}
    learnt : str, optional
        As `validity.what_is_learnt` gives it.
    sample : ndarray of shape (n_sampled, n_features)
        Some nominal rows, as they came.
    preparation : Preparation
    asked : Asked
    n_rows, n_calibration : int
        Nominal rows, and calibration rows among them.
    alpha : float
    """
    least = enough_rows(learnt, sample.shape[1])
    if calibration == "conformal" or learnt in (None, GRAPH):
        return
    if n_rows >= least or len(sample) < LEAST_ROWS:
        return
    ratio = added_false_alarms(sample, preparation, str(learnt), asked, n_rows, alpha)
    bound = most_false_alarms(alpha, n_calibration)
    if not is_told(alpha, n_rows):
        rate = f"perhaps on more than {100 * bound:.2g} %"
    elif ratio > WARNED_RATIO:
        about = 100 * min(1.0, ratio * bound)
        rate = f"on about {about:.2g} %, instead of at most {100 * bound:.2g} %,"
    else:
        return
    logger.warning(
        "calibration=%r raises false alarms %s of rows like the nominal ones at alpha=%g: "
        "scale or metric (%s of %d columns) are learnt from the same %d rows that are then "
        "measured with them. Use calibration='auto' or 'conformal', give scale and metric "
        "instead of having them learnt, or give %.0f rows or more.",
        calibration, rate, alpha, learnt, sample.shape[1], n_rows, least,
    )  # fmt: skip


def is_told(alpha: float, n_rows: int) -> bool:
    """Return whether so many rows tell at all what learning adds to the alarms at a level.

    If none of them is flagged, the estimate counts single rows beyond all others.
    """
    return places_flagged(alpha, n_rows) > 0

"""Tell how many of the flagged rows of a run are false alarms: about, and at most.

rows of each group, model, what decides --> `false_alarms` in _summary.json
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.batch.group_counts import GroupCounts
from lpe_dask.batch.group_summary import SHARED_CALIBRATION
from lpe_dask.model import (
    Fitted,
    decisive_places,
    false_alarms_at_most,
    false_discoveries_at_most,
)
from lpe_dask.pvalues import expected_flagged

#: The probability of a bound where none is given.
DEFAULT_CONFIDENCE = 0.95

#: Most groups whose distributions are added up.
MAX_GROUPS = 50_000

#: Why nothing is known, or nothing is flagged.
_UNFLAGGABLE = "no row can be flagged: there are too few calibration rows"
_RANKS = "rows were scored against each other: their p-values are ranks"
_POOLED = "rows of small and unknown groups were compared with all nominal rows, for which "
_POOLED += "nothing is promised"


def false_alarm_section(
    model: Fitted,
    n_measured: int,
    n_flagged: int,
    groups: GroupCounts | None,
    fdr: float | None,
    cut_off: float | None,
    confidence: float | None,
    *,
    scores_nominal_rows: bool,
) -> dict[str, Any]:
    """Return the section of a summary about false alarms.

    Parameters
    ----------
    model : Fitted
        With the level that decides.
    n_measured, n_flagged : int
        Rows with a p-value, and those that were flagged.
    groups : GroupCounts, optional
        Of all rows, where they are divided into groups.
    fdr, cut_off : float, optional
        The false discovery rate that decides, and the largest p-value that it flags.
    confidence : float, optional
        Of the bound; None: `DEFAULT_CONFIDENCE`.
    scores_nominal_rows : bool
        Whether the rows are the nominal ones.

    Returns
    -------
    section : dict
        "expected", how many rows alpha flags on average, at most, if all are like nominal
        ones; "at_most" so many of the flagged rows are false alarms, with the probability
        "confidence"; None, with the "reason" for it, where that is not known.
    """
    confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
    section = {"expected": None, "at_most": None, "confidence": confidence}
    if (why := _obstacle(model, scores_nominal_rows)) is not None:
        return section | {"reason": why}
    sizes = _sizes(model, n_measured, groups)
    places = _places(model, sizes[1], fdr, cut_off)
    if fdr is None:  # else what is flagged depends on how many small p-values there are
        expected = expected_flagged(sizes[0], places, sizes[1])
        section["expected"] = float(expected.sum())
    if not model.calibration.includes_self:
        why = (
            f"calibration={model.calibration_kind!r} promises a rate on average over "
            f"nominal sets, not for this one: use calibration='conformal' (--calibration)"
        )
    elif len(sizes[0]) > MAX_GROUPS:
        why = f"there are more than {MAX_GROUPS:,} groups"
    else:
        why = None if places.any() or fdr is not None else _UNFLAGGABLE
        section["at_most"] = _at_most(sizes, places, n_flagged, fdr, cut_off, confidence)
    return section | {"reason": why}


def _obstacle(model: Fitted, scores_nominal_rows: bool) -> str | None:
    """Return why not even an average is known."""
    if scores_nominal_rows:
        return _RANKS
    if model.groups is not None and "calibration" not in model.groups.own:
        return SHARED_CALIBRATION
    return None if model.pool is None else _POOLED


def _sizes(
    model: Fitted, n_measured: int, groups: GroupCounts | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows with a p-value, and the calibration rows, of each group with rows."""
    if groups is None or model.groups is None:
        return np.array([n_measured]), np.array([len(model.calibration.values)])
    return groups.rows, model.groups.n_calibration[groups.codes]


def _places(
    model: Fitted, m: NDArray[np.int64], fdr: float | None, cut_off: float | None
) -> NDArray[np.int64]:
    """Return how many of the m + 1 places of each group are flagged."""
    includes_self = bool(model.calibration.includes_self)
    if fdr is None:
        given = model.alpha, m, model.confidence
    elif cut_off is None:
        return np.zeros_like(m)
    else:
        given = cut_off, m, None
    return decisive_places(*given, includes_self=includes_self)


def _at_most(
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]],
    places: NDArray[np.int64],
    n_flagged: int,
    fdr: float | None,
    cut_off: float | None,
    confidence: float,
) -> int:
    if n_flagged == 0 or not places.any():
        return 0
    if fdr is None or cut_off is None:
        bound = false_alarms_at_most(sizes[0], places, sizes[1], confidence)
    else:
        bound = false_discoveries_at_most(cut_off, fdr, *sizes, confidence)
    return min(bound, n_flagged)

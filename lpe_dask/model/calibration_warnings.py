"""Warn where a model may raise too many false alarms, or none at all."""

from __future__ import annotations

import logging

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.promises import rows_learned_from
from lpe_dask.model.validity import (
    UNION_GRAPH,
    min_rows_for_loo,
    rows_for_confidence,
)

logger = logging.getLogger(__name__)

#: Levels and confidences about which this process has warned.
_warned: set[tuple[float, float | None]] = set()


def warn_if_nothing_can_be_flagged(fitted: Fitted) -> None:
    """Warn if no p-value can be as small as the level."""
    if fitted.confidence is not None:
        _warn_if_confidence_leaves_nothing(fitted, fitted.confidence)
        return
    least, sizes = fitted.calibration.least_p_value(), fitted.calibration.sizes
    if least < fitted.limit:
        return
    in_group = " in the largest group" if len(sizes) > 1 else ""
    _warn_once(
        (fitted.alpha, None),
        f"no row can be flagged at alpha={fitted.alpha:g}: the p-value of a row as "
        f"anomalous as can be is {least:.3g}, with {sizes.max()} calibration rows"
        f"{in_group}. Raise alpha, or use more nominal rows; with graph='radius' a "
        f"larger radius; along a neighbor graph more edges (metric_params['n_neighbors'], "
        f"the graph 'union') or a lower n_neighbors.",
    )


def _warn_if_confidence_leaves_nothing(fitted: Fitted, confidence: float) -> None:
    sizes, where, n_rows = fitted.calibration.sizes, "", fitted.n_samples
    needed = rows_for_confidence(fitted.alpha, confidence)
    n_few = int((sizes < needed).sum())
    if n_few == 0:
        return
    remedy = f"Give more nominal rows ({2 * needed}, as half of them are calibration rows "
    remedy += "by default)"
    if fitted.groups is not None:
        where = f" in {n_few} of {len(sizes)} groups"
        remedy += " of each group"
    elif n_rows > needed:
        remedy += f" or a calibration_size of at least {needed}"
    _warn_once(
        (fitted.alpha, confidence),
        f"no row can be flagged{where} at alpha={fitted.alpha:g} with confidence="
        f"{confidence:g}: that takes {needed} calibration rows, and of {n_rows} nominal "
        f"rows {sizes.min()} are such. {remedy}, raise alpha, or lower confidence.",
    )


def _warn_once(levels: tuple[float, float | None], text: str) -> None:
    """Log a warning that each fit of a loop with these levels would repeat."""
    if levels not in _warned:
        _warned.add(levels)
        logger.warning("%s", text)


def warn_of_false_alarms(fitted: Fitted, learned: str | None) -> None:
    """Warn if scale or metric are learned from too few rows for the calibration.

    Parameters
    ----------
    fitted : Fitted
    learned : str, optional
        As `validity.learned_components` gives it.
    """
    calibration, n_rows = fitted.calibration_kind, rows_learned_from(fitted)
    in_group = " of the smallest group" if "scale" in fitted.groups_own else ""
    if calibration == "conformal" or learned is None or learned == UNION_GRAPH:
        return
    needed = min_rows_for_loo(learned, fitted.n_numbers)
    if n_rows >= needed:
        return
    logger.warning(
        "calibration=%r with %s of %d columns learned from the same %d nominal rows%s "
        "needs %.0f rows for false alarms to be as rare as promised: count them with "
        "check_calibration (--check-calibration), or use calibration='conformal', whose "
        "promise holds for any number of rows.",
        calibration, learned, fitted.n_numbers, n_rows, in_group, needed,
    )  # fmt: skip

"""Warn where a model may raise too many false alarms, or none at all."""

from __future__ import annotations

import logging

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.validity import (
    UNION_GRAPH,
    min_rows_for_loo,
    rows_for_confidence,
)

logger = logging.getLogger(__name__)

#: Levels, and confidences, with which no row can be flagged, as a log line has said.
_warned: set[tuple[float, float | None]] = set()


def warn_if_nothing_can_be_flagged(fitted: Fitted) -> None:
    """Warn if no p-value can be as small as the level."""
    least, sizes = fitted.calibration.least_p_value(), fitted.calibration.sizes
    if least < fitted.limit or (fitted.confidence and fitted.groups is not None):
        return  # groups in which no row can be flagged with this confidence are small
    if fitted.confidence is not None and fitted.limit == 0:
        needed = rows_for_confidence(fitted.alpha, fitted.confidence)
        _warn_once(
            (fitted.alpha, fitted.confidence),
            f"no row can be flagged at alpha={fitted.alpha:g} with confidence="
            f"{fitted.confidence:g}: that takes {needed} calibration rows, and of "
            f"{fitted.n_samples} nominal rows {sizes.max()} are such. Give more nominal "
            f"rows ({2 * needed}, as half of them are calibration rows by default) or a "
            f"calibration_size of at least {needed}, raise alpha, or lower confidence.",
        )
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
    calibration, n_rows, in_group = fitted.calibration_kind, fitted.n_samples, ""
    if (groups := fitted.groups) is not None and "scale" in groups.own:
        n_rows = int(groups.n_rows[~groups.small.value].min())
        in_group = " of the smallest group"
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

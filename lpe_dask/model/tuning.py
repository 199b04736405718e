"""Choose how far an approximate search goes, by rows whose statistic is known.

    calibration rows --a few guides, the narrowest first--> the first that finds them all

No certificate rests on this: it only says where to begin, and what to repair first.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.certificate import TUNING_DRAW, Quality, draws
from lpe_dask.pvalues import p_values
from lpe_dask.search import WIDEST_BEAM, Approximation, Guide, Reference
from lpe_dask.tasks import compute, enter

logger = logging.getLogger(__name__)

#: Rows that guides are tried on: those that are measured already, and others at most.
TRIED_ROWS, MEASURED_ROWS = 4000, 1000

#: Rows of a beam beyond K, the fewest first, and the blocks that are asked at first.
BEAMS, FIRST_ASKED = (76, 108, 172, 236, WIDEST_BEAM), 4

#: The part of the rows that may be off for which a guide is good enough to be audited.
GOOD_PART = 1 / 40

#: What has to be left of the rows that are off for a wider search to be worth it.
ENOUGH_BETTER = 0.75


def tuned_guide(
    reference: Reference,
    quality: Quality,
    numbers: NDArray[np.int64] | None,
    statistic: NDArray[np.float64],
) -> Guide:
    """Return the guide to begin with; computes.

    Parameters
    ----------
    reference : Reference
        With indexes.
    quality : Quality
    numbers : ndarray of int, optional
        Of rows of the reference, ascending, that were measured among all others. None:
        there are none, and some are measured now.
    statistic : ndarray of shape (m,)
        Theirs, or that of other calibration rows.
    """
    values = np.sort(statistic)
    if numbers is None:
        numbers = _drawn(np.arange(reference.shape.n_reference), MEASURED_ROWS, quality)
        statistic = _measured(reference, numbers, None)[0]
    else:
        tried = _drawn(numbers, TRIED_ROWS, quality)
        statistic = statistic[np.searchsorted(numbers, tried)]
        numbers = tried
    exact = p_values(statistic, values)
    n_blocks, k = len(reference.blocks), reference.shape.statistic.n_neighbors
    assert k is not None
    every = tuple(range(n_blocks))

    def off(guide: Guide) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return for which rows a guide does not do, and in which block each is."""
        found, blocks = _measured(reference, numbers, guide)
        p = p_values(found, values)
        is_off = (np.abs(p - exact) > quality.max_p_error) & (p > quality.recheck)
        logger.info(
            "tried %d rows with beams of %d rows in %d of %d blocks: %d p-values are off "
            "by more than %g", len(numbers), guide.width, guide.n_asked, n_blocks,
            is_off.sum(), quality.max_p_error,
        )  # fmt: skip
        return is_off, blocks

    guide = Guide(k + BEAMS[0], min(FIRST_ASKED, n_blocks), (), every)
    is_off, blocks = off(guide)
    while is_off.mean() > GOOD_PART * quality.max_error_share:
        for wider in _wider(guide, k):
            found = off(wider)
            if found[0].sum() < ENOUGH_BETTER * is_off.sum():
                guide, (is_off, blocks) = wider, found
                break
        else:
            break
    return _ranked(guide, is_off, blocks, quality)


def _wider(guide: Guide, k: int) -> Iterator[Guide]:
    """Give the next guides that go further: to more blocks, or with more rows."""
    if guide.n_asked < guide.n_blocks:
        yield replace(guide, n_asked=min(2 * guide.n_asked, guide.n_blocks))
    for more in BEAMS:
        if k + more > guide.width:
            yield replace(guide, width=k + more)
            break


def _drawn(numbers: NDArray[np.int64], n_rows: int, quality: Quality) -> NDArray[np.int64]:
    order = np.argsort(draws(numbers, quality.seed, TUNING_DRAW), kind="stable")
    return np.sort(numbers[order[:n_rows]])


def _measured(
    reference: Reference, numbers: NDArray[np.int64], guide: Guide | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the statistic of rows of the reference, and which block each is in."""
    approximation = None
    if guide is not None:
        approximation = Approximation(enter(guide, "lpe-guide"), math.inf)
    tasks = reference.own_tasks(numbers, approximation)
    n_shares = len(tasks) // len(reference.blocks)
    statistic, blocks = np.empty(len(numbers)), np.empty(len(numbers), np.int64)
    for i, (of_task, values) in enumerate(compute(*tasks)):
        places = np.searchsorted(numbers, of_task)
        statistic[places], blocks[places] = values, i // n_shares
    return statistic, blocks


def _ranked(
    guide: Guide,
    is_off: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    quality: Quality,
) -> Guide:
    """Return a guide that knows the worst blocks, and searches bad ones as a whole.

    Unless nothing is to be repaired: then the audit finds out, and says so.
    """
    n_blocks = guide.n_blocks
    n_off = np.bincount(blocks, is_off, n_blocks)
    shares = n_off / np.maximum(1, np.bincount(blocks, minlength=n_blocks))
    order = np.argsort(-shares, kind="stable")
    ranked = Guide(guide.width, guide.n_asked, (), tuple(order.tolist()))
    # Rows of good blocks miss neighbors in bad ones.
    bad = max(quality.max_error_share, shares.max() / 2)
    n_bad = int((shares > bad).sum())
    if n_bad == 0 or quality.on_low_quality == "error":
        return ranked
    n_bad = n_blocks if 2 * n_bad > n_blocks else n_bad
    logger.warning(
        "%d of %d blocks are compared as a whole: of %d rows that were tried, %d are off",
        n_bad, n_blocks, len(is_off), n_off.sum(),
    )  # fmt: skip
    return ranked.repaired(n_bad)

"""Say which column makes up nearly all of the distance, where no scale was chosen."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

#: A column with more of the squared distance than this leaves nothing to the others.
MAX_SHARE = 0.9

#: Pairs of rows that the share is the median of; fewer bytes than the sample has.
_PAIRS = 1000


def advise_scale(
    parameters: Mapping[str, Any],
    sample: NDArray[np.generic],
    labels: Sequence[str],
    categorical: Sequence[int] = (),
) -> None:
    """Log a line if one column makes up nearly all of the distance, and less with a scale.

    Says nothing where columns have weights, a metric learns a scale or a radius has a unit.

    Parameters
    ----------
    parameters : dict
        The arguments of `LPE`.
    sample : ndarray of shape (n_sampled, n_features)
        Nominal rows.
    labels : sequence of str
        What to call the columns.
    categorical : sequence of int
        The columns that have codes.
    """
    has_unit = parameters["graph"] == "radius" or "w" in (parameters["metric_params"] or {})
    if parameters["metric"] not in ("euclidean", "geodesic") or has_unit:
        return
    sample = _without_gaps(sample)
    shares = typical_shares(sample, categorical)
    place = int(shares.argmax())
    if not shares[place] > MAX_SHARE or place in categorical:  # these have no scale
        return
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = sample.std(axis=0, dtype=np.float64)
        scaled = sample / np.where(deviations > 0, deviations, 1.0)
    # Else all others are alike in most rows, or everywhere.
    if typical_shares(scaled, categorical)[place] > MAX_SHARE:
        return
    logger.warning(
        "%s makes up %.0f %% of the typical distance between nominal rows, so that "
        "the other columns hardly count: give scale='standard' (--scale standard).",
        labels[place], np.floor(100 * shares[place]),
    )  # fmt: skip


def _without_gaps(sample: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return rows in which what is missing is the median of its column, or 0."""
    gaps = np.isnan(sample)
    if not gaps.any():
        return sample
    known = ~gaps.all(axis=0)
    fill = np.zeros(sample.shape[1])
    fill[known] = np.nanmedian(sample[:, known].astype(np.float64), axis=0)
    return np.where(gaps, fill, sample)


def typical_shares(
    sample: NDArray[np.generic], categorical: Sequence[int] = ()
) -> NDArray[np.float64]:
    """Return the share of each column in the squared distance of two rows, without scale.

    Parameters
    ----------
    sample, categorical
        As for `advise_scale`.

    Returns
    -------
    shares : ndarray of shape (n_features,)
        Medians over random pairs of rows that differ; 0 where there are no such pairs.

    Examples
    --------
    >>> rows = np.array([[0.0, 0.0], [30.0, 10.0]])
    >>> typical_shares(rows)
    array([0.9, 0.1])
    """
    n_pairs = min(_PAIRS, len(sample) // 2)
    drawn = np.random.default_rng(0).permutation(len(sample))[: 2 * n_pairs]
    rows = sample[drawn].astype(np.float64)
    codes = list(categorical)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = (rows[:n_pairs] - rows[n_pairs:]) ** 2
        parts[:, codes] = parts[:, codes] != 0
        shares = parts / parts.sum(axis=1, keepdims=True)
    known = shares[np.isfinite(shares).all(axis=1)]
    if len(known) == 0:
        return np.zeros(sample.shape[1])
    typical: NDArray[np.float64] = np.median(known, axis=0)
    return typical

"""Find the knots of quantile scales in a sample of the nominal rows.

    number of rows --sampled_numbers--> which rows are sampled --column_facts--> sample
    sample --knots_of--> knots of each column

Which rows are sampled depends on how many there are and the seed alone, so knots are the
same for any chunks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpe_dask.search import QuantileKnots

#: Most rows of the sample, and most numbers. A share among so many rows is off by 0.0016
#: (one standard error); of more than 83 columns fewer are sampled.
MAX_SAMPLED_ROWS, MAX_NUMBERS = 100_000, 2**23

#: Most knots of a column, but for its ends; so many rows are sampled at least.
MAX_KNOTS = 1000


def sampled_numbers(
    n_rows: int, n_features: int, seed: int | None
) -> NDArray[np.int64] | None:
    """Return the numbers of the rows that are sampled, ascending; None: of all.

    Parameters
    ----------
    n_rows, n_features : int
    seed : int, optional
        None: as for 0.
    """
    n_wide = max(MAX_KNOTS, MAX_NUMBERS // max(1, n_features))
    n_sampled = min(n_rows, MAX_SAMPLED_ROWS, n_wide)
    if n_sampled == n_rows:
        return None
    rng = np.random.default_rng(int(seed or 0))
    drawn = rng.choice(n_rows, n_sampled, replace=False, shuffle=False)
    chosen: NDArray[np.int64] = np.sort(drawn)
    return chosen


def knots_of(
    sample: NDArray[np.generic], low: NDArray[np.float64], high: NDArray[np.float64]
) -> QuantileKnots:
    """Return the knots of the nominal rows.

    Parameters
    ----------
    sample : ndarray of shape (n_sampled, n_features)
        Of the rows, finite.
    low, high : ndarray of shape (n_features,)
        Of all rows.
    """
    n_sampled = len(sample)
    columns = zip(sample.T, low.tolist(), high.tolist(), strict=True)
    ended = [
        _with_ends(_knots(column), least, most, 2 * n_sampled)
        for column, least, most in columns
    ]
    values, ranks = zip(*ended, strict=True)
    return QuantileKnots(values, ranks, n_sampled)


def _knots(column: NDArray[np.generic]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the knots of a column of the sample, and their ranks."""
    ordered = np.sort(column.astype(np.float64)) + 0.0  # -0.0 and 0.0 are one value
    values = np.unique(ordered)
    if len(values) > MAX_KNOTS:
        n, last = len(ordered), MAX_KNOTS - 1
        places = np.rint(np.arange(MAX_KNOTS) * (n - 1) / last).astype(np.int64)
        values = np.unique(ordered[places])
    below = np.searchsorted(ordered, values, side="left")
    up_to = np.searchsorted(ordered, values, side="right")
    return values, (below + up_to).astype(np.int64)


def _with_ends(
    knots: tuple[NDArray[np.float64], NDArray[np.int64]],
    low: float,
    high: float,
    highest_rank: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return knots with the least and the largest of all rows, if they lack these."""
    values, ranks = knots
    if low < values[0]:
        values, ranks = np.append(low, values), np.append(0, ranks)
    if high > values[-1]:
        values, ranks = np.append(values, high), np.append(ranks, highest_rank)
    return values, ranks

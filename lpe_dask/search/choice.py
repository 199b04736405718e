"""Choose between brute force and pruning, by trying both on a sample.

Pruning leaves out pairs, but what is left comes in smaller pieces, and rows have to be
ordered first. A sample of s of n rows, searched for K s / n neighbors in cells of as many
times fewer rows, shows about the share of pairs that would be left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import (
    ALGORITHMS,
    LANES,
    Basis,
    CountState,
    NearestState,
    QueryTiles,
    build_block,
)

PRUNED = ALGORITHMS["pruned"]

#: Rows of the sample that are searched for neighbors, and among.
QUERY_ROWS, SAMPLE_ROWS = 512, 8192

#: Share of pairs left from which on pruning does not pay: boxes, and fewer queries at a
#: time, cost about half as much again a pair (8 to 12 features, K of 20 and 250).
WORTHWHILE_SHARE = 0.65

#: Reference rows below which either is done before a choice is.
FEW_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm, why, and the basis it was tried in, if it was."""

    algorithm: str
    reason: str
    basis: Basis | None = None


def choose_algorithm(
    sample: NDArray[np.floating],
    n_reference: int,
    n_neighbors: int | None,
    radius: float | None,
) -> Choice:
    """Return the exact algorithm that is expected to be faster.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_features)
        Prepared rows like those of the reference, in no particular order.
    n_reference : int
    n_neighbors : int, optional
        K, or None for a search within ``radius``.
    radius : float, optional
    """
    if n_reference <= FEW_ROWS:
        return Choice("brute", f"{n_reference} reference rows are few")
    sample = sample[:: -(-len(sample) // SAMPLE_ROWS)]
    basis = PRUNED.basis(sample)
    share = share_left(sample, basis, n_reference, n_neighbors, radius)
    reason = (
        f"boxes leave about {share:.0%} of the pairs in a sample of {len(sample)} rows x "
        f"{sample.shape[1]} features; pruning pays below {WORTHWHILE_SHARE:.0%}"
    )
    if share < WORTHWHILE_SHARE:
        return Choice("pruned", reason, basis)
    return Choice("brute", reason)


def share_left(
    sample: NDArray[np.floating],
    basis: Basis,
    n_reference: int,
    n_neighbors: int | None,
    radius: float | None,
) -> float:
    """Return about which share of pairs pruning leaves to compare, from 0 to 1."""
    points = basis.points(sample)
    # The sample of a table may be larger than the part of it that is searched.
    sampled = min(1.0, len(sample) / n_reference)
    cell_rows = max(LANES, round(PRUNED.CELL_ROWS * sampled))
    arrangement = PRUNED.arrange(points, cell_rows)
    numbers = np.arange(len(sample))
    block = build_block(sample, numbers, points, arrangement, basis)
    # Tiles of near rows, as there will be: the first ones that the order of cells gives.
    n_tiles = max(1, len(arrangement.starts) - 1)
    every = max(1, n_tiles * cell_rows // QUERY_ROWS)
    rows = np.concatenate(
        [
            arrangement.order[arrangement.starts[i] : arrangement.starts[i + 1]]
            for i in range(0, n_tiles, every)
        ]
    )
    queries = QueryTiles(
        sample[rows], points[rows], PRUNED.arrange(points[rows], cell_rows), numbers[rows]
    )
    state: NearestState | CountState
    if n_neighbors is None:
        state = CountState(queries, basis, radius or 0.0)
    else:
        expected = round(n_neighbors * sampled)
        state = NearestState(queries, basis, max(1, expected))
    state.fold(block)
    return state.n_compared / (len(rows) * len(sample))

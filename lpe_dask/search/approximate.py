r"""Measure rows by a search that may miss some of their neighbors.

    starts of each block --nearest--> where a query enters a block, and how near that is
    blocks, nearest first --beam--> neighbors found --nearest--> statistic, or a larger one

What is found is rows of the reference, each once and never the query itself, at distances
by definition. So the statistic is at least that of all rows, bit for bit:

    Let D be the distances of a query to all other rows, and F to those found, a part of
    them. The K-th smallest number of a part is not below that of the whole; where F has
    fewer than K, it is replaced by D. A mean of the K smallest, added in ascending order,
    is not below either: each of them is not, and float addition is monotone.

The p-value, a share of calibration statistics at least as large, is then at most the exact
one, whatever the calibration is, if its statistics are exact: it falls with the statistic,
the form that counts the row itself adds the same to both, and a weight grows with it (as
far as the logarithm of the C library is monotone). So all rows whose exact p-value is at
most c are among those found at most c; measuring these again among all rows gives every
p-value up to c, and every decision by them, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import BeamState, NearestState, QueryTiles
from lpe_dask.search.packing import Space
from lpe_dask.search.plan import ENTRIES, Statistic


@dataclass(frozen=True, slots=True)
class Guide:
    """How far a search goes.

    Attributes
    ----------
    width : int
        Rows of a beam, at least K; see `kernels.beams`.
    n_asked : int
        Blocks that a query searches: those whose nearest start is nearest.
    exact_blocks : tuple of int
        Blocks of which all rows are compared, whatever their index says.
    suspects : tuple of int
        The other blocks, those that seem to be worst first.
    """

    width: int
    n_asked: int
    exact_blocks: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()

    @property
    def n_blocks(self) -> int:
        """Blocks of the reference."""
        return len(self.exact_blocks) + len(self.suspects)

    @property
    def is_exact(self) -> bool:
        """Whether all rows are compared."""
        return not self.suspects

    def widened(self, width: int) -> Guide:
        """Return the guide that asks all blocks, with beams of so many rows at least."""
        return replace(self, width=max(width, self.width), n_asked=self.n_blocks)

    def repaired(self, n_blocks: int) -> Guide:
        """Return the guide by which so many more blocks, the worst, are compared whole."""
        exact = tuple(sorted(self.exact_blocks + self.suspects[:n_blocks]))
        return replace(self, exact_blocks=exact, suspects=self.suspects[n_blocks:])


@dataclass(frozen=True, slots=True)
class Approximation:
    """What leads a search that may miss neighbors, and which rows it is not to decide on.

    Attributes
    ----------
    guide : Delayed
        Of a `Guide`.
    beyond : float
        Rows of which what p-values compare is found to be more are measured again.
    weight : callable, optional
        From rows, as they came, and their statistic to what p-values compare; None: the
        statistic.
    """

    guide: Any
    beyond: float
    weight: Any = None


def beam_search(
    queries: QueryTiles,
    handles: Sequence[Any],
    indexes: Sequence[Any],
    space: Space,
    statistic: Statistic,
    guide: Guide,
) -> NDArray[np.float64]:
    """Return the statistic by the nearest rows that were found, of shape (n_queries,).

    ``inf`` where fewer than K were found, and NaN for a query that was not measured. What
    is found for a query depends on no other query.

    Parameters
    ----------
    queries : QueryTiles
    handles : sequence
        Of the blocks.
    indexes : sequence
        Of their indexes.
    space : Space
    statistic : Statistic
        Of K neighbors.
    guide : Guide
    """
    n_neighbors = statistic.n_neighbors
    assert n_neighbors is not None
    state = BeamState(
        queries, space.basis, n_neighbors, max(guide.width, n_neighbors),
        aggregation=statistic.aggregation,
    )  # fmt: skip
    if guide.exact_blocks:
        whole = NearestState(queries, space.basis, n_neighbors)
        for i in guide.exact_blocks:
            if whole.may_need(handles[i].low, handles[i].high):
                whole.fold(handles[i].load())
        state.take(whole)
    walked = sorted(guide.suspects)
    entries, nearness = _entries(queries, [indexes[i] for i in walked], space)
    order = np.argsort(nearness, axis=0, kind="stable")

    @lru_cache(maxsize=1)
    def loaded(i: int) -> tuple[Any, Any]:
        return handles[i].load(), indexes[i].load()

    # In turns, so that a block is there once for all who ask it next; each query asks in an
    # order of its own. The last block of a turn is the first of the next.
    for n, turn in enumerate(order[: guide.n_asked]):
        for place, i in list(enumerate(walked))[:: -1 if n % 2 else 1]:
            which = np.flatnonzero(turn == place)
            which = state.needing(handles[i].low, handles[i].high, which)
            if len(which) > 0:
                state.fold(*loaded(i), which, entries[place][which])
    return state.finish()


def _entries(
    queries: QueryTiles, indexes: list[Any], space: Space
) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
    """Return the nearest starts of each block, and how near the first is.

    In the order of tiles: for each block an array of shape (n_queries, n_entries), and
    together one of shape (n_blocks, n_queries).
    """
    entries, nearness = [], np.empty((len(indexes), len(queries.order)))
    for place, index in enumerate(indexes):
        starts = index.load_starts()
        n_entries = min(ENTRIES, starts.n_rows)
        state = NearestState(queries, space.basis, n_entries, with_numbers=True)
        state.fold(starts)
        distances, numbers = state.neighbors()
        entries.append(numbers[queries.order])
        nearness[place] = distances[queries.order, 0]
    return entries, nearness

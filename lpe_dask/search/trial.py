"""Try a search on a sample: to choose an algorithm, and to forecast what it takes.

    sample --pack--> block <--some tiles of queries--> pairs, visits, seconds

Pruning leaves out pairs, but what is left comes in smaller pieces, and rows have to be
ordered first. A sample of s of n rows, searched for K s / n neighbors in cells of as many
times fewer rows, shows about the share of pairs that would be left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import (
    ALGORITHMS,
    GRAPHS,
    LANES,
    TILE_ROWS,
    Arrangement,
    CountState,
    NearestState,
    QueryTiles,
    narrow,
    walk_from_rows,
)
from lpe_dask.search.held import HeldBlock
from lpe_dask.search.join import Search, neighbors_of, search_blocks
from lpe_dask.search.locality import learn_split
from lpe_dask.search.packing import Space
from lpe_dask.search.plan import (
    NeighborGraphParams,
    SearchPlan,
    Statistic,
    sample_neighbors,
)
from lpe_dask.search.preparation import Preparation

logger = logging.getLogger(__name__)

#: Rows of the sample that "auto" searches for neighbors, and among.
QUERY_ROWS, SAMPLE_ROWS = 512, 8192

#: Share of pairs left from which on pruning does not pay: boxes, and fewer queries at a
#: time, cost about half as much again a pair (8 to 12 features, K of 20 and 250).
WORTHWHILE_SHARE = 0.65

#: Reference rows below which either is done before a choice is.
FEW_ROWS = 2048

#: Tiles of queries that a forecast searches for.
N_TILES = 16

#: Seconds for which a trial is repeated, and how often at least and at most: the fastest
#: counts, as other work only ever adds.
REPEAT_SECONDS, LEAST_REPEATS, MOST_REPEATS = 0.15, 2, 20

#: Rows whose neighbor graph is made, and of these that are walked from.
GRAPH_ROWS, WALKS = 4096, 256


def choose_space(
    sample: NDArray[np.generic], preparation: Preparation, plan: SearchPlan, algorithm: str
) -> Space:
    """Return the space to search in, with the algorithm to search with.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_features)
        Rows like those of the reference, in no particular order.
    preparation : Preparation
    plan : SearchPlan
    algorithm : str
        A name of `kernels.ALGORITHMS`, or "auto": what is expected to be faster.
    """
    prepared = preparation.apply(sample)
    if algorithm == "auto":
        algorithm, reason = _choose_algorithm(prepared, plan)
        logger.info("algorithm=%s: %s", algorithm, reason)
    basis = ALGORITHMS[algorithm].basis(prepared)
    is_sampled = sample_neighbors(plan.shape.listed_neighbors) is not None
    space = Space(algorithm, preparation, basis, None, is_sampled)
    if not space.prunes:
        return space
    return replace(space, split=learn_split(basis.points(prepared), plan.n_blocks))


def _choose_algorithm(sample: NDArray[np.floating], plan: SearchPlan) -> tuple[str, str]:
    """Return the exact algorithm that is expected to be faster, and why."""
    n_reference, n_neighbors = plan.shape.n_reference, plan.shape.listed_neighbors
    if n_reference <= FEW_ROWS:
        return "brute", f"{n_reference} reference rows are few"
    sample = sample[:: -(-len(sample) // SAMPLE_ROWS)]
    kernel = ALGORITHMS["pruned"]
    # The sample of a table may be larger than the part of it that is searched.
    sampled = min(1.0, len(sample) / n_reference)
    cell_rows = max(LANES, round(kernel.CELL_ROWS * sampled))
    expected = max(1, round(n_neighbors * sampled)) if n_neighbors > 0 else None
    search = Search(Statistic(expected, plan.shape.statistic.radius), pass_rows=1)
    space = Space("pruned", Preparation(), kernel.basis(sample))
    rows = SampledRows(sample, space, search)
    n_tiles = max(1, QUERY_ROWS // cell_rows)
    share = Trial(rows, sample, n_tiles=n_tiles, cell_rows=cell_rows).share_left()
    reason = (
        f"boxes leave about {share:.0%} of the pairs in a sample of {len(sample)} rows x "
        f"{sample.shape[1]} features; pruning pays below {WORTHWHILE_SHARE:.0%}"
    )
    return "pruned" if share < WORTHWHILE_SHARE else "brute", reason


@dataclass(frozen=True, slots=True)
class Cost:
    """What a query costs.

    Attributes
    ----------
    pairs : float
        Rows of the reference that it is compared with.
    seconds : float
        Of one thread.
    visits : float
        Cells that its tile visits, for each query of the tile.
    """

    pairs: float
    seconds: float
    visits: float = 0.0


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of a reference to try a search on.

    Attributes
    ----------
    reference : ndarray of shape (n_sampled, n_features)
        Prepared, in no particular order.
    space : Space
    search : Search
    """

    reference: NDArray[np.floating]
    space: Space
    search: Search

    def packed(self, rows: NDArray[np.floating], cell_rows: int | None = None) -> HeldBlock:
        """Return some of the rows as a block."""
        return self.space.pack(narrow(rows), np.arange(len(rows)), cell_rows)

    def pack_seconds(self) -> float:
        """Return the seconds of one thread for a row to be put into its block."""
        return _fastest(lambda: self.packed(self.reference)) / len(self.reference)

    def walk_seconds(self, params: NeighborGraphParams) -> float:
        """Return the seconds of one thread for a walk along a neighbor graph."""
        rows = self.reference[: max(GRAPH_ROWS, 2 * params.n_neighbors)]
        if len(rows) <= params.n_neighbors:  # a sample that is no example
            return 0.0
        queries = self.space.tiles(rows, np.arange(len(rows)))
        blocks, basis = [self.packed(rows)], self.space.basis
        state = search_blocks(queries, blocks, basis, self.search)
        distances, neighbors = neighbors_of(state)
        graph = GRAPHS[params.graph](neighbors.astype(np.int32), distances)
        starts = np.arange(0, len(rows), max(1, len(rows) // WALKS))
        seconds = _fastest(lambda: self.search.walked(walk_from_rows, graph, starts))
        return seconds / len(starts)


class Trial:
    """Some rows as a block, and tiles of queries to be searched for among them.

    Parameters
    ----------
    sampled : SampledRows
    rows : ndarray of shape (n_rows, n_features)
        Of these.
    queries : ndarray of shape (n_queries, n_features), optional
        Prepared rows like those to measure. None: those of the block.
    density : float
        Queries that are put into tiles together, for each row of the reference where they
        lie.
    n_tiles : int
        Tiles to search for, at most.
    cell_rows : int, optional
        Rows of a cell and of a tile; None: as many as in a search.
    """

    def __init__(
        self,
        sampled: SampledRows,
        rows: NDArray[np.floating],
        queries: NDArray[np.floating] | None = None,
        density: float = 1.0,
        *,
        n_tiles: int = N_TILES,
        cell_rows: int | None = None,
    ) -> None:
        self._sampled = sampled
        self._held = sampled.packed(rows, cell_rows)
        block = self._held.block
        n_rows = max(TILE_ROWS, round(min(1.0, density) * len(rows)))
        of_queries = block.rows if queries is None else queries
        step = max(1, len(of_queries) // n_rows)
        self._rows = of_queries[::step]
        self._numbers = block.numbers[::step] if queries is None else None
        points = sampled.space.basis.points(self._rows)
        arrange = ALGORITHMS[sampled.space.algorithm].arrange
        self._which = _some_tiles(arrange(points, cell_rows or TILE_ROWS), n_tiles)

    def share_left(self) -> float:
        """Return about which share of pairs pruning leaves to compare, from 0 to 1."""
        n_compared = self._folded(self._which).n_compared
        return n_compared / (len(self._which.order) * self._held.block.n_rows)

    def cost(self, n_copies: int = 1) -> Cost:
        """Return what a query costs among so many copies of the rows."""
        sampled, states = self._sampled, []
        handles = [self._held] * n_copies

        def search() -> None:
            queries = self._tiles(self._which)
            states.append(
                search_blocks(queries, handles, sampled.space.basis, sampled.search)
            )
            states[-1].finish()

        seconds = _fastest(search)
        n_queries = len(self._which.order)
        visits = self._n_visits() / n_queries if sampled.space.prunes else 0.0
        return Cost(states[0].n_compared / n_queries, seconds / n_queries, visits)

    def _n_visits(self) -> int:
        """Return how many cells all tiles visit together."""
        block, which = self._held.block, self._which
        lows, highs = block.centers + block.lows, block.centers + block.highs
        n_visits = 0
        for start, stop in pairwise(which.starts.tolist()):
            starts = np.array([0, stop - start])
            tile = Arrangement(which.order[start:stop], starts, which.bounded)
            n_visits += sum(map(self._folded(tile).may_need, lows, highs))
        return n_visits

    def _folded(self, which: Arrangement) -> NearestState | CountState:
        """Return the state of some tiles after the block."""
        state = self._sampled.search.state(self._tiles(which), self._sampled.space.basis)
        state.fold(self._held.block)
        return state

    def _tiles(self, which: Arrangement) -> QueryTiles:
        """Return queries in the tiles that they are in already."""
        rows = self._rows[which.order]
        numbers = None if self._numbers is None else self._numbers[which.order]
        tiles = Arrangement(np.arange(len(rows)), which.starts, which.bounded)
        return QueryTiles(rows, self._sampled.space.basis.points(rows), tiles, numbers)


def _some_tiles(arrangement: Arrangement, n_chosen: int) -> Arrangement:
    """Return up to so many of the tiles, evenly, as they are."""
    n_tiles = len(arrangement.starts) - 1
    chosen = np.unique(np.arange(n_chosen) * n_tiles // n_chosen)
    runs = [arrangement.order[slice(*arrangement.starts[i : i + 2])] for i in chosen]
    starts = np.cumsum([0, *map(len, runs)])
    return Arrangement(np.concatenate(runs), starts, arrangement.bounded)


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some repeats; the first one may compile."""
    work()
    seconds: list[float] = []
    while len(seconds) < LEAST_REPEATS or (
        sum(seconds) < REPEAT_SECONDS and len(seconds) < MOST_REPEATS
    ):
        began = time.thread_time()  # other programs' share of the processor is not ours
        work()
        seconds.append(time.thread_time() - began)
    return min(seconds)

"""Try a search on a sample of the rows, and work out what it costs among all of them.

    sample --pack--> block --some tiles of queries, timed--> pairs, visits, seconds
    parts of it -->  ...                                     how these grow with the rows

A query is compared with rows, in pairs, and a tile of queries visits cells, of whose rows
it may leave out all or most.

Nothing here is looked up: what a pair costs depends on the processor, the columns, K and
how the rows lie. Compare `choice`, which tries less, and decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from lpe_dask.kernels import (
    ALGORITHMS,
    GRAPHS,
    TILE_ROWS,
    Arrangement,
    CountState,
    NearestState,
    QueryTiles,
    narrow,
    walk_from_rows,
)
from lpe_dask.search import (
    HeldBlock,
    NeighborGraphParams,
    Search,
    Space,
    pack_rows,
    search_blocks,
)

#: Tiles of queries that are searched for.
N_TILES = 16

#: Times that brute force goes through the sample, as if it were so many times as large.
MOST_COPIES = 8

#: How many times fewer rows the trials of pruning have, the last one all.
SHARES = (8, 4, 2, 1)

#: Seconds for which a trial is repeated, and how often at least and at most: the fastest
#: counts, as other work only ever adds.
REPEAT_SECONDS, LEAST_REPEATS, MOST_REPEATS = 0.15, 2, 20

#: Rows whose neighbor graph is made, and of these that are walked from.
GRAPH_ROWS, WALKS = 4096, 256


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
class Sampled:
    """Rows to try a search on, prepared, and the space to do so.

    Attributes
    ----------
    reference : ndarray of shape (n_sampled, n_features)
        In no particular order.
    space : Space
    search : Search
    """

    reference: NDArray[np.floating]
    space: Space
    search: Search

    @property
    def prunes(self) -> bool:
        """Whether pairs are left out."""
        return bool(ALGORITHMS[self.search.algorithm].KEEPS_NEAR_ROWS_TOGETHER)


def search_cost(
    sampled: Sampled,
    queries: NDArray[np.floating] | None,
    n_reference: int,
    density: float,
) -> Cost:
    """Return about what a query costs among ``n_reference`` rows.

    Brute force is tried among the sample, and among several copies of it; what it costs
    beyond grows in proportion. That the copies are no new rows does not matter: there are
    as many near rows among them as there would be.

    Pruning is tried among the sample and among parts of it. Pairs and visits are taken to
    grow on by the powers of the rows that they grew by, and seconds to be so many for each
    of both, as they were.

    Parameters
    ----------
    sampled : Sampled
    queries : ndarray of shape (n_queries, n_features), optional
        Prepared rows like those to measure. None: those of the reference.
    n_reference : int
    density : float
        Queries that are put into tiles together, for each row of the reference where they
        lie.
    """
    rows = sampled.reference[:n_reference]
    is_whole = len(rows) == n_reference
    if is_whole and sampled.prunes:
        return _Trial(sampled, rows, queries, density).cost()
    if sampled.prunes:
        trials = [_Trial(sampled, rows[::n], queries, density).cost(1) for n in SHARES]
        return _pruned_cost(trials, len(rows), n_reference)
    trial = _Trial(sampled, rows, queries, density)
    one = trial.cost()
    if is_whole:
        return Cost(float(n_reference), one.seconds)
    ratio = n_reference / len(rows)
    n_copies = min(MOST_COPIES, math.ceil(ratio))
    step = max(0.0, trial.cost(n_copies).seconds - one.seconds) / (n_copies - 1)
    return Cost(float(n_reference), one.seconds + (ratio - 1) * step)


def _pruned_cost(trials: list[Cost], n_rows: int, n_reference: int) -> Cost:
    """Return what a query costs, by trials among `SHARES` of so many rows."""
    _, smaller, _, whole = trials
    scale = math.log(n_reference / n_rows) / math.log(SHARES[1])
    pairs = whole.pairs * _growth(smaller.pairs, whole.pairs) ** scale
    visits = whole.visits * _growth(smaller.visits, whole.visits) ** scale
    seconds = np.array([trial.seconds for trial in trials])
    causes = np.array([[1.0, trial.pairs, trial.visits] for trial in trials])
    # All errors are to be alike in proportion.
    prices, _ = nnls(causes / seconds[:, None], np.ones(len(trials)))
    total = prices @ np.array([1.0, pairs, visits])
    return Cost(min(pairs, float(n_reference)), float(total), visits)


def pack_seconds(sampled: Sampled) -> float:
    """Return the seconds of one thread for a row to be put into its block."""
    rows = sampled.reference
    seconds = _fastest(lambda: _packed(sampled, rows))
    return seconds / len(rows)


def walk_seconds(sampled: Sampled, params: NeighborGraphParams) -> float:
    """Return the seconds of one thread for a walk along a neighbor graph."""
    rows = sampled.reference[: max(GRAPH_ROWS, 2 * params.n_neighbors)]
    if len(rows) <= params.n_neighbors:  # a sample that is no example
        return 0.0
    held = _packed(sampled, rows)
    points = sampled.space.basis.points(rows)
    arrangement = ALGORITHMS[sampled.search.algorithm].arrange(points, TILE_ROWS)
    queries = QueryTiles(rows, points, arrangement, np.arange(len(rows)))
    state = search_blocks(queries, [held], sampled.space.basis, sampled.search)
    assert isinstance(state, NearestState)
    distances, neighbors = state.neighbors()
    graph = GRAPHS[params.graph](neighbors.astype(np.int32), distances)
    starts = np.arange(0, len(rows), max(1, len(rows) // WALKS))
    seconds = _fastest(lambda: sampled.search.walked(walk_from_rows, graph, starts))
    return seconds / len(starts)


def _growth(small: float, large: float) -> float:
    """Return how many times more there are: not fewer, and no more than in proportion."""
    return min(float(SHARES[1]), max(1.0, large / small))


class _Trial:
    """Some rows as a block, and tiles of queries to be searched for among them."""

    def __init__(
        self,
        sampled: Sampled,
        rows: NDArray[np.floating],
        queries: NDArray[np.floating] | None,
        density: float,
    ) -> None:
        self._sampled = sampled
        self._held = _packed(sampled, rows)
        block = self._held.block
        n_rows = max(TILE_ROWS, round(min(1.0, density) * len(rows)))
        is_own = queries is None
        of_queries = block.rows if queries is None else queries
        step = max(1, len(of_queries) // n_rows)
        self._rows = of_queries[::step]
        self._numbers = block.numbers[::step] if is_own else None
        basis = sampled.space.basis
        points = basis.points(self._rows)
        arrange = ALGORITHMS[sampled.search.algorithm].arrange
        self._which = _some_tiles(arrange(points, TILE_ROWS))

    def cost(self, n_copies: int = 1) -> Cost:
        """Return what a query costs among so many copies of the rows."""
        which = self._which
        states: list[NearestState | CountState] = []

        def search() -> None:
            states.append(self._searched(which, n_copies))
            states[-1].finish()

        seconds = _fastest(search)
        n_queries = len(which.order)
        visits = self._n_visits() / n_queries if self._sampled.prunes else 0.0
        return Cost(states[0].n_compared / n_queries, seconds / n_queries, visits)

    def _n_visits(self) -> int:
        """Return how many cells all tiles visit together."""
        block, which = self._held.block, self._which
        lows, highs = block.centers + block.lows, block.centers + block.highs
        n_visits = 0
        for start, stop in pairwise(which.starts.tolist()):
            starts = np.array([0, stop - start])
            tile = self._tiles(Arrangement(which.order[start:stop], starts, which.bounded))
            state = self._sampled.search.state(tile, self._sampled.space.basis)
            state.fold(block)
            n_visits += sum(map(state.may_need, lows, highs))
        return n_visits

    def _searched(self, which: Arrangement, n_copies: int) -> NearestState | CountState:
        sampled = self._sampled
        handles = [self._held] * n_copies
        return search_blocks(
            self._tiles(which), handles, sampled.space.basis, sampled.search
        )

    def _tiles(self, which: Arrangement) -> QueryTiles:
        """Return queries in the tiles that they are in already."""
        rows = self._rows[which.order]
        numbers = None if self._numbers is None else self._numbers[which.order]
        tiles = Arrangement(np.arange(len(rows)), which.starts, which.bounded)
        return QueryTiles(rows, self._sampled.space.basis.points(rows), tiles, numbers)


def _packed(sampled: Sampled, rows: NDArray[np.floating]) -> HeldBlock:
    numbers = np.arange(len(rows))
    held = pack_rows(narrow(rows), numbers, sampled.space, sampled.search.algorithm, None)
    assert isinstance(held, HeldBlock)
    return held


def _some_tiles(arrangement: Arrangement) -> Arrangement:
    """Return up to `N_TILES` of the tiles, evenly, as they are."""
    n_tiles = len(arrangement.starts) - 1
    chosen = np.unique(np.arange(N_TILES) * n_tiles // N_TILES)
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

"""Try a search on a sample: to choose an algorithm, and to forecast what it takes.

sample --pack--> block <--some tiles of queries--> pairs, cells, seconds
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import (
    ALGORITHMS,
    GRAPHS,
    TILE_ROWS,
    Arrangement,
    QueryTiles,
    narrow,
    walk_from_rows,
)
from lpe_dask.search.held import HeldBlock
from lpe_dask.search.join import Search, neighbors_of, search_blocks
from lpe_dask.search.packing import Space
from lpe_dask.search.plan import NeighborGraphParams

#: Tiles of queries that a forecast searches for.
N_TILES = 16

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
    cells : float
        Cells that it meets.
    """

    pairs: float
    seconds: float
    cells: float = 0.0


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
        return fastest(lambda: self.packed(self.reference)) / len(self.reference)

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
        seconds = fastest(lambda: self.search.walked(walk_from_rows, graph, starts))
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
        is_tiled = np.diff(block.starts).max(initial=0) <= TILE_ROWS
        if queries is None and step == 1 and sampled.space.prunes and is_tiled:
            tiles = Arrangement(np.arange(block.n_rows), block.starts, bounded=True)
        else:
            points = sampled.space.basis.points(self._rows)
            tile = ALGORITHMS[sampled.space.algorithm].tile
            tiles = tile(points, cell_rows or TILE_ROWS)
        self._which = _some_tiles(tiles, n_tiles)

    def counts(self) -> tuple[float, float]:
        """Return the rows that a query is compared with, and the cells that it meets."""
        state = self._sampled.search.state(self._tiles(), self._sampled.space.basis)
        state.fold(self._held.block)
        n_queries = len(self._which.order)
        return state.n_compared / n_queries, state.n_met / n_queries

    def cost(self, n_copies: int = 1, most_seconds: float = REPEAT_SECONDS) -> Cost:
        """Return what a query costs among so many copies of the rows."""
        sampled, states = self._sampled, []
        handles = [self._held] * n_copies

        def search() -> None:
            states.append(
                search_blocks(self._tiles(), handles, sampled.space.basis, sampled.search)
            )
            states[-1].finish()

        seconds = fastest(search, most_seconds)
        n_queries = len(self._which.order)
        compared, met = states[0].n_compared / n_queries, states[0].n_met / n_queries
        return Cost(compared, seconds / n_queries, met)

    def _tiles(self) -> QueryTiles:
        """Return queries in the tiles that they are in already."""
        which = self._which
        rows = self._rows[which.order]
        numbers = None if self._numbers is None else self._numbers[which.order]
        tiles = Arrangement(np.arange(len(rows)), which.starts, which.bounded)
        basis = self._sampled.space.basis
        return QueryTiles(rows, basis.points(rows), tiles, numbers, basis)


def _some_tiles(arrangement: Arrangement, n_chosen: int) -> Arrangement:
    """Return up to so many of the tiles, evenly, as they are."""
    n_tiles = len(arrangement.starts) - 1
    chosen = np.unique(np.arange(n_chosen) * n_tiles // n_chosen)
    runs = [arrangement.order[slice(*arrangement.starts[i : i + 2])] for i in chosen]
    starts = np.cumsum([0, *map(len, runs)])
    return Arrangement(np.concatenate(runs), starts, arrangement.bounded)


def fastest(work: Callable[[], object], most: float = REPEAT_SECONDS) -> float:
    """Return the seconds of the fastest of some repeats; the first one may compile.

    They are repeated for up to ``most`` seconds.
    """
    work()
    seconds: list[float] = []
    while len(seconds) < LEAST_REPEATS or (
        sum(seconds) < most and len(seconds) < MOST_REPEATS
    ):
        began = time.thread_time()  # other programs' share of the processor is not ours
        work()
        seconds.append(time.thread_time() - began)
    return min(seconds)

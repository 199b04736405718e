"""Try a search on a sample: to choose an algorithm, and to forecast what it takes.

    sample, and part of it --pack--> block --some tiles of queries--> pairs, cells, seconds
                                     ------>  how these grow with the rows

A query is compared with rows, in pairs, and meets cells, of whose rows it may leave out all
or most. Nothing is looked up: what a pair takes depends on the processor, the columns, K
and how the rows lie.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, NeighborGraph, QueryTiles
from lpe_dask.search.blocks.in_memory import InMemoryBlock
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.join import JoinSpec, neighbors_of, search_blocks
from lpe_dask.search.plan import NeighborGraphParams, ProblemSize

#: Tiles of queries that a forecast searches for.
N_TILES = 16

#: How many times fewer rows a second trial has, which says how pairs and cells grow.
FEWER = 4

#: Seconds for which a trial is repeated, and how often at least and at most: the fastest
#: counts, as other work only ever adds, and the first one may compile.
REPEAT_SECONDS, MIN_REPEATS, MAX_REPEATS = 0.15, 2, 20

#: To hold a query against the box of a cell takes about as long as to compare it with so
#: many rows: measured 4 of 8 columns. Only what lies beyond a trial is added by it.
CELL_PAIRS = 6

#: Share of what a pair takes on average that each further one takes at least; measured were
#: .5 to 1 of 8 columns. By the difference of two trials alone, further pairs would cost
#: nothing if the processor did something else during the shorter one.
LEAST_PRICE = 0.25

#: Rows whose neighbor graph is made, and of these that are walked from.
GRAPH_ROWS, WALKS = 4096, 256


@dataclass(frozen=True, slots=True)
class Cost:
    """What a query costs, and a row of the reference.

    Attributes
    ----------
    pairs : float
        Rows of the reference that a query is compared with.
    seconds : float
        Of one thread for a query.
    cells : float
        Cells that a query meets.
    pack_seconds : float
        Of one thread for a row of the reference to be put into its block.
    """

    pairs: float
    seconds: float
    cells: float = 0.0
    pack_seconds: float = 0.0

    @property
    def work(self) -> float:
        """The pairs, and for each cell as many as take as long."""
        return self.pairs + CELL_PAIRS * self.cells


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of a reference to try a search on.

    Attributes
    ----------
    reference : ndarray of shape (n_sampled, n_features)
        Prepared, in no particular order.
    space : Space
    search : JoinSpec
    """

    reference: NDArray[np.floating]
    space: Space
    search: JoinSpec

    @classmethod
    def of(cls, reference: NDArray[np.floating], space: Space, shape: ProblemSize) -> Self:
        """Return rows to try searches on, for no more neighbors than there are rows."""
        statistic = shape.statistic
        if statistic.n_neighbors is not None:
            n_neighbors = min(statistic.n_neighbors, len(reference))
            statistic = replace(statistic, n_neighbors=n_neighbors)
        search = JoinSpec(statistic, 1, shape.graph_neighbors or None)
        return cls(reference, space, search)

    def packed(self, rows: NDArray[np.floating]) -> InMemoryBlock:
        """Return some of the rows as a block."""
        return self.space.pack(rows, np.arange(len(rows)))

    def cost(
        self,
        n_reference: int,
        queries: NDArray[np.floating] | None = None,
        density: float = 1.0,
        *,
        n_tiles: int = N_TILES,
        seconds: float | None = None,
    ) -> Cost:
        """Return about what a query costs among ``n_reference`` rows like these.

        The search is tried among the rows, and among part of them. Pairs and cells are
        taken to grow on by the power of the number of rows by which they grew, and each to
        take as long as those that were added.

        Parameters
        ----------
        n_reference : int
        queries : ndarray of shape (n_queries, n_features), optional
            Prepared rows like those to measure. None: those of the reference.
        density : float
            Queries that are put into tiles together, for each row of the reference where
            they lie.
        n_tiles : int
            Tiles to search for, at most.
        seconds : float, optional
            For which a trial is repeated; None: `REPEAT_SECONDS`.
        """
        self.search.expect()  # so that what is tried is what will be used
        rows = self.reference[:n_reference]
        part = self._tried(rows[::FEWER], queries, density, n_tiles, seconds)
        # Nothing is left to compile.
        whole = self._tried(rows, queries, density, n_tiles, seconds, least_repeats=1)
        power = math.log(n_reference / len(rows), FEWER)
        pairs = whole.pairs * _growth(part.pairs, whole.pairs) ** power
        cells = whole.cells * _growth(part.cells, whole.cells) ** power
        added = max(0.0, whole.seconds - part.seconds)
        average = whole.seconds / whole.work if whole.work > 0 else 0.0
        price = average
        if whole.work > part.work:  # not more than if nothing but pairs and cells took time
            of_added = added / (whole.work - part.work)
            price = min(average, max(of_added, LEAST_PRICE * average))
        beyond = Cost(pairs, 0.0, cells).work - whole.work
        if not self.space.prunes:  # but for those of queries that end early
            pairs = float(n_reference)
        return Cost(
            min(pairs, float(n_reference)), whole.seconds + price * beyond, cells,
            whole.pack_seconds,
        )  # fmt: skip

    def _tried(
        self,
        rows: NDArray[np.floating],
        queries: NDArray[np.floating] | None,
        density: float,
        n_tiles: int,
        seconds: float | None,
        least_repeats: int = MIN_REPEATS,
    ) -> Cost:
        """Return the cost of a query among these rows; parameters as in `cost`."""
        began = time.thread_time()
        held = self.packed(rows)
        pack_seconds = (time.thread_time() - began) / len(rows)
        block, basis = held.block, self.space.basis
        n_rows = max(QueryTiles.TILE_ROWS, round(min(1.0, density) * len(rows)))
        if not self.space.prunes:  # tiles need no near rows: some of everywhere
            n_rows = min(n_rows, n_tiles * QueryTiles.TILE_ROWS)
        of_queries = block.rows if queries is None else queries
        step = max(1, len(of_queries) // n_rows)
        points = basis.points(of_queries[::step])
        tiles = ALGORITHMS[self.space.algorithm].tile(
            points, QueryTiles.TILE_ROWS, of_block=queries is None
        )
        which = tiles.sample_cells(n_tiles)
        asked = of_queries[::step][which.order]
        own = block.numbers[::step][which.order] if queries is None else None
        tiles = replace(which, order=np.arange(len(asked)))
        states = []

        def search() -> None:
            given = QueryTiles(asked, basis.points(asked), tiles, own, basis)
            states.append(search_blocks(given, [held], self.space, self.search))
            states[-1].finish()

        taken = _min_seconds(search, seconds, least_repeats) / len(asked)
        compared, met = states[0].n_compared / len(asked), states[0].n_met / len(asked)
        return Cost(compared, taken, met, pack_seconds)

    def walk_seconds(self, params: NeighborGraphParams) -> float:
        """Return the seconds of one thread for a walk along a neighbor graph."""
        rows = self.reference[: max(GRAPH_ROWS, 2 * params.n_neighbors)]
        if len(rows) <= params.n_neighbors:  # a sample that is no example
            return 0.0
        queries = self.space.tiles(rows, np.arange(len(rows)))
        blocks = [self.packed(rows)]
        state = search_blocks(queries, blocks, self.space, self.search)
        distances, neighbors = neighbors_of(state)
        graph = NeighborGraph.of(params.graph, neighbors.astype(np.int32), distances)
        starts = np.arange(0, len(rows), max(1, len(rows) // WALKS))
        seconds = _min_seconds(lambda: self.search.walked(graph.walk_from_rows, starts))
        return seconds / len(starts)


def _growth(part: float, whole: float) -> float:
    """Return how many times more there are: not fewer, and no more than in proportion."""
    return min(float(FEWER), max(1.0, whole / part)) if part > 0 else 1.0


def _min_seconds(
    work: Callable[[], object], most: float | None = None, least: int = MIN_REPEATS
) -> float:
    """Return the seconds of the fastest of some repeats.

    They are repeated for up to ``most`` seconds (None: `REPEAT_SECONDS`), or so many times.
    """
    most = REPEAT_SECONDS if most is None else most
    seconds: list[float] = []
    while len(seconds) < least or (sum(seconds) < most and len(seconds) < MAX_REPEATS):
        began = time.thread_time()  # other programs' share of the processor is not ours
        work()
        seconds.append(time.thread_time() - began)
    return min(seconds)

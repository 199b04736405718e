r"""Put the rows of the reference into blocks, in memory or in a spool.

reference   r0   r1   r2      input partitions
|    |    |
pieces      ...  ...  ...     pruned: rows sorted by region; else left out
| \/ | \/ |
blocks      b0   b1   b2      handles: in memory, or in a spool
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.json_arrays import LEFT_OUT
from lpe_dask.kernels import ALGORITHMS, Basis, Block, Index, QueryTiles
from lpe_dask.search.blocks.held_rows import HeldRows
from lpe_dask.search.blocks.in_memory import InMemoryBlock, InMemoryIndex, RowsByRegion
from lpe_dask.search.blocks.merged_pieces import MERGED, Run, merged_pieces
from lpe_dask.search.blocks.persisted import Blocks
from lpe_dask.search.blocks.spool_blocks import Handles, SpoolFolder, handles_of
from lpe_dask.search.groups import SearchGroups
from lpe_dask.search.locality import Boxes, by_box
from lpe_dask.search.plan import SAMPLE_EVERY, SUMMED_PIECES, share_of
from lpe_dask.search.preparation import Preparation
from lpe_dask.tasks import (
    LocalValue,
    SpoolEntry,
    active_client,
    compute,
    new_array,
    new_tasks,
    persist,
    to_task,
)


@dataclass(frozen=True, slots=True)
class Space:
    """The space of a search: how rows get there, and how they are ordered in it.

    It is the same for queries and reference.

    Attributes
    ----------
    algorithm : str
        A name of `kernels.ALGORITHMS`.
    preparation : Preparation
        To where distances are Euclidean.
    basis : Basis
        Where pairs are filtered.
    with_samples : bool, default=False
        Whether blocks come with a sample of their rows, which searches for many neighbors
        begin with.
    groups : SearchGroups, optional
        Where groups are searched each by itself.
    """

    algorithm: str
    preparation: Preparation
    basis: Basis
    with_samples: bool = False
    groups: Annotated[SearchGroups | None, LEFT_OUT] = None

    def __sizeof__(self) -> int:
        """Return about the bytes of the matrices, knots and groups."""
        n_features, knots = self.basis.n_columns, self.preparation.scaling.knots
        matrices = (self.basis.rotation, self.preparation.matrix)
        n_matrices = sum(matrix is not None for matrix in matrices)
        of_knots = 0 if knots is None else knots.__sizeof__()
        of_groups = sum(
            0 if of is None else of.__sizeof__()
            for of in (self.groups, self.preparation.groups, self.basis.groups)
        )
        return 8 * n_features * (n_matrices * n_features + 4) + of_knots + of_groups

    @property
    def n_groups(self) -> int | None:
        """How many groups there are, where searches look up what is known of them."""
        if self.groups is not None:
            return self.groups.n_groups
        learned = self.preparation.groups
        return None if learned is None else len(learned.is_known)

    @property
    def is_indexed(self) -> bool:
        """Whether blocks have indexes, along which a search may miss neighbors."""
        return ALGORITHMS[self.algorithm].neighbor_lists is not None

    def index(self, block: Block, seed: int) -> InMemoryIndex:
        """Return the index of a block; see `kernels.nn_descent.neighbor_lists`."""
        lists = ALGORITHMS[self.algorithm].neighbor_lists(
            self.basis.points(block.rows), seed
        )
        return InMemoryIndex(Index.of_lists(block, lists, self._block))

    def linked(self, block: Block, graph: NDArray[np.int32]) -> InMemoryIndex:
        """Return the index of a block with this graph, which has as many rows."""
        return InMemoryIndex(Index.of(block, graph, self._block))

    @property
    def prunes(self) -> bool:
        """Whether pairs are left out, as rows that are near are kept together."""
        return bool(ALGORITHMS[self.algorithm].KEEPS_NEAR_ROWS_TOGETHER)

    @property
    def sums_pairs(self) -> bool:
        """Whether pairs of rows can be summed once for both: see `PairSearch`."""
        return ALGORITHMS[self.algorithm].SUMS_PAIRS and len(self.basis.steps) == 0

    def tiles(
        self,
        rows: NDArray[np.floating],
        numbers: NDArray[np.int64] | None = None,
        *,
        of_block: bool = False,
    ) -> QueryTiles:
        """Return prepared rows as tiles of queries; ``numbers`` as in `QueryTiles`.

        ``of_block`` says that they come in the order of a block, whose near rows are
        together already.
        """
        if self.groups is not None:
            _, is_measured = self.groups.of_rows(rows[:, -1].astype(np.float64))
            rows = np.where(is_measured[:, None], rows, np.nan)
        points = self.basis.points(rows)
        arrangement = ALGORITHMS[self.algorithm].tile(
            points, QueryTiles.TILE_ROWS, of_block=of_block
        )
        tables = weights = None
        if self.basis.groups is not None:
            tables, weights = self._tables_of(rows[:, -1])
        return QueryTiles(rows, points, arrangement, numbers, self.basis, tables, weights)

    def _tables_of(
        self, codes: NDArray[np.floating]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the weights of the groups of some rows, and which of them each row has."""
        which = np.where(np.isfinite(codes), codes, 0).astype(np.int64)
        groups, tables = np.unique(which, return_inverse=True)
        of_numbers = self.basis.groups.weights[groups]
        others = self.basis.all_weights[of_numbers.shape[1] :]
        of_others = np.broadcast_to(others, (len(groups), len(others)))
        return tables, np.hstack([of_numbers, of_others])

    def pack(self, rows: NDArray[np.floating], numbers: NDArray[np.int64]) -> InMemoryBlock:
        """Return prepared rows as a block, with its sample if searches begin with one."""
        block = self._block(rows, numbers)
        if not self.with_samples:
            return InMemoryBlock.of(block, None)
        sampled = slice(None, None, SAMPLE_EVERY)
        return InMemoryBlock.of(
            block, self._block(block.rows[sampled], block.numbers[sampled])
        )

    def _block(self, rows: NDArray[np.floating], numbers: NDArray[np.int64]) -> Block:
        kernel = ALGORITHMS[self.algorithm]
        return Block.build(rows, numbers, kernel.arrange, self.basis, kernel.SLAB_ROWS)


def prepare_blocks(
    source: Callable[[], da.Array],
    space: Space,
    entry: SpoolEntry | None = None,
    regions: Boxes | None = None,
    block_rows: int | None = None,
    beside: HeldRows | None = None,
) -> Blocks:
    """Return the reference as blocks in memory or in a spool; computes.

    Parameters
    ----------
    source : callable
        Gives the rows: a dask array of shape (n_reference, n_features), finite, with known
        chunks, settled (`frozen_graph.freeze`). They enter a graph at each call, if this
        process has them.
    space : Space
    entry : SpoolEntry, optional
        Of a spool; None: the blocks stay in memory.
    regions : tuple of ndarray, optional
        Boxes of regions that rows are gathered in; None: the chunks are blocks.
    block_rows : int, optional
        Most rows of a block of a region.
    beside : HeldRows, optional
        Rows that are kept at the same time, by the same reading.
    """
    folder = None if entry is None else SpoolFolder(entry.url)
    with_chunks = beside if regions is None else None  # else kept with the pieces
    found: list[Any] = []  # the rows of each region, and what keeps the pieces

    def make() -> list[Delayed]:
        if regions is None:
            return pack_chunks(source(), space, folder)
        pieces, runs = split_chunks(source(), space, regions, folder), None
        n_pieces = len(pieces)
        if not found:  # when they are made again, all comes from the rows
            pieces, *found[:] = sorted_pieces(pieces, entry, beside)
        if entry is not None and folder is not None:
            pieces, runs = merged_pieces(pieces, n_pieces, len(found[0]), entry)
            if len(runs) > 1:
                folder.remove_pieces()
        return build_region_blocks(pieces, found[0], space, folder, block_rows, runs)

    if entry is None or folder is None:
        blocks = Blocks.of(make, with_chunks)
        del found[1:]
        return blocks
    blocks = Blocks.spooled(make(), entry, with_chunks)
    folder.remove_pieces()
    folder.remove_pieces(MERGED)
    return blocks


def sorted_pieces(
    tasks: list[Delayed], entry: SpoolEntry | None, beside: HeldRows | None = None
) -> tuple[list[Delayed], NDArray[np.int64], Any]:
    """Return tasks that give pieces, the rows of each region, and what keeps them.

    Computes. On a cluster the pieces stay in the memory of workers as long as the last
    result is referenced. ``beside`` as in `prepare_blocks`.
    """
    n_pieces, held = len(tasks), [] if beside is None else beside.tasks(entry)
    if entry is None and active_client() is not None:
        persisted = persist([*tasks, *held])
        kept = persisted[:n_pieces]
        if beside is not None:
            beside.keep(persisted[n_pieces:])
        del persisted
        counted = [size for piece in tasks for size in region_sizes([piece], 1)]
        return tasks, np.sum(compute(*counted), axis=0), kept
    results = compute(*tasks, *held)
    pieces = results[:n_pieces]
    if beside is not None:
        beside.keep(results[n_pieces:])
    if entry is None:
        sizes = np.sum([piece.sizes() for piece in pieces], axis=0)
        held = [LocalValue(piece, "lpe-pieces") for piece in pieces]
        return LocalValue.tasks(held), sizes, None
    handles = [to_task(Handles(pieces, entry), "lpe-pieces")]
    return handles, np.sum(compute(*region_sizes(handles, len(pieces))), axis=0), None


def pack_chunks(
    rows: da.Array, space: Space, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return one task for each row chunk of the reference, which makes it a block."""
    return _chunk_tasks("pack", _pack, rows, to_task(space, "lpe-space"), folder)


def split_chunks(
    rows: da.Array, space: Space, regions: Boxes, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return one task for each row chunk of the reference, which sorts it by region."""
    entered = to_task((space, regions), "lpe-regions")
    return _chunk_tasks("split", _split, rows, entered, folder)


def _chunk_tasks(
    name: str,
    function: Callable[..., Any],
    rows: da.Array,
    entered: Delayed,
    folder: SpoolFolder | None,
) -> list[Delayed]:
    """Return one task for each row chunk: of the rows and the number of the first one."""
    firsts = accumulate(rows.chunks[0][:-1], initial=0)
    tasks = (
        (function, (rows.name, i, 0), first, entered.key, folder)
        for i, first in enumerate(firsts)
    )
    return new_tasks(name, tasks, [rows, entered])


def region_sizes(pieces: list[Delayed], n_pieces: int) -> list[Delayed]:
    """Return tasks for some pieces each: the rows of every region in them, to be added up.

    Parameters
    ----------
    pieces : list of Delayed
        Of pieces or `Handles` of them.
    n_pieces : int
        In all of these.
    """
    keys = [piece.key for piece in pieces]
    starts = range(0, n_pieces, SUMMED_PIECES)
    tasks = ((_sizes, keys, start, start + SUMMED_PIECES) for start in starts)
    return new_tasks("sizes", tasks, pieces)


def build_region_blocks(
    pieces: list[Delayed],
    sizes: NDArray[np.int64],
    space: Space,
    folder: SpoolFolder | None,
    block_rows: int | None,
    runs: list[Run] | None = None,
) -> list[Delayed]:
    """Return tasks that gather the rows of each region as blocks of up to ``block_rows``.

    Parameters
    ----------
    pieces : list of Delayed
        Of pieces or `Handles` of them, in input order.
    sizes : ndarray of shape (n_regions,)
        Rows of each region in all pieces.
    runs : list of Run, optional
        Which pieces have the rows of which regions; None: all have some of all.
    """
    entered = to_task(space, "lpe-space")
    keys = [piece.key for piece in pieces]
    tasks = []
    for run in runs or [Run(0, len(sizes), slice(None))]:
        for region, size in enumerate(sizes[run.first : run.stop].tolist()):
            n_blocks = -(-size // (block_rows or max(1, size)))
            for i in range(n_blocks):
                which = share_of(size, i, n_blocks)
                bounds = run.pieces, region, which.start, which.stop
                tasks.append((_gather, keys, *bounds, entered.key, folder))
    return new_tasks("pack", tasks, [*pieces, entered])


def index_blocks(
    blocks: list[Delayed], n_blocks: int, space: Space, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return one task for each block, which makes its index.

    Parameters
    ----------
    blocks : list of Delayed
        One of each handle, or of all `Handles`.
    n_blocks : int
    space : Space
    folder : SpoolFolder, optional
        None: the indexes stay in memory.
    """
    entered = to_task(space, "lpe-space")
    tasks = (
        (_index, keys, place, i, entered.key, folder)
        for i, (keys, place) in enumerate(each_block(blocks, n_blocks))
    )
    return new_tasks("index", tasks, [*blocks, entered])


def rows_of_blocks(blocks: list[Delayed], n_blocks: int, n_features: int) -> da.Array:
    """Return the rows in blocks as float64, lazily, in one chunk of unknown length each.

    Parameters are those of `index_blocks`, and the columns of prepared rows.
    """
    chunks = ((np.nan,) * n_blocks, (n_features,))
    tasks = ((_rows, *of_block) for of_block in each_block(blocks, n_blocks))
    return new_array("block-rows", tasks, blocks, chunks, np.empty((0, 0)))


def each_block(blocks: list[Delayed], n_blocks: int) -> list[tuple[list[Any], int]]:
    """Return for each block the keys that a task of it needs, and its place among these."""
    keys = [block.key for block in blocks]
    if len(keys) == n_blocks:  # each task then needs its own block only
        return [([key], 0) for key in keys]
    return [(keys, i) for i in range(n_blocks)]


# The functions below run inside tasks: NumPy in, NumPy out.


def _index(
    blocks: list[Any], place: int, seed: int, space: Space, folder: SpoolFolder | None
) -> Any:
    held = space.index(handles_of(blocks)[place].load(), seed)
    return held if folder is None else folder.write_index(held)


def _rows(blocks: list[Any], place: int) -> NDArray[np.float64]:
    return handles_of(blocks)[place].load().rows.astype(np.float64)


def _pack(
    rows: NDArray[np.generic], first: int, space: Space, folder: SpoolFolder | None
) -> Any:
    prepared = space.preparation.apply_float32(rows)
    return pack_rows(prepared, np.arange(first, first + len(rows)), space, folder)


def _split(
    rows: NDArray[np.generic],
    first: int,
    entered: tuple[Space, Boxes],
    folder: SpoolFolder | None,
) -> Any:
    space, regions = entered
    prepared = space.preparation.apply_float32(rows)
    order, starts = by_box(space.basis.points(prepared), regions)
    pieces = RowsByRegion(prepared[order], first + order, starts)
    return pieces if folder is None else folder.write_pieces(pieces)


def _sizes(pieces: list[Any], start: int, stop: int) -> NDArray[np.int64]:
    of_each = [piece.sizes() for piece in handles_of(pieces)[start:stop]]
    return np.asarray(np.sum(of_each, axis=0))


def _gather(
    pieces: list[Any],
    some: slice,
    region: int,
    start: int,
    stop: int,
    space: Space,
    folder: SpoolFolder | None,
) -> Any:
    """Make a block of rows ``start`` to ``stop`` of a region, through some pieces."""
    rows, numbers = gathered(handles_of(pieces)[some], region, start, stop)
    return pack_rows(rows, numbers, space, folder)


def gathered(
    pieces: Sequence[Any], region: int, start: int, stop: int
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return rows of a region with their numbers; what was read of each piece is gone."""
    rows, numbers, before = [], [], 0
    for piece in pieces:
        of_rows, of_numbers, n_in_region = piece.read(
            region, max(0, start - before), max(0, stop - before)
        )
        before += n_in_region
        if len(of_rows) > 0:
            # Pieces of one dtype each; a block is float32 only if all of them are.
            rows.append(of_rows)
            numbers.append(of_numbers)
    return np.concatenate(rows), np.concatenate(numbers)


def pack_rows(
    rows: NDArray[np.floating],
    numbers: NDArray[np.int64],
    space: Space,
    folder: SpoolFolder | None,
) -> Any:
    """Return prepared rows as the handle of a block, in memory or in a spool."""
    held = space.pack(rows, numbers)
    return held if folder is None else folder.write_block(held)

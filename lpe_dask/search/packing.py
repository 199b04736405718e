r"""Put the rows of the reference into blocks, in memory or in a spool.

reference   r0   r1   r2      input partitions
|    |    |
pieces      ...  ...  ...     pruned: rows sorted by region of a kd split; else left out
| \/ | \/ |
blocks      b0   b1   b2      handles: in memory, or in a spool
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, Basis, Block, build_block, narrow
from lpe_dask.search.held import HeldBlock, HeldBlocks, Pieces
from lpe_dask.search.locality import Split
from lpe_dask.search.plan import SAMPLE_EVERY, SUMMED_PIECES, share_of
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.spooled import Handles, SpooledBlocks, SpoolFolder, handles_of
from lpe_dask.tasks import (
    Entry,
    Held,
    active_client,
    compute,
    enter,
    new_tasks,
    persist_cancellably,
)


@dataclass(frozen=True, slots=True)
class Space:
    """The way of rows into the space of a search; the same for queries and reference.

    Attributes
    ----------
    preparation : Preparation
        To where distances are Euclidean.
    basis : Basis
        Where pairs are filtered.
    split : Split, optional
        Parts of near rows, where they are kept together.
    with_samples : bool, default=False
        Whether blocks come with a sample of their rows, which searches for many neighbors
        begin with.
    """

    preparation: Preparation
    basis: Basis
    split: Split | None = None
    with_samples: bool = False

    def __sizeof__(self) -> int:
        """Return about the bytes of the matrices."""
        n_features = len(self.basis.center)
        matrices = (self.basis.rotation, self.preparation.linear_map.matrix)
        n_matrices = sum(matrix is not None for matrix in matrices)
        return 8 * n_features * (n_matrices * n_features + 4)


def prepare_blocks(
    source: Callable[[], da.Array],
    space: Space,
    algorithm: str,
    entry: Entry | None = None,
    block_rows: int | None = None,
    n_bytes: int = 0,
) -> HeldBlocks | SpooledBlocks:
    """Return the reference as blocks in memory or in a spool; computes.

    Parameters
    ----------
    source : callable
        Gives the rows: a dask array of shape (n_reference, n_features), finite, with known
        chunks, settled (`sources.settle`). Each time entered anew, if this process has
        them.
    space : Space
    algorithm : str
    entry : Entry, optional
        Of a spool; None: the blocks stay in memory.
    block_rows : int, optional
        Most rows of a block where ``space`` has a split; otherwise the chunks are blocks.
    n_bytes : int, default=0
        Bytes of the rows, if this process has them.
    """
    if entry is not None:
        return _spool_blocks(source(), space, algorithm, entry, block_rows)
    if space.split is None:
        return HeldBlocks.of(
            pack_chunks(source(), space, algorithm),
            lambda: pack_chunks(source(), space, algorithm),
            n_bytes,
        )
    tasks = split_chunks(source(), space)
    kept: Any = None  # on a cluster, until they have been gathered
    if active_client() is not None:
        pieces, kept = tasks, persist_cancellably(tasks)
        by_piece = [size for piece in pieces for size in region_sizes([piece], 1)]
        sizes = np.sum(compute(*by_piece), axis=0)
    else:
        computed = compute(*tasks)
        sizes = np.sum([piece.sizes() for piece in computed], axis=0)
        pieces = [enter(Held(piece, "lpe-pieces"), "lpe-pieces") for piece in computed]
    blocks = HeldBlocks.of(
        gather_regions(pieces, sizes, space, algorithm, None, block_rows),
        lambda: gather_regions(
            split_chunks(source(), space), sizes, space, algorithm, None, block_rows
        ),
        n_bytes,
    )
    del kept
    return blocks


def _spool_blocks(
    rows: da.Array, space: Space, algorithm: str, entry: Entry, block_rows: int | None
) -> SpooledBlocks:
    folder = SpoolFolder(entry.url)
    if space.split is None:
        return SpooledBlocks.of(pack_chunks(rows, space, algorithm, folder), entry)
    handles = compute(*split_chunks(rows, space, folder))
    pieces = [enter(Handles(handles, entry), "lpe-pieces")]
    sizes = np.sum(compute(*region_sizes(pieces, len(handles))), axis=0)
    gathered = gather_regions(pieces, sizes, space, algorithm, folder, block_rows)
    blocks = SpooledBlocks.of(gathered, entry)
    folder.remove_pieces()
    return blocks


def pack_chunks(
    rows: da.Array, space: Space, algorithm: str, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return one task for each row chunk of the reference, which makes it a block."""
    return _chunk_tasks("pack", _pack, rows, space, algorithm, folder)


def split_chunks(
    rows: da.Array, space: Space, folder: SpoolFolder | None = None
) -> list[Delayed]:
    """Return one task for each row chunk of the reference, which sorts it by region."""
    return _chunk_tasks("split", _split, rows, space, folder)


def _chunk_tasks(
    name: str, function: Callable[..., Any], rows: da.Array, space: Space, *further: Any
) -> list[Delayed]:
    """Return one task for each row chunk: of the rows and the number of the first one."""
    entered = enter(space, "lpe-space")
    firsts = accumulate(rows.chunks[0][:-1], initial=0)
    tasks = (
        (function, (rows.name, i, 0), first, entered.key, *further)
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


def gather_regions(
    pieces: list[Delayed],
    sizes: NDArray[np.int64],
    space: Space,
    algorithm: str,
    folder: SpoolFolder | None,
    block_rows: int | None,
) -> list[Delayed]:
    """Return tasks that gather the rows of each region as blocks of up to ``block_rows``.

    Parameters
    ----------
    pieces : list of Delayed
        Of pieces or `Handles` of them, in input order.
    sizes : ndarray of shape (n_regions,)
        Rows of each region in all pieces.
    """
    entered = enter(space, "lpe-space")
    keys = [piece.key for piece in pieces]
    tasks = []
    for region, size in enumerate(sizes.tolist()):
        n_blocks = -(-size // (block_rows or max(1, size)))
        for i in range(n_blocks):
            which = share_of(size, i, n_blocks)
            bounds = region, which.start, which.stop
            tasks.append((_gather, keys, *bounds, entered.key, algorithm, folder))
    return new_tasks("pack", tasks, [*pieces, entered])


# The functions below run inside tasks: NumPy in, NumPy out.


def _pack(
    rows: NDArray[np.generic],
    first: int,
    space: Space,
    algorithm: str,
    folder: SpoolFolder | None,
) -> Any:
    prepared = narrow(space.preparation.apply(rows))
    numbers = np.arange(first, first + len(rows))
    return pack_rows(prepared, numbers, space, algorithm, folder)


def _split(
    rows: NDArray[np.generic], first: int, space: Space, folder: SpoolFolder | None
) -> Any:
    assert space.split is not None
    prepared = narrow(space.preparation.apply(rows))
    regions = space.split.regions(space.basis.points(prepared))
    order = np.argsort(regions, kind="stable")
    starts = np.searchsorted(regions[order], np.arange(space.split.n_regions + 1))
    pieces = Pieces(prepared[order], first + order, starts)
    return pieces if folder is None else folder.write_pieces(pieces)


def _sizes(pieces: list[Any], start: int, stop: int) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = np.sum(
        [piece.sizes() for piece in handles_of(pieces)[start:stop]], axis=0
    )
    return sizes


def _gather(
    pieces: list[Any],
    region: int,
    start: int,
    stop: int,
    space: Space,
    algorithm: str,
    folder: SpoolFolder | None,
) -> Any:
    """Make a block of rows ``start`` to ``stop`` of a region, through all pieces."""
    found = []
    before = 0
    for piece in handles_of(pieces):
        found.append(piece.read(region, max(0, start - before), max(0, stop - before)))
        before += found[-1].n_in_region
    # Pieces of one dtype each; a block is float32 only if all of them are.
    rows = np.concatenate([some.rows for some in found if len(some.rows) > 0])
    numbers = np.concatenate([some.numbers for some in found])
    return pack_rows(rows, numbers, space, algorithm, folder)


def pack_rows(
    rows: NDArray[np.floating],
    numbers: NDArray[np.int64],
    space: Space,
    algorithm: str,
    folder: SpoolFolder | None,
    cell_rows: int | None = None,
) -> Any:
    """Return rows as the handle of a block, in memory or in a spool."""
    block = _block(rows, numbers, space.basis, algorithm, cell_rows)
    sample = None
    if space.with_samples:
        every = slice(None, None, SAMPLE_EVERY)
        sample = _block(block.rows[every], block.numbers[every], space.basis, algorithm)
    held = HeldBlock(block, sample)
    return held if folder is None else folder.write_block(held)


def _block(
    rows: NDArray[np.floating],
    numbers: NDArray[np.int64],
    basis: Basis,
    algorithm: str,
    cell_rows: int | None = None,
) -> Block:
    points, kernel = basis.points(rows), ALGORITHMS[algorithm]
    arrangement = kernel.arrange(points, cell_rows or kernel.CELL_ROWS)
    return build_block(rows, numbers, points, arrangement, basis)

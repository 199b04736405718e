"""Blocks, and the pieces they are made of, in a spool: graphs hold handles of them.

    block  --SpoolFolder--> file, SpooledBlock: low, high, load(), load_sample()

A join asks a handle for its box first, and loads only what it needs; blocks in memory
(`InMemoryBlock`) offer the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import Block, Index
from lpe_dask.search.blocks.in_memory import (
    InMemoryBlock,
    InMemoryIndex,
    RowsByRegion,
    RowsOfRegion,
    read_region,
)
from lpe_dask.storage import (
    ArrayFile,
    Folder,
    child_url,
    disk_full_context,
    like,
    open_url,
    retried,
)
from lpe_dask.tasks import SpoolEntry, shared_folder


@dataclass(frozen=True, slots=True)
class SpooledBlock:
    """A block on storage.

    Attributes
    ----------
    url : str
        Of its file; that of its sample has one word more.
    low, high : ndarray of shape (n_features,)
        Its box in the basis.
    """

    url: str
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def load(self) -> Block:
        """Return the block, read again."""
        return Block.from_arrays(*_read(self.url))

    def load_sample(self) -> Block:
        """Return the block of sampled rows, read again."""
        return Block.from_arrays(*_read(sample_url(self.url)))


@dataclass(frozen=True, slots=True)
class SpooledIndex:
    """The index of a block on storage.

    Attributes
    ----------
    url : str
        Of its file.
    """

    url: str

    def load(self) -> Index:
        """Return the index, read again."""
        return Index.from_arrays(*_read(self.url))


@dataclass(frozen=True, slots=True)
class SpooledPieces:
    """`RowsByRegion` on storage, of which single regions can be read.

    Every task that gathers a region has the handles of all pieces, so they are small.

    Attributes
    ----------
    url : str
        Of the file: the starts of the regions, the numbers of all rows, and the rows.
    """

    url: str

    @retried
    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each region, read again."""
        with open_url(self.url, "rb") as file:
            return np.diff(ArrayFile(file).part(0))

    @retried
    def read(self, region: int, start: int, stop: int) -> RowsOfRegion:
        """Return rows ``start`` to ``stop`` of a region; see `read_region`."""
        with open_url(self.url, "rb") as file:
            return read_region(ArrayFile(file).part, region, start, stop)

    @retried
    def read_run(self, first: int, stop: int) -> RowsByRegion:
        """Return the rows of the regions from ``first`` to ``stop``."""
        with open_url(self.url, "rb") as file:
            part = ArrayFile(file).part
            starts = part(0, first, stop + 1)
            rows, numbers = (part(i, starts[0], starts[-1]) for i in (2, 1))
            return RowsByRegion(rows, numbers, starts - starts[0])


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """Rows on storage, as they came.

    Attributes
    ----------
    url : str
        Of their file.
    """

    url: str

    def load(self) -> NDArray[np.generic]:
        """Return the rows, read again."""
        (rows,) = _read(self.url)
        return rows


class Handles:
    """Handles of one kind that enter a graph together.

    Parameters
    ----------
    handles : sequence of SpooledBlock, SpooledIndex or SpooledPieces
    entry : SpoolEntry
        Of the spool, with the files: kept as long as these handles, here or in a task.
    """

    def __init__(self, handles: Sequence[Any], entry: Any) -> None:
        self._handles = list(handles)
        self.entry = entry

    def __iter__(self) -> Iterator[Any]:
        """Go through the handles."""
        return iter(self._handles)

    def __sizeof__(self) -> int:
        """Return the bytes of a message, by which it is large for a graph or not."""
        return len(pickle.dumps(self._handles))


def handles_of(blocks: Iterable[Any]) -> list[Any]:
    """Return the handles in a list of handles or `Handles`."""
    handles: list[Any] = []
    for block in blocks:
        handles += block if isinstance(block, Handles) else [block]
    return handles


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """Where tasks write blocks and pieces; knows the place, and owns nothing.

    A task that runs longer than its run finds no folder, and makes none.
    """

    url: str

    def write_block(self, held: InMemoryBlock) -> SpooledBlock:
        """Write a block and its sample, and return the handle."""
        url = child_url(self.url, f"block-{uuid4().hex}")
        _write(url, held.block)
        if held.sample is not None:
            _write(sample_url(url), held.sample)
        return SpooledBlock(url, held.low, held.high)

    def write_index(self, held: InMemoryIndex) -> SpooledIndex:
        """Write the index of a block, and return the handle."""
        url = child_url(self.url, f"index-{uuid4().hex}")
        _write(url, held.index.arrays())
        return SpooledIndex(url)

    def write_pieces(self, pieces: RowsByRegion, kind: str = "pieces") -> SpooledPieces:
        """Write the pieces of a partition, and return what reads them."""
        url = child_url(self.url, f"{kind}-{uuid4().hex}")
        _write(url, [pieces.starts, pieces.numbers, pieces.rows])
        return SpooledPieces(url)

    def write_rows(self, rows: NDArray[np.generic]) -> SpooledRows:
        """Write rows, and return what reads them."""
        url = child_url(self.url, f"rows-{uuid4().hex}")
        _write(url, [rows])
        return SpooledRows(url)

    def remove_pieces(self, kind: str = "pieces") -> None:
        """Remove the files of pieces; blocks have been made of them."""
        self._remove(f"{kind}-")

    def remove_rows(self) -> None:
        """Remove the files of rows that came; they have been measured."""
        self._remove("rows-")

    def _remove(self, prefix: str) -> None:
        folder = Folder(self.url)
        for name in folder.names(prefix):
            folder.remove_file(name)


def sample_url(url: str) -> str:
    """Return the URL of the sample that belongs to a block."""
    return like(url, f"{url}-sample")


@retried
def _write(url: str, arrays: Sequence[NDArray[Any]]) -> None:
    or_else = " or name another spool (configuration key lpe-dask.spool, --spool)"
    with (
        disk_full_context(url.rsplit("/", 1)[0], or_else),
        open_url(url, "wb") as file,
    ):
        ArrayFile.write(file, arrays)


@retried
def _read(url: str) -> list[NDArray[Any]]:
    try:
        with open_url(url, "rb") as file:
            return ArrayFile(file).arrays()
    except FileNotFoundError as error:
        raise RuntimeError(
            f"{url}, of a block of nominal rows, does not exist: it was removed, or this "
            f"worker does not see its storage. Fit again with a folder or URL that all "
            f"workers share (configuration key lpe-dask.spool, --spool), or save a model "
            f"where it was fitted (model.save) and load it here (lpe_dask.load)."
        ) from error


def new_entry() -> SpoolEntry:
    """Return an entry in a spool for blocks, which the active workers see.

    Raises
    ------
    OSError
        If nothing can be written there, or a worker does not see it.
    """
    try:
        return shared_folder("blocks")
    except OSError as error:
        raise OSError(
            f"the nominal rows do not fit into the memory of each worker, and {error}, or "
            f"give each worker more memory."
        ) from error

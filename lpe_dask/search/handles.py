"""Handles of prepared blocks, and of the pieces they are made of.

    block --in memory--> HeldBlock ----+
          --in a file--> SpooledBlock -+--> low, high, n_rows, load(), load_sample()

A join asks a handle for its box first, and loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

import fsspec
import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import Block, block_of
from lpe_dask.storage import read_arrays, retried, write_arrays


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block in memory, with a sample of its rows as another one.

    Attributes
    ----------
    block : Block
    sample : Block, optional
        Where searches will want it.
    """

    block: Block
    sample: Block | None

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        of_sample = 0 if self.sample is None else self.sample.__sizeof__()
        return self.block.__sizeof__() + of_sample

    @property
    def low(self) -> NDArray[np.float64]:
        """The lowest coordinates of its rows in the basis."""
        return self.block.low

    @property
    def high(self) -> NDArray[np.float64]:
        """The highest coordinates of its rows in the basis."""
        return self.block.high

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return self.block.n_rows

    def load(self) -> Block:
        """Return the block."""
        return self.block

    def load_sample(self) -> Block:
        """Return the block of sampled rows."""
        assert self.sample is not None
        return self.sample


@dataclass(frozen=True, slots=True)
class SpooledBlock:
    """A block on storage.

    Attributes
    ----------
    url : str
        Of its file; that of its sample has one word more.
    low, high : ndarray of shape (n_features,)
        Its box in the basis.
    n_rows : int
    """

    url: str
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n_rows: int

    def load(self) -> Block:
        """Return the block, read anew."""
        return _read_block(self.url)

    def load_sample(self) -> Block:
        """Return the block of sampled rows, read anew."""
        return _read_block(sample_url(self.url))


class Rows(NamedTuple):
    """Some rows of a region with their numbers, and how many the whole region has."""

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    n_in_region: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Rows of one partition, sorted by the region of the reference they belong to.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features)
        As prepared.
    numbers : ndarray of shape (n_rows,)
        Their numbers in the reference.
    starts : ndarray of shape (n_regions + 1,)
        Region ``p`` is the rows from ``starts[p]`` to ``starts[p + 1]``.
    """

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.rows.nbytes + self.numbers.nbytes + self.starts.nbytes

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each region."""
        return np.diff(self.starts)

    def read(self, region: int, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop`` of a region, or as many of them as it has."""
        first, last = self.starts[region : region + 2]
        which = slice(min(first + start, last), min(first + stop, last))
        return Rows(self.rows[which], self.numbers[which], int(last - first))


@dataclass(frozen=True, slots=True)
class SpooledPieces:
    """`Pieces` on storage, of which single regions can be read.

    Every task that gathers a region has the handles of all pieces, so they are small.

    Attributes
    ----------
    url : str
        Of the file: the starts of the regions, the numbers of all rows, then the rows.
    dtype : str
        Of the rows.
    n_rows, n_features, n_regions : int
    """

    url: str
    dtype: str
    n_rows: int
    n_features: int
    n_regions: int

    @retried
    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each region, read anew."""
        with fsspec.open(self.url, "rb") as file:
            return np.diff(_read_numbers(file, 0, self.n_regions + 1))

    @retried
    def read(self, region: int, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop`` of a region, or as many of them as it has."""
        row_bytes = np.dtype(self.dtype).itemsize * self.n_features
        with fsspec.open(self.url, "rb") as file:
            first, last = _read_numbers(file, region, 2).tolist()
            start, stop = min(first + start, last), min(first + stop, last)
            before = self.n_regions + 1
            numbers = _read_numbers(file, before + start, stop - start)
            file.seek(8 * (before + self.n_rows) + row_bytes * start)
            rows = np.frombuffer(file.read(row_bytes * (stop - start)), self.dtype)
        return Rows(rows.reshape(-1, self.n_features), numbers, last - first)


def _read_numbers(file: BinaryIO, start: int, n_numbers: int) -> NDArray[np.int64]:
    file.seek(8 * start)
    return np.frombuffer(file.read(8 * n_numbers), np.int64)


class Handles:
    """Handles of one kind that enter a graph together.

    Parameters
    ----------
    handles : sequence of SpooledBlock or SpooledPieces
    entry : Entry
        Of the spool, with the files: kept as long as these handles, here or in a task.
    """

    def __init__(self, handles: Sequence[Any], entry: Any) -> None:
        self._handles = list(handles)
        self.entry = entry

    def __iter__(self) -> Iterator[Any]:
        """Go through the handles."""
        return iter(self._handles)

    def __sizeof__(self) -> int:
        """Return about the bytes of a message, which decide whether it rides in a graph."""
        return 64 + sum(100 + len(h.url) + _box_bytes(h) for h in self._handles)


def _box_bytes(handle: Any) -> int:
    return handle.low.nbytes + handle.high.nbytes if isinstance(handle, SpooledBlock) else 0


def handles_of(blocks: Iterable[Any]) -> list[Any]:
    """Return the handles in a list of handles or `Handles`."""
    handles: list[Any] = []
    for block in blocks:
        handles += block if isinstance(block, Handles) else [block]
    return handles


# Files


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """Where tasks write blocks and pieces; knows the place, and owns nothing.

    A task that outlives its run finds no folder, and makes none.
    """

    url: str

    @retried
    def write_block(self, held: HeldBlock) -> SpooledBlock:
        """Write a block and its sample, and return the handle."""
        url = f"{self.url}/block-{uuid4().hex}"
        for target, block in ((url, held.block), (sample_url(url), held.sample)):
            if block is not None:
                with fsspec.open(target, "wb", auto_mkdir=False) as file:
                    write_arrays(file, block.arrays())
        return SpooledBlock(url, held.low, held.high, held.n_rows)

    @retried
    def write_pieces(self, pieces: Pieces) -> SpooledPieces:
        """Write the pieces of a partition, and return what reads them."""
        url = f"{self.url}/pieces-{uuid4().hex}"
        with fsspec.open(url, "wb", auto_mkdir=False) as file:
            for array in (pieces.starts.astype(np.int64), pieces.numbers, pieces.rows):
                file.write(np.ascontiguousarray(array).data)
        n_rows, n_features = pieces.rows.shape
        n_regions = len(pieces.starts) - 1
        return SpooledPieces(url, pieces.rows.dtype.str, n_rows, n_features, n_regions)

    def remove_pieces(self) -> None:
        """Remove the files of pieces; blocks have been made of them."""
        filesystem, root = fsspec.core.url_to_fs(self.url)
        for name in retried(filesystem.glob)(f"{root}/pieces-*"):
            with suppress(FileNotFoundError):
                retried(filesystem.rm_file)(name)


def sample_url(url: str) -> str:
    """Return the URL of the sample that belongs to a block."""
    return f"{url}-sample"


@retried
def _read_block(url: str) -> Block:
    try:
        with fsspec.open(url, "rb") as file:
            return block_of(*read_arrays(file))
    except FileNotFoundError as error:
        raise RuntimeError(
            f"{url}, a block of nominal rows, is not there: it was removed, or this worker "
            f"does not see its storage. Fit again with a folder or URL that all workers "
            f"share (configuration key lpe-dask.spool, --spool), or save a model where it "
            f"was fitted (model.save) and load it here (lpe_dask.load)."
        ) from error

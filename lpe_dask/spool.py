r"""Keep prepared blocks where tasks run: in memory, or on storage that all workers see.

    block --in memory--> HeldBlock ------------+
          --written once--> SpooledBlock ------+--> low, high, n_rows, load(), load_sample()

Both are handles of a block: a join asks for the box first, and loads only what it needs. A
spool is a folder of its own, which is removed when the model that made it and the lazy
results that read it are gone. Results that were persisted on a cluster hold no graph any
more, and do not keep it.
"""

from __future__ import annotations

import json
import math
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, Self
from uuid import uuid4

import dask
import fsspec
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels.blocks import Block, block_of
from lpe_dask.literals import enter
from lpe_dask.resources import active_client

#: Bytes of the number that says how long the header of a block's file is.
HEADER_BYTES = 8


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
        """The lowest coordinates of its rows in the frame."""
        return self.block.low

    @property
    def high(self) -> NDArray[np.float64]:
        """The highest coordinates of its rows in the frame."""
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
        Its box in the frame.
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
        return _read_block(_sample_url(self.url))


class Rows(NamedTuple):
    """Some rows of a part with their numbers, and how many the whole part has."""

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    n_part: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Rows of one partition, sorted by the part of the reference they belong to.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features)
        As prepared.
    numbers : ndarray of shape (n_rows,)
        Their numbers in the reference.
    starts : ndarray of shape (n_parts + 1,)
        Part ``p`` is the rows from ``starts[p]`` to ``starts[p + 1]``.
    """

    rows: NDArray[np.floating]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.rows.nbytes + self.numbers.nbytes + self.starts.nbytes

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each part."""
        return np.diff(self.starts)

    def read(self, part: int, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop`` of a part, or as many of them as it has."""
        first, last = self.starts[part : part + 2]
        which = slice(min(first + start, last), min(first + stop, last))
        return Rows(self.rows[which], self.numbers[which], int(last - first))


@dataclass(frozen=True, slots=True)
class SpooledPieces:
    """`Pieces` on storage, of which single parts can be read.

    Every task that gathers a part has the handles of all pieces, so they are small.

    Attributes
    ----------
    url : str
        Of the file: the starts of the parts, the numbers of all rows, then the rows.
    dtype : str
        Of the rows.
    n_rows, n_features, n_parts : int
    """

    url: str
    dtype: str
    n_rows: int
    n_features: int
    n_parts: int

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each part, read anew."""
        with fsspec.open(self.url, "rb") as file:
            return np.diff(_read_numbers(file, 0, self.n_parts + 1))

    def read(self, part: int, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop`` of a part, or as many of them as it has."""
        row_bytes = np.dtype(self.dtype).itemsize * self.n_features
        with fsspec.open(self.url, "rb") as file:
            first, last = _read_numbers(file, part, 2).tolist()
            start, stop = min(first + start, last), min(first + stop, last)
            before = self.n_parts + 1
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
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = list(handles)

    def __iter__(self) -> Iterator[Any]:
        """Go through the handles."""
        return iter(self._handles)

    def __sizeof__(self) -> int:
        """Return about the bytes of a message, which decide whether it rides in a graph."""
        return 64 + sum(100 + len(h.url) + _box_bytes(h) for h in self._handles)


def _box_bytes(handle: Any) -> int:
    return handle.low.nbytes + handle.high.nbytes if isinstance(handle, SpooledBlock) else 0


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """Where tasks write blocks and pieces; knows the place, and owns nothing."""

    url: str

    def write_block(self, held: HeldBlock) -> SpooledBlock:
        """Write a block and its sample, and return the handle."""
        url = f"{self.url}/block-{uuid4().hex}"
        for target, block in ((url, held.block), (_sample_url(url), held.sample)):
            if block is not None:
                with fsspec.open(target, "wb") as file:
                    _write_arrays(file, block.arrays())
        return SpooledBlock(url, held.low, held.high, held.n_rows)

    def write_pieces(self, pieces: Pieces) -> SpooledPieces:
        """Write the pieces of a partition, and return what reads them."""
        url = f"{self.url}/pieces-{uuid4().hex}"
        with fsspec.open(url, "wb") as file:
            for array in (pieces.starts.astype(np.int64), pieces.numbers, pieces.rows):
                file.write(np.ascontiguousarray(array).data)
        n_rows, n_features = pieces.rows.shape
        n_parts = len(pieces.starts) - 1
        return SpooledPieces(url, pieces.rows.dtype.str, n_rows, n_features, n_parts)

    def remove_pieces(self) -> None:
        """Remove the files of pieces; blocks have been made of them."""
        filesystem, root = fsspec.core.url_to_fs(self.url)
        for name in filesystem.glob(f"{root}/pieces-*"):
            filesystem.rm_file(name)


def _sample_url(url: str) -> str:
    return f"{url}-sample"


def _read_block(url: str) -> Block:
    with fsspec.open(url, "rb") as file:
        return block_of(*_read_arrays(file))


# Not NumPy's own files: to read their headers it parses Python, which fails now and then in
# several threads at once (SystemError, "AST constructor recursion depth mismatch", with
# Python 3.11).


def _write_arrays(file: BinaryIO, arrays: Sequence[NDArray[Any]]) -> None:
    header = json.dumps([[array.dtype.str, array.shape] for array in arrays]).encode()
    file.write(len(header).to_bytes(HEADER_BYTES, "little"))
    file.write(header)
    file.writelines(np.ascontiguousarray(array).data for array in arrays)


def _read_arrays(file: BinaryIO) -> Iterator[NDArray[Any]]:
    n_bytes = int.from_bytes(file.read(HEADER_BYTES), "little")
    for name, shape in json.loads(file.read(n_bytes)):
        dtype = np.dtype(name)
        numbers = file.read(dtype.itemsize * math.prod(shape))
        yield np.frombuffer(numbers, dtype).reshape(shape)


class Spool:
    """A new folder for prepared blocks, removed with this object or at the end of Python.

    Parameters
    ----------
    place : str
        Folder or fsspec URL that this process and all workers see.

    Raises
    ------
    OSError
        If nothing can be written there, or a worker does not see it.
    """

    def __init__(self, place: str) -> None:
        filesystem, root = fsspec.core.url_to_fs(place)
        url = filesystem.unstrip_protocol(f"{root.rstrip('/')}/lpe-spool-{uuid4().hex}")
        self.folder = SpoolFolder(url)
        self._remover = weakref.finalize(self, _remove, url)
        try:
            filesystem.makedirs(f"{filesystem._strip_protocol(url)}")
            with fsspec.open(_mark(url), "wb") as file:
                file.write(b"")
            _check_seen_by_workers(url, place)
        except BaseException as error:
            self._remover()
            if isinstance(error, OSError):
                raise OSError(
                    f"the nominal rows do not fit into the memory of each worker, and the "
                    f"spool {place} cannot take them: {error}. Name a folder or URL that "
                    f"all workers can write to (configuration key lpe-dask.spool, "
                    f"--spool), or give each worker more memory."
                ) from error
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the folder behind: only this process removes it."""
        return SpoolFolder, (self.folder.url,)


def spool_place() -> str:
    """Return where spools are made: as configured, else in Dask's temporary directory."""
    configured = dask.config.get("lpe-dask.spool", None)
    temporary = dask.config.get("temporary-directory", None) or tempfile.gettempdir()
    return str(temporary if configured is None else configured)


def _mark(url: str) -> str:
    return f"{url}/spool"


def _check_seen_by_workers(url: str, place: str) -> None:
    client = active_client()
    if client is None:
        return
    blind = [worker for worker, is_seen in client.run(_is_seen, url).items() if not is_seen]
    if blind:
        raise OSError(f"the worker {blind[0]} does not see {place}")


def _is_seen(url: str) -> bool:
    filesystem, path = fsspec.core.url_to_fs(_mark(url))
    return bool(filesystem.exists(path))


def _remove(url: str) -> None:
    with suppress(OSError):  # it may be gone
        filesystem, root = fsspec.core.url_to_fs(url)
        filesystem.rm(root, recursive=True)


class HeldBlocks:
    """Handles of blocks, and what they need to live, while this object or its tasks live.

    With an active client, blocks in memory stay on its workers, which can make them again
    from their tasks; otherwise in this process. Spooled ones are handles in this process.

    Parameters
    ----------
    blocks : list of Delayed
        Of handles; computed at once.
    spool : Spool, optional
        Where the blocks are, if they are spooled.
    """

    def __init__(self, blocks: list[Delayed], spool: Spool | None = None) -> None:
        self._spool = spool
        self._on_cluster = active_client() is not None and spool is None
        if self._on_cluster:
            self._held: list[Any] = list(dask.persist(*blocks))
        else:
            self._held = list(dask.compute(*blocks))

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._held)

    @property
    def is_spooled(self) -> bool:
        """Whether the blocks are on storage."""
        return self._spool is not None

    def tasks(self) -> list[Delayed]:
        """Return tasks that give a handle each, or all `Handles`, for the active scheduler.

        Raises
        ------
        RuntimeError
            If the blocks were left on a cluster that is no longer active.
        """
        if self._spool is not None:
            return [_enter_with(self._spool, self._held)]
        if not self._on_cluster:
            return [enter(block, "lpe-block") for block in self._held]
        if active_client() is None:
            raise RuntimeError(
                "the nominal rows of this model are on the workers of the cluster that "
                "fitted it, and no client is active. Score while its client is, or fit "
                "again."
            )
        return self._held

    def __getstate__(self) -> dict[str, Any]:
        """Bring the blocks along: a copy of a model does not depend on the cluster."""
        if self._spool is not None:
            raise TypeError(
                "the nominal rows of this model are in a spool, which lives as long as the "
                "model and cannot be copied with it. Fit where they fit into memory, or "
                "fit again there."
            )
        held = list(dask.compute(*self.tasks())) if self._on_cluster else self._held
        return {"_on_cluster": False, "_held": held, "_spool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` gave."""
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Share the blocks, which nothing changes."""
        return self


def _enter_with(spool: Spool, handles: list[SpooledBlock]) -> Delayed:
    """Return the handles as one task, in a graph that keeps their spool alive."""
    entered = enter(Handles(handles), "lpe-blocks")
    keeper = f"{entered.key}-spool"
    return Delayed(entered.key, {**entered.dask, keeper: (_no_task, _Keeper(spool))})


class _Keeper:
    """Holds a spool in the graphs of this process; elsewhere it holds nothing."""

    def __init__(self, spool: Spool | None = None) -> None:
        self._spool = spool

    def __reduce__(self) -> tuple[Any, ...]:
        return _Keeper, ()

    def __dask_tokenize__(self) -> str:
        return "lpe-spool"


def _no_task(keeper: _Keeper) -> None:
    """Stand in the graph for what a spool needs: never run, as no task reads it."""


def handles_of(blocks: Iterable[Any]) -> list[Any]:
    """Return the handles in a list of handles or `Handles`."""
    handles: list[Any] = []
    for block in blocks:
        handles += block if isinstance(block, Handles) else [block]
    return handles

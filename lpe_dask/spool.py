r"""Keep prepared blocks where tasks run: in memory, or on storage that all workers see.

A spool is a folder of its own, which is removed when the model that made it and the lazy
results that read it are gone. Results that were persisted on a cluster hold no graph any
more, and do not keep it.
"""

from __future__ import annotations

import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

import dask
import fsspec
import numpy as np
from dask.delayed import Delayed

from lpe_dask.handles import (
    Handles,
    HeldBlock,
    Pieces,
    SpooledBlock,
    SpooledPieces,
    sample_url,
    write_arrays,
)
from lpe_dask.literals import enter
from lpe_dask.resources import active_client


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """Where tasks write blocks and pieces; knows the place, and owns nothing."""

    url: str

    def write_block(self, held: HeldBlock) -> SpooledBlock:
        """Write a block and its sample, and return the handle."""
        url = f"{self.url}/block-{uuid4().hex}"
        for target, block in ((url, held.block), (sample_url(url), held.sample)):
            if block is not None:
                with fsspec.open(target, "wb") as file:
                    write_arrays(file, block.arrays())
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


class HeldResults:
    """Handles of blocks, or a neighbor graph, while this object or its tasks live.

    With an active client, what is in memory stays on its workers, which can make it again
    from its tasks; otherwise in this process. Spooled blocks are handles in this process.

    Parameters
    ----------
    blocks : list of Delayed
        Of handles, or of the graph alone; computed at once.
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

"""Find out what a value is pickled for, in the middle of that; pickle it into files.

value --dump_without_options--> file, which has no keys of storages; these keys
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, BinaryIO, Literal

import cloudpickle
from fsspec import AbstractFileSystem

from lpe_dask.storage import Url
from lpe_dask.tasks.dask_internals import is_submitting, is_tokenizing
from lpe_dask.tasks.worker_pool import active_client


def pickling_purpose() -> Literal["hash", "graph"] | None:
    """Return what this thread pickles a value for; None for anything else.

    In neither case must it wait for results: a scheduler in this process names tasks, too,
    and the event loop of a client may wait for the thread that sends a graph.

    Returns
    -------
    purpose : {"hash", "graph"}, optional
        To name a task, or to be sent to a scheduler within a graph.
    """
    if is_tokenizing():
        return "hash"
    return "graph" if is_submitting(active_client()) else None


def dump_without_options(value: Any, file: BinaryIO) -> list[Any]:
    """Pickle a value without keys of storages, and return these, for `load_with_options`.

    They are the options of the URLs in the value, and filesystems of fsspec, once each.
    """
    pickler = _Pickler(file)
    pickler.dump(value)
    return pickler.credentials


def load_with_options(credentials: Sequence[Any], file: BinaryIO) -> Any:
    """Return the value of a file, which opens what it names as before."""
    return _Unpickler(file, credentials).load()


class _Pickler(cloudpickle.Pickler):
    """Replaces a URL by its text, and the place of its options; a filesystem by its place.

    Attributes
    ----------
    credentials : list
        The options and filesystems, by place.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.credentials: list[Any] = []

    def persistent_id(self, obj: Any) -> tuple[str | None, int] | None:
        """Return what stands for a URL or filesystem; None for all else."""
        if type(obj) is Url:
            return str(obj), self._place(obj.options)
        if isinstance(obj, AbstractFileSystem):
            return None, self._place(obj)
        return None

    def _place(self, credentials: Any) -> int:
        if credentials not in self.credentials:
            self.credentials.append(credentials)
        return self.credentials.index(credentials)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, credentials: Sequence[Any]) -> None:
        super().__init__(file)
        self._credentials = credentials

    def persistent_load(self, pid: tuple[str | None, int]) -> Any:
        """Return what was replaced."""
        text, place = pid
        credentials = self._credentials[place]
        return credentials if text is None else Url(text, credentials)

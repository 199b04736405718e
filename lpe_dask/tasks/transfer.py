r"""Bring what this process holds into a graph, so that the graph is whole wherever it goes.

The rule for lifetimes: **what a lazy result needs is in its graph or on storage.** No lazy
result and no fitted model depends on a future that somebody else may release, that cannot
be computed again, or that only one worker holds.

    value, up to LITERAL_BYTES  ->  is sent inside the graph
    value, larger               ->  LocalValue: the value, as long as the graph is here;
                                    SpooledValue: a file in the spool, once it is sent
    the same, where workers     ->  pieces of LITERAL_BYTES within the graph, as many as
    see no storage of this          `call_scope` allows
    process

A file is kept as long as this process or a scheduler has a task that names it (`spool`).
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self
from uuid import uuid4

import cloudpickle
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.sizeof import sizeof

from lpe_dask.forks import ForkSafeLock
from lpe_dask.storage import ArrayFile, StoredVector, open_url, retried, short_message
from lpe_dask.tasks.call_scope import CallScope, count
from lpe_dask.tasks.pickling import (
    dump_without_options,
    load_with_options,
    pickling_purpose,
)
from lpe_dask.tasks.shared_storage import is_shared
from lpe_dask.tasks.spool import SpoolEntry, spool_at, spool_location
from lpe_dask.tasks.spool_references import EntryReference, open_clients

logger = logging.getLogger(__name__)

#: Most bytes of a value that may be sent inside a graph.
LITERAL_BYTES = 2**20


class LocalValue:
    """A value of this process that graphs name, large or small; nothing changes it.

    It is written to the spool once, when the first graph that names it is sent to a
    scheduler. Deep copies of a model share it; pickled ones have their own, and of a vector
    in a spool the numbers.

    Parameters
    ----------
    value : object
    name : str
        First part of the key; the dashboard groups tasks by it.
    """

    def __init__(self, value: Any, name: str) -> None:
        self.value = value
        self.name = name
        self.key = f"{name}-{uuid4().hex}"
        self._lock = ForkSafeLock()
        self._file: tuple[SpoolEntry, list[Any] | None] | None = None

    @classmethod
    def of(cls, value: Any, name: str) -> LocalValue:
        """Return a value as graphs name it; a `LocalValue` as it is."""
        return value if isinstance(value, LocalValue) else cls(value, name)

    @property
    def n_bytes(self) -> int:
        """About the size of the value."""
        return int(sizeof(self.value))

    @property
    def is_large(self) -> bool:
        """Whether it is too large to be sent inside a graph."""
        return self.n_bytes > LITERAL_BYTES

    def __reduce__(self) -> tuple[Any, ...]:
        value = self.value
        is_spooled = isinstance(getattr(value, "entry", None), SpoolEntry)
        # Of what is pickled for a hash, nothing is kept.
        if is_spooled and isinstance(value, StoredVector) and pickling_purpose() != "hash":
            value = np.asarray(value)
        return LocalValue, (value, self.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @staticmethod
    def tasks(values: Sequence[LocalValue]) -> list[Delayed]:
        """Return a task for each of some values, as `to_task` does.

        Raises
        ------
        ValueError
            If they are together too large for workers that share no storage; see
            `call_scope`.
        """
        count_large({held.key: held.n_bytes for held in values if held.is_large})
        return [held._task() for held in values]

    @staticmethod
    def check_sizes(sizes: Iterable[int]) -> None:
        """Raise ValueError if the graph of a lazy result cannot have values of such sizes.

        For values that are yet to be computed; ``sizes`` has the bytes of each.
        """
        large = {str(i): n for i, n in enumerate(sizes) if n > LITERAL_BYTES}
        if large and not is_shared():
            CallScope(sizes=large).check()

    def _task(self) -> Delayed:
        if not self.is_large:
            return Delayed(self.key, {self.key: self.value})
        if is_shared():
            return Delayed(self.key, {self.key: (LocalValueTask(self),)})
        content, key = cloudpickle.dumps(self.value), f"{self.key}-whole"
        starts = range(0, len(content), LITERAL_BYTES)
        pieces = {
            f"{self.key}-{i}": content[start : start + LITERAL_BYTES]
            for i, start in enumerate(starts)
        }
        return Delayed(key, {**pieces, key: (_load_pieces, list(pieces))})

    def slices(self, edges: Sequence[int]) -> tuple[list[Any], list[Delayed]]:
        """Return tasks for consecutive rows of an array each, and what they depend on.

        Where it is in a spool, a task reads no more than its rows.

        Parameters
        ----------
        edges : sequence of int
            Where parts begin and end.
        """
        parts = list(pairwise(edges))
        if self._is_for_spool():
            count_large({self.key: self.n_bytes})
            return [(LocalValueTask(self).part, start, stop) for start, stop in parts], []
        (whole,) = self.tasks([self])
        return [(_part, whole.key, start, stop) for start, stop in parts], [whole]

    def argument(self) -> LocalValueTask | Delayed:
        """Return an argument for tasks: the array, or in a spool what reads parts of it."""
        return LocalValueTask(self) if self._is_for_spool() else self.tasks([self])[0]

    def _is_for_spool(self) -> bool:
        return self.is_large and is_shared()

    def written(self) -> tuple[SpoolEntry, list[Any] | None]:
        """Return the file of the value, and what it lacks; None if it holds an array."""
        with self._lock:
            if self._file is None or self._file[0].spool.is_lost:
                entry = spool_at(spool_location()).entry("value")
                self._file = entry, self._write(entry.url)
            return self._file

    @retried
    def _write(self, url: str) -> list[Any] | None:
        with open_url(url, "wb") as file:
            if not isinstance(self.value, np.ndarray):
                return dump_without_options(self.value, file)
            ArrayFile.write(file, [self.value])
            return None


class LocalValueTask:
    """Gives a `LocalValue` as a task, and leaves this process as the name of its file.

    Parameters
    ----------
    held : LocalValue
    is_one_of_many : bool, default=False
        Whether it goes to storage although it is small, because there are more like it.
    """

    def __init__(self, held: LocalValue, *, is_one_of_many: bool = False) -> None:
        self._held = held
        self._is_one_of_many = is_one_of_many

    def __call__(self) -> Any:
        """Return the value."""
        return self._held.value

    def part(self, start: int, stop: int) -> Any:
        """Return rows ``start`` to ``stop`` of an array."""
        return self._held.value[start:stop]

    def __dask_tokenize__(self) -> str:
        return self._held.key  # frames hash their graphs, which takes long for gigabytes

    def __reduce__(self) -> tuple[Any, ...]:
        held = self._held
        is_small = not self._is_one_of_many and not held.is_large
        if is_small or not open_clients():
            return _unpickle, (held.value, held.key)
        try:
            entry, credentials = held.written()
        except OSError as error:  # of which clients show no more than the text
            raise RuntimeError(
                f"{held.key} cannot be written to the spool {spool_location()}: "
                f"{short_message(error)} Name another folder or URL that all workers share "
                f"(configuration key lpe-dask.spool, --spool)."
            ) from error
        also = getattr(held.value, "entry", None)
        return SpooledValue, (entry, held.key, credentials, also)


def _unpickle(value: Any, key: str) -> LocalValueTask:
    """Return the task of a value that left its process as it is."""
    held = LocalValue(value, "")
    held.key = key
    return LocalValueTask(held)


class SpooledValue:
    """A `LocalValueTask` in another process: reads the file when it runs.

    Parameters
    ----------
    name : EntryReference
        Of the file.
    key : str
        Of the `LocalValue`.
    credentials : list, optional
        As `dump_without_options` returns it; None: the file holds an array, of which parts
        can be read.
    also : EntryReference, optional
        What the value names itself.
    """

    def __init__(
        self,
        name: EntryReference,
        key: str,
        credentials: list[Any] | None,
        also: EntryReference | None = None,
    ) -> None:
        self._name = name
        self._key = key
        self._credentials = credentials
        self._also = also

    def __call__(self) -> Any:
        """Return the value, read again."""
        if self._credentials is None:
            return self.part(0, None)
        return self._read(partial(load_with_options, self._credentials))

    def part(self, start: int, stop: int | None) -> Any:
        """Return rows ``start`` to ``stop`` of an array, and read no others."""
        if self._credentials is not None:  # a vector in files of its own
            return self()[start:stop]
        return self._read(lambda file: ArrayFile(file).part(0, start, stop))

    @retried
    def _read(self, read: Callable[[Any], Any]) -> Any:
        try:
            with open_url(self._name.url, "rb") as file:
                return read(file)
        except FileNotFoundError as error:
            raise RuntimeError(
                f"{self._name.url}, which contains data of this computation, does not "
                f"exist: the process that made it has ended, or this worker does not see "
                f"its storage. Name a folder or URL that all workers share (configuration "
                f"key lpe-dask.spool, --spool), and compute again while that process is "
                f"still running."
            ) from error

    def __dask_tokenize__(self) -> str:
        return self._key


def to_task(value: Any, name: str) -> Delayed:
    """Return ``value`` as one task, to be named as a dependency by all that read it.

    Parameters
    ----------
    value : object
        An array or a small object; not changed afterwards. A `LocalValue` has the same key
        each time, and is sent once. What is a task already, such as a `Delayed`, is
        returned as it is.
    name : str
        First part of the key; the dashboard groups tasks by it.
    """
    if is_dask_collection(value):
        return value
    return LocalValue.tasks([LocalValue.of(value, name)])[0]


def count_large(sizes: dict[str, int]) -> None:
    """Count values that are too large to be sent inside a graph; see `call_scope.count`."""
    if sizes:
        count(sizes, is_shared=is_shared())


# The functions below run inside tasks.


def identity(value: Any) -> Any:
    """Return the argument."""
    return value


def _part(values: Any, start: int, stop: int) -> Any:
    return values[start:stop]


def _load_pieces(pieces: list[bytes]) -> Any:
    return pickle.loads(b"".join(pieces))

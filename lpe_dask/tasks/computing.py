"""Compute collections with whatever computes here, and keep no result longer than needed.

tasks --as each is done--> result here --> the workers forget it
                           +--> listeners: how far it is
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import dask
from dask.base import is_dask_collection
from dask.callbacks import Callback
from dask.delayed import Delayed

from lpe_dask.tasks import dask_internals


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows results stand for, to show how far a compute is.

    Attributes
    ----------
    verb : str
        What was done with the rows: "scored".
    of_result : callable
        From a result to its number of rows.
    total : int, optional
        Rows of all results; None if that is not known.
    """

    verb: str
    of_result: Callable[[Any], int]
    total: int | None


@dataclass(slots=True)
class Computation:
    """How far a compute is.

    Attributes
    ----------
    n_results : int
    rows : RowCount, optional
    n_done, rows_done : int
        Results that are there, and their rows.
    is_open : bool
        Whether it has not ended yet, with its results or with an error.
    """

    n_results: int
    rows: RowCount | None = None
    n_done: int = 0
    rows_done: int = 0
    is_open: bool = True

    def add(self, result: Any) -> None:
        """Count one more result."""
        self.n_done += 1
        if self.rows is not None:
            self.rows_done += self.rows.of_result(result)

    @staticmethod
    @contextmanager
    def observed(*listeners: Listener) -> Iterator[None]:
        """Tell listeners what `compute` does in this thread while the context is open."""
        token = _listeners.set((*_listeners.get(), *listeners))
        try:
            yield
        finally:
            _listeners.reset(token)


#: Is called when a compute begins, when a result is there, and at the end. In this process
#: also whenever a task is done.
Listener = Callable[[Computation], None]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("lpe_dask_listeners", default=())


def compute(
    *collections: Any,
    rows: RowCount | None = None,
    take: Callable[[Any], Any] = lambda result: result,
) -> tuple[Any, ...]:
    """Compute Dask's collections, as `dask.compute` does.

    On a cluster each result of a Delayed is taken as soon as it is there: if its worker is
    lost later, its task is not run again, so that a run makes progress also on workers that
    live shorter than the run. (`dask.compute` leaves all results on the workers until the
    last one is there.)

    Within a task of a cluster they are computed in its thread: to wait there for other
    tasks of the same cluster takes the place of one of them, for each task that waits. A
    task that has left its place to others (``distributed.worker_client``) uses the cluster.

    Parameters
    ----------
    *collections : Dask collections
        If none of them is one, they are results already.
    rows : RowCount, optional
        What listeners get about rows, if all collections are Delayed.
    take : callable
        Makes of each result what is returned in its place; of a Delayed on a cluster as
        soon as it is there, so that not all of them are held.
    """
    if not any(map(is_dask_collection, collections)):
        return tuple(map(take, collections))
    client = dask_internals.computing_client()
    if client is not None and dask_internals.is_in_task():
        return tuple(map(take, dask.compute(*collections, scheduler=dask.get)))
    are_tasks = all(isinstance(collection, Delayed) for collection in collections)
    keys = {task.key for task in collections} if are_tasks else set()
    computation = Computation(len(keys) if are_tasks else len(collections), rows)
    with announced(computation):
        if client is None:
            is_heard = bool(_listeners.get())
            with _TaskCallback(computation, keys) if is_heard else nullcontext():
                return tuple(map(take, dask.compute(*collections)))
        # Those of arrays and frames are put together here from many tasks.
        if not are_tasks:
            return tuple(map(take, dask.compute(*collections)))
        return _gather(client, collections, computation, take)


def _gather(
    client: Any,
    tasks: Sequence[Delayed],
    computation: Computation,
    take: Callable[[Any], Any],
) -> tuple[Any, ...]:
    """Return the results of tasks, which a cluster computes and forgets one by one."""
    if not tasks:
        return ()
    results: list[Any] = [None] * len(tasks)
    places = defaultdict(list)
    for place, task in enumerate(tasks):
        places[task.key].append(place)
    awaited = {future.key: future for future in client.compute(list(tasks))}
    try:
        # Each is fetched by itself: one whose worker hangs holds up no other.
        done = sys.modules["distributed"].as_completed(
            awaited.values(), loop=client.loop, with_results=True
        )
        for future, result in done:
            if future.status == "cancelled":  # then it is the error
                if client.status != "running":
                    raise RuntimeError(
                        "the connection to the scheduler is lost"
                    ) from result
                raise result
            taken = take(result)
            for place in places[future.key]:
                results[place] = taken
            awaited.pop(future.key).release()
            computation.add(result)
            _notify(computation)
    finally:
        for future in awaited.values():
            future.release()
    return tuple(results)


# Listeners


@contextmanager
def announced(computation: Computation) -> Iterator[None]:
    """Tell the listeners that a compute begins, and that it has ended."""
    _notify(computation)
    try:
        yield
    finally:
        computation.is_open = False
        _notify(computation)


def _notify(computation: Computation) -> None:
    for listener in _listeners.get():
        listener(computation)


class _TaskCallback(Callback):
    """Counts what a scheduler of this process does."""

    def __init__(self, computation: Computation, keys: set[Hashable]) -> None:
        super().__init__()
        self._computation = computation
        self._keys = keys

    def _posttask(
        self, key: Hashable, result: Any, graph: Mapping[Any, Any], state: Any, worker: Any
    ) -> None:
        if key in self._keys:
            self._computation.add(result)
        _notify(self._computation)


def reset_after_fork() -> None:
    """Let a fork compute by itself: with none of the threads and clients of its parent."""
    dask_internals.reset_threads()
    dask_internals.detach_clients()

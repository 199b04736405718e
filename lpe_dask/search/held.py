r"""Prepared blocks, or a neighbor graph: how they are made, and where they are kept.

    tasks  --keep-->  on a cluster    futures of the same tasks, under the same keys
                      in this process their values
                      in a spool      their handles

Graphs that search blocks hold the tasks that make them, all the way from the rows. Where a
scheduler has the results already it takes those, by their keys; where it has not, because
a worker was lost, the cluster was restarted, or it is another one, it makes them again.
What is kept only saves time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Self
from uuid import uuid4

from dask.delayed import Delayed

from lpe_dask.search.handles import Handles, SpoolFolder
from lpe_dask.tasks import (
    Entry,
    Held,
    active_client,
    carries,
    check_reachable,
    compute,
    enter,
    is_eager,
    is_large,
    is_naming,
    is_sending,
    is_shared,
    needs_sent,
    persist_cancellably,
    settle_tasks,
    spool_at,
    spool_place,
    with_kept,
)

#: From an optional folder to put results into, to the tasks that make them.
Make = Callable[[SpoolFolder | None], list[Delayed]]


def new_entry() -> Entry:
    """Return an entry in a spool for blocks, which the workers at hand see.

    Raises
    ------
    OSError
        If nothing can be written there, or a worker does not see it.
    """
    place = spool_place()
    try:
        spool = spool_at(place)
        if not is_shared():
            raise OSError("not all workers see it")
    except (OSError, ValueError) as error:
        raise OSError(
            f"the nominal rows do not fit into the memory of each worker, and the spool "
            f"{place} cannot take them: {error}. Name a folder or URL that all workers can "
            f"write to (configuration key lpe-dask.spool, --spool), or give each worker "
            f"more memory."
        ) from error
    return spool.folder("blocks")


class Results:
    """Blocks, or a neighbor graph, and where they are kept.

    Parameters
    ----------
    make : callable
        Gives the tasks that make them, where ``is_stored`` also into a folder.
    n_results : int
        Blocks, or 1 for a graph.
    is_stored : bool, default=False
        Whether they come from a saved model. Then a lazy scoring reads its files itself,
        and a pickled model does not contain the blocks.
    n_bytes : int, default=0
        Bytes of this process that the tasks are made of.
    """

    def __init__(
        self, make: Make, n_results: int, *, is_stored: bool = False, n_bytes: int = 0
    ) -> None:
        self._make = make
        self._n_results = n_results
        self._is_stored = is_stored
        self._n_bytes = n_bytes
        self._tasks: list[Delayed] | None = None
        self._futures: list[Any] = []
        self._client: Any = None  # a weak reference to whose futures these are
        self._values: list[Held] = []
        self._spooled: Handles | None = None
        self._token = uuid4().hex
        self._lock = threading.RLock()  # several threads may use one model

    @classmethod
    def of(
        cls,
        tasks: list[Delayed],
        entry: Entry | None = None,
        make: Make | None = None,
        n_bytes: int = 0,
    ) -> Self:
        """Return what tasks make, kept where the active scheduler finds it; computes.

        Parameters
        ----------
        tasks : list of Delayed
        entry : Entry, optional
            Of the spool that they put it into.
        make : callable, optional
            Gives such tasks anew; None: these are good for ever.
        n_bytes : int, default=0
            As for `Results`.
        """
        results = cls(make or (lambda folder: tasks), len(tasks), n_bytes=n_bytes)
        results._tasks = settle_tasks(tasks)
        if entry is None:
            results.keep()
        else:
            results._spooled = Handles(compute(*tasks), entry)
        if not results._futures:  # nothing is made of the rows again
            results._make, results._tasks = _nothing, None
        return results

    def __len__(self) -> int:
        """Return the number of blocks."""
        return self._n_results

    @property
    def is_spooled(self) -> bool | None:
        """Whether they are in a spool; None where that is not settled."""
        if self._spooled is not None:
            return True
        return None if self._is_stored and not self._is_kept() else False

    def keep(self, *, in_spool: bool = False) -> None:
        """Have them ready where the active scheduler finds them; computes what is not."""
        with self._lock:
            if not self._is_kept():
                self._keep(in_spool)

    def _keep(self, in_spool: bool) -> None:
        client = active_client()
        if in_spool:
            entry = new_entry()
            tasks = self._make(SpoolFolder(entry.url))
            self._spooled = Handles(compute(*tasks), entry)
        elif client is None:
            values = compute(*self._recipe())
            self._values = [Held(value, "lpe-block") for value in values]
        else:
            self._futures = persist_cancellably(self._recipe())
            self._client = weakref.ref(client)

    def tasks(self) -> list[Delayed]:
        """Return tasks that give a handle each, or all `Handles`, or the graph.

        Raises
        ------
        RuntimeError
            If what they are made of was in the memory of a cluster that is gone.
        """
        if self._spooled is not None:
            return [enter(self._spooled, "lpe-blocks")]
        if self._values:
            return [enter(value, "lpe-block") for value in self._values]
        with self._lock:
            return self._recipe()

    def _recipe(self) -> list[Delayed]:
        """Return the tasks that make them, all the way from the rows."""
        if not is_eager() and not is_shared() and self._need_client_data():
            if carries(self._n_bytes) or not self._is_kept():
                return self._make(None)
            assert self._tasks is not None
            return with_kept(self._tasks, _futures_of(self._futures))
        if self._tasks is None:
            self._tasks = settle_tasks(self._make(None))
        check_reachable(self._tasks)
        return self._tasks

    def _need_client_data(self) -> bool:
        """Return whether tasks need what was sent from this process, and is not kept."""
        has_sent = self._tasks is not None and needs_sent(self._tasks)
        return is_large(self._n_bytes) or has_sent

    def _is_kept(self) -> bool:
        if self._spooled is not None or self._values:
            return True
        holder = None if self._client is None else self._client()
        is_here = holder is not None and holder is active_client()
        if not (is_here and all(map(_is_alive, _futures_of(self._futures)))):
            if self._futures and not is_shared() and self._need_client_data():
                self._tasks = None  # what they were made of was sent, and let go
            self._futures, self._client = [], None
        return bool(self._futures)

    def __reduce__(self) -> tuple[Any, ...]:
        """Bring the results along: a copy of a model does not depend on a cluster."""
        if self._spooled is not None and not self._is_stored:
            raise TypeError(
                "the nominal rows of this model are in a spool, which lives as long as the "
                "model and cannot be copied with it. Save the model and load it there, or "
                "fit where they fit into memory."
            )
        kept: list[Any] = []
        if not self._is_stored:
            kept = [held.value for held in self._values]
            if not kept and is_naming():
                kept = [self._token]  # of what is pickled now, only a hash is kept
            if not kept and is_sending():
                raise TypeError(
                    "a model that was fitted on a cluster keeps its nominal rows there, "
                    "and cannot go along with a task (client.submit, client.map, "
                    "delayed). Send a copy that has them, "
                    "pickle.loads(pickle.dumps(model)), or save the model (model.save) "
                    "and load it in the task (lpe_dask.load)."
                )
            kept = kept or list(compute(*self._recipe()))
        make = self._make if self._is_stored else _nothing
        return _restored, (make, self._n_results, self._is_stored, kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Share them; nothing changes them."""
        return self

    def __dask_tokenize__(self) -> str:
        return self._token


def _restored(make: Make, n_results: int, is_stored: bool, values: list[Any]) -> Results:
    results = Results(make, n_results, is_stored=is_stored)
    results._values = [Held(value, "lpe-block") for value in values]
    return results


def _nothing(folder: SpoolFolder | None) -> list[Delayed]:
    raise AssertionError("values and spooled blocks are never made again")


def _futures_of(persisted: list[Delayed]) -> list[Any]:
    return [future for task in persisted for future in task.dask.values()]


def _is_alive(future: Any) -> bool:
    """Return whether the future of a task that was persisted may still give a result."""
    return future.status in ("pending", "finished")

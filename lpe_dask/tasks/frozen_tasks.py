"""Tasks that a model needs as long as it exists: built once, and kept on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from dask.delayed import Delayed

from lpe_dask import dask_array as da
from lpe_dask.tasks.call_scope import counted, persist
from lpe_dask.tasks.dask_internals import task_specs, without_aliases
from lpe_dask.tasks.frozen_graph import graph_of, pinned_futures
from lpe_dask.tasks.shared_storage import is_shared
from lpe_dask.tasks.transfer import count_large
from lpe_dask.tasks.worker_pool import active_client


class FrozenTasks:
    """Tasks under keys that stay, in a graph that is fused already.

    They are computed by themselves first, which fuses nothing, and then as parts of arrays,
    whose optimization fuses what it can. Large values in them count in each graph that they
    enter; they are built anew for workers that share storage where others did not, or the
    other way round.

    Parameters
    ----------
    make : callable
        Gives the tasks, all the way from what they are made of; they share one graph.
    """

    def __init__(self, make: Callable[[], list[Delayed]]) -> None:
        self._make = make
        self._tasks: list[Delayed] | None = None
        self._entered: dict[str, int] = {}  # large values in the tasks
        self._was_shared = True  # whether these are in a spool
        self._persisted: list[Delayed] = []

    def tasks(self) -> list[Delayed]:
        """Return them, for a graph.

        Raises
        ------
        RuntimeError
            If they need rows that a client persisted which is not active.
        ValueError
            If they have more values of this process than can be sent.
        """
        client = active_client()
        if self._entered and client is not None and is_shared() != self._was_shared:
            self._tasks, self._persisted = None, []
        if self._tasks is None:
            with counted() as entered:
                self._tasks = _fused(self._make())
            self._entered, self._was_shared = entered, not entered or is_shared()
        count_large(self._entered)
        _check_available(self._tasks)
        return self._tasks

    def persist(self, others: list[Delayed] | None = None) -> list[Delayed]:
        """Have the results stay on the cluster of the active client.

        Others are computed at the same time, and are returned: they stay as long as what
        is returned exists.
        """
        tasks = self.tasks()
        persisted = persist([*tasks, *(others or [])])
        self._persisted = persisted[: len(tasks)]
        return persisted[len(tasks) :]

    def are_persisted(self) -> bool:
        """Return whether the active client may still get the results that were to stay."""
        client = active_client()
        futures = [future for task in self._persisted for future in task.dask.values()]
        if not all(_is_reachable(client, future) for future in futures):
            self._persisted = []
        return bool(self._persisted)


def _fused(tasks: list[Delayed]) -> list[Delayed]:
    """Return the same tasks, under the same keys, in a graph that is fused."""
    keys = [task.key for task in tasks]
    graph = tasks[0].dask
    fused = without_aliases(task_specs(da.optimize(graph, keys)))
    name = f"lpe-frozen-{uuid4().hex}"
    whole = graph_of(name, fused, pinned_futures(graph))
    return [Delayed(key, whole, layer=name) for key in keys]


def _check_available(tasks: list[Delayed]) -> None:
    client = active_client()
    for future in pinned_futures(tasks[0].dask):  # all of them share one graph
        if future.client is client and future.status not in ("cancelled", "lost"):
            continue
        raise RuntimeError(
            "the nominal rows of this model were persisted with a client that is not the "
            "active one, or their cluster lost them and the results computed from them. "
            "Score while that client is active, or fit again. To avoid this, call "
            "model.save(path) before and lpe_dask.load(path) after."
        )


def _is_reachable(client: Any, future: Any) -> bool:
    """Return whether a client may still get a result from the future of a task."""
    return future.client is client and future.status in ("pending", "finished")

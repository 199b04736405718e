r"""Settle the graph of the rows that a model is fitted on and needs as long as it exists.

    graph of the user --optimize--> tasks under names of our own     read at every stage,
                      --lighten---> large literals to storage        and for lost blocks
                      --keep------> futures of persisted rows stay alive

A graph that is optimized once stays as it is when others optimize what was built on it, so
that a scheduler never meets two tasks under one key.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pickle import PickleBuffer
from typing import Any
from uuid import uuid4

import cloudpickle
import dask
from dask.base import clone_key
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from lpe_dask import dask_array as da
from lpe_dask.tasks import transfer
from lpe_dask.tasks.dask_internals import (
    add_dependency,
    dependencies_of,
    execute_task,
    has_barrier,
    meta_of,
    rename_tasks,
    task_specs,
    without_aliases,
)
from lpe_dask.tasks.shared_storage import is_shared
from lpe_dask.tasks.transfer import LocalValue, LocalValueTask, identity
from lpe_dask.tasks.worker_pool import active_client

#: Start of the name of the layer that keeps futures alive.
_PIN_LAYER = "lpe-keep"

#: Bytes of a task's literals from which it goes to storage, where all have too many.
HEAVY_BYTES = 2**14


def freeze(rows: da.Array, name: str, *, is_foreign: bool = False) -> da.Array:
    """Return the same rows in a graph that no later optimization changes; lazy.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
        One chunk of features; chunks may be unknown.
    name : str
        First part of the keys.
    is_foreign : bool, default=False
        Whether the graph is that of the user, who may have put large literals into it.

    Raises
    ------
    RuntimeError
        If rows of the user were persisted on a cluster, and no client is active.
    """
    name = f"{name}-{uuid4().hex}"
    own = {(name, i, 0): (identity, (rows.name, i, 0)) for i in range(rows.numblocks[0])}
    graph = HighLevelGraph.from_collections(name, own, dependencies=[rows])
    futures = pinned_futures(rows.dask) or futures_in(rows.dask)
    if is_foreign and futures and active_client() is None:
        raise RuntimeError(
            "these rows were persisted on a cluster, and no client is active here. Make "
            "its client the active one (client.as_current(), no other scheduler "
            "configured); within a task, use `with distributed.worker_client():`."
        )
    meta = meta_of(rows)
    (optimized,) = dask.optimize(da.Array(graph, name, rows.chunks, meta=meta))
    tasks = without_aliases(task_specs(optimized.dask))
    if is_foreign and active_client() is not None and is_shared():
        tasks = _move_literals_to_spool(tasks)
    return da.Array(graph_of(name, tasks, futures), name, rows.chunks, meta=meta)


def reread_once(rows: da.Array, after: Delayed | None = None) -> da.Array:
    """Return the same rows, read by tasks that no other collection shares; lazy.

    What two steps have in common stays in memory from one to the other: all partitions,
    where the second has to wait. Rows of a shuffle of `distributed` are shared all the
    same: it cannot be done twice under one name, and knows its tasks by that.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
    after : Delayed, optional
        No row is read before this task is done.
    """
    frozen = freeze(rows, "lpe-read")
    tasks = dict(frozen.dask.layers[frozen.name])
    if has_barrier(tasks):
        return frozen
    outputs = {(frozen.name, i, 0) for i in range(rows.numblocks[0])}
    seed = uuid4().hex
    tasks = rename_tasks(
        tasks, {key: key if key in outputs else clone_key(key, seed) for key in tasks}
    )
    if after is not None:
        tasks = add_dependency(tasks, after.key)
    graph = HighLevelGraph.from_collections(
        frozen.name, tasks, dependencies=[] if after is None else [after]
    )
    whole = HighLevelGraph(
        {**frozen.dask.layers, **graph.layers},
        {**frozen.dask.dependencies, **graph.dependencies},
    )
    return da.Array(whole, frozen.name, rows.chunks, meta=meta_of(rows))


def graph_of(name: str, tasks: dict[Any, Any], futures: list[Any]) -> HighLevelGraph:
    """Return a graph of tasks that keeps futures alive."""
    layers = {name: tasks}
    if futures:
        # No task reads it, so it is never run, nor sent.
        layers[f"{_PIN_LAYER}-{name}"] = {
            f"{_PIN_LAYER}-{uuid4().hex}": _FuturePin(futures)
        }
    return HighLevelGraph(layers, {layer: set() for layer in layers})


def futures_in(graph: Mapping[Any, Any]) -> list[Any]:
    """Return the futures of `distributed` among the values of a graph."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return []
    return [task for task in dict(graph).values() if isinstance(task, distributed.Future)]


def pinned_futures(graph: Any) -> list[Any]:
    """Return the futures that a graph keeps alive."""
    layers = graph.layers if isinstance(graph, HighLevelGraph) else {}
    kept = [layer for name, layer in layers.items() if name.startswith(_PIN_LAYER)]
    return [
        future for layer in kept for keeper in layer.values() for future in keeper.futures
    ]


class _FuturePin:
    """Holds futures in the graphs of this process; elsewhere it holds nothing."""

    def __init__(self, futures: list[Any] | None = None) -> None:
        self.futures = futures or []

    def __reduce__(self) -> tuple[Any, ...]:
        return _FuturePin, ()

    def __dask_tokenize__(self) -> str:
        return _PIN_LAYER


def _move_literals_to_spool(tasks: dict[Any, Any]) -> dict[Any, Any]:
    """Return tasks without large literals, if these are too many for a graph.

    What heavy tasks without dependencies consist of goes to storage when they are sent.
    """
    sizes = {
        key: _bytes_of(task) for key, task in tasks.items() if not dependencies_of(task)
    }
    if sum(sizes.values()) <= transfer.LITERAL_BYTES:
        return tasks
    heavy = {
        key: (
            _run,
            LocalValueTask(LocalValue(tasks[key], "lpe-source"), is_one_of_many=True),
        )
        for key, n_bytes in sizes.items()
        if n_bytes > HEAVY_BYTES
    }
    return tasks | heavy


def _bytes_of(task: Any) -> int:
    """Return the bytes of a task in a message, without a copy of the arrays in it."""
    buffers: list[PickleBuffer] = []
    content = cloudpickle.dumps(task, protocol=5, buffer_callback=buffers.append)
    return len(content) + sum(buffer.raw().nbytes for buffer in buffers)


# The functions below run inside tasks.


def _run(held: Any) -> Any:
    """Run a task that was kept on storage."""
    return execute_task(held())

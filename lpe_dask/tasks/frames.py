"""Dask frames: functions of their partitions, and their partitions as tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from lpe_dask.tasks.dask_internals import (
    rename_aliases,
    simplified,
    without_identities,
)
from lpe_dask.tasks.transfer import identity
from lpe_dask.tasks.versions import VersionedFunction


def map_partitions(
    frame: Any,
    function: Callable[..., Any],
    *arguments: Any,
    meta: Any,
    enforce_metadata: bool = True,
) -> Any:
    """Return a function of the partitions of a dask frame, lazily, as a dask frame.

    Its tasks raise ImportError on workers with another version of this package.

    Parameters
    ----------
    frame : dask DataFrame or Series
    function : callable
        Of a partition and the arguments.
    arguments : objects
        Of a `Delayed`, the result is taken; it keeps its key, and so is computed once for
        all that need it. Of a collection that is cut like the frame, the same partition.
    meta, enforce_metadata
        As for `map_partitions` of Dask.
    """
    entered = _frame_arguments(arguments)
    return frame.map_partitions(
        VersionedFunction(function), *entered, meta=meta, enforce_metadata=enforce_metadata
    )


def _frame_arguments(values: Sequence[Any]) -> list[Any]:
    """Return tasks that give the same, to be arguments of an operation of Dask's frames.

    Frames give a `Delayed` another key; one that is kept under its own must not be their
    argument. Other collections and values are returned as they are.
    """
    name = f"for-{uuid4().hex}"
    tasks = [value for value in values if isinstance(value, Delayed)]
    graph: dict[Any, Any] = {}
    for whole in {id(task.dask): task.dask for task in tasks}.values():  # blocks share one
        graph |= whole
    graph |= {f"{task.key}-{name}": (identity, task.key) for task in tasks}
    return [
        Delayed(f"{value.key}-{name}", graph) if isinstance(value, Delayed) else value
        for value in values
    ]


def frame_tasks(frame: Any) -> tuple[list[Any], Delayed]:
    """Return the keys of the partitions of a dask frame, and the graph that has them.

    Only needed columns are read. A full optimization would also read several partitions as
    one where columns were left out, but results have the partitions of the user.

    Arguments of operations are named as they are: arrays would fuse them with the tasks
    that frames have for them, under the same keys, and a scheduler that has met both keeps
    them for ever.
    """
    read = simplified(frame)
    keys = list(read.__dask_keys__())
    source = f"lpe-frame-{uuid4().hex}"
    tasks = without_identities(rename_aliases(read.__dask_graph__()), identity)
    graph = HighLevelGraph.from_collections(source, tasks)
    return keys, Delayed(keys[0], graph, layer=source)

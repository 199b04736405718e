"""Tasks of one layer of a graph: as collections of their own, and merged in a tree.

Their functions are `VersionedFunction`: workers with another version of the package refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any
from uuid import uuid4

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from lpe_dask import dask_array as da
from lpe_dask.tasks.versions import VersionedFunction


def _versioned(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Return a task of a graph, which another version of this package refuses to run."""
    return VersionedFunction(function), *arguments


def new_tasks(
    name: str, tasks: Iterable[Any], dependencies: Sequence[Any] = ()
) -> list[Delayed]:
    """Return tasks as collections of their own, in one graph.

    Parameters
    ----------
    name : str
        What the tasks do; their keys begin with ``lpe-`` and this.
    tasks : iterable
        A function and its arguments, each.
    dependencies : sequence of collections
        Whose keys the tasks name.
    """
    layer = f"lpe-{name}-{uuid4().hex}"
    keyed = {f"{layer}-{i}": _versioned(*task) for i, task in enumerate(tasks)}
    graph = HighLevelGraph.from_collections(layer, keyed, dependencies=dependencies)
    return [Delayed(key, graph, layer=layer) for key in keyed]


def new_array(
    name: str,
    blocks: Iterable[Any],
    dependencies: Sequence[Any],
    chunks: tuple[tuple[float, ...], ...],
    meta: Any,
) -> da.Array:
    """Return an array each of whose blocks is made by a task.

    Parameters
    ----------
    name, blocks, dependencies
        As for `new_tasks`.
    chunks : tuple of tuple of int
        Of the array, NaN for unknown sizes; the blocks are in row order.
    meta : ndarray
        An empty array of its type.
    """
    layer = f"lpe-{name}-{uuid4().hex}"
    places = product(*map(range, map(len, chunks)))
    numbered = zip(places, blocks, strict=True)
    keyed = {(layer, *place): _versioned(*task) for place, task in numbered}
    graph = HighLevelGraph.from_collections(layer, keyed, dependencies=dependencies)
    return da.Array(graph, layer, chunks, meta=meta)


def merge_tasks(
    name: str, keys: list[Any], merge: Callable[[list[Any]], Any], n_merged: int
) -> tuple[dict[Any, Any], list[Any]]:
    """Return a tree of tasks that merges results, up to ``n_merged`` of them that are left.

    Parameters
    ----------
    name : str
        First part of the keys of the tree.
    keys : list
        Of the tasks whose results are to be merged.
    merge : callable
        Makes one result of a list of them.
    n_merged : int
        Results that one task merges, at most.

    Returns
    -------
    tasks : dict
        Of the tree; empty where there are no more than ``n_merged`` results.
    keys : list
        Of what is left, for one last task.
    """
    tasks: dict[Any, Any] = {}
    while len(keys) > n_merged:
        groups = [keys[i : i + n_merged] for i in range(0, len(keys), n_merged)]
        keys = [f"{name}-{len(tasks) + i}" for i in range(len(groups))]
        pairs = zip(keys, groups, strict=True)
        tasks |= {key: _versioned(merge, group) for key, group in pairs}
    return tasks, keys

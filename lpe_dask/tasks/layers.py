"""Tasks of one layer of a graph: as collections of their own, and merged in a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph


def delayed_tasks(
    name: str, tasks: dict[Any, Any], dependencies: list[Any]
) -> list[Delayed]:
    """Return each task of a new layer as a `Delayed`, all of them in one graph.

    Parameters
    ----------
    name : str
        Of the layer.
    tasks : dict
        From key to task.
    dependencies : list of collections
        Whose keys the tasks name.
    """
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=dependencies)
    return [Delayed(key, graph, layer=name) for key in tasks]


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
        tasks |= {key: (merge, group) for key, group in zip(keys, groups, strict=True)}
    return tasks, keys

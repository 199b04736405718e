"""Give tasks of one layer of a graph as collections of their own."""

from __future__ import annotations

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

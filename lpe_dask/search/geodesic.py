r"""Build the Dask graph that links nominal rows to their nearest, and walks along that.

    nearest rows   e0   e1   e2     of each block, by number
                     \   |   /
    graph               g           one task; all walks depend on it
                     /   |   \
    statistic      s0   s1   s2     of nominal rows, each without itself

New rows enter the graph through their own nearest rows, in `join.join`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import NeighborGraph
from lpe_dask.search.join import JoinSpec
from lpe_dask.search.plan import NeighborGraphParams
from lpe_dask.tasks import new_tasks, to_task


def build_graph(
    edges: list[Delayed], n_reference: int, params: NeighborGraphParams
) -> Delayed:
    """Return a task that makes the neighbor graph of the reference.

    Parameters
    ----------
    edges : list of Delayed
        As `join.self_join` gives them: for some rows each their numbers, the numbers
        of their nearest rows, and how far these are.
    n_reference : int
    params : NeighborGraphParams
    """
    keys = [some.key for some in edges]
    task = (_graph, keys, n_reference, params.n_neighbors, params.graph)
    return new_tasks("graph", [task], edges)[0]


def walk_among_rows(
    graph: Delayed, numbers: NDArray[np.int64], search: JoinSpec, task_rows: int
) -> list[Delayed]:
    """Return tasks for some rows of the reference each: their numbers and statistic.

    Each row is left out of its own neighborhood.

    Parameters
    ----------
    graph : Delayed
    numbers : ndarray of shape (n_queries,)
        Of the rows.
    search : JoinSpec
    task_rows : int
        Rows of a task.
    """
    entered = to_task(numbers, "lpe-chosen")
    tasks = (
        (_walk, graph.key, entered.key, start, task_rows, search)
        for start in range(0, len(numbers), task_rows)
    )
    return new_tasks("walk", tasks, [graph, entered])


# The functions below run inside tasks: NumPy in, NumPy out.


def _graph(
    edges: list[tuple[NDArray[Any], ...]], n_reference: int, n_neighbors: int, kind: str
) -> NeighborGraph:
    neighbors = np.empty((n_reference, n_neighbors), np.int32)
    distances = np.empty((n_reference, n_neighbors))
    for numbers, of_rows, lengths in edges:
        neighbors[numbers], distances[numbers] = of_rows, lengths
    return NeighborGraph.of(kind, neighbors, distances)


def _walk(
    graph: NeighborGraph,
    numbers: NDArray[np.int64],
    start: int,
    n_rows: int,
    search: JoinSpec,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    own = numbers[start : start + n_rows]
    return own, search.walked(graph.walk_from_rows, own)

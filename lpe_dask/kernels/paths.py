r"""Walk along the edges of a neighbor graph, nearest rows first, and stop early.

    nearest rows of each row -> NeighborGraph --walk--> distance to the K-th row reached,
                                                       or the mean of the first K
                                                   --> rows reached within a radius

A path is as long as its edges together, added from its start on, each sum in float64. The
search (Dijkstra's) settles rows in the order of their distance and ends with the K-th, so a
walk takes as long among a million rows as among a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import Edges, read_only
from lpe_dask.kernels.compilation import run

#: What an edge takes without compilation, in units of work: to be sorted, and to be walked.
EDGE_WORK, STEP_WORK = 100, 600


@dataclass(frozen=True, slots=True)
class NeighborGraph:
    """Edges from every row of a reference, with their lengths.

    Attributes
    ----------
    starts : ndarray of shape (n_reference + 1,)
        The edges of row ``i`` are those from ``starts[i]`` to ``starts[i + 1]``.
    targets : ndarray of shape (n_edges,)
        The rows they lead to, int32.
    lengths : ndarray of shape (n_edges,)
    """

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    lengths: NDArray[np.float64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.starts.nbytes + self.targets.nbytes + self.lengths.nbytes

    @property
    def n_rows(self) -> int:
        """Rows of the reference."""
        return len(self.starts) - 1


def directed_graph(
    neighbors: NDArray[np.int32], distances: NDArray[np.float64]
) -> NeighborGraph:
    """Return the graph with an edge from each row to each of its neighbors.

    Parameters
    ----------
    neighbors : ndarray of shape (n_reference, n_neighbors)
        Their numbers, -1 where there are no more.
    distances : ndarray of shape (n_reference, n_neighbors)
    """
    is_edge = neighbors >= 0
    starts = np.concatenate([[0], np.cumsum(is_edge.sum(axis=1))])
    return NeighborGraph(starts, neighbors[is_edge], distances[is_edge])


def union_graph(
    neighbors: NDArray[np.int32], distances: NDArray[np.float64]
) -> NeighborGraph:
    """Return the graph that has each of these edges in both directions, once.

    Parameters are those of `directed_graph`.
    """
    work = neighbors.size * EDGE_WORK
    return NeighborGraph(*run("join_directions", work, neighbors, distances))


#: graph of ``metric_params`` -> what makes it of the nearest rows.
GRAPHS = {"directed": directed_graph, "union": union_graph}


def walk_from_rows(
    graph: NeighborGraph,
    numbers: NDArray[np.int64],
    radius: float = np.inf,
    most: int | None = None,
    aggregation: str = "kth",
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walk from rows of the reference, which are not counted themselves.

    Parameters
    ----------
    graph : NeighborGraph
    numbers : ndarray of shape (n_queries,)
        Of the rows to start from.
    radius : float
        How far to walk: rows at this distance count.
    most : int, optional
        The number of rows after which a walk ends.
    aggregation : {"kth", "mean"}
        Which distances are returned.

    Returns
    -------
    distances : ndarray of shape (n_queries,)
        To the last of ``most`` rows, or the mean of those to all of them, added ascending;
        inf where fewer were reached.
    counts : ndarray of shape (n_queries,)
        Rows reached.
    """
    no_entry = np.empty((len(numbers), 0))
    entries = no_entry.astype(np.int64)
    return _walks(graph, numbers, entries, no_entry, radius, most, aggregation)


def walk_from_points(
    graph: NeighborGraph,
    neighbors: NDArray[np.int64],
    distances: NDArray[np.float64],
    radius: float = np.inf,
    most: int | None = None,
    aggregation: str = "kth",
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walk from points that are joined to their nearest rows of the reference.

    Parameters
    ----------
    graph : NeighborGraph
    neighbors, distances : ndarray of shape (n_queries, n_neighbors)
        The rows, -1 where there are no more, and how far they are.
    radius, most, aggregation
        As in `walk_from_rows`, and so is what is returned.
    """
    no_row = np.full(len(neighbors), -1)
    return _walks(graph, no_row, neighbors, distances, radius, most, aggregation)


def _walk_work(graph: NeighborGraph, n_walks: int, most: int) -> float:
    """Return the work of some walks, each from as many rows as it is to reach."""
    n_edges = len(graph.targets) / max(1, graph.n_rows)
    return n_walks * min(most, graph.n_rows) * n_edges * STEP_WORK


def _walks(
    graph: NeighborGraph,
    numbers: NDArray[np.int64],
    entries: NDArray[np.int64],
    entry_distances: NDArray[np.float64],
    radius: float,
    most: int | None,
    aggregation: str,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    edges = Edges(
        read_only(graph.starts), read_only(graph.targets), read_only(graph.lengths)
    )
    numbers = numbers.astype(np.int64)
    distances = np.empty(len(numbers))
    counts = np.empty(len(numbers), np.int64)
    limit, is_mean = graph.n_rows + 1 if most is None else most, aggregation == "mean"
    # Where a radius ends walks, the longest so far tells how far more of them are to go.
    begin, n_walks, reached = 0, 1 if most is None else len(numbers), limit
    while begin < len(numbers):
        part = slice(begin, begin + n_walks)
        run(
            "walk_all", _walk_work(graph, len(numbers[part]), reached),
            edges, numbers[part], entries[part], entry_distances[part], float(radius),
            limit, is_mean, distances[part], counts[part],
        )  # fmt: skip
        if most is None:
            reached = int(counts[: part.stop].max()) + 1
        begin, n_walks = part.stop, 2 * n_walks
    return distances, counts

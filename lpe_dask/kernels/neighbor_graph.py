r"""Walk along the edges of a neighbor graph, nearest rows first, and stop early.

    nearest rows of each row -> NeighborGraph --walk--> distance to the K-th row reached,
                                                       or the mean of the first K
                                                   --> rows reached within a radius

A path is as long as its edges together, added from its start on, each sum in float64. The
search (Dijkstra's) settles rows in the order of their distance and ends with the K-th, so a
walk takes as long among a million rows as among a thousand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import Edges, read_only
from lpe_dask.kernels.compilation import run


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

    @staticmethod
    def of(
        kind: str, neighbors: NDArray[np.int32], distances: NDArray[np.float64]
    ) -> NeighborGraph:
        """Return the graph of this kind, a name of `GRAPHS`; see `directed_graph`."""
        return GRAPHS[kind](neighbors, distances)

    def walk_from_rows(
        self,
        numbers: NDArray[np.int64],
        radius: float = np.inf,
        most: int | None = None,
        aggregation: str = "kth",
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Walk from rows of the reference, which are not counted themselves.

        Parameters
        ----------
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
            To the last of ``most`` rows, or the mean of those to all of them, added
            ascending; inf where fewer were reached.
        counts : ndarray of shape (n_queries,)
            Rows reached.
        """
        no_entry = np.empty((len(numbers), 0))
        entries = no_entry.astype(np.int64)
        return self._walks(numbers, entries, no_entry, radius, most, aggregation)

    def walk_from_points(
        self,
        neighbors: NDArray[np.int64],
        distances: NDArray[np.float64],
        radius: float = np.inf,
        most: int | None = None,
        aggregation: str = "kth",
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Walk from points that are joined to their nearest rows of the reference.

        Parameters
        ----------
        neighbors, distances : ndarray of shape (n_queries, n_neighbors)
            The rows, -1 where there are no more, and how far they are.
        radius, most, aggregation
            As in `walk_from_rows`, and so is what is returned.
        """
        no_row = np.full(len(neighbors), -1)
        return self._walks(no_row, neighbors, distances, radius, most, aggregation)

    def _walks(
        self,
        numbers: NDArray[np.int64],
        entries: NDArray[np.int64],
        entry_distances: NDArray[np.float64],
        radius: float,
        most: int | None,
        aggregation: str,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        edges = Edges(
            read_only(self.starts), read_only(self.targets), read_only(self.lengths)
        )
        distances, counts = np.empty(len(numbers)), np.empty(len(numbers), np.int64)
        run(
            "walk_all", math.inf, edges, numbers.astype(np.int64), entries, entry_distances,
            float(radius), self.n_rows + 1 if most is None else most, aggregation == "mean",
            distances, counts,
        )  # fmt: skip
        return distances, counts


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
    from scipy.sparse import csr_array

    directed = directed_graph(neighbors, distances)
    # The bits of lengths sort as they do, and from 1 on: 0 is no entry of a sparse matrix.
    bits = directed.lengths.view(np.int64)
    bits += 1
    shape = (directed.n_rows, directed.n_rows)
    starts = directed.starts.astype(np.min_scalar_type(-len(bits)))  # targets take as much
    edges = csr_array((bits, directed.targets, starts), shape)
    edges = edges.maximum(edges.T.tocsr())  # both directions of an edge are equally long
    edges.data -= 1
    return NeighborGraph(
        edges.indptr.astype(np.int64),
        edges.indices.astype(np.int32, copy=False),
        edges.data.view(np.float64),
    )


#: graph of ``metric_params`` -> what makes it of the nearest rows.
GRAPHS = {"directed": directed_graph, "union": union_graph}

"""Search along the graphs of blocks: the nearest rows that a query comes to.

    starts --> beam: the nearest rows so far --look around the nearest--> nearer ones, ...

A search ends when it has looked around all rows of its beam. It goes on from block to block
with the same beam: in the next one it looks around only rows that are as near.
What a query finds depends on no other query. All distances are those of the definition.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.accumulators import KNearestAccumulator, QueryTiles
from lpe_dask.kernels.aggregation import AGGREGATIONS
from lpe_dask.kernels.arrays import read_only
from lpe_dask.kernels.basis import Basis
from lpe_dask.kernels.block_index import Index
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.compilation import run

#: Rows of a beam beyond K.
BEAM_ROWS = 172

#: Starts of a block that a search enters it by.
ENTRIES = 8


class BeamAccumulator:
    """The nearest rows of each query among those that its search came to.

    Parameters
    ----------
    queries : QueryTiles
    basis : Basis
        That of the blocks.
    n_neighbors : int
        K, at least 1.
    aggregation : str, default="kth"
        As in `KNearestAccumulator`.
    """

    def __init__(
        self,
        queries: QueryTiles,
        basis: Basis,
        n_neighbors: int,
        *,
        aggregation: str = "kth",
    ) -> None:
        self._queries = queries
        self._basis = basis
        self._aggregation = aggregation
        self._n_neighbors = n_neighbors
        width = n_neighbors + BEAM_ROWS
        self._squares = np.full((len(queries.order), width), np.inf)

    @staticmethod
    def query_bytes(n_neighbors: int) -> int:
        """Return the bytes of a query: of its beam, and of where it enters a block."""
        return 8 * (n_neighbors + BEAM_ROWS + 6 * ENTRIES)

    def fold(self, block: Block, index: Index) -> None:
        """Search a block along its index."""
        arrays = self._queries.arrays
        places = index.places(np.column_stack([arrays.numbers, self._entries(index)]))
        run(
            "search_beams", math.inf, arrays.rows, arrays.weights[0], places, block,
            read_only(index.graph), self._squares,
        )  # fmt: skip

    def _entries(self, index: Index) -> NDArray[np.int64]:
        """Return the numbers of the nearest starts of each query."""
        n_entries = min(ENTRIES, index.starts.n_rows)
        state = KNearestAccumulator(
            self._queries, self._basis, n_entries, with_numbers=True
        )
        state.fold(index.starts)
        _, numbers = state.neighbors()
        return numbers[self._queries.order]

    def finish(self) -> NDArray[np.float64]:
        """Return the K-th distance found, or the mean of all K, of shape (n_queries,).

        ``inf`` where fewer than K were found or their distances overflow; NaN for a query
        that was not measured.
        """
        n_queries, width = self._squares.shape
        counts = np.full(n_queries, width)  # those that are missing are at inf
        statistic = AGGREGATIONS[self._aggregation](
            self._squares, counts, self._n_neighbors
        )
        statistic[~self._queries.is_measured] = np.nan
        return self._queries.to_input_order(statistic)

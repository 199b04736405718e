"""The definition again, one coordinate of many pairs at a time: fast enough for samples.

`definitions.knn_radii` loops over the coordinates of every pair; here NumPy does the same
sums, in the same order, for one query and all rows at once. A test holds the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def knn_radii(
    queries: NDArray[np.generic],
    reference: NDArray[np.generic],
    n_neighbors: int,
    own_rows: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Return the distance from each query to its K-th nearest reference row, in float64.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
    reference : ndarray of shape (n_reference, n_features)
    n_neighbors : int
        K, less than ``n_reference``.
    own_rows : ndarray of shape (n_queries,), optional
        Given when the queries are reference rows: their numbers. A row is no neighbor of
        itself.

    Returns
    -------
    radii : ndarray of shape (n_queries,)
    """
    columns = np.ascontiguousarray(reference.T, dtype=np.float64)
    radii = np.empty(len(queries))
    for i, query in enumerate(queries.astype(np.float64)):
        squares = np.zeros(len(reference))
        for column, coordinate in zip(columns, query, strict=True):
            difference = column - coordinate
            squares += difference * difference
        if own_rows is not None:
            squares[own_rows[i]] = np.inf
        radii[i] = np.sqrt(np.partition(squares, n_neighbors - 1)[n_neighbors - 1])
    return radii

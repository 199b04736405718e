"""What is made of the squared distances to the K nearest rows.

squares (n, K), counts (n,) --aggregation--> statistic (n,)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Distances that are sorted at a time.
SORTED_NUMBERS = 2**16


def kth_squares(
    squares: NDArray[np.float64], counts: NDArray[np.int64], n_neighbors: int
) -> NDArray[np.float64]:
    """Return the squared distance to the K-th nearest row; inf where fewer were seen.

    Parameters
    ----------
    squares : ndarray of shape (n_queries, at least n_neighbors)
        Squared distances to the K nearest rows seen, in any order, before all others.
    counts : ndarray of shape (n_queries,)
        How many of them there are.
    n_neighbors : int
        K.
    """
    return np.where(counts >= n_neighbors, squares[:, :n_neighbors].max(axis=1), np.inf)


def kth_distances(
    squares: NDArray[np.float64], counts: NDArray[np.int64], n_neighbors: int
) -> NDArray[np.float64]:
    """Return the distance to the K-th nearest row; parameters are those of `kth_squares`.

    ``inf`` where fewer than K were seen, or their distances overflow.
    """
    return np.sqrt(kth_squares(squares, counts, n_neighbors))


def mean_distances(
    squares: NDArray[np.float64], counts: NDArray[np.int64], n_neighbors: int
) -> NDArray[np.float64]:
    """Return the mean distance to the K nearest rows; otherwise like `kth_distances`.

    A sum depends on its order, so there is one: distances are added ascending.
    """
    means = np.full(len(squares), np.inf)
    enough = np.flatnonzero(counts >= n_neighbors)
    n_rows = max(1, SORTED_NUMBERS // n_neighbors)
    for start in range(0, len(enough), n_rows):
        rows = enough[start : start + n_rows]
        distances = squares[rows, :n_neighbors]  # a copy
        distances.sort(axis=1)
        np.sqrt(distances, out=distances)
        # Unlike `sum`, which adds in pairs, this adds from the first one on.
        np.add.accumulate(distances, axis=1, out=distances)
        means[rows] = distances[:, -1] / n_neighbors
    return means


#: aggregation -> what makes the statistic of the squared distances to the K nearest rows.
AGGREGATIONS = {"kth": kth_distances, "mean": mean_distances}

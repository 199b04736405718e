"""The K nearest rows of rows of two blocks to each other, and what is made of all pairs.

    block --within--> squares (n, K) --limits--> limits (n,)
    two blocks, limits --between--> squares (n, K) of either's rows
    squares of a block's rows, from all pairs --merged--> statistic (n,)

Squares of a part of the pairs may be merged in any order: the K smallest of a set of
numbers are what they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.accumulators import error_bounds
from lpe_dask.kernels.aggregation import AGGREGATIONS
from lpe_dask.kernels.arrays import INACTIVE, Found
from lpe_dask.kernels.basis import Basis
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.compilation import run
from lpe_dask.kernels.distances import last_of_same_root, limit_of


class PairSearch:
    """A search among blocks of brute force that sums each pair for both of its rows.

    Parameters
    ----------
    basis : Basis
        That of the blocks; without codes.
    n_neighbors : int
        K.
    """

    #: Most neighbors that are worth it: of more, the first rows that are met give no limits
    #: (`initial_limits.MAX_SEEDED`), and reservoirs of a whole block are large.
    MAX_NEIGHBORS: ClassVar[int] = 40

    def __init__(self, basis: Basis, n_neighbors: int) -> None:
        assert len(basis.steps) == 0
        self._basis, self._n_neighbors = basis, n_neighbors
        self._errors = error_bounds(basis)
        self._weights = np.array(basis.all_weights)
        self._tallies = np.zeros(2, np.int64)

    @property
    def n_compared(self) -> int:
        """Pairs that were filtered so far."""
        return int(self._tallies[0])

    @staticmethod
    def row_bytes(n_neighbors: int) -> int:
        """Return the bytes of a row of either block in a search: reservoir and squares."""
        return 8 * (3 * n_neighbors + 64 + 8)

    def within(self, block: Block) -> NDArray[np.float64]:
        """Return the squared distances from rows to their nearest in the same block.

        Of shape (n_rows, n_neighbors), in any order; inf where there are no more.
        """
        found = self._nothing(np.full(block.n_rows, np.inf))
        self._fold(slice(0, block.n_rows), block, block, found, found)
        return _squares(found)

    def between(
        self,
        own: Block,
        others: Block,
        which: slice,
        limits: NDArray[np.float64],
        other_limits: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the squared distances between some rows of a block and those of another.

        Parameters
        ----------
        own, others : Block
        which : slice
            Of own rows.
        limits, other_limits : ndarray of shape (n_rows,)
            Of all rows of either block: pairs beyond are left out; see `limits`.

        Returns
        -------
        squares : ndarray of shape (n_own, n_neighbors)
            From those own rows to their nearest others.
        other_squares : ndarray of shape (n_others, n_neighbors)
        """
        found, of_others = self._nothing(limits), self._nothing(other_limits)
        self._fold(which, own, others, found, of_others)
        return _squares(found)[which], _squares(of_others)

    def limits(self, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how far rows may matter to others whose nearest so far are at squares.

        In units of the basis; below 0 where nothing can be nearer.
        """
        kth = squares.max(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            limits = limit_of(last_of_same_root(kth), self._basis.n_columns, self._errors)
        return np.where(kth == 0, INACTIVE, limits)

    def _nothing(self, limits: NDArray[np.float64]) -> Found:
        n_rows = len(limits)
        return Found(
            np.empty((n_rows, self._n_neighbors)),
            np.empty((n_rows, 0), np.int64),
            np.zeros(n_rows, np.int64),
            np.array(limits),
            np.full(n_rows, self._n_neighbors),
        )

    def _fold(
        self, which: slice, own: Block, others: Block, found: Found, of_others: Found
    ) -> None:
        run(
            "fold_pairs", math.inf, which.start, which.stop, own is others, own, others,
            self._weights, self._errors, found, of_others, self._tallies,
        )  # fmt: skip


def _squares(found: Found) -> NDArray[np.float64]:
    is_missing = np.arange(found.squares.shape[1]) >= found.counts[:, None]
    found.squares[is_missing] = np.inf
    return found.squares


def merged(
    parts: Sequence[NDArray[np.float64]], n_neighbors: int, aggregation: str
) -> NDArray[np.float64]:
    """Return the statistic of rows from their squares in parts of all pairs.

    Parameters
    ----------
    parts : sequence of ndarray of shape (n_rows, n_neighbors)
        In any order; inf for no row. Each pair of a row is in one of them.
    n_neighbors : int
    aggregation : str
        A name of `aggregation.AGGREGATIONS`.
    """
    squares = parts[0]
    for part in parts[1:]:
        both = np.hstack([squares, part])
        squares = np.partition(both, n_neighbors - 1, axis=1)[:, :n_neighbors]
    counts = np.full(len(squares), n_neighbors)
    return AGGREGATIONS[aggregation](squares, counts, n_neighbors)

r"""Exact K-th distances and neighbor counts, by coordinate differences.

    queries (m, d) ------------+
                               v
    reference (n, d) -> pack -> fold -> state (m, ...) -> finish -> statistic (m,)

The squared distance of every pair is summed in float64, in coordinate order, as the
definition says, so there is nothing to verify afterwards. Sums only grow: once all 64 of a
group are past what is still wanted, the remaining coordinates are not read.

The reference is packed in groups of 64 rows, coordinate by coordinate, so that one vector
holds the same coordinate of 64 rows. With m queries, n reference rows and d features a fold
costs O(m n d) time and, beside its arguments, one state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.compiled import compiled
from lpe_dask.kernels.selection import keep_smallest, reservoir_size
from lpe_dask.kernels.simd import (
    LANES,
    add_squared_differences,
    count_bits,
    lowest_bit,
)

#: Numbers of packed reference that all queries pass before the next ones are read: 256 KiB,
#: a part of a core's second-level cache.
CACHED_NUMBERS = 32_768

#: Coordinates summed between two looks at whether the group can still matter.
TERMS_BETWEEN_LOOKS = 8

#: ``self_offset`` of queries that are no rows of the block.
NOT_SELF = -(2**62)


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """One block of the reference, laid out for the kernels.

    Attributes
    ----------
    groups : ndarray of shape (n_groups, n_features, 64)
        Row ``i`` is ``groups[i // 64, :, i % 64]``. The last group is filled with ``inf``,
        which is at distance ``inf`` from everything.
    n_rows : int
    """

    groups: NDArray[np.float64]
    n_rows: int

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers: Dask's measure of what a worker holds."""
        return self.groups.nbytes

    def rows(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return rows ``start`` to ``stop`` of the block, of shape (n, n_features)."""
        first, last = start // LANES, -(-stop // LANES)
        n_features = self.groups.shape[1]
        rows = self.groups[first:last].transpose(0, 2, 1).reshape(-1, n_features)
        return np.ascontiguousarray(rows[start - first * LANES : stop - first * LANES])


def pack(rows: NDArray[np.float64]) -> PackedBlock:
    """Return a reference block of shape (n_rows, n_features) in the kernels' layout."""
    n_rows, n_features = rows.shape
    n_groups = -(-n_rows // LANES)
    groups = np.full((n_groups, n_features, LANES), np.inf)
    whole = n_rows // LANES
    groups[:whole] = (
        rows[: whole * LANES].reshape(whole, LANES, n_features).transpose(0, 2, 1)
    )
    groups[whole:, :, : n_rows - whole * LANES] = rows[whole * LANES :].T
    return PackedBlock(groups, n_rows)


class NearestState:
    """The distances from each query to its K nearest of the rows seen so far.

    Folding blocks is associative and commutative: the K smallest of a set of numbers do not
    depend on the order in which they came.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        A row with NaN or inf is not measured.
    n_neighbors : int
        K, at least 1.
    """

    def __init__(self, queries: NDArray[np.float64], n_neighbors: int) -> None:
        self._queries = np.ascontiguousarray(queries)
        self._n_neighbors = n_neighbors
        self._places = np.empty((len(queries), reservoir_size(n_neighbors)))
        self._n_found = np.zeros(len(queries), np.int64)
        self._measured = np.isfinite(queries).all(axis=1)
        # No squared distance is below a negative limit: such a row passes untouched.
        self._limits = np.where(self._measured, np.inf, -1.0)

    def fold(self, block: PackedBlock, self_offset: int = NOT_SELF) -> None:
        """Take the rows of one reference block into account.

        Parameters
        ----------
        block : PackedBlock
        self_offset : int, optional
            Given when the queries are themselves reference rows: query ``i`` is then row
            ``i + self_offset`` of this block, if it has that row, and no neighbor of
            itself.
        """
        _fold_nearest(
            self._queries,
            block.groups,
            self_offset,
            self._n_neighbors,
            self._places,
            self._n_found,
            self._limits,
        )

    def finish(self) -> NDArray[np.float64]:
        """Return the distance to the K-th nearest row, of shape (n_queries,).

        ``inf`` where fewer than K rows were seen or their distances overflow; NaN for a
        query that was not measured.
        """
        squared = _kth_smallest(self._places, self._n_found, self._n_neighbors)
        return np.where(self._measured, np.sqrt(squared), np.nan)


class CountState:
    """How many of the rows seen so far are within a radius of each query.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        A row with NaN or inf is not measured.
    radius : float
        Finite, not negative. The ball is closed: a row at exactly this distance counts.
    """

    def __init__(self, queries: NDArray[np.float64], radius: float) -> None:
        self._queries = np.ascontiguousarray(queries)
        self._counts = np.zeros(len(queries), np.int64)
        self._measured = np.isfinite(queries).all(axis=1)
        limit = np.nextafter(largest_square_within(radius), np.inf)
        self._limits = np.where(self._measured, limit, -1.0)

    def fold(self, block: PackedBlock, self_offset: int = NOT_SELF) -> None:
        """Count the rows of one reference block; see `NearestState.fold`."""
        _fold_counts(self._queries, block.groups, self_offset, self._limits, self._counts)

    def finish(self) -> NDArray[np.float64]:
        """Return whole numbers of shape (n_queries,), NaN for a query not measured."""
        return np.where(self._measured, self._counts, np.nan)


def largest_square_within(radius: float) -> float:
    """Return the largest float64 whose square root, rounded, is at most ``radius``.

    The definition compares distances; comparing their squares with this number instead
    decides every pair alike, also those at exactly the radius.

    Examples
    --------
    >>> largest_square_within(0.1) >= 0.1 * 0.1
    True
    """
    square = radius * radius
    while math.sqrt(square) > radius:
        square = math.nextafter(square, 0.0)
    while math.sqrt(following := math.nextafter(square, math.inf)) <= radius:
        square = following
    return square


@compiled
def _squares_below(queries, i, groups, g, sums, limit):  # type: ignore[no-untyped-def]
    """Fill ``sums`` with squared distances of query i to group g; return those below limit.

    Where the answer is 0 the sums may be incomplete.
    """
    n_features = queries.shape[1]
    sums[:] = 0.0
    mask = np.uint64(0)
    k = 0
    while k < n_features:
        n_terms = min(TERMS_BETWEEN_LOOKS, n_features - k)
        mask = add_squared_differences(
            queries,
            i * n_features + k,
            groups,
            (g * n_features + k) * LANES,
            n_terms,
            sums,
            limit,
        )
        if mask == 0:
            break
        k += n_terms
    return mask


@compiled
def _groups_in_cache(n_features):  # type: ignore[no-untyped-def]
    return max(1, CACHED_NUMBERS // (n_features * LANES))


@compiled
def _without_self(mask, row, g):  # type: ignore[no-untyped-def]
    """Clear the bit of reference row ``row`` if it belongs to group g."""
    lane = row - g * LANES
    if 0 <= lane < LANES:
        mask &= ~(np.uint64(1) << np.uint64(lane))
    return mask


@compiled
def _fold_nearest(  # type: ignore[no-untyped-def]
    queries, groups, self_offset, n_neighbors, places, n_found, limits
):
    n_groups, n_features, _ = groups.shape
    n_places = places.shape[1]
    step = _groups_in_cache(n_features)
    sums = np.empty(LANES)
    for first in range(0, n_groups, step):
        for i in range(len(queries)):
            limit = limits[i]
            found = n_found[i]
            for g in range(first, min(first + step, n_groups)):
                mask = _squares_below(queries, i, groups, g, sums, limit)
                if mask == 0:
                    continue
                mask = _without_self(mask, i + self_offset, g)
                while mask != 0:
                    square = sums[lowest_bit(mask)]
                    mask &= mask - np.uint64(1)
                    if square < limit:  # the limit may have fallen since the mask was made
                        places[i, found] = square
                        found += 1
                        if found == n_places:
                            limit = keep_smallest(places[i], found, n_neighbors)
                            found = n_neighbors
            limits[i] = limit
            n_found[i] = found


@compiled
def _kth_smallest(places, n_found, n_neighbors):  # type: ignore[no-untyped-def]
    kth = np.empty(len(places))
    for i in range(len(places)):
        if n_found[i] < n_neighbors:
            kth[i] = np.inf
        else:
            kth[i] = keep_smallest(places[i], n_found[i], n_neighbors)
    return kth


@compiled
def _fold_counts(queries, groups, self_offset, limits, counts):  # type: ignore[no-untyped-def]
    n_groups, n_features, _ = groups.shape
    step = _groups_in_cache(n_features)
    sums = np.empty(LANES)
    for first in range(0, n_groups, step):
        for i in range(len(queries)):
            for g in range(first, min(first + step, n_groups)):
                mask = _squares_below(queries, i, groups, g, sums, limits[i])
                counts[i] += count_bits(_without_self(mask, i + self_offset, g))

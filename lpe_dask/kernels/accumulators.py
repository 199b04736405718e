"""What is known of some queries so far: their nearest rows, or the number in a radius.

    queries -> arrange -> tiles -> fold(block), fold(block), ... -> finish -> input order

Folding is associative and commutative: the K smallest of a set of numbers, and a count, do
not depend on the order in which the blocks came.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.aggregation import AGGREGATIONS, kth_squares
from lpe_dask.kernels.arrays import (
    INACTIVE,
    LANES,
    TILE_ROWS,
    Counted,
    ErrorBounds,
    Found,
    Queries,
    are_finite,
    read_only,
)
from lpe_dask.kernels.basis import FAR_SQUARE, FURTHEST, LARGEST_SUM, Basis
from lpe_dask.kernels.blocks import Arrangement, Block
from lpe_dask.kernels.compilation import run, search_work
from lpe_dask.kernels.distances import largest_square_within, limit_of

_Value = TypeVar("_Value", bound=np.generic)

#: A count that is never enough.
NO_LIMIT = 2**62


def error_bounds(basis: Basis) -> ErrorBounds:
    """Return the error bounds of a filter in this basis."""
    factor = math.ldexp(1.0, basis.exponent)
    return ErrorBounds(
        basis.relative_error, basis.rounding, basis.underflow, basis.stretch, factor
    )


class QueryTiles:
    """Queries in tiles, and the way back to the order in which they came.

    Parameters
    ----------
    rows : ndarray of shape (n_queries, n_features)
        As prepared. A row with NaN or inf is not measured.
    points : ndarray of shape (n_queries, n_features)
        The rows in the basis of the blocks.
    arrangement : Arrangement
        Of the points, in tiles of at most `TILE_ROWS`.
    numbers : ndarray of shape (n_queries,), optional
        The numbers of the reference rows that the queries themselves are.
    basis : Basis, optional
        Has the weights of the columns, the last of which may be codes; None: all are 1, and
        there are no codes.
    tables : ndarray of shape (n_queries,), optional
        Which of several tables of weights are those of a query.
    weights : ndarray of shape (n_tables, n_features), optional
        These; None: those of the basis are the only ones.
    """

    #: Most queries of a tile.
    TILE_ROWS: ClassVar[int] = TILE_ROWS

    def __init__(
        self,
        rows: NDArray[np.floating],
        points: NDArray[np.float64],
        arrangement: Arrangement,
        numbers: NDArray[np.int64] | None = None,
        basis: Basis | None = None,
        tables: NDArray[np.int64] | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        # A kernel has room for so many, and would write beyond it.
        assert np.diff(arrangement.starts).max(initial=0) <= TILE_ROWS
        self.order = arrangement.order
        if np.array_equal(self.order, np.arange(len(rows))):  # new memory takes long to get
            wide = np.ascontiguousarray(rows, np.float64)
            points = np.ascontiguousarray(points)
        else:
            wide = np.ascontiguousarray(rows[self.order], np.float64)
            points = np.ascontiguousarray(points[self.order])
        self.is_measured = are_finite(wide)
        numbers = np.full(len(wide), -1) if numbers is None else numbers[self.order]
        own, lowered = np.ones(points.shape[1]), np.empty(0, np.float32)
        if basis is not None:
            own, lowered = np.array(basis.all_weights), basis.lowered
        weights = own[None] if weights is None else weights
        tables = np.zeros(len(wide), np.int64) if tables is None else tables[self.order]
        with np.errstate(invalid="ignore"):
            without_codes = points[:, : points.shape[1] - len(lowered)]
            reaches = np.einsum("ij,ij->i", without_codes, without_codes)
            reaches[~(reaches < FAR_SQUARE)] = np.inf
        # What is not measured must not make its tile look far out.
        if not self.is_measured.all():
            points = np.where(self.is_measured[:, None], points, np.nan)
        reaches[~self.is_measured] = 0.0
        lows, highs = _boxes(points, arrangement)
        self.arrays = Queries(
            read_only(wide), points, numbers, reaches, arrangement.starts, lows, highs,
            read_only(np.ascontiguousarray(weights)), tables, lowered,
        )  # fmt: skip

    def may_reach(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        limits: NDArray[np.float64],
        errors: ErrorBounds,
    ) -> bool:
        """Return whether rows in a box may be within the limit of any query.

        Parameters
        ----------
        low, high : ndarray of shape (n_features,)
            In the basis.
        limits : ndarray of shape (n_queries,)
            In units of the basis.
        errors : ErrorBounds
        """
        starts = self.arrays.starts[:-1]
        if len(starts) == 0:
            return False
        gaps = np.maximum(np.maximum(low - self.arrays.highs, self.arrays.lows - high), 0)
        reaches = np.maximum.reduceat(self.arrays.reaches, starts)
        bounds = self._lower_bounds(gaps, low, high, reaches, errors)
        most = np.maximum.reduceat(limits, starts)
        # Where overflow left no number, nothing is known.
        is_near = (most >= 0) & ~(bounds > most)
        return bool((is_near & ~self._are_separate(gaps)).any())

    def _are_separate(self, gaps: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where a code of infinite weight differs, by gaps as `_lower_bounds`."""
        separates = self.arrays.lowered > LARGEST_SUM
        of_codes = gaps[:, gaps.shape[1] - len(separates) :]
        return np.asarray((of_codes[:, separates] > 0).any(axis=1))

    def _lower_bounds(
        self,
        gaps: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        reaches: NDArray[np.float64],
        errors: ErrorBounds,
    ) -> NDArray[np.float64]:
        """Return lower bounds of squared distances to rows in a box.

        Parameters
        ----------
        gaps : ndarray of shape (n, n_features)
            Between points and a box, or 0, in the basis.
        low, high : ndarray of shape (n_features,)
            The box.
        reaches : ndarray of shape (n,)
            Squared norms of the points.
        errors : ErrorBounds
        """
        lowered = self.arrays.lowered
        n_numbers = len(low) - len(lowered)
        corner = np.minimum(np.maximum(np.abs(low), np.abs(high)), FURTHEST)[:n_numbers]
        squares = (gaps[:, :n_numbers] * gaps[:, :n_numbers]).sum(axis=1)
        squares += ((gaps[:, n_numbers:] > 0) * lowered).sum(axis=1)
        reach = reaches + (corner * corner).sum()
        bounds: NDArray[np.float64] = squares * (1 - 2.0**-23)
        bounds -= errors.underflow + (errors.rounding + 2.0**-80) * reach
        return bounds

    def work(self, block: Block) -> float:
        """Return the work of a search for these queries in a block."""
        n_features = self.arrays.points.shape[1]
        return search_work(len(self.order) * block.n_rows, n_features)

    def to_input_order(self, values: NDArray[_Value]) -> NDArray[_Value]:
        """Return values that belong to the queries in the order these came."""
        restored = np.empty_like(values)
        restored[self.order] = values
        return restored


def _boxes(
    points: NDArray[np.float64], arrangement: Arrangement
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n_tiles, n_features = len(arrangement.starts) - 1, points.shape[1]
    if not arrangement.bounded or n_tiles == 0:
        shape = (n_tiles, n_features)
        return np.full(shape, -np.inf), np.full(shape, np.inf)
    starts = arrangement.starts[:-1]
    # A point with NaN is measured against nothing; fmin and fmax pass over it.
    return np.fmin.reduceat(points, starts), np.fmax.reduceat(points, starts)


class _State:
    """What each search keeps: its queries, how far pairs may matter, and its tallies.

    Parameters
    ----------
    queries : QueryTiles
    basis : Basis
        That of the blocks.
    """

    #: In units of the basis, of shape (n_queries,): pairs beyond change nothing.
    _limits: NDArray[np.float64]

    def __init__(self, queries: QueryTiles, basis: Basis) -> None:
        self._queries = queries
        self._errors = error_bounds(basis)
        self._tallies = np.zeros(2, np.int64)

    @property
    def n_compared(self) -> int:
        """Pairs that were filtered so far."""
        return int(self._tallies[0])

    @property
    def n_met(self) -> int:
        """Cells whose box was held against a query so far, for all queries together."""
        return int(self._tallies[1])

    def may_need(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> bool:
        """Return whether a block with this box, in the basis, may change anything."""
        return self._queries.may_reach(low, high, self._limits, self._errors)


class KNearestAccumulator(_State):
    """The K nearest rows of each query among those seen so far.

    Parameters
    ----------
    queries : QueryTiles
    basis : Basis
        That of the blocks.
    n_neighbors : int or ndarray of shape (n_queries,)
        K, at least 1; of each query.
    aggregation : str, default="kth"
        A name of `aggregation.AGGREGATIONS`: what is finally made of their distances.
    with_numbers : bool, default=False
        Keep which rows they are, too.
    """

    def __init__(
        self,
        queries: QueryTiles,
        basis: Basis,
        n_neighbors: int | NDArray[np.int64],
        *,
        aggregation: str = "kth",
        with_numbers: bool = False,
    ) -> None:
        super().__init__(queries, basis)
        n_queries = len(queries.order)
        self._aggregation = aggregation
        self._n_features = queries.arrays.points.shape[1]
        self._guess = np.full(n_queries, np.inf)
        wanted = np.broadcast_to(n_neighbors, n_queries)[queries.order]
        most = int(np.max(n_neighbors, initial=1))
        self._found = Found(
            np.empty((n_queries, most)),
            np.empty((n_queries, most if with_numbers else 0), np.int64),
            np.zeros(n_queries, np.int64),
            np.where(queries.is_measured, np.inf, INACTIVE),
            wanted,
        )
        self._limits = self._found.limits

    @staticmethod
    def tile_bytes(n_features: int, n_neighbors: int, block_rows: int) -> int:
        """Return the bytes of a tile, with the candidates of its queries.

        And with the boxes of the cells of a block of ``block_rows`` rows, as of the fewest.
        """
        n_places = n_neighbors + max(n_neighbors, LANES)  # `nearest.reservoir_size`
        n_sorted = min(n_neighbors + 15, LANES)  # `nearest.MAX_SORTED`
        query_bytes = 8 * n_places + 4 * n_sorted + 8 * LANES + 12 * n_features + 160
        sorting = 24 * n_places + 16 * n_neighbors
        n_cells = block_rows // LANES + LANES
        return TILE_ROWS * query_bytes + sorting + n_cells * (16 * n_features + 64)

    def guess(self, other: KNearestAccumulator) -> None:
        """Take the limits of a search among a sample, for fewer neighbors, as a guess.

        Pairs beyond are not looked at; `missed` says afterwards whether any should be.
        """
        limits = np.where(self._queries.is_measured, other._found.limits, INACTIVE)
        # A sample that holds a row often enough says that its nearest are at distance 0.
        limits[self._queries.is_measured & (limits < 0)] = 0.0
        self._guess = limits
        self._found.limits[:] = limits

    def missed(self) -> bool:
        """Return whether a guess was too low for some queries, and start these again.

        The blocks then have to be folded once more; the other queries are done.
        """
        squares = self._aggregated(kth_squares)
        with np.errstate(over="ignore"):
            limits = limit_of(squares, self._n_features, self._errors)
        is_sure = (limits <= self._guess) | ~self._queries.is_measured
        self._found.counts[~is_sure] = 0
        self._guess[~is_sure] = np.inf
        self._found.limits[:] = np.where(is_sure, INACTIVE, np.inf)
        return not bool(is_sure.all())

    def fold(self, block: Block) -> None:
        """Take the rows of one block into account; a query is no neighbor of itself."""
        run(
            "fold_nearest",
            self._queries.work(block),
            self._queries.arrays,
            block,
            self._errors,
            self._found,
            self._tallies,
        )

    def finish(self) -> NDArray[np.float64]:
        """Return the K-th distance, or the mean of all K, of shape (n_queries,).

        ``inf`` where fewer than K rows were seen or their distances overflow; NaN for a
        query that was not measured.
        """
        statistic = self._aggregated(AGGREGATIONS[self._aggregation])
        statistic[~self._queries.is_measured] = np.nan
        return self._queries.to_input_order(statistic)

    def _aggregated(
        self, function: Callable[..., NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return what a function with the parameters of `kth_squares` gives, by its K."""
        squares, counts, wanted = (
            self._found.squares,
            self._found.counts,
            self._found.wanted,
        )
        found = np.empty(len(squares))
        for n_neighbors in np.unique(wanted).tolist():
            which: Any = np.flatnonzero(wanted == n_neighbors)
            which = slice(None) if len(which) == len(wanted) else which  # no copy
            found[which] = function(squares[which], counts[which], n_neighbors)
        return found

    def neighbors(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the distances to the K nearest rows and their numbers.

        Both of shape (n_queries, n_neighbors), by distance and then by number; ``inf`` and
        -1 where there are no more, and for a query that was not measured.
        """
        squares, numbers = self._found.squares.copy(), self._found.numbers.copy()
        is_missing = np.arange(squares.shape[1]) >= self._found.counts[:, None]
        squares[is_missing] = np.inf
        numbers[squares == np.inf] = -1  # which of them would depend on the filter
        order = np.lexsort((numbers, squares))
        distances = np.sqrt(np.take_along_axis(squares, order, axis=1))
        numbers = np.take_along_axis(numbers, order, axis=1)
        return self._queries.to_input_order(distances), self._queries.to_input_order(
            numbers
        )


class CountAccumulator(_State):
    """How many of the rows seen so far are within a radius of each query.

    Parameters
    ----------
    queries : QueryTiles
    basis : Basis
        That of the blocks.
    radius : float or ndarray of shape (n_queries,)
        Finite, not negative; of each query. The ball is closed: a row at exactly this
        distance counts.
    enough : int, optional
        A count that suffices: queries that have reached it are not looked at again, and
        their counts may be any number from there on.
    """

    def __init__(
        self,
        queries: QueryTiles,
        basis: Basis,
        radius: float | NDArray[np.float64],
        enough: int | None = None,
    ) -> None:
        super().__init__(queries, basis)
        different, which = np.unique(radius, return_inverse=True)
        within = np.array([largest_square_within(of) for of in different.tolist()])
        n_queries, n_features = len(queries.order), queries.arrays.points.shape[1]
        squares = np.broadcast_to(within[which], n_queries)[queries.order]
        with np.errstate(over="ignore", invalid="ignore"):  # inf / inf: none is sure
            limits = limit_of(squares, n_features, self._errors)
            sure = squares * (1.0 - (n_features + 4) * 2.0**-52)
            sure = sure * self._errors.factor * self._errors.factor
            sure = sure * (1.0 - 2.0**-50) / self._errors.stretch
        self._counted = Counted(
            np.zeros(n_queries, np.int64),
            np.where(queries.is_measured, limits, INACTIVE),
            NO_LIMIT if enough is None else enough,
            squares,
            np.minimum(sure, LARGEST_SUM),
        )
        self._limits = self._counted.limits

    def fold(self, block: Block) -> None:
        """Count the rows of one block; a query does not count itself."""
        run(
            "fold_counts",
            self._queries.work(block),
            self._queries.arrays,
            block,
            self._errors,
            self._counted,
            self._tallies,
        )

    def finish(self) -> NDArray[np.float64]:
        """Return whole numbers of shape (n_queries,), NaN for a query not measured."""
        counts = np.where(self._queries.is_measured, self._counted.counts, np.nan)
        return self._queries.to_input_order(counts)

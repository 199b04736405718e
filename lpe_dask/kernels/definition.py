r"""What kernels compute, as it is defined, in NumPy: for small tables, before compilation.

    queries x rows --squares (differences squared, added column by column)--> K smallest
                                                                          --> count within

Squared distances are float64, summed in coordinate order: the difference of two numbers is
squared, and the square is multiplied by the weight of its column, so that equal
differences stay equal. After the numbers come the codes of categories, of which each that
differs adds its weight. Each function has the name, the parameters and the results of a
compiled one, bit for bit; `compilation` chooses between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import (
    INACTIVE,
    LANES,
    Counted,
    ErrorBounds,
    Found,
    Queries,
)
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.distances import last_of_same_root, limit_of

#: Pairs that are measured at a time, and numbers of rows that are turned into columns for
#: that: they stay in a core's cache, and memory is bounded, however large a block is.
TABLE_PAIRS, TURNED_NUMBERS = 2**16, 2**17


class _Table(NamedTuple):
    """Squared distances of some queries to some rows of a block.

    Attributes
    ----------
    queries : ndarray of shape (n,)
        Their places.
    numbers : ndarray of shape (m,)
        Of the rows.
    squares : ndarray of shape (n, m)
        Those of a query to itself are inf.
    """

    queries: NDArray[np.int64]
    numbers: NDArray[np.int64]
    squares: NDArray[np.float64]


def fold_nearest(
    queries: Queries,
    block: Block,
    errors: ErrorBounds,
    found: Found,
    tallies: NDArray[np.int64],
) -> None:
    """Take the rows of one block into account: see `nearest.fold_nearest`."""
    with_numbers = found.numbers.shape[1] > 0
    n_neighbors, n_features = found.squares.shape[1], queries.rows.shape[1]
    places = np.arange(n_neighbors)
    for some, of_rows, squares in _tables(queries, block, found.limits, tallies):
        known, wanted = places < found.counts[some][:, None], found.wanted[some]
        squares = np.hstack([np.where(known, found.squares[some], np.inf), squares])
        if with_numbers:
            numbers = np.broadcast_to(of_rows, (len(some), len(of_rows)))
            numbers = np.hstack([found.numbers[some], numbers])
            nearest, numbers = _smallest_pairs(squares, numbers, n_neighbors)
            found.numbers[some] = numbers
        else:
            squares.partition(n_neighbors - 1, axis=1)
            nearest = np.sort(squares[:, :n_neighbors], axis=1)
        found.squares[some] = nearest
        of_each = np.arange(len(some))
        found.counts[some] = np.minimum((nearest < np.inf).sum(axis=1), wanted)
        kth = nearest[of_each, wanted - 1]
        with np.errstate(over="ignore"):
            limits = limit_of(last_of_same_root(kth), n_features, errors)
        limits = np.minimum(limits, found.limits[some])
        if not with_numbers:
            limits[kth == 0.0] = INACTIVE  # nothing can be nearer
        found.limits[some] = limits


def fold_counts(
    queries: Queries,
    block: Block,
    errors: ErrorBounds,
    counted: Counted,
    tallies: NDArray[np.int64],
) -> None:
    """Count the rows of one block that are within a radius: see `counts.fold_counts`."""
    for some, _, squares in _tables(queries, block, counted.limits, tallies):
        counted.counts[some] += (squares <= counted.squares[some, None]).sum(axis=1)
        counted.limits[some[counted.counts[some] >= counted.enough]] = INACTIVE


def _tables(
    queries: Queries,
    block: Block,
    limits: NDArray[np.float64],
    tallies: NDArray[np.int64],
) -> Iterator[_Table]:
    """Give tables of queries and rows, in which those of a limit below 0 are left out."""
    rows = block.rows
    n_rows, n_features = rows.shape
    max_rows = max(LANES, TURNED_NUMBERS // n_features)
    for first in range(0, n_rows, max_rows):
        part = slice(first, first + max_rows)
        columns = np.ascontiguousarray(rows[part].T, np.float64)
        numbers = block.numbers[part]
        by_number = np.argsort(numbers)
        wanted = np.flatnonzero(limits >= 0.0)
        tallies[0] += len(wanted) * len(numbers)
        step = max(1, TABLE_PAIRS // len(numbers))
        for start in range(0, len(wanted), step):
            some = wanted[start : start + step]
            with np.errstate(over="ignore"):
                squares = _squares(queries, some, columns)
            own = queries.numbers[some]
            places = np.searchsorted(numbers, own, sorter=by_number)
            places = by_number[np.minimum(places, len(numbers) - 1)]
            is_own = np.flatnonzero(numbers[places] == own)
            squares[is_own, places[is_own]] = np.inf
            yield _Table(some, numbers, squares)


def _squares(
    queries: Queries, some: NDArray[np.int64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the squared distances of some queries to rows, given column by column."""
    rows = queries.rows[some]
    tables: Any = queries.tables[some] if len(queries.weights) > 1 else slice(None)
    squares = np.zeros((len(rows), columns.shape[1]))
    part = np.empty_like(squares)
    n_numbers = len(columns) - len(queries.lowered)
    for k, column in enumerate(columns):
        of_queries, weight = rows[:, k, None], queries.weights[tables, k, None]
        if k < n_numbers:
            np.subtract(of_queries, column, out=part)
            np.multiply(part, part, out=part)
            if (weight != 1.0).any():
                np.multiply(part, weight, out=part)
            np.add(squares, part, out=squares)
        else:
            np.add(squares, weight, out=squares, where=of_queries != column)
    return squares


def _smallest_pairs(
    squares: NDArray[np.float64], numbers: NDArray[np.int64], n_kept: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the ``n_kept`` smallest of each row by distance and then by number.

    Of equal distances the largest square counts; inf where there are no more.
    """
    kth = np.partition(squares, n_kept - 1, axis=1)[:, n_kept - 1]
    is_near = (squares <= last_of_same_root(kth)[:, None]) & (squares < np.inf)
    queries, _ = np.nonzero(is_near)
    near, of_near = last_of_same_root(squares[is_near]), numbers[is_near]
    order = np.lexsort((of_near, near, queries))
    ranks = np.arange(len(order)) - np.searchsorted(queries, queries)
    order, ranks = order[ranks < n_kept], ranks[ranks < n_kept]
    kept = np.full((len(squares), n_kept), np.inf)
    of_kept = np.full((len(squares), n_kept), -1)
    kept[queries[order], ranks] = near[order]
    of_kept[queries[order], ranks] = of_near[order]
    return kept, of_kept


def add_products(
    left: NDArray[np.int64], right: NDArray[np.int64], limbs: NDArray[np.int64]
) -> None:
    """Add products to limbs: see `products.add_products`."""
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    total = sum(_whole_number(a) * _whole_number(b) for a, b in pairs)
    pieces = np.frombuffer(abs(total).to_bytes(4 * len(limbs), "little"), "<u4")
    limbs += pieces.astype(np.int64) if total >= 0 else -pieces.astype(np.int64)


def _whole_number(bits: int) -> int:
    """Return how many times 2**-1074 the float64 with these bits is."""
    exponent, mantissa = (bits >> 52) & 0x7FF, bits & 0xFFFFFFFFFFFFF
    if exponent > 0:  # not subnormal: there is a hidden bit
        mantissa |= 0x10000000000000
        exponent -= 1
    return (-mantissa if bits < 0 else mantissa) << exponent

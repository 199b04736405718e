"""First limits of queries of which nothing is known, from the rows of their nearest cell.

    queries x some of its groups --the smallest sum of each lane--> 64 rows at most
                                 --a square within which K + 1 of these are--> limit

Without a limit all pairs are kept until there are too many of them, again and again; sums
of which only the smallest are kept cost a fraction of that. The rows of 64 lanes differ,
and one of them may be the query itself, so K others are within the limit.

The square is found by halving: to count the lanes within one takes a few nanoseconds, to
select among them a hundred. It need not be the smallest.
"""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.bounds import (
    find_own_cells,
    group_error,
    list_queries,
    move_to_cell,
    rounded_up,
    take_own_queries,
    upper_bound_offset,
)
from lpe_dask.kernels.compiled import borrowing, inlined
from lpe_dask.kernels.filters import QUERIES, parts_of, sum_parts
from lpe_dask.kernels.simd import count_bits, lanes_within

#: Numbers of a lane that are looked at, since groups of many features cost more than they
#: save, and the fewest and the most groups.
SEED_NUMBERS, MIN_GROUPS, MAX_GROUPS = 256, 4, 16

#: Times that an interval with the square is halved at most, and where it may not lie.
MAX_HALVINGS, MIN_SQUARE, MAX_SQUARE = 12, 2.0**-100, 2.0**100

#: Neighbors up to which 64 lanes give a limit that is close.
MAX_SEEDED = 40


@borrowing
def set_initial_limits(n_rows, n_near, first, queries, block, errors, found, tile):  # type: ignore[no-untyped-def]
    """Lower the limits of queries that have none, each by the rows of its nearest cell.

    Parameters
    ----------
    n_rows, n_near : int
        Queries of the tile, and cells that are near it; all are listed in the tile.
    first : int
        Number of the first query of the tile.
    queries : Queries
    block : Block
    errors : ErrorBounds
    found : Found
        Its limits are changed.
    tile : Tile
    """
    if n_near == 0:  # a code separates all rows
        return
    n_own = find_own_cells(n_rows, n_near, block, tile)
    for rank in range(n_own):
        if tile.firsts[rank] < 0:
            continue
        cell = tile.order[rank]
        take_own_queries(rank, tile)
        move_to_cell(queries, first, block, cell, found.limits, errors, tile)
        n_listed = list_queries(tile.near, tile.near, tile)
        lower_limits(n_listed, cell, first, block, errors, found, tile)


@borrowing
def lower_limits(n_listed, cell, first, block, errors, found, tile):  # type: ignore[no-untyped-def]
    """Lower the limits of listed queries that have none by some rows of a cell.

    Their thresholds have to be infinite: sums above them are not written.
    """
    n_features = block.centers.shape[1]
    # Full groups alone: without a limit the sum to a row is always near, and so written.
    start, stop = block.starts[cell] // LANES, block.starts[cell + 1] // LANES
    n_groups = SEED_NUMBERS // n_features
    n_groups = n_groups if n_groups > MIN_GROUPS else MIN_GROUPS  # noqa: FURB136
    n_groups = n_groups if n_groups < MAX_GROUPS else MAX_GROUPS  # noqa: FURB136
    stop = stop if stop < start + n_groups else start + n_groups  # noqa: FURB136
    is_any_unlimited = False
    for a in range(n_listed):
        i = first + tile.listed[a]
        is_any_unlimited |= found.limits[i] == np.inf and found.wanted[i] <= MAX_SEEDED
    if not is_any_unlimited or stop == start:
        return
    n_packs = -(-n_listed // QUERIES)
    n_parts = parts_of(n_features - len(tile.lowered))
    n_sums = n_packs * QUERIES * LANES
    sums, least = tile.sums, tile.least
    least[:n_sums] = np.inf
    spread, rounding, span = 0.0, np.float32(0.0), np.float32(0.0)
    for g in range(start, stop):
        if _has_unmeasured(g, block):
            continue
        of_group = group_error(g, block, errors)
        spread = spread if spread > of_group else of_group  # noqa: FURB136 - NaN
        rounding, span = max(rounding, block.roundings[g]), max(span, block.spans[g])
        sum_parts(g, n_packs, n_parts, n_features, block, tile)
        for m in range(n_sums):
            least[m] = sums[m] if sums[m] < least[m] else least[m]  # noqa: FURB136 - NaN
    if not spread < np.inf:  # the sum of a row far out bounds nothing
        return
    square = 1.0
    for a in range(n_listed):
        r = tile.listed[a]
        i = first + r
        if found.limits[i] < np.inf or found.wanted[i] > MAX_SEEDED:
            continue
        length = tile.lengths[r]
        # Queries of a tile are alike: where one found its square, the next one begins.
        square = _square_of(found.wanted[i] + 1, least, a * LANES, length, square)
        total = np.float64(np.float32(square - length))
        rounded = np.float64(tile.spans[r]) * rounding + tile.roundings[r] * span
        offset = upper_bound_offset(r, spread + rounded * (1.0 + 2.0**-20), errors, tile)
        limit = rounded_up((total + offset) * errors.stretch)
        if limit < np.inf:
            found.limits[i] = np.float64(limit) if limit > 0.0 else 0.0


@inlined
def _has_unmeasured(g, block):  # type: ignore[no-untyped-def]
    """Return whether a group has rows that are not measured, of which no sum is written."""
    has_unmeasured = False
    for place in range(g * LANES, (g + 1) * LANES):
        has_unmeasured |= block.norms[place] != block.norms[place]  # NaN
    return has_unmeasured


@borrowing
def _square_of(n_least, sums, start, length, square):  # type: ignore[no-untyped-def]
    """Return a square within which at least ``n_least`` of 64 lanes are, or few more.

    Those lanes have sums from ``start`` on of at most the square less ``length``. The
    search begins at ``square``.
    """
    low = 0.0
    high = square if square > MIN_SQUARE else MIN_SQUARE  # noqa: FURB136
    high = high if high < MAX_SQUARE else MAX_SQUARE  # noqa: FURB136
    n_within = _count_lanes(sums, start, high - length)
    while n_within < n_least:
        if high >= MAX_SQUARE:
            return np.inf
        low, high = high, 4.0 * high
        n_within = _count_lanes(sums, start, high - length)
    while low == 0.0 and high > MIN_SQUARE:
        n_nearer = _count_lanes(sums, start, high / 4.0 - length)
        if n_nearer < n_least:
            low = high / 4.0
        else:
            high, n_within = high / 4.0, n_nearer
    if low == 0.0:  # as of equal rows
        return high
    for _ in range(MAX_HALVINGS):
        if n_within <= n_least + n_least // 8:
            break
        middle = (low + high) / 2.0
        n_nearer = _count_lanes(sums, start, middle - length)
        if n_nearer < n_least:
            low = middle
        else:
            high, n_within = middle, n_nearer
    return high


@inlined
def _count_lanes(sums, start, limit):  # type: ignore[no-untyped-def]
    """Return how many lanes from ``start`` on have a sum of at most ``limit``."""
    return count_bits(lanes_within(sums, start, np.float32(limit)))

r"""Which cells matter to a tile of queries, and to which of its queries.

    tile of queries --distance between boxes--> cells, nearest first
    cell --distance from each point to its box--> active queries --> offsets from its center

Boxes have the codes of categories as intervals: where no code of a cell is that of a query,
the column adds its weight. Every bound here is lowered by what rounding may have added, so
that a cell or a query is left out only if that is proven to change nothing (see `basis`).
"""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.arrays import LANES, TILE_ROWS, Tile
from lpe_dask.kernels.basis import FAR_SQUARE, LARGEST_SUM
from lpe_dask.kernels.compiled import borrowing, compiled, inlined
from lpe_dask.kernels.filters import QUERIES
from lpe_dask.kernels.selection import largest_of
from lpe_dask.kernels.simd import lanes_not_above, lowest_bit

#: Of a float32, away from zero.
_OUTWARD = np.float32(2.0**-22)

_ONE = np.uint64(1)


@inlined
def rounded_up(number):  # type: ignore[no-untyped-def]
    """Return a float32 that is not below ``number``."""
    single = np.float32(number)
    return np.float32(single + abs(single) * np.float32(2.0**-22) + np.float32(1e-37))


@compiled
def empty_tile(n_cells, queries):  # type: ignore[no-untyped-def]
    """Return room for tiles of up to `TILE_ROWS` queries against a block."""
    n_features = queries.points.shape[1]
    n_packed = -(-TILE_ROWS // QUERIES) * QUERIES
    return Tile(
        np.empty((n_features, TILE_ROWS)),
        np.empty((n_features, TILE_ROWS), np.float32),
        np.empty(n_features, np.float32),
        np.empty(TILE_ROWS, np.float32),
        np.empty((n_features, TILE_ROWS), np.float32),
        np.empty(TILE_ROWS),
        np.empty(TILE_ROWS, np.int64),
        np.empty(n_packed, np.int64),
        np.empty(n_packed, np.int64),
        np.empty(n_packed * n_features, np.float32),
        np.empty(n_packed),
        np.empty(n_packed),
        np.empty(TILE_ROWS),
        np.empty(TILE_ROWS, np.float32),
        np.empty(n_packed, np.float32),
        np.empty(n_cells, np.int64),
        np.empty(n_cells),
        np.empty(n_packed * LANES, np.float32),
        np.empty(n_packed * LANES, np.float32),
        np.empty(QUERIES, np.uint64),
        np.empty(LANES, np.int64),
        np.empty(LANES),
        queries.lowered,
    )


@borrowing
def find_near_cells(queries, number, block, farthest, errors, tile):  # type: ignore[no-untyped-def]
    """Fill ``tile.order`` with cells whose box may be within ``farthest``; count them.

    ``number`` is that of the tile. The nearest one comes first, the others in any order,
    with their bounds in ``tile.bounds``.
    """
    centers, lows, highs = block.centers, block.lows, block.highs
    tile_lows, tile_highs = queries.lows[number], queries.highs[number]
    order, bounds, reaches = tile.order, tile.bounds, block.reaches
    n_cells, n_features = centers.shape
    n_numbers = n_features - len(tile.lowered)
    first, stop = queries.starts[number], queries.starts[number + 1]
    reach = largest_of(queries.reaches, first, stop)
    n_near = 0
    nearest = 0
    for cell in range(n_cells):
        bound = 0.0
        size = 0.0
        for k in range(n_numbers):
            center = centers[cell, k]
            below = center + lows[cell, k] - tile_highs[k]
            above = tile_lows[k] - center - highs[cell, k]
            gap = below if below > above else above  # noqa: FURB136 - max is slower
            if gap > 0.0:
                bound += gap * gap
                size += center * center
        if n_numbers < n_features:
            gap = _code_gap(cell, tile_lows, tile_highs, block, tile)
            if gap > LARGEST_SUM:  # also where nothing is known that is near
                continue
            bound += gap
        bound -= 2.0**-23 * bound + 2.0**-40 * size
        bound -= errors.underflow + errors.rounding * (reach + reaches[cell])
        if not bound > farthest:
            order[n_near] = cell
            bounds[n_near] = bound
            if bound < bounds[nearest]:
                nearest = n_near
            n_near += 1
    order[0], order[nearest] = order[nearest], order[0]
    bounds[0], bounds[nearest] = bounds[nearest], bounds[0]
    return n_near


@borrowing
def _code_gap(cell, tile_lows, tile_highs, block, tile):  # type: ignore[no-untyped-def]
    """Return the weights of the columns in which no code of a cell is one of a tile."""
    n_codes, n_features = len(tile.lowered), len(tile_lows)
    gap = 0.0
    for j in range(n_codes):
        k = n_features - n_codes + j
        if block.lows[cell, k] > tile_highs[k] or tile_lows[k] > block.highs[cell, k]:
            gap += tile.lowered[j]
    return gap


@borrowing
def sort_near_cells(start, n_near, farthest, tile):  # type: ignore[no-untyped-def]
    """Sort the cells found from ``start`` on, without those that are now too far.

    Returns how many there are, counted from the first.
    """
    order, bounds = tile.order, tile.bounds
    n_left = start
    for rank in range(start, n_near):
        if bounds[rank] <= farthest:
            order[n_left], bounds[n_left] = order[rank], bounds[rank]
            n_left += 1
    # Shell's sort: few lines, and fast for the few thousand cells that there may be.
    gap = 1
    while 3 * gap < n_left - start:
        gap = 3 * gap + 1
    while gap > 0:
        for rank in range(start + gap, n_left):
            cell, bound = order[rank], bounds[rank]
            place = rank
            while place >= start + gap and bounds[place - gap] > bound:
                order[place], bounds[place] = order[place - gap], bounds[place - gap]
                place -= gap
            order[place], bounds[place] = cell, bound
        gap //= 3
    return n_left


@borrowing
def load_tile(queries, first, n_rows, limits, reach, errors, tile):  # type: ignore[no-untyped-def]
    """Take ``n_rows`` queries from ``first`` on into the tile, with their limits.

    ``reach`` is the largest one of the cells of the block.
    """
    columns, singles, points = tile.columns, tile.singles, queries.points
    for k in range(len(columns)):
        tile.slacks[k] = 0.0
    tile.bars[:] = -1.0
    for i in range(n_rows):
        is_near = queries.reaches[first + i] < np.inf
        for k in range(len(columns)):
            point = points[first + i, k]
            columns[k, i] = point
            singles[k, i] = point
            if is_near and abs(point) > tile.slacks[k]:
                tile.slacks[k] = abs(point)
        tile.active[i] = i
    for k in range(len(columns)):
        # A point and the difference to it are rounded to float32.
        tile.slacks[k] = tile.slacks[k] * 2.0**-22 + 1e-37
    update_limits(n_rows, queries, first, limits, reach, errors, tile)


@borrowing
def update_limits(n_active, queries, first, limits, reach, errors, tile):  # type: ignore[no-untyped-def]
    """Fill the bars of the active queries by their limits."""
    share = 1.0 + (len(tile.columns) + 8) * 2.0**-22
    for a in range(n_active):
        i = tile.active[a]
        limit = limits[first + i]
        if limit < 0.0:
            tile.bars[i] = -1.0
            continue
        error = errors.underflow + errors.rounding * (queries.reaches[first + i] + reach)
        tile.bars[i] = rounded_up((limit + error) * share)


@borrowing
def _find_near_queries(n_rows, block, cell, tile):  # type: ignore[no-untyped-def]
    """List the queries of a tile whose box distance is not above their bar; count them.

    In float32 and for all queries of the tile alike, which takes a nanosecond for each;
    most cells are near few of them.
    """
    singles, gaps, near = tile.singles, tile.gaps, tile.near
    centers, lows, highs = block.centers, block.lows, block.highs
    gaps[:] = 0.0
    n_numbers = len(singles) - len(tile.lowered)
    for k in range(n_numbers):
        low = np.float32(centers[cell, k] + lows[cell, k])
        low -= abs(low) * _OUTWARD + tile.slacks[k]
        high = np.float32(centers[cell, k] + highs[cell, k])
        high += abs(high) * _OUTWARD + tile.slacks[k]
        for i in range(n_rows):  # written so that it becomes vector instructions
            below = low - singles[k, i]
            above = singles[k, i] - high
            gap = below if below > above else above  # noqa: FURB136 - max is slower
            gap = gap if gap > np.float32(0.0) else np.float32(0.0)  # noqa: FURB136
            gaps[i] += gap * gap
    for k in range(n_numbers, len(singles)):
        low, high, weight = lows[cell, k], highs[cell, k], tile.lowered[k - n_numbers]
        for i in range(n_rows):
            is_out = singles[k, i] < low or singles[k, i] > high
            gaps[i] += weight if is_out else np.float32(0.0)
    n_near = 0
    for start in range(0, n_rows, LANES):
        mask = lanes_not_above(gaps, tile.bars, start)
        while mask != 0:
            near[n_near] = start + lowest_bit(mask)
            n_near += 1
            mask &= mask - _ONE
    return n_near


@borrowing
def _move_to_cell(n_near, block, cell, tile):  # type: ignore[no-untyped-def]
    """Fill near points' offsets from a cell's center, their squares, gaps to its box."""
    columns, moved, near = tile.columns, tile.moved, tile.near
    squares, gaps, numbers = tile.squares, tile.gaps, tile.numbers
    for m in range(n_near):
        squares[m] = 0.0
        gaps[m] = 0.0
    centers, lows, highs = block.centers, block.lows, block.highs
    n_numbers = len(columns) - len(tile.lowered)
    for k in range(n_numbers):
        center, low, high = centers[cell, k], lows[cell, k], highs[cell, k]
        column = columns[k]
        for m in range(n_near):
            numbers[m] = column[np.uintp(near[m])]
        for m in range(n_near):  # written so that it becomes vector instructions
            offset = np.float32(numbers[m] - center)
            moved[k, m] = np.float32(-2.0) * offset
            squares[m] += np.float64(offset) * np.float64(offset)
            below = low - offset
            above = offset - high
            gap = below if below > above else above  # noqa: FURB136
            gap = gap if gap > np.float32(0.0) else np.float32(0.0)  # noqa: FURB136
            gaps[m] += gap * gap
    for k in range(n_numbers, len(columns)):
        low, high, weight = lows[cell, k], highs[cell, k], tile.lowered[k - n_numbers]
        for m in range(n_near):
            code = np.float32(columns[k, np.uintp(near[m])])
            moved[k, m] = code
            gaps[m] += weight if code < low or code > high else np.float32(0.0)


@borrowing
def select_active_queries(n_rows, queries, first, block, cell, limits, errors, tile):  # type: ignore[no-untyped-def]
    """List the queries of a tile that a cell may matter to, with offsets; count them."""
    n_near = _find_near_queries(n_rows, block, cell, tile)
    if n_near == 0:
        return 0
    _move_to_cell(n_near, block, cell, tile)
    active, lengths, tile_errors = tile.active, tile.lengths, tile.errors
    squares, gaps, reaches = tile.squares, tile.gaps, queries.reaches
    reach = block.reaches[cell]
    n_active = np.int64(0)  # a number that is known is another type
    for m in range(n_near):
        i = tile.near[m]
        limit = limits[first + i]
        error = errors.underflow + errors.rounding * (reaches[first + i] + reach)
        # Closer than before, where a cell is small beside its distance from the origin.
        # A gap that is inf in float32 bounds nothing.
        if limit < gaps[m] - errors.relative * squares[m] - error < np.inf:
            continue
        active[n_active] = i
        tile.sources[n_active] = m
        # Too far from this cell for float32: not filtered.
        is_far = not squares[m] < FAR_SQUARE
        lengths[n_active] = 0.0 if is_far else squares[m]
        tile_errors[n_active] = np.inf if is_far else error
        n_active += 1
    _pack_offsets(n_active, tile)
    for a in range(n_active):
        tile.thresholds[a] = threshold_of(a, limits[first + active[a]], errors, tile)
    return n_active


@borrowing
def _pack_offsets(n_active, tile):  # type: ignore[no-untyped-def]
    """Interleave the offsets of the active queries, and of none to fill the last pack."""
    sources, moved, offsets = tile.sources, tile.moved, tile.offsets
    tile_errors, thresholds = tile.errors, tile.thresholds
    n_packed = -(-n_active // QUERIES) * QUERIES
    for a in range(n_active, n_packed):
        sources[a] = 0
        thresholds[a] = np.nan  # no query: nothing is near, not even a row at -inf
    n_features = len(moved)
    for k in range(n_features):
        column = moved[k]
        for pack in range(n_packed // QUERIES):
            place = (pack * n_features + k) * QUERIES
            for q in range(QUERIES):
                offsets[place + q] = column[np.uintp(sources[pack * QUERIES + q])]
    for a in range(n_active):
        if tile_errors[a] == np.inf:
            first = (a // QUERIES) * QUERIES * n_features + a % QUERIES
            for k in range(n_features):
                offsets[first + k * QUERIES] = np.float32(0.0)


@inlined
def group_error(g, block, errors):  # type: ignore[no-untyped-def]
    """Return the error of a sum because of the rows of group ``g``."""
    return 2.0 * errors.relative * block.longest[g]


@inlined
def upper_bound_offset(a, spread, errors, tile):  # type: ignore[no-untyped-def]
    """Return the term that makes a sum of active query ``a`` an upper bound of its square.

    ``spread`` is what it may be off because of the row.
    """
    return tile.lengths[a] * (1.0 + errors.relative) + spread + tile.errors[a]


@inlined
def threshold_of(a, limit, errors, tile):  # type: ignore[no-untyped-def]
    """Return the largest sum of active query ``a`` whose pair may be within ``limit``."""
    return rounded_up(limit - tile.lengths[a] * (1.0 - errors.relative) + tile.errors[a])


@inlined
def below_separate(threshold):  # type: ignore[no-untyped-def]
    """Return a threshold, or a lower one that no row reaches which a code separates."""
    most = np.float32(LARGEST_SUM)
    return threshold if threshold < most else most  # noqa: FURB136 - NaN


@borrowing
def leave_out_separate(n_active, tile):  # type: ignore[no-untyped-def]
    """Lower the thresholds of active queries below the sums of rows that are separate."""
    for a in range(n_active):
        tile.thresholds[a] = below_separate(tile.thresholds[a])

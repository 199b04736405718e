r"""Which cells matter to a tile of queries, and to which of its queries.

    tile of queries --distance between boxes--> cells, nearest first
    cell --distance from each point to its box--> near queries --> offsets from its center
    group --the same--> queries that its 64 rows are compared with

Boxes have the codes of categories as intervals: where no code of a cell is that of a query,
the column adds its weight. Every bound here is lowered by what rounding may have added, so
that a cell or a query is left out only if that is proven to change nothing (see `basis`).
"""

from __future__ import annotations

import math

import numpy as np

from lpe_dask.kernels import rounding
from lpe_dask.kernels.arrays import LANES, TILE_ROWS, WORDS, Tile
from lpe_dask.kernels.basis import FAR_SQUARE, LARGEST_SUM
from lpe_dask.kernels.boxes import (
    move_to_center,
    queries_near_box,
    round_offset,
    take_nearer_box,
)
from lpe_dask.kernels.compiled import borrowing, compiled, inlined
from lpe_dask.kernels.filters import QUERIES
from lpe_dask.kernels.rounding import MIN_STEP
from lpe_dask.kernels.selection import largest_of
from lpe_dask.kernels.simd import count_bits, lowest_bit

#: Queries that boxes of groups are held against before it is forgotten what share of them
#: was near; above which share they are passed over, but in one of so many cells.
BOXED_QUERIES, BOXED_SHARE, BOXED_EVERY = 2**14, 0.85, 16

#: Bins that cells are sorted by: eight for each doubling of their bounds.
N_BINS = 256

worst_rounding = inlined(rounding.worst_rounding)

#: Of a float32, away from zero.
_OUTWARD = np.float32(2.0**-22)

_NONE, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)


@inlined
def rounded_up(number):  # type: ignore[no-untyped-def]
    """Return a float32 that is not below ``number``."""
    single = np.float32(number)
    return np.float32(single + abs(single) * np.float32(2.0**-22) + np.float32(1e-37))


@compiled
def empty_tile(block, queries):  # type: ignore[no-untyped-def]
    """Return room for tiles of up to `TILE_ROWS` queries against a block."""
    n_cells, n_features = block.centers.shape
    n_codes = len(queries.lowered)
    n_packed = -(-TILE_ROWS // QUERIES) * QUERIES
    n_runs = -(-n_cells // LANES)
    tile = Tile(
        np.empty((n_features, TILE_ROWS), np.float32),
        np.empty(n_features, np.float32),
        np.empty(TILE_ROWS, np.float32),
        np.empty(n_features, np.float32),
        np.empty(n_features, np.float32),
        np.empty(WORDS, np.uint64),
        np.empty((_most_groups(block), WORDS), np.uint64),
        np.zeros(2, np.int64),
        np.empty(TILE_ROWS, np.float32),
        np.empty(TILE_ROWS, np.int32),
        np.empty(TILE_ROWS, np.int64),
        np.empty(n_cells, np.int64),
        np.empty(n_packed + QUERIES, np.int64),
        np.empty(n_features, np.float32),
        np.zeros((TILE_ROWS + 1, stored_numbers(n_features - n_codes)), np.int16),
        np.zeros((TILE_ROWS + 1, n_codes), np.float32),
        np.zeros(TILE_ROWS + 1, np.float32),
        np.zeros(TILE_ROWS + 1, np.float32),
        np.zeros(TILE_ROWS + 1, np.float32),
        np.zeros(TILE_ROWS + 1),
        np.zeros(TILE_ROWS + 1),
        np.empty(TILE_ROWS + 1, np.float32),
        np.full((n_features, n_runs * LANES), np.inf),
        np.full((n_features, n_runs * LANES), np.inf),
        np.empty((n_runs, n_features)),
        np.empty((n_runs, n_features)),
        np.empty(LANES),
        np.empty(n_cells, np.int64),
        np.empty(n_cells, np.int64),
        np.empty(n_cells),
        np.empty(n_cells),
        np.empty(N_BINS, np.int64),
        np.empty(n_packed * LANES, np.float32),
        np.empty(n_packed * LANES, np.float32),
        np.empty(QUERIES, np.uint64),
        np.empty(LANES, np.int64),
        np.empty(LANES),
        queries.lowered,
    )
    _fill_cell_boxes(block, tile)
    tile.thresholds[TILE_ROWS] = np.nan  # no query: nothing is near, no row at -inf either
    return tile


@inlined
def stored_numbers(n_numbers):  # type: ignore[no-untyped-def]
    """Return how many places offsets of so many numbers have: full twos.

    Rows of many start in different lines of a cache: at an odd multiple of 32.
    """
    n_stored = (n_numbers + 1) // 2 * 2
    return n_stored if n_stored < 2 * LANES else (-(-n_stored // 32) | 1) * 32


@borrowing
def _most_groups(block):  # type: ignore[no-untyped-def]
    """Return the most groups of a cell, where groups have boxes."""
    most = np.int64(1)
    if len(block.group_lows) > 0:
        for cell in range(len(block.centers)):
            n_groups = -(-(block.starts[cell + 1] - block.starts[cell]) // LANES)
            most = n_groups if n_groups > most else most  # noqa: FURB136
    return most


@borrowing
def _fill_cell_boxes(block, tile):  # type: ignore[no-untyped-def]
    """Fill the boxes of cells, each column in one run, and those of runs of cells."""
    centers, lows, highs = block.centers, block.lows, block.highs
    n_cells, n_features = centers.shape
    n_numbers = n_features - len(tile.lowered)
    for k in range(n_features):
        cell_lows, cell_highs = tile.cell_lows[k], tile.cell_highs[k]
        outward = 2.0**-50 if k < n_numbers else 0.0
        for cell in range(n_cells):
            center, low, high = centers[cell, k], lows[cell, k], highs[cell, k]
            cell_lows[cell] = center + low - outward * (abs(center) + abs(low))
            cell_highs[cell] = center + high + outward * (abs(center) + abs(high))
        for run in range(len(tile.run_lows)):
            low, high = np.inf, -np.inf
            for cell in range(run * LANES, min((run + 1) * LANES, n_cells)):
                low = cell_lows[cell] if cell_lows[cell] < low else low  # noqa: FURB136
                high = cell_highs[cell] if cell_highs[cell] > high else high  # noqa: FURB136
            tile.run_lows[run, k], tile.run_highs[run, k] = low, high


@borrowing
def find_near_cells(queries, number, block, farthest, reach, errors, tile):  # type: ignore[no-untyped-def]
    """Fill ``tile.order`` with cells whose box may be within ``farthest``; count them.

    ``number`` is that of the tile, and ``reach`` the largest one of the cells. The nearest
    cell comes first, the others in any order, with their bounds in ``tile.bounds``.
    """
    tile_low, tile_high = queries.lows[number], queries.highs[number]
    order, bounds, gaps, reaches = tile.order, tile.bounds, tile.gaps, block.reaches
    n_cells, n_features = block.centers.shape
    n_numbers = n_features - len(tile.lowered)
    first, stop = queries.starts[number], queries.starts[number + 1]
    own_reach = largest_of(queries.reaches, first, stop)
    n_near = 0
    nearest = 0
    for run in range(len(tile.run_lows)):
        square = 0.0
        for k in range(n_numbers):
            below = tile.run_lows[run, k] - tile_high[k]
            above = tile_low[k] - tile.run_highs[run, k]
            gap = below if below > above else above  # noqa: FURB136 - max is slower
            square += gap * gap if gap > 0.0 else 0.0
        error = errors.underflow + errors.rounding * (own_reach + reach)
        if square - 2.0**-23 * square - error > farthest:
            continue
        start = run * LANES
        gaps[:] = 0.0
        for k in range(n_numbers):
            low, high = tile_low[k], tile_high[k]
            cell_lows, cell_highs = tile.cell_lows[k], tile.cell_highs[k]
            for c in range(LANES):  # written so that it becomes vector instructions
                below = cell_lows[np.uintp(start + c)] - high
                above = low - cell_highs[np.uintp(start + c)]
                gap = below if below > above else above  # noqa: FURB136
                gap = gap if gap > 0.0 else 0.0  # noqa: FURB136
                gaps[np.uintp(c)] += gap * gap
        for cell in range(start, min(start + LANES, n_cells)):
            bound = gaps[cell - start]
            if n_numbers < n_features:
                gap = _code_gap(cell, tile_low, tile_high, block, tile)
                if gap > LARGEST_SUM:  # also where nothing is known that is near
                    continue
                bound += gap
            bound -= 2.0**-23 * bound
            bound -= errors.underflow + errors.rounding * (own_reach + reaches[cell])
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

    About: a bound that is less than a sixteenth more may come before. Returns how many
    there are, counted from the first.
    """
    order, bounds = tile.order, tile.bounds
    other_order, other_bounds = tile.other_order, tile.other_bounds
    top = 0.0
    n_left = start
    for rank in range(start, n_near):
        if bounds[rank] <= farthest:
            order[n_left], bounds[n_left] = order[rank], bounds[rank]
            top = bounds[rank] if bounds[rank] > top else top  # noqa: FURB136
            n_left += 1
    # By the first bits of their bounds, of which each bin has its own: a count for each.
    stops = tile.bins
    highest = _first_bits(top)
    stops[:] = 0
    for rank in range(start, n_left):
        stops[_bin_of(bounds[rank], highest)] += 1
    total = start
    for m in range(len(stops)):
        total += stops[m]
        stops[m] = total
    for rank in range(n_left - 1, start - 1, -1):
        m = _bin_of(bounds[rank], highest)
        stops[m] -= 1
        place = stops[m]
        other_order[place], other_bounds[place] = order[rank], bounds[rank]
    for rank in range(start, n_left):
        order[rank], bounds[rank] = other_order[rank], other_bounds[rank]
    return n_left


@borrowing
def _first_bits(bound):  # type: ignore[no-untyped-def]
    """Return the exponent of a bound in float32, and three bits more; 0 from 0 down."""
    positive = bound if bound > 0.0 else 0.0  # noqa: FURB136 - NaN
    return np.int64(np.float32(positive).view(np.uint32)) >> 20


@borrowing
def _bin_of(bound, highest):  # type: ignore[no-untyped-def]
    """Return in which of `N_BINS` bins a bound is, of which the last has the highest."""
    m = _first_bits(bound) - highest + N_BINS - 1
    return m if m > 0 else 0  # noqa: FURB136


@borrowing
def load_tile(queries, first, n_rows, limits, reach, errors, tile):  # type: ignore[no-untyped-def]
    """Take ``n_rows`` queries from ``first`` on into the tile, with their limits.

    ``reach`` is the largest one of the cells of the block.
    """
    singles, points = tile.singles, queries.points
    tile.slacks[:] = 0.0
    tile.bars[:] = -1.0
    for i in range(n_rows):
        is_near = queries.reaches[first + i] < np.inf
        for k in range(len(singles)):
            point = points[first + i, k]
            singles[k, i] = point
            if is_near and abs(point) > tile.slacks[k]:
                tile.slacks[k] = abs(point)
    for k in range(len(singles)):
        # A point and the difference to it are rounded to float32.
        tile.slacks[k] = tile.slacks[k] * 2.0**-22 + 1e-37
    for word in range(WORDS):
        tile.near[word] = _ALL
    update_limits(n_rows, queries, first, limits, reach, errors, tile)


@inlined
def update_limits(n_rows, queries, first, limits, reach, errors, tile):  # type: ignore[no-untyped-def]
    """Fill the bars of near queries by their limits; return whether any is lower now."""
    share = 1.0 + (len(tile.singles) + 8) * 2.0**-22
    is_lower = False
    for word in range(WORDS):
        near = tile.near[word]
        while near != 0:
            i = word * LANES + lowest_bit(near)
            near &= near - _ONE
            if i >= n_rows:
                break
            limit, bar = limits[first + i], np.float32(-1.0)
            if not limit < 0.0:
                reaches = queries.reaches[first + i] + reach
                error = errors.underflow + errors.rounding * reaches
                bar = rounded_up((limit + error) * share)
            is_lower |= bar < tile.bars[i]
            tile.bars[i] = bar
    return is_lower


@inlined
def _take_box(block, cell, tile):  # type: ignore[no-untyped-def]
    """Take the box of a cell as the one at hand."""
    centers, lows, highs = block.centers, block.lows, block.highs
    low, high = tile.low, tile.high
    n_numbers = len(low) - len(tile.lowered)
    for k in range(n_numbers):
        below = np.float32(centers[cell, k] + lows[cell, k])
        low[k] = below - (abs(below) * _OUTWARD + tile.slacks[k])
        above = np.float32(centers[cell, k] + highs[cell, k])
        high[k] = above + (abs(above) * _OUTWARD + tile.slacks[k])
    for k in range(n_numbers, len(low)):
        low[k], high[k] = lows[cell, k], highs[cell, k]


@inlined
def find_near_queries(n_rows, block, cell, tile):  # type: ignore[no-untyped-def]
    """Mark the queries of a tile that may be near the box of a cell; return if any is.

    In float32 and for 64 queries alike, which takes half a nanosecond for each; most cells
    are near few of them.
    """
    _take_box(block, cell, tile)
    any_near = _NONE
    for word in range(WORDS):
        near = _NONE
        if word * LANES < n_rows:
            near = queries_near_box(
                tile.singles, word * LANES, tile.low, tile.high, tile.bars, tile.lowered
            )
        tile.near[word] = near
        any_near |= near
    return any_near != _NONE


@borrowing
def find_own_cells(n_rows, n_near, block, tile):  # type: ignore[no-untyped-def]
    """Find the nearest cell of each query that is not done; return how many to look at.

    Of those that touch the tile, or else the one that is nearest to it. They come first
    then, and ``tile.firsts`` has a query of each, or -1.
    """
    order, bounds = tile.order, tile.bounds
    n_own = np.int64(1)
    for rank in range(1, n_near):
        if bounds[rank] <= 0.0:
            order[n_own], order[rank] = order[rank], order[n_own]
            bounds[n_own], bounds[rank] = bounds[rank], bounds[n_own]
            n_own += 1
    tile.nearest[:] = np.inf
    tile.own_cells[:] = -1
    for rank in range(n_own):
        _take_box(block, order[rank], tile)
        tile.firsts[rank] = -1
        for start in range(0, n_rows, LANES):
            take_nearer_box(
                tile.singles, start, tile.low, tile.high, tile.nearest, tile.lowered,
                tile.own_cells, np.int32(rank),
            )  # fmt: skip
    for r in range(n_rows):
        rank = tile.own_cells[r]
        if rank >= 0 and tile.bars[r] >= 0.0:
            tile.following[r] = tile.firsts[rank]
            tile.firsts[rank] = r
    return n_own


@inlined
def take_own_queries(rank, tile):  # type: ignore[no-untyped-def]
    """Mark the queries whose own cell is a near one, as near."""
    tile.near[:] = _NONE
    r = tile.firsts[rank]
    while r >= 0:
        tile.near[r // LANES] |= _ONE << np.uint64(r % LANES)
        r = tile.following[r]


@inlined
def find_near_groups(block, cell, tile):  # type: ignore[no-untyped-def]
    """Mark for each group of a cell the near queries that it may matter to.

    Queries that are near no group are not near any more. Returns whether groups were looked
    at: they are where that leaves out enough.
    """
    start, stop = block.starts[cell] // LANES, -(-block.starts[cell + 1] // LANES)
    boxed = tile.boxed
    if len(block.group_lows) == 0 or stop - start == 1:
        return False
    if boxed[0] > BOXED_QUERIES:  # what was found is forgotten by and by
        boxed[0] //= 2
        boxed[1] //= 2
    if boxed[1] > BOXED_SHARE * boxed[0] and cell % BOXED_EVERY != 0:
        return False
    low, high = tile.low, tile.high
    n_numbers = len(low) - len(tile.lowered)
    n_held, n_near = _NONE, _NONE
    for word in range(WORDS):
        n_held += np.uint64(count_bits(tile.near[word]))
    for g in range(start, stop):
        for k in range(n_numbers):
            low[k] = block.group_lows[g, k] - tile.slacks[k]
            high[k] = block.group_highs[g, k] + tile.slacks[k]
        for k in range(n_numbers, len(low)):
            low[k], high[k] = block.group_lows[g, k], block.group_highs[g, k]
        for word in range(WORDS):
            near = tile.near[word]
            if near != _NONE:
                near &= queries_near_box(
                    tile.singles, word * LANES, low, high, tile.bars, tile.lowered
                )
            tile.near_groups[g - start, word] = near
            n_near += np.uint64(count_bits(near))
    for word in range(WORDS):
        near = _NONE
        for m in range(stop - start):
            near |= tile.near_groups[m, word]
        tile.near[word] = near
    boxed[0] += np.int64(n_held) * (stop - start)
    boxed[1] += np.int64(n_near)
    return True


@borrowing
def move_to_cell(queries, first, block, cell, limits, errors, tile):  # type: ignore[no-untyped-def]
    """Fill what near queries have from a cell's center, and leave out those too far."""
    n_features = len(tile.low)
    n_numbers = n_features - len(tile.lowered)
    reach, worst = block.reaches[cell], worst_rounding(n_numbers)
    for word in range(WORDS):
        near = tile.near[word]
        while near != 0:
            bit = near & (~near + _ONE)
            i = word * LANES + lowest_bit(near)
            near ^= bit
            square, gap = move_to_center(
                queries.points, first + i, block.centers, block.lows, block.highs, cell,
                n_numbers, tile.moved,
            )  # fmt: skip
            for k in range(n_numbers, n_features):
                code = np.float32(queries.points[first + i, k])
                tile.codes[i, k - n_numbers] = code
                is_out = code < block.lows[cell, k] or code > block.highs[cell, k]
                gap += tile.lowered[k - n_numbers] if is_out else 0.0
            limit = limits[first + i]
            error = errors.underflow + errors.rounding * (
                queries.reaches[first + i] + reach
            )
            # Closer than before, where a cell is small beside its distance from the origin.
            # A gap that is inf in float32 bounds nothing.
            gap *= 1.0 - (n_features + 8) * 2.0**-23
            if limit < gap - errors.relative * square - error < np.inf:
                tile.near[word] ^= bit
                continue
            # Too far from this cell for float32: not filtered.
            is_far = not square < FAR_SQUARE
            tile.lengths[i] = 0.0 if is_far else square
            tile.errors[i] = np.inf if is_far else error
            step = step_of(tile.lengths[i])
            per_step = np.float32(0.0 if is_far else 1.0 / step)
            round_offset(tile.moved, n_numbers, per_step, tile.offsets, i)
            set_rounding(i, step, worst * step, tile)
            tile.thresholds[i] = threshold_of(i, limit, errors, tile)


@borrowing
def step_of(square):  # type: ignore[no-untyped-def]
    """Return the step of an offset of this squared length: see `rounding.steps_of`."""
    bits = np.float64(square).view(np.int64)
    exponent = ((bits >> 52) - 1021) >> 1  # of a power of 2 above the length
    step = np.int64((exponent + 1008) << 52).view(np.float64)
    return step if step > MIN_STEP else MIN_STEP  # noqa: FURB136


@inlined
def set_rounding(i, step, rounding, tile):  # type: ignore[no-untyped-def]
    """Fill what sums of a query may be off as its offset is rounded, and that of rows."""
    span = 2.0 * (math.sqrt(tile.lengths[i]) + rounding) * (1.0 + 2.0**-20)
    tile.scales[i] = np.float32(-2.0 * step)
    tile.spans[i] = np.float32(span)
    tile.roundings[i] = np.float32(2.0 * rounding * (1.0 + 2.0**-20))


@inlined
def rounding_error(i, g, block, tile):  # type: ignore[no-untyped-def]
    """Return what sums of a query and group ``g`` may be off as offsets are rounded."""
    of_rows = np.float64(tile.spans[i]) * np.float64(block.roundings[g])
    return of_rows + np.float64(tile.roundings[i]) * np.float64(block.spans[g])


@borrowing
def list_queries(words, kept, tile):  # type: ignore[no-untyped-def]
    """List the queries that are in both of two sets, filled up with none; count them."""
    listed = tile.listed
    n_listed = np.uintp(0)
    for word in range(WORDS):
        mask = words[word] & kept[word]
        while mask != 0:
            listed[n_listed] = word * LANES + lowest_bit(mask)
            n_listed += np.uintp(1)
            mask &= mask - _ONE
    for q in range(QUERIES):
        listed[n_listed + np.uintp(q)] = TILE_ROWS
    return np.int64(n_listed)


@inlined
def group_error(g, block, errors):  # type: ignore[no-untyped-def]
    """Return the error of a sum because of the rows of group ``g``."""
    return 2.0 * errors.relative * block.longest[g]


@inlined
def upper_bound_offset(a, spread, errors, tile):  # type: ignore[no-untyped-def]
    """Return the term that makes a sum of query ``a`` an upper bound of its square.

    ``spread`` is what it may be off because of the row.
    """
    return tile.lengths[a] * (1.0 + errors.relative) + spread + tile.errors[a]


@inlined
def threshold_of(a, limit, errors, tile):  # type: ignore[no-untyped-def]
    """Return the largest sum of query ``a`` whose pair may be within ``limit``."""
    return rounded_up(limit - tile.lengths[a] * (1.0 - errors.relative) + tile.errors[a])


@inlined
def below_separate(threshold):  # type: ignore[no-untyped-def]
    """Return a threshold, or a lower one that no row reaches which a code separates."""
    most = np.float32(LARGEST_SUM)
    return threshold if threshold < most else most  # noqa: FURB136 - NaN


@borrowing
def leave_out_separate(tile):  # type: ignore[no-untyped-def]
    """Lower the thresholds of near queries below the sums of rows that are separate."""
    for word in range(WORDS):
        near = tile.near[word]
        while near != 0:
            i = word * LANES + lowest_bit(near)
            near &= near - _ONE
            tile.thresholds[i] = below_separate(tile.thresholds[i])

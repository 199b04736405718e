r"""How many rows of one block are within a radius of each of some queries.

    active queries x cell --float32, 64 rows at a time--> surely within: bits counted
                                                    --> perhaps: float64 definition

Where a number suffices, a query that has reached it is left out of the cells that follow.
"""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.arrays import INACTIVE, LANES
from lpe_dask.kernels.bounds import (
    empty_tile,
    find_near_cells,
    group_error,
    leave_out_separate,
    load_tile,
    select_active_queries,
    sort_near_cells,
    update_limits,
    upper_bound_offset,
)
from lpe_dask.kernels.compiled import borrowing, compiled
from lpe_dask.kernels.filters import QUERIES, filter_pack, prepare_group
from lpe_dask.kernels.selection import largest_of
from lpe_dask.kernels.simd import count_bits, lanes_within, lowest_bit
from lpe_dask.kernels.squares import fill_squares

_ONE = np.uint64(1)


@compiled
def fold_counts(queries, block, errors, counted, tallies):  # type: ignore[no-untyped-def]
    """Count the rows of one block that are within a radius.

    Parameters
    ----------
    queries : Queries
    block : Block
    errors : ErrorBounds
    counted : Counted
        Changed in place.
    tallies : ndarray of shape (2,)
        Grow by the pairs that were filtered, and by the cells that queries met.
    """
    limits = counted.limits
    tile = empty_tile(len(block.centers), queries)
    reach = largest_of(block.reaches, 0, len(block.reaches))
    for number in range(len(queries.starts) - 1):
        first = queries.starts[number]
        n_rows = queries.starts[number + 1] - first
        farthest = largest_of(limits, first, first + n_rows)
        if farthest < 0.0:
            continue
        load_tile(queries, first, n_rows, limits, reach, errors, tile)
        n_near = find_near_cells(queries, number, block, farthest, errors, tile)
        n_near = sort_near_cells(np.int64(0), n_near, farthest, tile)
        for rank in range(n_near):
            if largest_of(limits, first, first + n_rows) < 0.0:
                break  # all have enough
            cell = tile.order[rank]
            n_active = select_active_queries(
                n_rows, queries, first, block, cell, limits, errors, tile
            )
            tallies[1] += n_rows
            if n_active == 0:
                continue
            n_rows_of_cell = block.starts[cell + 1] - block.starts[cell]
            tallies[0] += n_active * n_rows_of_cell
            leave_out_separate(n_active, tile)
            _count_cell(n_active, cell, first, queries, block, errors, counted, tile)
            update_limits(n_active, queries, first, limits, reach, errors, tile)


@borrowing
def _count_cell(n_active, cell, first, queries, block, errors, counted, tile):  # type: ignore[no-untyped-def]
    """Add the rows of a cell that are within to the counts of the active queries."""
    active, sums, masks, counts = tile.active, tile.sums, tile.masks, counted.counts
    n_features = queries.points.shape[1]
    n_packs = -(-n_active // QUERIES)
    for g in range(block.starts[cell] // LANES, -(-block.starts[cell + 1] // LANES)):
        spread = group_error(g, block, errors)
        prepare_group(g, n_packs, n_features, block, tile)
        for pack in range(n_packs):
            near, sums_start = filter_pack(pack, n_packs, g, n_features, block, tile)
            while near != 0:
                q = lowest_bit(near)
                near &= near - _ONE
                a = pack * QUERIES + q
                i = first + active[a]
                rise = upper_bound_offset(a, spread, errors, tile)
                sure = np.uint64(0)
                if rise < np.inf:
                    sum_limit = counted.sure[i] - rise
                    sum_limit -= abs(sum_limit) * 2.0**-22 + 1e-37
                    start = sums_start + q * LANES
                    sure = lanes_within(sums, start, np.float32(sum_limit)) & masks[q]
                counts[i] += count_bits(sure)
                if queries.numbers[i] >= 0:
                    counts[i] -= _is_among(queries.numbers[i], sure, g, block)
                unsure = masks[q] & ~sure
                if unsure != 0:
                    square = counted.squares[i]
                    counts[i] += _count_measured(i, unsure, g, queries, block, square, tile)
    for a in range(n_active):
        if counts[first + active[a]] >= counted.enough:
            counted.limits[first + active[a]] = INACTIVE


@borrowing
def _is_among(number, mask, g, block):  # type: ignore[no-untyped-def]
    """Return 1 if the row of this number is in the mask of group g, else 0."""
    numbers = block.numbers
    while mask != 0:
        if numbers[g * LANES + lowest_bit(mask)] == number:
            return 1
        mask &= mask - _ONE
    return 0


@borrowing
def _count_measured(i, mask, g, queries, block, square, tile):  # type: ignore[no-untyped-def]
    """Return how many rows in the mask of group g are within, by definition."""
    places, squares, numbers = tile.places, tile.measured, block.numbers
    n_places = 0
    while mask != 0:
        place = g * LANES + lowest_bit(mask)
        mask &= mask - _ONE
        if numbers[place] != queries.numbers[i]:
            places[n_places] = place
            n_places += 1
    weights, n_codes = queries.weights[queries.tables[i]], len(queries.lowered)
    fill_squares(queries.rows[i], block, places, n_places, squares, weights, n_codes)
    n_within = 0
    for m in range(n_places):
        if squares[m] <= square:
            n_within += 1
    return n_within

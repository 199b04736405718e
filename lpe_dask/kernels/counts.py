r"""How many rows of one block are within a radius of each of some queries.

    near queries x group --16 bits, 64 rows at a time--> surely within: bits counted
                                                    --> perhaps: float64 definition

Where a number suffices, a query that has reached it is left out of the cells that follow.
"""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.arrays import INACTIVE, LANES, WORDS
from lpe_dask.kernels.bounds import (
    empty_tile,
    find_near_cells,
    find_near_groups,
    find_near_queries,
    group_error,
    leave_out_separate,
    list_queries,
    load_tile,
    move_to_cell,
    rounding_error,
    sort_near_cells,
    update_limits,
    upper_bound_offset,
)
from lpe_dask.kernels.compiled import borrowing, compiled, inlined
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
    tile = empty_tile(block, queries)
    _fold_tiles(queries, block, errors, counted, tallies, tile)


@borrowing
def _fold_tiles(queries, block, errors, counted, tallies, tile):  # type: ignore[no-untyped-def]
    limits = counted.limits
    reach = largest_of(block.reaches, 0, len(block.reaches))
    for number in range(len(queries.starts) - 1):
        first = queries.starts[number]
        n_rows = queries.starts[number + 1] - first
        farthest = largest_of(limits, first, first + n_rows)
        if farthest < 0.0:
            continue
        load_tile(queries, first, n_rows, limits, reach, errors, tile)
        n_near = find_near_cells(queries, number, block, farthest, reach, errors, tile)
        n_near = sort_near_cells(np.int64(0), n_near, farthest, tile)
        for rank in range(n_near):
            if largest_of(limits, first, first + n_rows) < 0.0:
                break  # all have enough
            cell = tile.order[rank]
            tallies[1] += n_rows
            if find_near_queries(n_rows, block, cell, tile):
                tallies[0] += _count_cell(
                    cell, first, queries, block, errors, counted, tile
                )
                update_limits(n_rows, queries, first, limits, reach, errors, tile)


@inlined
def _count_cell(cell, first, queries, block, errors, counted, tile):  # type: ignore[no-untyped-def]
    """Add the rows of a cell that are within to the counts of the near queries.

    Returns how many pairs were filtered.
    """
    sums, masks, counts, near_queries = tile.sums, tile.masks, counted.counts, tile.near
    has_groups = find_near_groups(block, cell, tile)
    move_to_cell(queries, first, block, cell, counted.limits, errors, tile)
    leave_out_separate(tile)
    n_listed = list_queries(near_queries, near_queries, tile)
    n_features = queries.points.shape[1]
    start = block.starts[cell] // LANES
    n_pairs = 0
    for g in range(start, -(-block.starts[cell + 1] // LANES)):
        if has_groups:
            n_listed = list_queries(tile.near_groups[g - start], near_queries, tile)
        n_pairs += n_listed * min(LANES, block.starts[cell + 1] - g * LANES)
        n_packs = -(-n_listed // QUERIES)
        if n_packs == 0:
            continue
        spread = group_error(g, block, errors)
        prepare_group(g, n_packs, n_features, block, tile)
        for pack in range(n_packs):
            near, sums_start = filter_pack(pack, n_packs, g, n_features, block, tile)
            while near != 0:
                q = lowest_bit(near)
                near &= near - _ONE
                r = tile.listed[pack * QUERIES + q]
                i = first + r
                rounded = rounding_error(r, g, block, tile)
                rise = upper_bound_offset(r, spread + rounded, errors, tile)
                sure = np.uint64(0)
                if rise < np.inf:
                    sum_limit = counted.sure[i] - rise
                    sum_limit -= abs(sum_limit) * 2.0**-22 + 1e-37
                    start_of_sums = sums_start + q * LANES
                    sure = lanes_within(sums, start_of_sums, np.float32(sum_limit))
                    sure &= masks[q]
                counts[i] += count_bits(sure)
                if queries.numbers[i] >= 0:
                    counts[i] -= _is_among(queries.numbers[i], sure, g, block)
                unsure = masks[q] & ~sure
                if unsure != 0:
                    square = counted.squares[i]
                    counts[i] += _count_measured(i, unsure, g, queries, block, square, tile)
    for word in range(WORDS):
        near = near_queries[word]
        while near != 0:
            i = first + word * LANES + lowest_bit(near)
            near &= near - _ONE
            if counts[i] >= counted.enough:
                counted.limits[i] = INACTIVE
    return n_pairs


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

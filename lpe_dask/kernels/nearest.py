r"""The K nearest rows of one block to each of some queries: filter first, then measure.

    near queries x group --16 bits, 64 rows at a time--> pairs that may matter
        --upper bounds--> reservoir --K-th smallest bound--> limit for later pairs
        --at the end of a tile--> float64 definition --> K smallest

Pairs that pass the filter wait in a reservoir of at least 2 K places. When there are many,
about the K-th smallest of their upper bounds becomes the limit that later pairs have to
beat, and what is surely further is dropped; that costs a few comparisons a pair, whatever
K is. What bounds cannot order (ties, clusters far out) is measured when it fills the
reservoir.
"""

from __future__ import annotations

import math

import numpy as np

from lpe_dask.kernels.arrays import INACTIVE, LANES, TILE_ROWS, WORDS, CandidateBuffer
from lpe_dask.kernels.bounds import (
    below_separate,
    empty_tile,
    find_near_cells,
    find_near_groups,
    find_near_queries,
    group_error,
    leave_out_separate,
    list_queries,
    load_tile,
    move_to_cell,
    rounded_up,
    rounding_error,
    sort_near_cells,
    threshold_of,
    update_limits,
    upper_bound_offset,
)
from lpe_dask.kernels.compiled import borrowing, compiled, inlined
from lpe_dask.kernels.distances import limit_of
from lpe_dask.kernels.filters import QUERIES, filter_pack, prepare_group
from lpe_dask.kernels.initial_limits import set_initial_limits
from lpe_dask.kernels.selection import keep_smallest, keep_smallest_pairs, largest_of
from lpe_dask.kernels.simd import insert_sorted, lowest_bit
from lpe_dask.kernels.squares import SIDE_BY_SIDE, fill_squares

#: Room of a reservoir beyond K for pairs that bounds alone cannot order.
SPARE_PLACES = 64

#: Neighbors up to which the smallest upper bounds are kept sorted: the limit is then always
#: the K-th of them.
MAX_SORTED = 64

#: Times that the interval with the K-th smallest bound is halved at most, and the share of
#: K by which the one found may have more within.
MAX_HALVINGS, TOLERANCE = 12, 1 / 16

_HALF = np.uint64(32)
_PLACE_BITS = np.uint64(0xFFFFFFFF)
_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)

_limit_of = inlined(limit_of)

#: Of a float32.
INFINITE_BITS = np.uint64(0x7F800000)


@compiled
def reservoir_size(n_neighbors: int) -> int:
    """Return the places of a reservoir for the ``n_neighbors`` nearest.

    Examples
    --------
    >>> reservoir_size(1), reservoir_size(250)
    (65, 500)
    """
    spare = n_neighbors if n_neighbors > SPARE_PLACES else SPARE_PLACES  # noqa: FURB136
    return n_neighbors + spare


@compiled
def fold_nearest(queries, block, errors, found, tallies):  # type: ignore[no-untyped-def]
    """Take the rows of one block into account.

    Parameters
    ----------
    queries : Queries
    block : Block
    errors : ErrorBounds
    found : Found
        Changed in place.
    tallies : ndarray of shape (2,)
        Grow by the pairs that were filtered, and by the cells that queries met.
    """
    tile = empty_tile(block, queries)
    reservoir = _empty_reservoir(found.squares.shape[1])
    _fold_tiles(queries, block, errors, found, tallies, tile, reservoir)


@borrowing
def _fold_tiles(queries, block, errors, found, tallies, tile, reservoir):  # type: ignore[no-untyped-def]
    limits = found.limits
    reach = largest_of(block.reaches, 0, len(block.reaches))
    for number in range(len(queries.starts) - 1):
        first = queries.starts[number]
        n_rows = queries.starts[number + 1] - first
        farthest = largest_of(limits, first, first + n_rows)
        if farthest < 0.0:
            continue
        reservoir.counts[:n_rows] = 0
        reservoir.narrowed[:n_rows] = 0
        reservoir.nearest[:n_rows] = np.inf
        load_tile(queries, first, n_rows, limits, reach, errors, tile)
        n_near = find_near_cells(queries, number, block, farthest, reach, errors, tile)
        if farthest == np.inf:
            set_initial_limits(n_rows, n_near, first, queries, block, errors, found, tile)
            tile.near[:] = _ALL
            update_limits(n_rows, queries, first, limits, reach, errors, tile)
            farthest = largest_of(limits, first, first + n_rows)
        n_near = sort_near_cells(np.int64(0), n_near, farthest, tile)
        rank = 0
        while farthest >= 0.0 and rank < n_near:
            cell, bound = tile.order[rank], tile.bounds[rank]
            rank += 1
            if bound > farthest:
                continue
            tallies[1] += n_rows
            if find_near_queries(n_rows, block, cell, tile):
                tallies[0] += _filter_cell(
                    cell, first, queries, block, errors, found, tile, reservoir
                )
                if update_limits(n_rows, queries, first, limits, reach, errors, tile):
                    farthest = largest_of(limits, first, first + n_rows)
        for r in range(n_rows):
            if reservoir.counts[r] > 0:
                _measure_candidates(first + r, r, queries, block, errors, found, reservoir)


@compiled
def _empty_reservoir(n_neighbors):  # type: ignore[no-untyped-def]
    n_places = reservoir_size(n_neighbors)
    n_sorted = -(-n_neighbors // 16) * 16 if n_neighbors <= MAX_SORTED else 0
    return CandidateBuffer(
        np.empty((TILE_ROWS, n_places), np.uint64),
        np.empty(TILE_ROWS, np.int64),
        np.empty((TILE_ROWS, n_sorted), np.float32),
        np.empty(TILE_ROWS, np.int64),
        np.empty(TILE_ROWS),
        np.empty(n_places, np.int64),
        np.empty(n_neighbors + n_places + SIDE_BY_SIDE),
        np.empty(n_neighbors + n_places, np.int64),
    )


@inlined
def _filter_cell(  # type: ignore[no-untyped-def]
    cell, first, queries, block, errors, found, tile, reservoir
):
    """Put the pairs of near queries and a cell that may matter into the reservoir.

    Returns how many pairs were filtered.
    """
    masks, near_queries = tile.masks, tile.near
    has_groups = find_near_groups(block, cell, tile)
    move_to_cell(queries, first, block, cell, found.limits, errors, tile)
    n_listed = list_queries(near_queries, near_queries, tile)
    leave_out_separate(tile)
    n_features = queries.points.shape[1]
    start = block.starts[cell] // LANES
    stop = -(-block.starts[cell + 1] // LANES)
    n_pairs = 0
    for g in range(start, stop):
        if has_groups:
            n_listed = list_queries(tile.near_groups[g - start], near_queries, tile)
        n_pairs += n_listed * min(LANES, block.starts[cell + 1] - g * LANES)
        n_packs = -(-n_listed // QUERIES)
        if n_packs == 0:
            continue
        prepare_group(g, n_packs, n_features, block, tile)
        for pack in range(n_packs):
            near, sums_start = filter_pack(pack, n_packs, g, n_features, block, tile)
            while near != 0:
                q = lowest_bit(near)
                near &= near - _ONE
                _append_candidates(
                    masks[q], sums_start + q * LANES, tile.listed[pack * QUERIES + q], g,
                    first, queries, block, errors, found, tile, reservoir,
                )  # fmt: skip
    if not _is_sorted(reservoir):
        _tighten_limits(first, errors, found, tile, reservoir)
    return n_pairs


@inlined
def _is_sorted(reservoir):  # type: ignore[no-untyped-def]
    """Return whether the smallest upper bounds of a query are kept sorted."""
    return reservoir.nearest.shape[1] > 0


@borrowing
def _tighten_limits(first, errors, found, tile, reservoir):  # type: ignore[no-untyped-def]
    """Lower the limits of near queries of which enough pairs were found."""
    counts, limits = reservoir.counts, found.limits
    for word in range(WORDS):
        near = tile.near[word]
        while near != 0:
            r = word * LANES + lowest_bit(near)
            near &= near - _ONE
            n_neighbors = found.wanted[first + r]
            is_first = limits[first + r] == np.inf
            enough = n_neighbors if is_first else n_neighbors + n_neighbors // 2
            # Ties stay however often they are narrowed.
            if counts[r] > enough and counts[r] >= reservoir.narrowed[r] + n_neighbors // 2:
                tighten_limit(first + r, r, errors, found, reservoir)


@inlined
def _append_candidates(  # type: ignore[no-untyped-def]
    mask, sums_start, a, g, first, queries, block, errors, found, tile, reservoir
):
    """Put the pairs in the mask of query ``a`` of the tile and group ``g`` away."""
    # Unsigned numbers index arrays without a test whether they count from the end.
    r = np.uintp(a)
    own = queries.numbers[np.uintp(first) + r]
    rounded = rounding_error(r, g, block, tile)
    spread = group_error(g, block, errors) + rounded
    total_rise = upper_bound_offset(a, spread, errors, tile)
    fall = tile.errors[r] - tile.lengths[r] * (1.0 - errors.relative) + rounded
    margin = fall + total_rise * (1.0 + 2.0**-20) + 1e-36
    rise, stretch = rounded_up(total_rise), np.float32(errors.stretch)
    own_threshold = threshold_of(a, rounded, errors, tile)
    lift = rounded_up(rounded)
    threshold = tile.thresholds[r] + lift
    count = np.uintp(reservoir.counts[r])
    margins = reservoir.margins
    if count == 0 or margin > margins[r]:
        margins[r] = margin
    n_places = np.uintp(reservoir.keys.shape[1])
    sums, keys, numbers = tile.sums, reservoir.keys[r], block.numbers
    lanes, places = np.uintp(sums_start), np.uintp(g * LANES)
    is_sorted, nearest = _is_sorted(reservoir), reservoir.nearest
    while mask != 0:
        lane = np.uintp(lowest_bit(mask))
        mask &= mask - _ONE
        total = sums[lanes + lane]
        place = places + lane
        if total > threshold or (total <= own_threshold and numbers[place] == own):
            continue  # a number is not looked up, far away in memory, where none is near
        upper = _upper_bits(total, rise, stretch)
        keys[count] = (upper << _HALF) | place
        count += _ONE
        if is_sorted:
            insert_sorted(nearest, np.int64(r), np.uint32(upper).view(np.float32))
        if count == n_places:
            reservoir.counts[r] = count
            threshold = lift + _compact(
                np.int64(r), first, queries, block, errors, found, tile, reservoir
            )
            count = np.uintp(reservoir.counts[r])
    reservoir.counts[r] = count
    if is_sorted:
        i = np.uintp(first) + r
        limit = np.float64(nearest[r, np.uintp(found.wanted[i] - 1)])
        if limit < found.limits[i]:
            found.limits[i] = limit
            tile.thresholds[r] = below_separate(
                threshold_of(np.int64(r), limit, errors, tile)
            )


@borrowing
def bits_of(number):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 as a word; for numbers from 0 on they sort alike."""
    return np.uint64(np.float32(number).view(np.uint32))


@inlined
def _upper_bits(total, rise, stretch):  # type: ignore[no-untyped-def]
    """Return the bits of the float32 after an upper bound, which is at least 0.

    Of a row too far out for float32 nothing is known: its sum is -inf and the rise inf, and
    the bits are those of inf.
    """
    upper = (total + rise) * stretch
    upper = np.float32(0.0) if upper < np.float32(0.0) else upper  # noqa: FURB136 - NaN
    bits = bits_of(upper) + _ONE  # the next one, since the sum was rounded
    return bits if bits < INFINITE_BITS else INFINITE_BITS  # noqa: FURB136


@borrowing
def _compact(r, first, queries, block, errors, found, tile, reservoir):  # type: ignore[no-untyped-def]
    """Shorten a full reservoir, and return the threshold that now holds for its query."""
    i = first + r
    n_places = reservoir.keys.shape[1]
    tighten_limit(i, r, errors, found, reservoir)
    if reservoir.counts[r] > n_places - n_places // 4:
        _measure_candidates(i, r, queries, block, errors, found, reservoir)
    if found.limits[i] < 0.0:
        tile.thresholds[r] = -np.inf
    else:
        threshold = threshold_of(r, found.limits[i], errors, tile)
        tile.thresholds[r] = below_separate(threshold)
    return tile.thresholds[r]


@borrowing
def tighten_limit(i, r, errors, found, reservoir):  # type: ignore[no-untyped-def]
    """Lower the limit of query ``i`` to about its K-th upper bound, and drop the rest."""
    keys, n_keys = reservoir.keys[r], np.uint64(reservoir.counts[r])
    n_neighbors = found.wanted[i]
    if _is_sorted(reservoir):
        limit = np.float64(reservoir.nearest[r, n_neighbors - 1])
    else:
        kth = _bits_within(keys, reservoir.places, n_keys, n_neighbors, found.limits[i])
        limit = np.float64(np.uint32(kth).view(np.float32))
    limit = limit if limit < found.limits[i] else found.limits[i]  # noqa: FURB136
    # Of a pair above this one the lower bound is above the limit as well.
    highest = (limit + reservoir.margins[r]) * errors.stretch
    highest = rounded_up(highest * (1.0 + 2.0**-19))
    bits = bits_of(highest) if highest < np.inf else INFINITE_BITS  # NaN: nothing is
    bound = (bits + _ONE) << _HALF
    n_kept = _ZERO
    for m in range(n_keys):
        key = keys[m]
        keys[n_kept] = key
        n_kept += _ONE if key < bound else _ZERO  # added up: a branch would be guessed
    reservoir.counts[r] = n_kept
    reservoir.narrowed[r] = n_kept
    found.limits[i] = limit


@borrowing
def _bits_within(keys, places, n_keys, n_neighbors, limit):  # type: ignore[no-untyped-def]
    """Return the bits of an upper bound that at least K pairs do not exceed, or few more.

    To count the keys below one takes a tenth of the time of selecting among them, and after
    the first time the limit shows where to look.
    """
    high = bits_of(np.float32(limit)) + _ONE
    if high < INFINITE_BITS:
        low = bits_of(np.float32(limit / 4.0))
        n_within = _count_keys(keys, n_keys, high)
        if n_within >= n_neighbors and _count_keys(keys, n_keys, low) < n_neighbors:
            for _ in range(MAX_HALVINGS):
                if n_within <= n_neighbors + n_neighbors * TOLERANCE:
                    break
                middle = (low + high) >> _ONE
                n_nearer = _count_keys(keys, n_keys, middle)
                if n_nearer < n_neighbors:
                    low = middle
                else:
                    high, n_within = middle, n_nearer
            return high
    return keep_smallest(keys, places, n_keys, n_neighbors) >> _HALF


@inlined
def _count_keys(keys, n_keys, bits):  # type: ignore[no-untyped-def]
    """Count the keys with an upper bound of at most these bits."""
    bound = (bits + _ONE) << _HALF
    n_within = _ZERO
    for m in range(n_keys):  # unsigned, and so vector instructions
        n_within += _ONE if keys[m] < bound else _ZERO
    return np.int64(n_within)


@borrowing
def _measure_candidates(i, r, queries, block, errors, found, reservoir):  # type: ignore[no-untyped-def]
    """Measure the pairs of query ``i``, and keep the K nearest of them and those found."""
    n_neighbors = found.wanted[i]
    if reservoir.counts[r] > n_neighbors:
        tighten_limit(i, r, errors, found, reservoir)
    n_new = reservoir.counts[r]
    if n_new == 0:
        return
    keys, places = reservoir.keys[r], reservoir.places
    for m in range(n_new):
        places[m] = np.int64(keys[m] & _PLACE_BITS)
    known = found.counts[i]
    total = known + n_new
    n_kept = total if total < n_neighbors else n_neighbors  # noqa: FURB136
    squares, numbers = reservoir.squares, reservoir.numbers
    _copy(found.squares[i], squares, known)
    weights, n_codes = queries.weights[queries.tables[i]], len(queries.lowered)
    new_squares = squares[known:]
    fill_squares(queries.rows[i], block, places, n_new, new_squares, weights, n_codes)
    with_numbers = found.numbers.shape[1] > 0
    if with_numbers:
        _copy(found.numbers[i], numbers, known)
        for m in range(n_new):
            squares[known + m] = last_of_same_root(squares[known + m])
            numbers[known + m] = block.numbers[places[m]]
        if total > n_neighbors:
            keep_smallest_pairs(squares, numbers, total, n_neighbors)
        _copy(numbers, found.numbers[i], n_kept)
    elif total > n_neighbors:
        keep_smallest(squares, numbers, total, n_neighbors)
    _copy(squares, found.squares[i], n_kept)
    found.counts[i] = n_kept
    reservoir.counts[r] = 0
    reservoir.narrowed[r] = 0
    if n_kept == n_neighbors:
        kth = largest_of(squares, 0, n_kept)
        limit = _limit_of(last_of_same_root(kth), queries.rows.shape[1], errors)
        if limit < found.limits[i]:
            found.limits[i] = limit
        if kth == 0.0 and not with_numbers:
            found.limits[i] = INACTIVE  # nothing can be nearer


@borrowing
def last_of_same_root(square):  # type: ignore[no-untyped-def]
    """Like `distances.last_of_same_root`, for one."""
    distance = math.sqrt(square)
    following = np.nextafter(square, np.inf)
    while following < np.inf and math.sqrt(following) == distance:
        square = following
        following = np.nextafter(square, np.inf)
    return square


@borrowing
def _copy(source, target, n_values):  # type: ignore[no-untyped-def]
    for m in range(n_values):
        target[m] = source[m]

r"""The K nearest rows of rows of two blocks to each other, each pair summed once.

    tile of own rows x group of others --16 bits--> lower bounds of either side
        --limits of both--> hits --> reservoirs of own rows and of the others
        --float64 definition, at the end--> K smallest squares of both

For blocks of brute force, whose cells all have their center in the origin: the groups of a
block are then queries as they are, too. Within one block, pairs of a row and a later one
are taken. Reservoirs are those of `nearest`, one for each row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import INACTIVE, LANES, TILE_ROWS, CandidateBuffer, Found
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.bounds import (
    group_error,
    rounded_up,
    set_rounding,
    stored_numbers,
)
from lpe_dask.kernels.compiled import borrowing, compiled, inlined
from lpe_dask.kernels.distances import limit_of
from lpe_dask.kernels.filters import (
    QUERIES,
    fetch_next,
    pairs_of,
    parts_of,
    sum_parts,
)
from lpe_dask.kernels.initial_limits import lower_limits
from lpe_dask.kernels.nearest import (
    INFINITE_BITS,
    bits_of,
    last_of_same_root,
    reservoir_size,
    tighten_limit,
)
from lpe_dask.kernels.pair_filter import bound_pairs
from lpe_dask.kernels.selection import keep_smallest, largest_of
from lpe_dask.kernels.simd import count_bits, fetch, lowest_bit
from lpe_dask.kernels.squares import SIDE_BY_SIDE, fill_squares

#: Own rows of a tile: full packs.
PAIR_TILE_ROWS = TILE_ROWS - TILE_ROWS % QUERIES

_HALF = np.uint64(32)
_PLACE_BITS = np.uint64(0xFFFFFFFF)
_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_NOTHING = np.float32(-np.inf)

_limit_of = inlined(limit_of)


class PairTile(NamedTuple):
    """Room for the own rows of a tile beside a cell of the others.

    Attributes
    ----------
    offsets, codes, scales, spans, roundings, lengths, errors, thresholds, sums, least,
    lowered, listed, masks
        As in `arrays.Tile`; lengths are not below those of the offsets, masks are those of
        all rows, which are all listed, and there are no codes.
    lifts : ndarray of shape (n_rows,)
        What makes a sum a lower bound of the square, rounded down; NaN for no row.
    rises : ndarray of shape (n_rows,)
        What makes that an upper bound, but for the error because of the other row.
    limits : ndarray of shape (n_rows,)
        Of own rows, in float32; -inf for rows that need no more.
    near : ndarray of shape (n_rows + 1,)
        Rows that have hits in a group.
    hits : ndarray of shape (64 * n_rows,)
        These, as `_list_hits` gives them.
    row : ndarray of shape (n_features,)
        A row that is measured.
    """

    offsets: NDArray[np.int16]
    codes: NDArray[np.float32]
    scales: NDArray[np.float32]
    spans: NDArray[np.float32]
    roundings: NDArray[np.float32]
    lengths: NDArray[np.float64]
    errors: NDArray[np.float64]
    thresholds: NDArray[np.float32]
    sums: NDArray[np.float32]
    least: NDArray[np.float32]
    lowered: NDArray[np.float32]
    listed: NDArray[np.int64]
    masks: NDArray[np.uint64]
    lifts: NDArray[np.float32]
    rises: NDArray[np.float32]
    limits: NDArray[np.float32]
    near: NDArray[np.int64]
    hits: NDArray[np.int64]
    row: NDArray[np.float64]


class Side(NamedTuple):
    """A block whose rows are measured, what is known of them, and room for candidates.

    Attributes
    ----------
    block : Block
    found : Found
    reservoirs : CandidateBuffer
        Of all rows, or of those of a tile.
    """

    block: Block
    found: Found
    reservoirs: CandidateBuffer


@compiled
def fold_pairs(  # type: ignore[no-untyped-def]
    start, stop, is_same, own, others, weights, errors, found, of_others, tallies
):
    """Take the pairs of some rows of a block with those of another into account.

    Parameters
    ----------
    start, stop : int
        Which own rows.
    is_same : bool
        Whether the others are the same block: each of its pairs is then that of a row with
        a later one.
    own, others : Block
        Whose cells have their center in the origin; without codes.
    weights : ndarray of shape (n_features,)
        As in `Queries`, of one table.
    errors : ErrorBounds
    found, of_others : Found
        Of the rows of either block, without numbers; the same if the block is. Changed in
        place.
    tallies : ndarray of shape (2,)
        Grow by the pairs that were filtered, and by those that were within a limit.
    """
    tile = _empty_pair_tile(own.centers.shape[1])
    n_others, n_neighbors = others.starts[-1], found.squares.shape[1]
    second = Side(others, of_others, _empty_reservoirs(n_others, n_neighbors))
    first_side = second
    if is_same:
        _set_first_limits(start, stop, second, errors, tile)
    else:
        first_side = Side(own, found, _empty_reservoirs(PAIR_TILE_ROWS, n_neighbors))
    limits = np.full(len(others.norms), _NOTHING)
    for place in range(n_others):
        limits[place] = _single_limit(of_others.limits[place])
    for first in range(start, stop, PAIR_TILE_ROWS):
        n_rows = min(PAIR_TILE_ROWS, stop - first)
        for a in range(n_rows):
            tile.limits[a] = _single_limit(found.limits[first + a])
        most = max(largest_of(tile.limits, 0, n_rows), largest_of(limits, 0, n_others))
        if most < 0.0:
            continue
        _load_rows(first, n_rows, own, errors, tile)
        for cell in range(len(others.centers)):
            _fold_cell(
                first, n_rows, cell, is_same, first_side, second, weights, errors, tile,
                limits, tallies,
            )  # fmt: skip
        if not is_same:
            for r in range(n_rows):
                _measure(first + r, r, first_side, others, weights, errors, tile)
    for place in range(n_others):
        _measure(place, place, second, own, weights, errors, tile)


@borrowing
def _set_first_limits(start, stop, side, errors, tile):  # type: ignore[no-untyped-def]
    """Lower the limits of rows by the first ones of their block."""
    for first in range(start, stop, PAIR_TILE_ROWS):
        n_rows = min(PAIR_TILE_ROWS, stop - first)
        _load_rows(first, n_rows, side.block, errors, tile)
        _aim(first, n_rows, 0, side.block, side.block, errors, tile)
        lower_limits(n_rows, 0, first, side.block, errors, side.found, tile)


@compiled
def _empty_pair_tile(n_features):  # type: ignore[no-untyped-def]
    n_rows, n_packed = PAIR_TILE_ROWS, PAIR_TILE_ROWS
    return PairTile(
        np.zeros((n_packed, stored_numbers(n_features)), np.int16),
        np.zeros((n_packed, 0), np.float32),
        np.zeros(n_packed, np.float32),
        np.zeros(n_packed, np.float32),
        np.zeros(n_packed, np.float32),
        np.zeros(n_packed),
        np.zeros(n_packed),
        np.full(n_packed, np.float32(np.inf)),
        np.zeros(n_packed * LANES, np.float32),
        np.zeros(n_packed * LANES, np.float32),
        np.zeros(0, np.float32),
        np.arange(n_packed),
        np.zeros(n_packed, np.uint64),
        np.zeros(n_packed, np.float32),
        np.zeros(n_packed, np.float32),
        np.full(n_packed, _NOTHING),
        np.zeros(n_rows + 1, np.int64),
        np.zeros(n_rows * LANES, np.int64),
        np.zeros(n_features),
    )


@compiled
def _empty_reservoirs(n_rows, n_neighbors):  # type: ignore[no-untyped-def]
    n_places = reservoir_size(n_neighbors)
    return CandidateBuffer(
        np.empty((n_rows, n_places), np.uint64),
        np.zeros(n_rows, np.int64),
        np.empty((n_rows, 0), np.float32),
        np.zeros(n_rows, np.int64),
        np.zeros(n_rows),
        np.empty(n_places, np.int64),
        np.empty(n_neighbors + n_places + SIDE_BY_SIDE),
        np.empty(n_neighbors + n_places, np.int64),
    )


@borrowing
def _single_limit(limit):  # type: ignore[no-untyped-def]
    """Return a limit in float32, or -inf for a row that needs no more."""
    single = rounded_up(limit)
    return single if limit >= 0.0 else _NOTHING


@borrowing
def _load_rows(first, n_rows, own, errors, tile):  # type: ignore[no-untyped-def]
    """Take own rows into the tile, and their squared lengths, rounded up."""
    n_pairs = pairs_of(own.centers.shape[1])
    offsets, lengths, groups = tile.offsets, tile.lengths, own.groups
    n_packed = -(-n_rows // QUERIES) * QUERIES
    tile.thresholds[:] = np.inf  # so that all sums are written, of which limits are made
    for a in range(n_packed):
        row = first + (a if a < n_rows else 0)
        g = row // LANES
        source = 2 * (g * n_pairs * LANES + row % LANES)
        for k in range(n_pairs):
            place = np.uintp(source + 2 * k * LANES)
            offsets[np.uintp(a), np.uintp(2 * k)] = groups[place]
            offsets[np.uintp(a), np.uintp(2 * k + 1)] = groups[place + np.uintp(1)]
        # A norm is lower by about its error, and rounded down.
        norm = np.float64(own.norms[row])
        known = norm if norm > 0.0 else 0.0  # noqa: FURB136 - too far for float32
        lengths[a] = known * (1.0 + 2.0 * errors.relative + 2.0**-20) + 1e-37
        set_rounding(a, np.float64(own.steps[g]), np.float64(own.roundings[g]), tile)


@borrowing
def _aim(first, n_rows, cell, own, others, errors, tile):  # type: ignore[no-untyped-def]
    """Fill what makes sums of own rows and those of a cell bounds of their squares."""
    lifts, rises = tile.lifts, tile.rises
    for a in range(n_rows):
        length = tile.lengths[a]
        # The point itself, before it was rounded to float32, may be a little longer.
        reach = length * (1.0 + 2.0**-20) + 1e-70
        error = errors.underflow + errors.rounding * (reach + others.reaches[cell])
        own_norm = np.float64(own.norms[first + a])
        is_far = own_norm == -np.inf  # too far for float32: not filtered
        error, known = (np.inf, 0.0) if is_far else (error, own_norm)
        length = 0.0 if is_far else length
        tile.errors[a] = error
        lift = known - error
        lifts[a] = -rounded_up(-lift)
        # The norm is lower than the length less its error.
        rise = length * (1.0 + errors.relative) - known + 2.0 * error
        rise += abs(lift) * 2.0**-21
        rises[a] = rounded_up(rise * (1.0 + 2.0**-20) + 1e-36)
    for a in range(n_rows, -(-n_rows // QUERIES) * QUERIES):
        lifts[a] = np.nan
        tile.limits[a] = _NOTHING


@borrowing
def _fold_cell(  # type: ignore[no-untyped-def]
    first, n_rows, cell, is_same, own, others, weights, errors, tile, limits, tallies
):
    """Put the pairs of a tile with a cell that may matter into reservoirs."""
    begin, end = others.block.starts[cell], others.block.starts[cell + 1]
    if is_same and end <= first:
        return
    if is_same and begin < first:
        begin = first
    _aim(first, n_rows, cell, own.block, others.block, errors, tile)
    n_packs = -(-n_rows // QUERIES)
    for g in range(begin // LANES, -(-end // LANES)):
        n_hits = _bound_group(g, n_packs, others.block, limits, tile)
        _list_hits(n_hits, g, others, tile)
        _put_away(
            n_hits, g, first, is_same, own, others, weights, errors, tile, limits
        )  # fmt: skip
        tallies[0] += n_rows * LANES
        tallies[1] += n_hits


@borrowing
def _bound_group(g, n_packs, others, limits, tile):  # type: ignore[no-untyped-def]
    """Fill lower bounds and masks of all packs with a group, and list which rows have hits.

    Returns how many hits there are. Masks are looked through after each pack: processors do
    that while they multiply.
    """
    n_features = others.centers.shape[1]
    n_parts, n_pairs = parts_of(n_features), pairs_of(n_features)
    if n_parts > 1:
        sum_parts(g, n_packs, n_parts - 1, n_features, others, tile)
    summed = (n_parts - 1) * n_pairs // n_parts
    start, n_left = (g * n_pairs + summed) * LANES, n_pairs - summed
    masks, near = tile.masks, tile.near
    n_near, n_hits = _ZERO, 0
    for pack in range(n_packs):
        fetch_next(pack, n_packs, start, n_left, others)
        bound_pairs(
            tile.offsets, summed, others.groups, start, n_left, others.norms, g * LANES,
            limits, tile.scales, others.steps[g], tile.lifts, tile.spans,
            others.roundings[g], tile.roundings, others.spans[g], tile.limits,
            pack * QUERIES, tile.sums, masks, n_parts == 1,
        )  # fmt: skip
        for q in range(QUERIES):
            a = np.uintp(pack * QUERIES + q)
            near[n_near] = np.int64(a)
            n_near += _ONE if masks[a] != _ZERO else _ZERO  # added up: no branch to guess
            n_hits += count_bits(masks[a])
    near[n_near] = 0
    return n_hits


@borrowing
def _list_hits(n_hits, g, others, tile):  # type: ignore[no-untyped-def]
    """List the hits of a tile and a group: 64 times the row of the tile, and the lane.

    Where each will be put for the other row is asked for: of a large block that is far away
    in memory.
    """
    near, masks, hits = tile.near, tile.masks, tile.hits
    keys, counts = others.reservoirs.keys, others.reservoirs.counts
    n_places = keys.shape[1]
    m, mask = _ZERO, masks[near[0]]
    for h in range(n_hits):
        a = near[m]
        lane = lowest_bit(mask)
        hits[h] = a * LANES + lane
        place = np.uintp(g * LANES + lane)
        fetch(keys, np.intp(place) * n_places + counts[place])
        mask &= mask - _ONE
        following = masks[near[m + _ONE]]
        m += _ONE if mask == _ZERO else _ZERO
        mask = following if mask == _ZERO else mask


@borrowing
def _put_away(  # type: ignore[no-untyped-def]
    n_hits, g, first, is_same, own, others, weights, errors, tile, limits
):
    """Put the hits of a tile and a group into the reservoirs of both.

    One loop, without branches but those that fill a reservoir: there are a few hits for
    each pack, and which side they belong to is as good as random.
    """
    hits, sums = tile.hits, tile.sums
    spread = rounded_up(group_error(g, others.block, errors) * (1.0 + 2.0**-20))
    slightly_more = np.float32(1.0 + 2.0**-20)
    rounding, span = others.block.roundings[g], others.block.spans[g]
    n_places = own.reservoirs.keys.shape[1]
    base = 0 if is_same else first
    least = first if is_same else -TILE_ROWS  # in one block, pairs with a later row
    for h in range(n_hits):
        hit = np.uintp(hits[h])
        a, lane = hit // np.uintp(LANES), hit % np.uintp(LANES)
        place = np.uintp(g * LANES) + lane
        i, r = np.uintp(first) + a, np.uintp(first - base) + a
        total = sums[hit]
        total = total if np.intp(place) > least + np.intp(a) else np.float32(np.nan)
        off = tile.spans[a] * rounding + tile.roundings[a] * span
        rise = (tile.rises[a] + spread + np.float32(2.0) * off) * slightly_more
        bits = _upper_bits(total, rise) << _HALF
        n_own = _append(
            r, total, rise, tile.limits[a], bits | np.uint64(place), own.reservoirs
        )
        n_other = _append(
            place, total, rise, limits[place], bits | np.uint64(i), others.reservoirs
        )
        if n_own == n_places:
            limit = _shorten(
                np.intp(i), np.intp(r), own, others.block, weights, errors, tile
            )
            tile.limits[a] = limit
            if is_same:
                limits[i] = limit
        if n_other == n_places:
            limits[place] = _shorten(
                np.intp(place), np.intp(place), others, own.block, weights, errors, tile
            )


@inlined
def _append(r, total, rise, limit, key, reservoirs):  # type: ignore[no-untyped-def]
    """Put a pair into the reservoir of a side if it is within its limit; count what is in.

    What is not counted is written over by the next one.
    """
    count = reservoirs.counts[r]
    reservoirs.keys[r, np.uintp(count)] = key
    is_within = (total <= limit) & (limit >= np.float32(0.0))
    count += np.int64(is_within)
    reservoirs.counts[r] = count
    margin = np.float64(rise if is_within else np.float32(0.0))
    if margin > reservoirs.margins[r]:
        reservoirs.margins[r] = margin
    return count


@borrowing
def _upper_bits(total, rise):  # type: ignore[no-untyped-def]
    """Return the bits of a float32 above an upper bound, by its lower bound; at least 0.

    Two further, as the lower bound was rounded, too. Of a row too far out for float32
    nothing is known: the bits are those of inf.
    """
    upper = total + rise
    upper = np.float32(0.0) if upper < np.float32(0.0) else upper  # noqa: FURB136 - NaN
    bits = bits_of(upper) + _TWO
    return bits if bits < INFINITE_BITS else INFINITE_BITS  # noqa: FURB136


@borrowing
def _shorten(i, r, side, others, weights, errors, tile):  # type: ignore[no-untyped-def]
    """Shorten a full reservoir, and return the limit that now holds for its row."""
    n_places = side.reservoirs.keys.shape[1]
    tighten_limit(i, r, errors, side.found, side.reservoirs)
    if side.reservoirs.counts[r] > n_places - n_places // 4:
        _measure(i, r, side, others, weights, errors, tile)
    return _single_limit(side.found.limits[i])


@borrowing
def _measure(i, r, side, others, weights, errors, tile):  # type: ignore[no-untyped-def]
    """Measure the pairs of row ``i``, and keep the K nearest of them and those found."""
    found, reservoirs = side.found, side.reservoirs
    n_neighbors = found.wanted[i]
    if reservoirs.counts[r] > n_neighbors:
        tighten_limit(i, r, errors, found, reservoirs)
    n_new = reservoirs.counts[r]
    reservoirs.counts[r] = 0
    reservoirs.narrowed[r] = 0
    reservoirs.margins[r] = 0.0
    if n_new == 0:
        return
    keys, places, squares = reservoirs.keys[r], reservoirs.places, reservoirs.squares
    for m in range(n_new):
        places[m] = np.int64(keys[m] & _PLACE_BITS)
    known = found.counts[i]
    for m in range(known):
        squares[m] = found.squares[i, m]
    _take_row(i, side.block, tile.row)
    fill_squares(tile.row, others, places, n_new, squares[known:], weights, 0)
    total = known + n_new
    n_kept = total if total < n_neighbors else n_neighbors  # noqa: FURB136
    if total > n_neighbors:
        keep_smallest(squares, reservoirs.numbers, total, n_neighbors)
    for m in range(n_kept):
        found.squares[i, m] = squares[m]
    found.counts[i] = n_kept
    if n_kept < n_neighbors:
        return
    kth = largest_of(squares, 0, n_kept)
    limit = _limit_of(last_of_same_root(kth), len(tile.row), errors)
    if limit < found.limits[i]:
        found.limits[i] = limit
    if kth == 0.0:
        found.limits[i] = INACTIVE  # nothing can be nearer


@borrowing
def _take_row(i, block, row):  # type: ignore[no-untyped-def]
    """Fill a row of a block, as it was prepared."""
    is_single = len(block.single_rows) > 0
    for k in range(len(row)):
        if is_single:
            row[k] = np.float64(block.single_rows[i, k])
        else:
            row[k] = block.double_rows[i, k]

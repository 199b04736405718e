"""The arrays that kernels take, under their names."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Reference rows in a group, which is also the number of bits in a mask.
LANES = 64

#: Most queries of a tile: a cell of queries, or that many in the order they came. Words
#: that have a bit for each.
TILE_ROWS, WORDS = 256, 4

#: Limit of a query that needs no more pairs, or is not measured.
INACTIVE = -1.0


def read_only(array: Any) -> Any:
    """Return a view of an array that cannot be written to.

    What came in a message is read-only, what was made here is not: kernels take all of it
    as read-only, so that they are compiled once.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def are_finite(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows have neither NaN nor inf."""
    is_finite = np.isfinite(rows)
    if is_finite.all():  # by row it takes several times as long
        return np.ones(len(rows), bool)
    return np.logical_and.reduce(is_finite, axis=1)  # type: ignore[no-any-return]


class ErrorBounds(NamedTuple):
    """What a filtered square may be off (see `basis`), and the unit of the basis.

    Numbers only: arrays would be counted by each function that takes them.
    """

    relative: float
    rounding: float
    underflow: float
    stretch: float
    factor: float


class Queries(NamedTuple):
    """Rows to measure, ordered and cut into tiles.

    Attributes
    ----------
    rows, points : ndarray of shape (n_queries, n_features)
        As prepared, and in the basis; codes of categories are the last columns of both.
    numbers : ndarray of shape (n_queries,)
        The number of the reference row that a query is itself, or -1.
    reaches : ndarray of shape (n_queries,)
        Squared lengths of the points; inf for those that are not filtered.
    starts : ndarray of shape (n_tiles + 1,)
    lows, highs : ndarray of shape (n_tiles, n_features)
        Boxes of the tiles in the basis; infinite where there are none.
    weights : ndarray of shape (n_tables, n_features)
        By which squared differences are multiplied, as defined, and what codes that differ
        add.
    tables : ndarray of shape (n_queries,)
        Which of them are those of a query.
    lowered : ndarray of shape (n_codes,)
        What they add in the basis at least, float32.
    """

    rows: NDArray[np.float64]
    points: NDArray[np.float64]
    numbers: NDArray[np.int64]
    reaches: NDArray[np.float64]
    starts: NDArray[np.int64]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    weights: NDArray[np.float64]
    tables: NDArray[np.int64]
    lowered: NDArray[np.float32]


class Found(NamedTuple):
    """The nearest rows so far.

    Attributes
    ----------
    squares : ndarray of shape (n_queries, most)
        Squared distances by definition; the first ``counts[i]`` of row i count, in any
        order.
    numbers : ndarray of shape (n_queries, most) or (n_queries, 0)
        Of the reference rows they belong to, where they are wanted.
    counts : ndarray of shape (n_queries,)
    limits : ndarray of shape (n_queries,)
        In units of the basis: rows further than this cannot matter any more; below 0 for
        queries that need none.
    wanted : ndarray of shape (n_queries,)
        How many are wanted, at least 1.
    """

    squares: NDArray[np.float64]
    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    limits: NDArray[np.float64]
    wanted: NDArray[np.int64]


class Counted(NamedTuple):
    """How many rows are within the radius so far.

    Attributes
    ----------
    counts : ndarray of shape (n_queries,)
    limits : ndarray of shape (n_queries,)
        In units of the basis: rows further than this are not within; below 0 for queries
        that need no more.
    enough : int
        The count that suffices.
    squares : ndarray of shape (n_queries,)
        The largest squared distance, by definition, that is within.
    sure : ndarray of shape (n_queries,)
        In units of the basis: up to which a pair is surely within.
    """

    counts: NDArray[np.int64]
    limits: NDArray[np.float64]
    enough: int
    squares: NDArray[np.float64]
    sure: NDArray[np.float64]


class Tile(NamedTuple):
    """Room for the queries of a tile beside one cell of the reference.

    Sets of queries are words, of which each bit is one: `WORDS` of them.

    Attributes
    ----------
    singles : ndarray of shape (n_features, TILE_ROWS)
        Their points in float32.
    slacks : ndarray of shape (n_features,)
        What their differences in float32 may be off.
    bars : ndarray of shape (TILE_ROWS,)
        Limits in float32, with all that may be off; -1 for queries that need no more.
    low, high : ndarray of shape (n_features,)
        The box at hand in float32, rounded outward.
    near : ndarray of shape (WORDS,)
        Queries that the cell at hand may matter to.
    near_groups : ndarray of shape (most groups of a cell, WORDS)
        Those of them that its groups may matter to, where these have boxes.
    boxed : ndarray of shape (2,)
        Queries that boxes of groups were held against lately, and those near.
    nearest : ndarray of shape (TILE_ROWS,)
        Squared distances of queries to the nearest box of a cell so far.
    own_cells : ndarray of shape (TILE_ROWS,)
        Which of the near cells that is, or -1.
    following : ndarray of shape (TILE_ROWS,)
        The next query with the same one, or -1.
    firsts : ndarray of shape (n_cells,)
        The first query of each of the near cells, or -1.
    listed : ndarray of shape (TILE_ROWS + QUERIES,)
        Numbers of the queries that are compared with the group at hand, and then
        `TILE_ROWS`, which is none.
    moved : ndarray of shape (n_features,)
        The offset of a point from the center of the cell.
    offsets : ndarray of shape (TILE_ROWS + 1, n_stored)
        Those of near queries, as whole numbers: see `rounding`.
    codes : ndarray of shape (TILE_ROWS + 1, n_codes)
    scales : ndarray of shape (TILE_ROWS + 1,)
        -2 times the steps of these whole numbers.
    spans, roundings : ndarray of shape (TILE_ROWS + 1,)
        By which a rounding of rows, and their length, are multiplied: what a sum may be off
        because offsets are rounded.
    lengths : ndarray of shape (TILE_ROWS + 1,)
        Squared lengths of these offsets.
    errors : ndarray of shape (TILE_ROWS + 1,)
        What their squares may be off absolutely.
    thresholds : ndarray of shape (TILE_ROWS + 1,)
        Largest sum (see `filters.build_filter`) of a pair that may matter.
    cell_lows, cell_highs : ndarray of shape (n_features, at least n_cells)
        The boxes of all cells of the block, in the basis.
    run_lows, run_highs : ndarray of shape (n_runs, n_features)
        Those of each run of 64 cells.
    gaps : ndarray of shape (64,)
        Squared distances of the tile to the boxes of such a run.
    order, other_order : ndarray of shape (n_cells,)
        Cells that are near enough, about from the nearest on; the other is room to sort.
    bounds, other_bounds : ndarray of shape (n_cells,)
        Lower bounds of the squared distances to their boxes.
    bins : ndarray of shape (n_bins,)
        How many cells have about the same bound.
    sums : ndarray of shape (n_packs * QUERIES * 64,)
        Of the pack at hand; of all where there are many features (see `filters`).
    least : ndarray of shape (n_packs * QUERIES * 64,)
        The smallest sums so far of each lane.
    masks : ndarray of shape (QUERIES,)
    places, measured : ndarray of shape (64,)
        Rows of a group that have to be measured, and their squares.
    lowered : ndarray of shape (n_codes,)
        As in `Queries`.
    """

    singles: NDArray[np.float32]
    slacks: NDArray[np.float32]
    bars: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    near: NDArray[np.uint64]
    near_groups: NDArray[np.uint64]
    boxed: NDArray[np.int64]
    nearest: NDArray[np.float32]
    own_cells: NDArray[np.int32]
    following: NDArray[np.int64]
    firsts: NDArray[np.int64]
    listed: NDArray[np.int64]
    moved: NDArray[np.float32]
    offsets: NDArray[np.int16]
    codes: NDArray[np.float32]
    scales: NDArray[np.float32]
    spans: NDArray[np.float32]
    roundings: NDArray[np.float32]
    lengths: NDArray[np.float64]
    errors: NDArray[np.float64]
    thresholds: NDArray[np.float32]
    cell_lows: NDArray[np.float64]
    cell_highs: NDArray[np.float64]
    run_lows: NDArray[np.float64]
    run_highs: NDArray[np.float64]
    gaps: NDArray[np.float64]
    order: NDArray[np.int64]
    other_order: NDArray[np.int64]
    bounds: NDArray[np.float64]
    other_bounds: NDArray[np.float64]
    bins: NDArray[np.int64]
    sums: NDArray[np.float32]
    least: NDArray[np.float32]
    masks: NDArray[np.uint64]
    places: NDArray[np.int64]
    measured: NDArray[np.float64]
    lowered: NDArray[np.float32]


class CandidateBuffer(NamedTuple):
    """Pairs of the queries of a tile that may be among the K nearest.

    Attributes
    ----------
    keys : ndarray of shape (n_rows, n_places)
        The upper bound of a pair's square, as bits, before its place in the block.
    counts : ndarray of shape (n_rows,)
    nearest : ndarray of shape (n_rows, n_sorted)
        The smallest upper bounds, ascending, where few neighbors are wanted
        (`nearest.MAX_SORTED`).
    narrowed : ndarray of shape (n_rows,)
        The counts that were left when the pairs were last narrowed down.
    margins : ndarray of shape (n_rows,)
        How far a lower bound is below its upper bound at most.
    places : ndarray of shape (n_places,)
        Room to measure them.
    squares : ndarray of shape (n_neighbors + n_places + 8,)
    numbers : ndarray of shape (n_neighbors + n_places,)
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.int64]
    nearest: NDArray[np.float32]
    narrowed: NDArray[np.int64]
    margins: NDArray[np.float64]
    places: NDArray[np.int64]
    squares: NDArray[np.float64]
    numbers: NDArray[np.int64]


class Edges(NamedTuple):
    """The arrays of a `NeighborGraph`."""

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    lengths: NDArray[np.float64]

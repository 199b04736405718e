"""What an approximate search does, compiled: see `block_index` and `beam_search`."""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.compiled import compiled, inlined
from lpe_dask.kernels.simd import fetch
from lpe_dask.kernels.squares import fill_squares

#: Rows of a block that are looked around whatever other blocks have: the way to those near.
NARROW = 64

#: Lines of memory of a row that are asked for, and numbers of 32 bits in a line.
FETCHED_LINES, LINE_NUMBERS = 16, 16


@compiled
def join_lists(lists, graph):  # type: ignore[no-untyped-def]
    """Fill a graph of -1 with where places lead: see `block_index.joined_lists`."""
    n_rows, n_listed = lists.shape
    counts = np.zeros(n_rows, np.int64)
    for i in range(n_rows):
        for j in range(n_listed):
            _lead(graph, counts, i, lists[i, j])
    for j in range(n_listed):
        for i in range(n_rows):
            if 0 <= lists[i, j] < n_rows:
                _lead(graph, counts, lists[i, j], np.int32(i))


@compiled
def _lead(graph, counts, source, target):  # type: ignore[no-untyped-def]
    """Let one place lead to another, unless it does, or leads to enough."""
    n_rows, degree = graph.shape
    if target < 0 or target >= n_rows or target == source or counts[source] == degree:
        return
    for m in range(counts[source]):
        if graph[source, m] == target:
            return
    graph[source, counts[source]] = target
    counts[source] += 1


@compiled
def search_beams(rows, weights, entries, block, graph, squares):  # type: ignore[no-untyped-def]
    """Search the graph of a block for all queries, and keep the nearest in their beams.

    ``entries`` are places in the block, or -1; the first one of a query is its own row.
    """
    n_places, degree = graph.shape
    n_entries, width = entries.shape[1], squares.shape[1]
    narrow = min(NARROW, width)
    seen = np.zeros(-(-n_places // 64), np.uint64)  # a bit for each place
    # What is found in this block: squares, places, and what is yet to be looked around.
    near = np.empty(width)
    beam = np.empty(width, np.int64)
    is_open = np.empty(width, np.bool_)
    most = max(n_entries, degree)
    places = np.empty(most, np.int64)
    found = np.empty(most + 8)
    for query in range(len(rows)):
        row = rows[query]
        is_measured = True
        for value in row:
            is_measured &= np.isfinite(value)
        if not is_measured:
            continue
        seen[:] = np.uint64(0)
        near[:] = np.inf
        beam[:] = -1
        is_open[:] = False
        first = width
        n_new = 0
        if entries[query, 0] >= 0:  # itself: not among its neighbors, but where they are
            _is_new(seen, entries[query, 0])
            n_new = _unseen(graph, entries[query, 0], seen, places)
            first = _take(
                row, weights, block, graph, places, n_new, near, beam, is_open, found
            )
            n_new = 0
        for j in range(1, n_entries):
            place = entries[query, j]
            if place >= 0 and _is_new(seen, place):
                places[n_new] = place
                n_new += 1
        before = squares[query]
        n_before = 0  # rows of other blocks that are nearer than the one to look around
        while True:
            nearest = _take(
                row, weights, block, graph, places, n_new, near, beam, is_open, found
            )
            if nearest < first:
                first = nearest
                n_before = 0
            while first < width and not is_open[first]:
                first += 1
            if first == width:
                break
            while n_before < width and before[n_before] < near[first]:
                n_before += 1
            if first + n_before >= width and first >= narrow:
                break
            is_open[first] = False
            n_new = _unseen(graph, beam[first], seen, places)
        _merge(near, before)


@inlined
def _unseen(graph, place, seen, places):  # type: ignore[no-untyped-def]
    """List the places that one leads to and that were not met, and return their number."""
    n_new = 0
    for j in range(graph.shape[1]):
        target = graph[place, j]
        if target < 0:
            break
        places[n_new] = target
        n_new += _is_new(seen, target)
    return n_new


@inlined
def _is_new(seen, place):  # type: ignore[no-untyped-def]
    """Return 1 for a place that was not met before, else 0; it is now."""
    bit = np.uint64(1) << np.uint64(place & 63)
    word = seen[place >> 6]
    seen[place >> 6] = word | bit
    return np.int64((word & bit) == 0)


@inlined
def _fetch(block, places, n_places):  # type: ignore[no-untyped-def]
    """Ask for the rows at some places: they lie anywhere in memory."""
    is_single = len(block.single_rows) > 0
    n_features = block.single_rows.shape[1] if is_single else block.double_rows.shape[1]
    for j in range(n_places):
        first = places[j] * n_features
        if is_single:
            for k in range(0, min(n_features, FETCHED_LINES * LINE_NUMBERS), LINE_NUMBERS):
                fetch(block.single_rows, first + k)
        else:
            for k in range(0, min(n_features, FETCHED_LINES * 8), 8):
                fetch(block.double_rows, first + k)


@inlined
def _take(row, weights, block, graph, places, n_new, near, beam, is_open, found):  # type: ignore[no-untyped-def]
    """Put the nearest of some rows into a beam, and return where the first one went."""
    width = len(near)
    first = width
    _fetch(block, places, n_new)
    fill_squares(row, block, places, n_new, found, weights, 0)  # there are no categories
    for j in range(n_new):
        square = found[j]
        if not square < near[width - 1]:
            continue
        i = width - 1
        while i > 0 and near[i - 1] > square:
            near[i] = near[i - 1]
            beam[i] = beam[i - 1]
            is_open[i] = is_open[i - 1]
            i -= 1
        near[i] = square
        beam[i] = places[j]
        for k in range(0, graph.shape[1], LINE_NUMBERS):
            fetch(graph, places[j] * graph.shape[1] + k)
        is_open[i] = True
        first = min(first, i)
    return first


@inlined
def _merge(near, squares):  # type: ignore[no-untyped-def]
    """Keep the nearest of what was found before and of what was found in a block."""
    n_new = 0
    n_old = 0
    while n_new + n_old < len(near):
        if near[n_new] < squares[n_old]:
            n_new += 1
        else:
            n_old += 1
    for i in range(len(near) - 1, -1, -1):  # from the end: nothing is overwritten too early
        if n_new == 0:
            break
        if n_old > 0 and squares[n_old - 1] >= near[n_new - 1]:
            n_old -= 1
            squares[i] = squares[n_old]
        else:
            n_new -= 1
            squares[i] = near[n_new]

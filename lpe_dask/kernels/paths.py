r"""Walk along the edges of a neighbor graph, nearest rows first, and stop early.

    nearest rows of each row -> NeighborGraph --walk--> distance to the K-th row reached,
                                                       or the mean of the first K
                                                   --> rows reached within a radius

A path is as long as its edges together, added from its start on, each sum in float64. The
search (Dijkstra's) settles rows in the order of their distance and ends with the K-th, so a
walk takes as long among a million rows as among a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import read_only
from lpe_dask.kernels.compiled import borrowing, compiled

#: Rows that a walk has room for at first.
FIRST_ROOM = 256

#: The distance of a row that is settled: nothing is nearer.
SETTLED = -1.0

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class NeighborGraph:
    """Edges from every row of a reference, with their lengths.

    Attributes
    ----------
    starts : ndarray of shape (n_reference + 1,)
        The edges of row ``i`` are those from ``starts[i]`` to ``starts[i + 1]``.
    targets : ndarray of shape (n_edges,)
        The rows they lead to, int32.
    lengths : ndarray of shape (n_edges,)
    """

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    lengths: NDArray[np.float64]

    def __sizeof__(self) -> int:
        """Return the bytes of the numbers."""
        return self.starts.nbytes + self.targets.nbytes + self.lengths.nbytes

    @property
    def n_rows(self) -> int:
        """Rows of the reference."""
        return len(self.starts) - 1


def directed_graph(
    neighbors: NDArray[np.int32], distances: NDArray[np.float64]
) -> NeighborGraph:
    """Return the graph with an edge from each row to each of its neighbors.

    Parameters
    ----------
    neighbors : ndarray of shape (n_reference, n_neighbors)
        Their numbers, -1 where there are no more.
    distances : ndarray of shape (n_reference, n_neighbors)
    """
    is_edge = neighbors >= 0
    starts = np.concatenate([[0], np.cumsum(is_edge.sum(axis=1))])
    return NeighborGraph(starts, neighbors[is_edge], distances[is_edge])


def union_graph(
    neighbors: NDArray[np.int32], distances: NDArray[np.float64]
) -> NeighborGraph:
    """Return the graph that has each of these edges in both directions, once.

    Parameters are those of `directed_graph`.
    """
    return NeighborGraph(*_both_directions(neighbors, distances))


#: graph of ``metric_params`` -> what makes it of the nearest rows.
GRAPHS = {"directed": directed_graph, "union": union_graph}


@compiled
def _both_directions(neighbors, distances):  # type: ignore[no-untyped-def]
    n_rows, n_neighbors = neighbors.shape
    starts = np.zeros(n_rows + 1, np.int64)
    for i in range(n_rows):
        for m in range(n_neighbors):
            j = neighbors[i, m]
            if j < 0:
                break
            starts[i + 1] += 1
            if not _leads_to(neighbors, j, i):
                starts[j + 1] += 1
    for i in range(n_rows):
        starts[i + 1] += starts[i]
    targets = np.empty(starts[n_rows], np.int32)
    lengths = np.empty(starts[n_rows])
    ends = starts[:-1].copy()
    for i in range(n_rows):
        for m in range(n_neighbors):
            j = neighbors[i, m]
            if j < 0:
                break
            targets[ends[i]] = j
            lengths[ends[i]] = distances[i, m]
            ends[i] += 1
            if not _leads_to(neighbors, j, i):
                targets[ends[j]] = i
                lengths[ends[j]] = distances[i, m]
                ends[j] += 1
    return starts, targets, lengths


@borrowing
def _leads_to(neighbors, i, j):  # type: ignore[no-untyped-def]
    """Return whether there is an edge from ``i`` to ``j``."""
    is_there = False
    for m in range(neighbors.shape[1]):
        is_there |= neighbors[i, m] == j
    return is_there


# Walks


class _Edges(NamedTuple):
    """The arrays of a `NeighborGraph`, as the compiled walk takes them."""

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    lengths: NDArray[np.float64]


class _Room(NamedTuple):
    """Room for the rows that one walk has touched.

    Attributes
    ----------
    rows, distances : ndarray of shape (n_places,)
        Which rows, and the shortest way to them so far; `SETTLED` where that is final.
    table, stamps : ndarray of shape (2 * n_places,)
        A hash table from a row to its place, valid where the stamp is that of the walk.
    keys, places : ndarray of shape (2 * n_places,)
        A heap of distances, and whose they are. One that is out of date stays in it.
    """

    rows: NDArray[np.int32]
    distances: NDArray[np.float64]
    table: NDArray[np.int32]
    stamps: NDArray[np.int64]
    keys: NDArray[np.float64]
    places: NDArray[np.int32]


def walk_from_rows(
    graph: NeighborGraph,
    numbers: NDArray[np.int64],
    radius: float = np.inf,
    most: int | None = None,
    aggregation: str = "kth",
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walk from rows of the reference, which are not counted themselves.

    Parameters
    ----------
    graph : NeighborGraph
    numbers : ndarray of shape (n_queries,)
        Of the rows to start from.
    radius : float
        How far to walk: rows at this distance count.
    most : int, optional
        The number of rows after which a walk ends.
    aggregation : {"kth", "mean"}
        Which distances are returned.

    Returns
    -------
    distances : ndarray of shape (n_queries,)
        To the last of ``most`` rows, or the mean of those to all of them, added ascending;
        inf where fewer were reached.
    counts : ndarray of shape (n_queries,)
        Rows reached.
    """
    no_entry = np.empty((len(numbers), 0))
    entries = no_entry.astype(np.int64)
    return _walks(graph, numbers, entries, no_entry, radius, most, aggregation)


def walk_from_points(
    graph: NeighborGraph,
    neighbors: NDArray[np.int64],
    distances: NDArray[np.float64],
    radius: float = np.inf,
    most: int | None = None,
    aggregation: str = "kth",
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walk from points that are joined to their nearest rows of the reference.

    Parameters
    ----------
    graph : NeighborGraph
    neighbors, distances : ndarray of shape (n_queries, n_neighbors)
        The rows, -1 where there are no more, and how far they are.
    radius, most, aggregation
        As in `walk_from_rows`, and so is what is returned.
    """
    no_row = np.full(len(neighbors), -1)
    return _walks(graph, no_row, neighbors, distances, radius, most, aggregation)


def _walks(
    graph: NeighborGraph,
    numbers: NDArray[np.int64],
    entries: NDArray[np.int64],
    entry_distances: NDArray[np.float64],
    radius: float,
    most: int | None,
    aggregation: str,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    edges = _Edges(
        read_only(graph.starts), read_only(graph.targets), read_only(graph.lengths)
    )
    most = graph.n_rows + 1 if most is None else most
    distances = np.empty(len(numbers))
    counts = np.empty(len(numbers), np.int64)
    _walk_all(
        edges, numbers.astype(np.int64), entries, entry_distances, float(radius), most,
        aggregation == "mean", distances, counts,
    )  # fmt: skip
    return distances, counts


@compiled
def _walk_all(  # type: ignore[no-untyped-def]
    edges, numbers, entries, entry_distances, radius, most, is_mean, distances, counts
):
    """Fill ``distances`` and ``counts``, query by query."""
    room = _empty_room(FIRST_ROOM)
    stamp = 0
    for i in range(len(numbers)):
        counts[i] = -1
        while counts[i] < 0:
            stamp += 1
            counts[i], last, total = _walk(
                edges, numbers[i], entries[i], entry_distances[i], radius, most, stamp, room
            )
            distances[i] = total / most if is_mean else last
            if counts[i] < 0:  # there was no room: begin again with more of it
                room = _empty_room(2 * len(room.rows))
                stamp = 0


@compiled
def _empty_room(n_places):  # type: ignore[no-untyped-def]
    return _Room(
        np.empty(n_places, np.int32),
        np.empty(n_places),
        np.empty(2 * n_places, np.int32),
        np.zeros(2 * n_places, np.int64),
        np.empty(2 * n_places),
        np.empty(2 * n_places, np.int32),
    )


@borrowing
def _walk(edges, number, entries, entry_distances, radius, most, stamp, room):  # type: ignore[no-untyped-def]
    """Return how many rows were settled, and if they are ``most`` two distances.

    That of the last one, and the sum of all. Otherwise these are inf; -1 if there was not
    room for all.
    """
    starts, targets, lengths = edges.starts, edges.targets, edges.lengths
    distances, rows = room.distances, room.rows
    n_rows = n_keys = 0
    if number >= 0:
        place, n_rows = _place_of(number, n_rows, stamp, room)
        distances[place] = SETTLED
        for e in range(starts[number], starts[number + 1]):
            n_rows, n_keys = _reach(
                targets[e], lengths[e], radius, n_rows, n_keys, stamp, room
            )
            if n_rows < 0:
                return -1, np.inf, np.inf
    for e in range(len(entries)):
        if entries[e] >= 0:
            n_rows, n_keys = _reach(
                entries[e], entry_distances[e], radius, n_rows, n_keys, stamp, room
            )
            if n_rows < 0:
                return -1, np.inf, np.inf
    count = 0
    total = 0.0
    while n_keys > 0:
        distance, place = room.keys[0], room.places[0]
        n_keys = _pop(n_keys, room)
        if distance != distances[place]:
            continue  # a shorter way was found meanwhile
        distances[place] = SETTLED
        count += 1
        total += distance  # they come ascending: a path is no shorter than its beginning
        if count == most:
            return count, distance, total
        row = rows[place]
        for e in range(starts[row], starts[row + 1]):
            n_rows, n_keys = _reach(
                targets[e], distance + lengths[e], radius, n_rows, n_keys, stamp, room
            )
            if n_rows < 0:
                return -1, np.inf, np.inf
    return count, np.inf, np.inf


@borrowing
def _reach(row, distance, radius, n_rows, n_keys, stamp, room):  # type: ignore[no-untyped-def]
    """Take a way to a row into account; return the rows and keys, -1 for want of room."""
    if not (distance <= radius and distance < np.inf):
        return n_rows, n_keys
    if n_rows == len(room.rows) or n_keys == len(room.keys):
        return -1, n_keys
    place, n_rows = _place_of(row, n_rows, stamp, room)
    if distance < room.distances[place]:
        room.distances[place] = distance
        n_keys = _push(distance, place, n_keys, room)
    return n_rows, n_keys


@borrowing
def _place_of(row, n_rows, stamp, room):  # type: ignore[no-untyped-def]
    """Return the place of a row, new at distance inf if need be, and the rows there are."""
    table, stamps, rows = room.table, room.stamps, room.rows
    last = np.uint64(len(table) - 1)
    slot = ((np.uint64(row) * _FIBONACCI) >> np.uint64(32)) & last
    while stamps[slot] == stamp:
        if rows[table[slot]] == row:
            return table[slot], n_rows
        slot = (slot + np.uint64(1)) & last
    stamps[slot] = stamp
    table[slot] = n_rows
    rows[n_rows] = row
    room.distances[n_rows] = np.inf
    return n_rows, n_rows + 1


@borrowing
def _push(distance, place, n_keys, room):  # type: ignore[no-untyped-def]
    """Put a distance into the heap, and return its size."""
    keys, places = room.keys, room.places
    i = n_keys
    while i > 0:
        above = (i - 1) >> 1
        if keys[above] <= distance:
            break
        keys[i] = keys[above]
        places[i] = places[above]
        i = above
    keys[i] = distance
    places[i] = place
    return n_keys + 1


@borrowing
def _pop(n_keys, room):  # type: ignore[no-untyped-def]
    """Remove the smallest distance from the heap, and return its size."""
    keys, places = room.keys, room.places
    n_keys -= 1
    distance, place = keys[n_keys], places[n_keys]
    i = 0
    while True:
        below = 2 * i + 1
        if below >= n_keys:
            break
        if below + 1 < n_keys and keys[below + 1] < keys[below]:
            below += 1
        if distance <= keys[below]:
            break
        keys[i] = keys[below]
        places[i] = places[below]
        i = below
    keys[i] = distance
    places[i] = place
    return n_keys

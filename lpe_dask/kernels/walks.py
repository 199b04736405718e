"""Walks along the edges of a neighbor graph, compiled: see `neighbor_graph`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.compiled import borrowing, compiled

#: Rows that a walk has room for at first.
INITIAL_CAPACITY = 256

#: The distance of a row that is settled: nothing is nearer.
VISITED = -1.0

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)


class _Workspace(NamedTuple):
    """Room for the rows that one walk has touched.

    Attributes
    ----------
    rows, distances : ndarray of shape (n_places,)
        Which rows, and the shortest way to them so far; `VISITED` where that is final.
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


@compiled
def walk_all(  # type: ignore[no-untyped-def]
    edges, numbers, entries, entry_distances, radius, most, is_mean, distances, counts
):
    """Fill ``distances`` and ``counts``, query by query.

    Parameters
    ----------
    edges : Edges
    numbers : ndarray of shape (n_queries,)
        Of the rows to start from; -1 for points that are joined to their entries.
    entries, entry_distances : ndarray of shape (n_queries, n_entries)
    radius : float
    most : int
    is_mean : bool
    distances, counts : ndarray of shape (n_queries,)
        Filled.
    """
    room = _empty_room(INITIAL_CAPACITY)
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
    return _Workspace(
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
        distances[place] = VISITED
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
        distances[place] = VISITED
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

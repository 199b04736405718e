"""Learn the knots of quantile scales from a sample of the nominal rows.

    rows --take--> sample --columns, in groups--> knots of each column --> client

Which rows are sampled depends on their numbers and the seed alone, and what is found of
them on no order, so knots are the same for any chunks. A task holds the sample of a group
of columns, `TASK_BYTES` and a few columns more however many rows there are, and the client
the knots alone.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.model.certificate import SCALE_DRAW, draws
from lpe_dask.search import Knots
from lpe_dask.tables import take_rows
from lpe_dask.tasks import compute, new_tasks

#: Most rows of the sample. A share among so many is off by 0.0016 (one standard error).
MOST_SAMPLED = 100_000

#: Most knots of a column, but for its ends.
MOST_KNOTS = 1000

#: Bytes of the sample that a task holds, and that all workers together hold at a time: for
#: more columns the rows are read again.
TASK_BYTES, READING_BYTES = 64 * 2**20, 512 * 2**20

#: Numbers of rows that are hashed at a time.
HASHED_AT_ONCE = 2**20


def learn_knots(
    rows: da.Array, low: NDArray[np.float64], high: NDArray[np.float64], seed: int | None
) -> Knots:
    """Return the knots of the nominal rows; computes.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
        Finite, with known chunks and one chunk of features.
    low, high : ndarray of shape (n_features,)
        Of all rows.
    seed : int, optional
        Of the sample; None: as for 0.
    """
    n_rows, n_features = rows.shape
    n_sampled, sample = min(n_rows, MOST_SAMPLED), rows
    if n_rows > MOST_SAMPLED:
        sample = take_rows(rows, sampled_numbers(n_rows, int(seed or 0)))
    readings = readings_of(n_rows, n_features)
    tasks = (_group_tasks(sample, of_reading) for of_reading in readings)
    groups = chain.from_iterable(compute(*of_reading) for of_reading in tasks)
    columns = zip(chain.from_iterable(groups), low.tolist(), high.tolist(), strict=True)
    ended = [_with_ends(*column, 2 * n_sampled) for column in columns]
    values, ranks = zip(*ended, strict=True)
    return Knots(values, ranks, n_sampled)


def readings_of(n_rows: int, n_features: int) -> list[list[range]]:
    """Return the groups of columns of each reading of the rows.

    Examples
    --------
    >>> readings_of(1000, 5)
    [[range(0, 5)]]
    >>> [len(groups) for groups in readings_of(10**6, 1000)]
    [8, 5]
    """
    column = 8 * min(n_rows, MOST_SAMPLED)
    width, at_once = max(1, TASK_BYTES // column), max(1, READING_BYTES // TASK_BYTES)
    groups = [
        range(first, min(first + width, n_features))
        for first in range(0, n_features, width)
    ]
    return [groups[i : i + at_once] for i in range(0, len(groups), at_once)]


def sampled_numbers(n_rows: int, seed: int) -> NDArray[np.int64]:
    """Return which of so many rows are sampled, ascending: those of the least hashes."""
    numbers, hashes = np.empty(0, np.int64), np.empty(0, np.uint64)
    for start in range(0, n_rows, HASHED_AT_ONCE):
        more = np.arange(start, min(start + HASHED_AT_ONCE, n_rows))
        numbers = np.concatenate([numbers, more])
        hashes = np.concatenate([hashes, draws(more, seed, SCALE_DRAW)])
        if len(hashes) > MOST_SAMPLED:  # no two are equal
            least = np.argpartition(hashes, MOST_SAMPLED)[:MOST_SAMPLED]
            numbers, hashes = numbers[least], hashes[least]
    return np.sort(numbers)


def _group_tasks(sample: da.Array, groups: list[range]) -> list[Delayed]:
    """Return a task for each group of columns, which gives the knots of each of them."""
    blocks = [(sample.name, i, 0) for i in range(sample.numblocks[0])]
    if len(groups) == 1 and len(groups[0]) == sample.shape[1]:
        return new_tasks("knots", [(_knots, blocks)], [sample])
    # So that no task needs all columns of all blocks.
    cut = ((_columns, block, group) for group in groups for block in blocks)
    parts = new_tasks("knots", cut, [sample])
    keys, n_blocks = [part.key for part in parts], len(blocks)
    tasks = ((_knots, keys[i * n_blocks : (i + 1) * n_blocks]) for i in range(len(groups)))
    return new_tasks("knots", tasks, parts)


def _with_ends(
    knots: tuple[NDArray[np.float64], NDArray[np.int64]],
    low: float,
    high: float,
    highest_rank: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return knots with the least and the largest of all rows, if they lack these."""
    values, ranks = knots
    if low < values[0]:
        values, ranks = np.append(low, values), np.append(0, ranks)
    if high > values[-1]:
        values, ranks = np.append(values, high), np.append(ranks, highest_rank)
    return values, ranks


# The functions below run inside tasks: NumPy in, NumPy out.


def _columns(block: NDArray[np.generic], group: range) -> NDArray[np.generic]:
    return block[:, group.start : group.stop].copy()


def _knots(
    blocks: list[NDArray[np.generic]],
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return the knots of each column of a sample, and their ranks."""
    return [
        _knots_of_column(
            np.concatenate([block[:, k].astype(np.float64) for block in blocks])
        )
        for k in range(blocks[0].shape[1])
    ]


def _knots_of_column(
    column: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    ordered = np.sort(column) + 0.0  # -0.0 and 0.0 are one value
    values = np.unique(ordered)
    if len(values) > MOST_KNOTS:
        n, last = len(ordered), MOST_KNOTS - 1
        places = np.rint(np.arange(MOST_KNOTS) * (n - 1) / last).astype(np.int64)
        values = np.unique(ordered[places])
    below = np.searchsorted(ordered, values, side="left")
    up_to = np.searchsorted(ordered, values, side="right")
    return values, (below + up_to).astype(np.int64)

"""Learn the medians of columns with gaps: exact, and the same bits for any chunks.

    rows --blocks--> how many values are below, at and between thresholds --> where it lies
    rows --blocks--> the values between two thresholds --client--> the median

Thresholds are first the values of a sample about its own median, between which few values
of the whole are. Where these are still too many, or the median is elsewhere, the next ones
divide what is left evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tasks import compute, merge_tasks, new_tasks, to_task

#: Thresholds of a column; most values that come to the client for one.
N_THRESHOLDS, MAX_VALUES = 1024, 2**16

#: Blocks whose counts one task adds.
_ADDED_BLOCKS = 16

#: The least and the largest number in the order of `_ordered`.
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


#: A column, and two numbers as `_ordered` has them, both excluded.
_Interval = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Target:
    """A value that is looked for by its rank.

    Attributes
    ----------
    column : int
    rank : int
        From 0, among the values between ``low`` and ``high``.
    low, high : int
        As in an `_Interval`.
    n_left : int
        How many values there are between both; 0 if the value is found.
    found : int
        The value, then.
    """

    column: int
    rank: int
    low: int = _FIRST
    high: int = _LAST
    n_left: int = _LAST
    found: int = 0

    @property
    def interval(self) -> _Interval:
        """Where the value is."""
        return self.column, self.low, self.high

    def narrowed(self, thresholds: NDArray[np.int64], counts: NDArray[np.int64]) -> _Target:
        """Return the target by counts of values below, at, and between thresholds."""
        below = np.cumsum(counts)
        place = int(np.searchsorted(below, self.rank, side="right"))
        after, is_at = divmod(place, 2)
        if is_at:
            return replace(self, n_left=0, found=int(thresholds[after]))
        return replace(
            self,
            rank=self.rank - int(below[place] - counts[place]),
            low=int(thresholds[after - 1]) if after > 0 else self.low,
            high=int(thresholds[after]) if after < len(thresholds) else self.high,
            n_left=int(counts[place]),
        )

    def even_thresholds(self) -> NDArray[np.int64]:
        """Return numbers that divide what is left evenly."""
        step = max(1, (self.high - self.low) // (N_THRESHOLDS + 1))
        return np.arange(self.low + step, self.high, step)


def learn_medians(
    rows: Any, sample: NDArray[np.generic], columns: Sequence[str]
) -> NDArray[np.float64]:
    """Return the median of the values of each column that are not missing; computes.

    That is the mean of the two in the middle where their number is even.

    Parameters
    ----------
    rows : dask array or ndarray of shape (n_rows, n_columns)
        Without inf, with known chunks and one chunk of columns.
    sample : ndarray of shape (n_sampled, n_columns)
        Some such rows; which ones decides only how fast it is.
    columns : sequence of str
        What to call the columns in an error.

    Raises
    ------
    ValueError
        Naming the columns of which all values are missing.
    """
    if isinstance(rows, np.ndarray):
        ordered = [np.sort(_ordered(column)) for column in rows.T]
        _check_not_empty(columns, list(map(len, ordered)))
        found = [of[[(len(of) - 1) // 2, len(of) // 2]] for of in ordered]
        return _middle(_floats(np.concatenate(found)))
    first = [_about_the_median(column) for column in sample.T]
    counts = _counted(rows, first, [(i, _FIRST, _LAST) for i in range(len(columns))])
    sizes = [int(of.sum()) for of in counts]
    _check_not_empty(columns, sizes)
    targets = [
        _Target(i, rank).narrowed(first[i], counts[i])
        for i, n in enumerate(sizes)
        for rank in ((n - 1) // 2, n // 2)
    ]
    while wide := [i for i, of in enumerate(targets) if of.n_left > MAX_VALUES]:
        thresholds = [targets[i].even_thresholds() for i in wide]
        counts = _counted(rows, thresholds, [targets[i].interval for i in wide])
        for i, *found in zip(wide, thresholds, counts, strict=True):
            targets[i] = targets[i].narrowed(*found)
    return _middle(_floats(_collected(rows, targets)))


def _check_not_empty(columns: Sequence[str], sizes: Sequence[int]) -> None:
    if empty := [name for name, n in zip(columns, sizes, strict=True) if n == 0]:
        raise ValueError(
            f"all values of {', '.join(empty)} are missing in the rows that others are "
            f"measured among. Leave such columns out (columns=, --columns)."
        )


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middle of each two numbers."""
    low, high = values[0::2], values[1::2]
    return np.where(low == high, low, low / 2 + high / 2)


def _about_the_median(column: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return the values of a sample that are nearest in rank to its median."""
    values = np.sort(_ordered(column))
    start = max(0, (len(values) - N_THRESHOLDS) // 2)
    return np.unique(values[start : start + N_THRESHOLDS])


def _counted(
    rows: da.Array,
    thresholds: Sequence[NDArray[np.int64]],
    intervals: Sequence[_Interval],
) -> list[NDArray[np.int64]]:
    """Return how many values are below, at, and between ascending thresholds; computes."""
    name = f"lpe-median-{uuid4().hex}"
    asked = to_task(list(zip(thresholds, intervals, strict=True)), "lpe-thresholds")
    of_blocks = {
        f"{name}-of-{i}": (_count, (rows.name, i, 0), asked.key)
        for i in range(rows.numblocks[0])
    }
    merged, keys = merge_tasks(name, list(of_blocks), _added, _ADDED_BLOCKS)
    tasks = of_blocks | merged | {f"{name}-all": (_added, keys)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[rows, asked])
    (counts,) = compute(Delayed(f"{name}-all", graph, layer=name))
    return list(counts)


def _collected(rows: da.Array, targets: Sequence[_Target]) -> NDArray[np.int64]:
    """Return the values of targets that few others are beside; computes."""
    values = np.array([of.found for of in targets], np.int64)
    if left := [i for i, of in enumerate(targets) if of.n_left > 0]:
        asked = [targets[i].interval for i in left]
        tasks = ((_between, (rows.name, i, 0), asked) for i in range(rows.numblocks[0]))
        of_blocks = compute(*new_tasks("median-values", tasks, [rows]))
        for i, parts in zip(left, zip(*of_blocks, strict=True), strict=True):
            values[i] = np.sort(np.concatenate(parts))[targets[i].rank]
    return values


# The functions below run inside tasks: NumPy in, NumPy out.


def _ordered(column: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return the values that are not missing as whole numbers in the same order."""
    values = column.astype(np.float64) + 0.0  # -0.0 and 0.0 are one value
    bits = values[~np.isnan(values)].view(np.int64)
    return bits ^ ((bits >> 63) & _LAST)


def _floats(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the numbers of `_ordered` as values."""
    return (numbers ^ ((numbers >> 63) & _LAST)).view(np.float64)


def _within(rows: NDArray[np.generic], interval: _Interval) -> NDArray[np.int64]:
    """Return the values of a column that are within an interval, in no certain order."""
    column, low, high = interval
    numbers = _ordered(rows[:, column])
    return numbers[(numbers > low) & (numbers < high)]


def _count(
    rows: NDArray[np.generic], asked: list[tuple[NDArray[np.int64], _Interval]]
) -> list[NDArray[np.int64]]:
    counts = []
    for thresholds, interval in asked:
        numbers = _within(rows, interval)
        # Twice the thresholds below a value, and one more if it is at one itself.
        below = np.searchsorted(thresholds, numbers, side="left")
        up_to = np.searchsorted(thresholds, numbers, side="right")
        counts.append(np.bincount(below + up_to, minlength=2 * len(thresholds) + 1))
    return counts


def _added(counts: list[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return [np.sum(of, axis=0) for of in zip(*counts, strict=True)]


def _between(
    rows: NDArray[np.generic], intervals: list[_Interval]
) -> list[NDArray[np.int64]]:
    return [_within(rows, interval) for interval in intervals]

"""Learn the medians of columns with gaps: exact, and the same bits for any chunks.

    block --> values near the median of a sample, and how many are below and above these
              +--> how many are below, at and between thresholds --added--> where it lies
              +--> the values between two thresholds --client--> the median

Thresholds are the values of a sample about its own median, between which few values of the
whole are, so that one reading finds it. Where these are still too many, or the median is
elsewhere, rows are read again, by thresholds that divide what is left evenly.
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


#: How many values of a column are below, at, and between thresholds; and those between the
#: outermost that are at none, ascending.
_Near = tuple[NDArray[np.int64], NDArray[np.int64]]


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


@dataclass(frozen=True, slots=True)
class Medians:
    """Finds the median of the values of each column that are not missing.

    That is the mean of the two in the middle where their number is even. Rows have no inf;
    those of Dask have known chunks and one chunk of columns.

    Attributes
    ----------
    thresholds : list of ndarray
        Of each column, ascending.
    columns : sequence of str
        What to call the columns in an error.
    """

    thresholds: list[NDArray[np.int64]]
    columns: Sequence[str]

    @classmethod
    def near(cls, sample: NDArray[np.generic], columns: Sequence[str]) -> Medians:
        """Return what looks near the medians of a sample, of shape (n_sampled, n_columns).

        Which rows are sampled decides only how fast it is.
        """
        return cls([_about_the_median(column) for column in sample.T], columns)

    def of_array(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the medians of rows that are here.

        Raises
        ------
        ValueError
            Naming the columns of which all values are missing.
        """
        ordered = [np.sort(_ordered(column)) for column in rows.T]
        _check_not_empty(self.columns, list(map(len, ordered)))
        found = [of[[(len(of) - 1) // 2, len(of) // 2]] for of in ordered]
        return _middle(_floats(np.concatenate(found)))

    def task(self, rows: da.Array) -> Delayed:
        """Return a task that reads each block once, for `found`."""
        name = f"lpe-median-{uuid4().hex}"
        asked = to_task(self.thresholds, "lpe-thresholds")
        places = range(rows.numblocks[0])
        near = {f"{name}-{i}": (_near, (rows.name, i, 0), asked.key) for i in places}
        counts = {f"{name}-count-{i}": (_counts_of, key) for i, key in enumerate(near)}
        added, keys = merge_tasks(f"{name}-add", [*counts], _added, _ADDED_BLOCKS)
        targets = {f"{name}-targets": (_targets, keys, asked.key)}
        (aim,) = targets
        values = {f"{name}-of-{i}": (_values_near, key, aim) for i, key in enumerate(near)}
        joined, left = merge_tasks(f"{name}-join", [*values], _joined, _ADDED_BLOCKS)
        last = {f"{name}-all": (_with_targets, aim, left)}
        tasks = near | counts | added | targets | values | joined | last
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=[rows, asked])
        return Delayed(f"{name}-all", graph, layer=name)

    def found(self, rows: da.Array, result: tuple[Any, ...]) -> NDArray[np.float64]:
        """Return the medians by the result of the task; computes, if they are not there.

        Raises
        ------
        ValueError
            As `of_array`.
        """
        sizes, targets, values = result
        _check_not_empty(self.columns, sizes)
        targets = [_among(*of) for of in zip(targets, values, strict=True)]
        while wide := [i for i, of in enumerate(targets) if of.n_left > MAX_VALUES]:
            thresholds = [targets[i].even_thresholds() for i in wide]
            counts = _counted(rows, thresholds, [targets[i].interval for i in wide])
            for i, *of in zip(wide, thresholds, counts, strict=True):
                targets[i] = targets[i].narrowed(*of)
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


def _among(target: _Target, values: NDArray[np.int64]) -> _Target:
    """Return a target as found if all values are there that it is one of."""
    if target.n_left == 0 or len(values) != target.n_left:
        return target
    return replace(target, n_left=0, found=int(np.sort(values)[target.rank]))


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
        places = _places(_within(rows, interval), thresholds)
        counts.append(np.bincount(places, minlength=2 * len(thresholds) + 1))
    return counts


def _places(numbers: NDArray[np.int64], thresholds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return twice the thresholds below a value, and one more if it is at one itself."""
    below = np.searchsorted(thresholds, numbers, side="left")
    return below + np.searchsorted(thresholds, numbers, side="right")


def _added(counts: list[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return [np.sum(of, axis=0) for of in zip(*counts, strict=True)]


def _near(rows: NDArray[np.generic], thresholds: list[NDArray[np.int64]]) -> list[_Near]:
    near = []
    for column, of in zip(rows.T, thresholds, strict=True):
        numbers = _ordered(column)
        places = _places(numbers, of)
        is_near = (places > 0) & (places < 2 * len(of)) & (places % 2 == 0)
        counts = np.bincount(places, minlength=2 * len(of) + 1)
        near.append((counts, np.sort(numbers[is_near])))
    return near


def _counts_of(near: list[_Near]) -> list[NDArray[np.int64]]:
    return [counts for counts, _ in near]


def _targets(
    counts: list[list[NDArray[np.int64]]], thresholds: list[NDArray[np.int64]]
) -> tuple[list[int], list[_Target]]:
    """Return how many values each column has, and the two of it that are looked for."""
    added = _added(counts)
    sizes = [int(of.sum()) for of in added]
    return sizes, [
        _Target(i, rank).narrowed(thresholds[i], added[i]) if n else _Target(i, 0, n_left=0)
        for i, n in enumerate(sizes)
        for rank in ((n - 1) // 2, n // 2)
    ]


def _values_near(
    near: list[_Near], aim: tuple[list[int], list[_Target]]
) -> list[NDArray[np.int64]]:
    values = []
    for target in aim[1]:
        numbers = near[target.column][1]
        is_few = 0 < target.n_left <= MAX_VALUES
        start = np.searchsorted(numbers, target.low, side="right")
        stop = np.searchsorted(numbers, target.high, side="left")
        values.append(numbers[start:stop] if is_few else numbers[:0])
    return values


def _joined(values: list[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return [np.concatenate(of) for of in zip(*values, strict=True)]


def _with_targets(
    aim: tuple[list[int], list[_Target]], values: list[list[NDArray[np.int64]]]
) -> tuple[Any, ...]:
    return *aim, _joined(values)


def _between(
    rows: NDArray[np.generic], intervals: list[_Interval]
) -> list[NDArray[np.int64]]:
    return [_within(rows, interval) for interval in intervals]

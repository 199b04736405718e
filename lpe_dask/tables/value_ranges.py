"""What nominal rows have in each column, and how many values are unlike these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.row_status import status_codes
from lpe_dask.tasks import LocalValue, new_tasks, to_task


@dataclass(frozen=True, slots=True)
class ValueRanges:
    """The values of nominal rows.

    Attributes
    ----------
    low, high : tuple of float
        The least and the largest number of each column; of codes, too.
    rare : tuple of tuple of int
        How many categories of each categorical column occur once, and twice or more.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    rare: tuple[tuple[int, int], ...]

    def count_new(
        self,
        rows: da.Array,
        *,
        measures_gaps: bool = False,
        has_groups: bool = False,
        is_small: LocalValue | None = None,
    ) -> list[Delayed]:
        """Return a task for each block of rows, which gives what `new_values` does."""
        function = partial(
            new_values, ranges=self, measures_gaps=measures_gaps, has_groups=has_groups
        )
        small = [] if is_small is None else [to_task(is_small, "")]
        keys = [of.key for of in small]
        blocks = ((function, (rows.name, i, 0), *keys) for i in range(rows.numblocks[0]))
        return new_tasks("unseen", blocks, [rows, *small])


@dataclass(frozen=True, slots=True)
class BlockRanges:
    """The values of a block of nominal rows.

    Attributes
    ----------
    low, high : ndarray of shape (n_features,)
        ``inf`` and ``-inf`` without a row.
    counts : list of ndarray
        How often each code occurs, of each categorical column.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    counts: list[NDArray[np.int64]]

    @classmethod
    def of(cls, rows: NDArray[np.generic], places: Sequence[int]) -> BlockRanges:
        """Return the values of rows without inf, with codes in the columns at the places.

        Missing ones do not count.
        """
        if len(rows) == 0:
            none = np.full(rows.shape[1], np.inf)
            return cls(none, -none, [np.zeros(0, np.int64)] * len(places))
        low = rows.min(axis=0).astype(np.float64)
        high = rows.max(axis=0).astype(np.float64)
        if np.isnan(low).any():  # it takes several times as long
            low = np.fmin.reduce(rows, axis=0).astype(np.float64)
            high = np.fmax.reduce(rows, axis=0).astype(np.float64)
            empty = np.isnan(low)
            low[empty], high[empty] = np.inf, -np.inf
        columns = (rows[:, place] for place in places)
        counts = [np.bincount(of[~np.isnan(of)].astype(np.int64)) for of in columns]
        return cls(low, high, counts)


def ranges_of(blocks: Sequence[BlockRanges]) -> ValueRanges:
    """Return the values of all blocks together; at least one has a row."""
    rare = []
    for counts in zip(*(block.counts for block in blocks), strict=True):
        total = np.zeros(max(map(len, counts)), np.int64)
        for of_block in counts:
            total[: len(of_block)] += of_block
        rare.append((int((total == 1).sum()), int((total > 1).sum())))
    low = np.min([block.low for block in blocks], axis=0)
    high = np.max([block.high for block in blocks], axis=0)
    return ValueRanges(tuple(low.tolist()), tuple(high.tolist()), tuple(rare))


# The function below runs inside tasks.


def new_values(
    rows: NDArray[np.generic],
    is_small: NDArray[np.bool_] | None = None,
    *,
    ranges: ValueRanges,
    measures_gaps: bool,
    has_groups: bool = False,
) -> tuple[Any, Any, NDArray[np.int8], NDArray[np.int32] | None]:
    """Return how many values of each column are missing, and how many no nominal row has.

    The latter are numbers beyond the least or the largest, and codes of -1. And the numbers
    of the statuses of the rows, parameters as for `status_codes`; and of their groups, -1
    where there is none, if they are divided into groups.
    """
    given = {"measures_gaps": measures_gaps, "has_groups": has_groups}
    codes, groups = status_codes(rows, is_small, **given), None
    if has_groups:
        groups = np.nan_to_num(rows[:, -1], nan=-1).astype(np.int32)
        rows = rows[:, :-1]
    is_known = np.isfinite(rows)
    is_unseen = (rows < np.array(ranges.low)) | (rows > np.array(ranges.high))
    n_missing, n_unseen = (~is_known).sum(axis=0), (is_unseen & is_known).sum(axis=0)
    return n_missing, n_unseen, codes, groups

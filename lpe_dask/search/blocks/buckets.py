r"""Bring the rows of each group together, some whole groups in a bucket, and look at them.

rows      r0   r1   r2      input partitions, with the number of their group
          |    |    |
pieces    ...  ...  ...     rows sorted by group; in a spool, if they do not fit into memory
            \  |  /
buckets   b0   b1   b2      one task each: all rows of some groups, or of a large one a part
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.search.blocks.in_memory import RowsByRegion
from lpe_dask.search.blocks.packing import gathered, sorted_pieces
from lpe_dask.search.blocks.spool_blocks import SpoolFolder, handles_of, new_entry
from lpe_dask.search.memory import plan_for_active_workers
from lpe_dask.search.plan import ProblemSize
from lpe_dask.tasks import new_array, new_tasks

#: Most bytes of the numbers of a bucket of several groups, and most rows of it.
BUCKET_BYTES, BUCKET_ROWS = 2**26, 131_072

#: All rows of a bucket.
_ALL = np.iinfo(np.int64).max


class Buckets:
    """The rows of each group together; computes, and holds them as long as it is there.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_columns)
        With known chunks and the number of their group as the last column.
    sizes : ndarray of shape (n_groups,)
        Rows of each group.
    shape : ProblemSize
        Of a search among the rows: where it needs a spool, this does.
    """

    def __init__(
        self, rows: da.Array, sizes: NDArray[np.int64], shape: ProblemSize
    ) -> None:
        self._n_columns = rows.shape[1]
        self._dtype = rows.dtype if rows.dtype.kind == "f" else np.dtype(np.float64)
        most = max(1, min(BUCKET_ROWS, BUCKET_BYTES // (8 * self._n_columns)))
        self._edges, self._sizes, self._most = bucket_edges(sizes, most), sizes, most
        is_spooled = plan_for_active_workers(shape, wait=True).is_spooled
        self._entry = new_entry() if is_spooled else None
        folder = None if self._entry is None else SpoolFolder(self._entry.url)
        pieces = new_tasks(
            "split",
            (
                (_split, (rows.name, i, 0), self._edges, folder)
                for i in range(rows.numblocks[0])
            ),
            [rows],
        )
        self._pieces, _, self._kept = sorted_pieces(pieces, self._entry)

    def groups_of(self) -> list[tuple[int, int]]:
        """Return the first group of each bucket, and the first of the next one."""
        return list(pairwise(self._edges.tolist()))

    def is_large(self, bucket: int) -> bool:
        """Whether a bucket is one group of more rows than others have together."""
        return bool(self._sizes[self._edges[bucket]] > self._most)

    def tasks(self, buckets: Sequence[int], function: Callable[..., Any]) -> list[Delayed]:
        """Return a task for each of some buckets: a function of its rows.

        Parameters
        ----------
        buckets : sequence of int
        function : callable
            Of rows sorted by group, in their order within each, and of the first group of
            the bucket and of the next.
        """
        keys = [piece.key for piece in self._pieces]
        tasks = (
            (_of_bucket, keys, i, *map(int, self._edges[i : i + 2]), function)
            for i in buckets
        )
        return new_tasks("bucket", tasks, self._pieces)

    def rows(self, bucket: int) -> da.Array:
        """Return the rows of a bucket of one group in their order, lazily, in parts."""
        n_rows = int(self._sizes[self._edges[bucket]])
        keys = [piece.key for piece in self._pieces]
        starts = range(0, n_rows, self._most)
        tasks = ((_part_of, keys, bucket, i, i + self._most) for i in starts)
        sizes = tuple(min(self._most, n_rows - i) for i in starts)
        chunks = (sizes, (self._n_columns,))
        return new_array(
            "group-rows", tasks, self._pieces, chunks, np.empty((0, 0), self._dtype)
        )


def bucket_edges(sizes: NDArray[np.int64], bucket_rows: int) -> NDArray[np.int64]:
    """Return where buckets begin: groups from one edge to the next are in one of them.

    A bucket has at least one group, and no more than ``bucket_rows`` if it has several.

    Parameters
    ----------
    sizes : ndarray of shape (n_groups,)
        Rows of each group.
    bucket_rows : int

    Examples
    --------
    >>> bucket_edges(np.array([3, 4, 9, 1, 1]), 8).tolist()
    [0, 2, 3, 5]
    """
    ends = np.cumsum(sizes)
    edges, first = [0], 0
    while first < len(sizes):
        before = int(ends[first] - sizes[first])
        stop = int(np.searchsorted(ends, before + bucket_rows, side="right"))
        first = max(first + 1, stop)
        edges.append(first)
    return np.array(edges)


# The functions below run inside tasks: NumPy in, NumPy out.


def _split(
    rows: NDArray[np.generic], edges: NDArray[np.int64], folder: SpoolFolder | None
) -> Any:
    codes = rows[:, -1].astype(np.int64)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], edges)
    floats: Any = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    pieces = RowsByRegion(floats[order], order, starts)
    return pieces if folder is None else folder.write_pieces(pieces)


def _part_of(pieces: list[Any], bucket: int, start: int, stop: int) -> Any:
    return gathered(handles_of(pieces), bucket, start, stop)[0]


def _of_bucket(
    pieces: list[Any], bucket: int, first: int, stop: int, function: Callable[..., Any]
) -> Any:
    rows, _ = gathered(handles_of(pieces), bucket, 0, _ALL)
    order = np.argsort(rows[:, -1], kind="stable")
    return function(rows[order], first, stop)

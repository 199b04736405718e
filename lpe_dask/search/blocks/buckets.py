r"""Bring the rows of each group together, some whole groups in a bucket, and look at them.

rows      r0   r1   r2      input partitions, with the number of their group
          |    |    |
pieces    ...  ...  ...     rows sorted by group; in a spool where there is one
            \  |  /
buckets   b0   b1   b2      one task each: all rows of some groups
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.search.blocks.in_memory import RowsByRegion
from lpe_dask.search.blocks.packing import gathered
from lpe_dask.search.blocks.spool_blocks import SpoolFolder, handles_of
from lpe_dask.tasks import new_tasks

#: All rows of a bucket.
_ALL = np.iinfo(np.int64).max


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


def bucket_tasks(
    rows: da.Array,
    edges: NDArray[np.int64],
    function: Callable[..., Any],
    folder: SpoolFolder | None = None,
) -> list[Delayed]:
    """Return a task for each bucket: a function of its rows, sorted by group.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_columns)
        With the number of their group as the last column.
    edges : ndarray of shape (n_buckets + 1,)
        As `bucket_edges` gives them.
    function : callable
        Of rows in their order within each group, and of the first group of the bucket and
        of the next.
    folder : SpoolFolder, optional
        None: pieces stay in memory.
    """
    pieces = new_tasks(
        "split",
        ((_split, (rows.name, i, 0), edges, folder) for i in range(rows.numblocks[0])),
        [rows],
    )
    keys = [piece.key for piece in pieces]
    tasks = (
        (_of_bucket, keys, i, int(edges[i]), int(edges[i + 1]), function)
        for i in range(len(edges) - 1)
    )
    return new_tasks("bucket", tasks, pieces)


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


def _of_bucket(
    pieces: list[Any], bucket: int, first: int, stop: int, function: Callable[..., Any]
) -> Any:
    rows, _ = gathered(handles_of(pieces), bucket, 0, _ALL)
    order = np.argsort(rows[:, -1], kind="stable")
    return function(rows[order], first, stop)

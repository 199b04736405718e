"""Give results in the kind that rows came in, and look up what is known of rows.

    dask array (n_rows,) --to_series, to_dask_series--> Series with the index that came
    NumPy | Series | Dask --map_values--> a function of it, in the same kind

Nothing is computed here but what NumPy and pandas hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import pandas as pd
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.tables.columns import columns_at
from lpe_dask.tables.numeric import float_rows
from lpe_dask.tasks import (
    Shared,
    compute,
    enter,
    for_frames,
    held_of,
    is_large,
    is_shared,
    value_of,
)

#: By what hashes of rows are mixed: an odd number whose bits look random, and half a word.
_HASH_FACTOR, _HASH_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def to_numpy(values: da.Array | NDArray[Any], name: str) -> NDArray[Any]:
    """Return the values; computes. The name is for kinds that have one."""
    return values if isinstance(values, np.ndarray) else np.asarray(*compute(values))


def to_series(values: da.Array | NDArray[Any], name: str, index: pd.Index) -> pd.Series:
    """Return the values with an index; computes."""
    return pd.Series(to_numpy(values, name), index, name=name)


def to_dask_series(values: da.Array, name: str, frame: Any) -> Any:
    """Return the values as a dask Series with the index and partitions of a frame."""
    (whole,) = for_frames([delayed(np.asarray)(values)])
    meta = _empty_series(name, values.dtype)
    numbers = _row_numbers(columns_at(frame, [0]))
    return numbers.map_partitions(_take_rows, name, whole, meta=meta)


def _row_numbers(frame: Any) -> Any:
    """Return the numbers of rows, from 1, as a dask Series.

    Made of the frame itself, so that Dask knows the result to belong to it row by row:
    `frame.assign(p=...)` then needs no divisions, and no shuffle.
    """
    return frame.map_partitions(_ones, meta=_empty_series("row", int)).cumsum()


def map_values(
    values: Any, function: Callable[..., Any], *arguments: Any, name: str, dtype: Any
) -> Any:
    """Return ``function(values, *arguments)`` in the kind of ``values``, lazily for Dask.

    Parameters
    ----------
    values : ndarray, Series, dask array or dask Series
        A result of `Table.restore`.
    function : callable
        From arrays of shape (n,) to an array of shape (n,), each number on its own.
    arguments : objects
        Large ones enter a graph once, a `Shared` one all graphs; a task, such as a
        `Delayed`, is waited for.
    name, dtype
        Of the result.
    """
    if isinstance(values, np.ndarray):
        return function(values, *map(value_of, arguments))
    if isinstance(values, pd.Series):
        mapped = function(values.to_numpy(), *map(value_of, arguments))
        return pd.Series(mapped, values.index, name=name)
    if isinstance(values, da.Array):
        return map_blocks([values], function, *arguments, name=name, dtype=dtype)
    entered = for_frames([enter(argument, "lpe-shared") for argument in arguments])
    meta = _empty_series(name, dtype)
    return values.map_partitions(_on_series, function, name, *entered, meta=meta)


def map_blocks(
    arrays: Sequence[da.Array],
    function: Callable[..., Any],
    *arguments: Any,
    name: str,
    dtype: Any,
) -> da.Array:
    """Return ``function(*blocks, *arguments)`` of blocks that belong together, lazily.

    Parameters
    ----------
    arrays : sequence of dask arrays
        Of as many row chunks each; rows in one chunk of features, or one number a row.
    function, arguments, name, dtype
        As for `map_values`.

    Returns
    -------
    values : dask array of shape (n,)
        In the chunks of the first.
    """
    key = f"lpe-{name}-{uuid4().hex}"
    entered = [enter(argument, "lpe-shared") for argument in arguments]
    keys = [argument.key for argument in entered]
    rests = [(array.name, (0,) * (array.ndim - 1)) for array in arrays]
    tasks = {
        (key, i): (function, *((of, i, *rest) for of, rest in rests), *keys)
        for i in range(arrays[0].numblocks[0])
    }
    graph = HighLevelGraph.from_collections(key, tasks, dependencies=[*arrays, *entered])
    return da.Array(graph, key, (arrays[0].chunks[0],), meta=np.empty(0, dtype))


def _on_series(
    values: pd.Series, function: Callable[..., Any], name: str, *arguments: Any
) -> pd.Series:
    return pd.Series(function(values.to_numpy(), *arguments), values.index, name=name)


# What is known of the rows of a frame


def look_up(
    frame: Any,
    hashes: Shared,
    chunks: Sequence[int],
    values: Sequence[Shared],
    function: Callable[..., Any] | None,
    *arguments: Any,
    name: str,
) -> Any:
    """Return what is known of the rows of a dask DataFrame as a dask Series of floats.

    Each task reads the values of its rows and no others.

    Parameters
    ----------
    frame : dask DataFrame
    hashes : Shared
        Of an array of shape (n,): those of its rows, by which they are known again.
    chunks : sequence of int
        Rows of its partitions.
    values : sequence of Shared
        Of arrays of shape (n,).
    function : callable, optional
        ``function(*values of some rows, *arguments)``; None: the first of the values.
    arguments : objects
        As for `map_values`.
    name : str
        Of the series.
    """
    (edges,) = for_frames([enter(np.cumsum([0, *chunks]), "lpe-edges")])
    own = [_readable(shared) for shared in (hashes, *values)]
    entered = for_frames([enter(argument, "lpe-shared") for argument in arguments])
    return _row_numbers(frame).map_partitions(
        _look_up, name, function, frame, edges, len(values), *own, *entered,
        meta=_empty_series(name, float),
    )  # fmt: skip


def _readable(shared: Shared) -> Any:
    """Return what gives parts of an array to a task of a frame."""
    held = held_of(shared, "lpe-nominal")
    is_stored = is_large(held.n_bytes) and is_shared()
    return held if is_stored else for_frames([enter(held, "lpe-nominal")])[0]


def _empty_series(name: str, dtype: Any) -> pd.Series:
    return pd.Series(dtype=dtype, name=name)


# The functions below run inside tasks.


def _ones(frame: pd.DataFrame) -> pd.Series:
    return pd.Series(np.ones(len(frame), int), frame.index, name="row")


def _take_rows(numbers: pd.Series, name: str, whole: NDArray[Any]) -> pd.Series:
    """Return the value of each row, told by its number, which counts from 1."""
    start, stop = _range_of(numbers)
    return pd.Series(whole[start:stop], numbers.index, name=name)


def _range_of(numbers: pd.Series) -> tuple[int, int]:
    if len(numbers) == 0:
        return 0, 0
    return int(numbers.iloc[0]) - 1, int(numbers.iloc[-1])


def _look_up(
    numbers: pd.Series,
    name: str,
    function: Callable[..., Any] | None,
    frame: pd.DataFrame,
    edges: NDArray[np.int64],
    n_values: int,
    *given: Any,
) -> pd.Series:
    """Return the value of each row, told by its number, if it is the row that it was."""
    start, stop = _range_of(numbers)
    # Dask may read several partitions as one, but never a part of one.
    is_cut_as_before = start in edges and stop in edges
    if not is_cut_as_before or (len(numbers) == 0 and np.diff(edges).all()):
        raise ValueError(changed_rows(f"has another partition from row {start} to {stop}"))
    hashes, *values = [_rows_of(some, start, stop) for some in given[: n_values + 1]]
    if not np.array_equal(hashes, row_hashes(float_rows(frame))):
        raise ValueError(changed_rows(f"has other rows from row {start} to {stop}"))
    found = function(*values, *given[n_values + 1 :]) if function else values[0]
    return pd.Series(found, numbers.index, name=name)


def row_hashes(rows: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Return a hash of each row, of shape (n_rows,), the same for float32 and float64."""
    hashes = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        hashes ^= column.astype(np.float64).view(np.uint64)
        hashes *= _HASH_FACTOR
        hashes ^= hashes >> _HASH_SHIFT
    return hashes


def _rows_of(some: Any, start: int, stop: int) -> NDArray[Any]:
    rows: NDArray[Any] = (
        some[start:stop] if isinstance(some, np.ndarray) else (some.part(start, stop))
    )
    return rows


def changed_rows(how: str) -> str:
    """Return the message for a table that is not what it was when it was read first."""
    return (
        f"the table of nominal rows {how} when it is read again. It is read several "
        f"times, and has to give the same rows in the same order each time. Leave an array "
        f"as it is while a model needs it; what Dask reads, persist it first "
        f"(ddf = ddf.persist()), or write it to Parquet and read that."
    )

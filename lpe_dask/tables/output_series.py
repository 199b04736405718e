"""Return results in the kind of the input, and look up values of nominal rows.

    dask array (n_rows,) --to_series, to_dask_series--> Series with the index of the input
    NumPy | Series | Dask --map_values--> a function of it, in the same kind

Only results that NumPy or pandas hold are computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dask.core import flatten
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.fit_input import FitInput
from lpe_dask.tables.interop import from_library, to_library
from lpe_dask.tables.numeric import float_rows, number_type
from lpe_dask.tables.row_checks import Checksums, row_checksum, rows_changed_message
from lpe_dask.tasks import (
    LocalValue,
    compute,
    map_partitions,
    new_array,
    new_tasks,
    to_task,
)

#: Constants that mix the hashes of rows: an odd number with random bits, and half a word.
_HASH_FACTOR, _HASH_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def to_numpy(values: da.Array | NDArray[Any], name: str) -> NDArray[Any]:
    """Return the values; computes. Arrays do not use the name."""
    return values if isinstance(values, np.ndarray) else np.asarray(*compute(values))


def to_series(values: da.Array | NDArray[Any], name: str, index: pd.Index) -> pd.Series:
    """Return the values with an index; computes."""
    return pd.Series(to_numpy(values, name), index, name=name)


def to_foreign(values: da.Array | NDArray[Any], name: str, kind: str) -> Any:
    """Return the values as a series of a kind; computes."""
    return to_library(to_numpy(values, name), name, kind)


def to_dask_series(values: da.Array, name: str, frame: Any) -> Any:
    """Return the values as a dask Series with the index and partitions of a frame."""
    meta = _empty_series(name, values.dtype)
    numbers = row_numbers(frame)
    return map_partitions(numbers, _take_rows, name, *_whole(values), meta=meta)


def to_verified_series(values: da.Array, name: str, frame: Any, rows: da.Array) -> Any:
    """Return the same for values of rows that were read by themselves.

    Parameters
    ----------
    values : dask array of shape (n_rows,)
    name : str
    frame : dask DataFrame
        It is read once more, and has to have the same rows, but that the last ones may be
        missing: ValueError in the task that finds another one.
    rows : dask array of shape (n_rows, n_features)
        Of the frame.
    """
    meta = _empty_series(name, values.dtype)
    # What waits for the values is not to keep the rows in memory.
    hashes = frame.map_partitions(_hashes, meta=_empty_series("hash", np.uint64))
    # Not of a column: Dask may read small files together where it reads fewer columns.
    numbers = row_numbers(hashes)
    whole = _whole(values, map_blocks([rows], row_hashes, name="hash", dtype=np.uint64))
    return map_partitions(numbers, _take_checked_rows, name, hashes, *whole, meta=meta)


def _whole(*arrays: da.Array) -> list[Delayed]:
    """Return each array as one task.

    `dask.delayed` would give all that they are made of other keys: a cluster would make
    anew what it has.
    """
    parts = ([(array.name, i) for i in range(array.numblocks[0])] for array in arrays)
    tasks = ((np.concatenate, keys) for keys in parts)
    return new_tasks("whole", tasks, arrays)


def row_numbers(frame: Any) -> Any:
    """Return the numbers of rows, from 1, as a dask Series.

    Derived from the frame, so that Dask knows that both have the same rows:
    `frame.assign(p=...)` then needs no divisions and no shuffle.
    """
    return frame.map_partitions(_ones, meta=_empty_series("row", int)).cumsum()


def map_values(
    values: Any, function: Callable[..., Any], *arguments: Any, name: str, dtype: Any
) -> Any:
    """Return ``function(values, *arguments)`` in the kind of ``values``, lazily for Dask.

    Parameters
    ----------
    values : ndarray, Series, dask array or dask Series, or that of another library
        A result of `Table.restore`.
    function : callable
        From arrays of shape (n,) to an array of shape (n,), each number separately.
    arguments : objects
        Large ones are in the graph once, a `LocalValue` one in all graphs; of a task, such
        as a `Delayed`, the result is taken.
    name, dtype
        Of the result.
    """
    if isinstance(values, np.ndarray):
        return function(values, *map(unwrapped, arguments))
    if isinstance(values, pd.Series):
        return _on_series(values, function, name, *map(unwrapped, arguments))
    if isinstance(values, da.Array):
        return map_blocks([values], function, *arguments, name=name, dtype=dtype)
    if (found := from_library(values)) is not None:
        array, restore = found
        return restore(function(array, *map(unwrapped, arguments)), name)
    entered = [to_task(argument, "lpe-shared") for argument in arguments]
    meta = _empty_series(name, dtype)
    return map_partitions(values, _on_series, function, name, *entered, meta=meta)


def map_several(
    values: Sequence[Any], function: Callable[..., Any], *, name: str, dtype: Any
) -> Any:
    """Return ``function(*values)`` in the kind of the first, lazily for Dask.

    Parameters as for `map_values`, but for several numbers of each row, all of one kind.
    """
    first = values[0]
    if isinstance(first, np.ndarray):
        return function(*values)
    if isinstance(first, pd.Series):
        return _on_series(first, function, name, *map(np.asarray, values[1:]))
    if isinstance(first, da.Array):
        return map_blocks(values, function, name=name, dtype=dtype)
    if (found := from_library(first)) is not None:
        arrays = [from_library(of)[0] for of in values]  # type: ignore[index]
        return found[1](function(*arrays), name)
    meta = _empty_series(name, dtype)
    return map_partitions(first, _on_series, function, name, *values[1:], meta=meta)


def unwrapped(argument: Any) -> Any:
    """Return an argument of `map_values` as functions take it."""
    return argument.value if isinstance(argument, LocalValue) else argument


def map_blocks(
    arrays: Sequence[da.Array],
    function: Callable[..., Any],
    *arguments: Any,
    name: str,
    dtype: Any,
) -> da.Array:
    """Return ``function(*blocks, *arguments)`` of blocks of the same rows, lazily.

    Parameters
    ----------
    arrays : sequence of dask arrays
        In the same row chunks; rows in one chunk of features, or one number for each row.
        Or of arrays of NumPy, of which the function is called at once.
    function, arguments, name, dtype
        As for `map_values`.

    Returns
    -------
    values : dask array of shape (n,)
        In the chunks of the first. Of arrays of NumPy: such an array.
    """
    if isinstance(arrays[0], np.ndarray):
        return function(*arrays, *map(unwrapped, arguments))
    entered = [to_task(argument, "lpe-shared") for argument in arguments]
    keys = [argument.key for argument in entered]
    blocks = zip(*(flatten(array.__dask_keys__()) for array in arrays), strict=True)
    tasks = ((function, *of_rows, *keys) for of_rows in blocks)
    chunks = (arrays[0].chunks[0],)
    return new_array(name, tasks, [*arrays, *entered], chunks, np.empty(0, dtype))


def map_frame_rows(
    frame: Any,
    function: Callable[..., Any],
    *arguments: Any,
    rows: da.Array,
    name: str,
    dtype: Any,
) -> Any:
    """Return a function of the rows of a dask DataFrame of numbers as a dask Series.

    Parameters as for `map_blocks`; ``rows`` are those of the frame.
    """
    entered = [to_task(argument, "lpe-shared") for argument in arguments]
    meta = _empty_series(name, dtype)
    return map_partitions(
        frame, _on_rows, function, name, rows.dtype.type, *entered, meta=meta
    )


def _on_series(
    values: pd.Series, function: Callable[..., Any], name: str, *arguments: Any
) -> pd.Series:
    return pd.Series(function(values.to_numpy(), *arguments), values.index, name=name)


def _on_rows(
    frame: pd.DataFrame,
    function: Callable[..., Any],
    name: str,
    dtype: type[np.floating],
    *arguments: Any,
) -> pd.Series:
    return pd.Series(function(float_rows(frame, dtype), *arguments), frame.index, name=name)


# Nominal rows


@dataclass(frozen=True, slots=True)
class InputKind:
    """In what kind the nominal rows came, for results that belong to them.

    Attributes
    ----------
    restore, frame, source, is_lazy
        As in `table.Table`.
    origin : FitInput, optional
        The rows themselves.
    """

    restore: Callable[[Any, str], Any] = to_numpy
    frame: Any = None
    source: Any = None
    is_lazy: bool = False
    origin: FitInput | None = None

    def lookup(
        self,
        chunks: Sequence[int],
        checksums: Checksums,
        values: Sequence[LocalValue],
        function: Callable[..., Any] | None,
        *arguments: Any,
        name: str,
    ) -> Any:
        """Return values of the rows of a dask DataFrame as a dask Series of floats.

        Each task reads only the values of its rows.

        Parameters
        ----------
        chunks : sequence of int
            Rows of its partitions.
        checksums : Checksums
            Of these, to detect changes.
        values : sequence of LocalValue
            Of arrays of shape (n,).
        function : callable, optional
            ``function(*values of some rows, *arguments)``; None: the first of the values.
        arguments : objects
            As for `map_values`.
        name : str
            Of the series.
        """
        edges, sums = np.cumsum([0, *chunks]), np.array(checksums.totals)
        known = [to_task(edges, "lpe-edges"), to_task(sums, "lpe-checksums")]
        own = [held.argument() for held in values]
        entered = [to_task(argument, "lpe-shared") for argument in arguments]
        # Not of the frame: rows that were checked would be kept until all before are
        # counted.
        return map_partitions(
            row_numbers(self.source), _look_up, name, function, self.frame,
            number_type(self.frame), *known, checksums.places, len(values), *own, *entered,
            meta=_empty_series(name, float),
        )  # fmt: skip


def _empty_series(name: str, dtype: Any) -> pd.Series:
    return pd.Series(dtype=dtype, name=name)


# The functions below run inside tasks.


def _ones(frame: pd.DataFrame) -> pd.Series:
    return pd.Series(np.ones(len(frame), int), frame.index, name="row")


def _take_rows(numbers: pd.Series, name: str, whole: NDArray[Any]) -> pd.Series:
    """Return the value of each row by its number, which counts from 1."""
    start, stop = _range_of(numbers)
    return pd.Series(whole[start:stop], numbers.index, name=name)


def _take_checked_rows(
    numbers: pd.Series,
    name: str,
    hashes: pd.Series,
    whole: NDArray[Any],
    whole_hashes: NDArray[np.uint64],
) -> pd.Series:
    """Return the value of each row by its number; ValueError if the rows have changed."""
    start, stop = _range_of(numbers)
    if not np.array_equal(whole_hashes[start:stop], hashes.to_numpy()):
        raise ValueError(
            f"the frame gave other rows from row {start} to {stop} when it was read again. "
            f"Persist it (frame.persist()) or write it to files, and score that."
        )
    return _take_rows(numbers, name, whole)


def _hashes(frame: pd.DataFrame) -> pd.Series:
    return pd.Series(row_hashes(float_rows(frame)), frame.index, name="hash")


def _range_of(numbers: pd.Series) -> tuple[int, int]:
    if len(numbers) == 0:
        return 0, 0
    return int(numbers.iloc[0]) - 1, int(numbers.iloc[-1])


def _look_up(
    numbers: pd.Series,
    name: str,
    function: Callable[..., Any] | None,
    frame: pd.DataFrame,
    dtype: type[np.floating],
    edges: NDArray[np.int64],
    checksums: NDArray[np.int64],
    places: tuple[int, ...],
    n_values: int,
    *given: Any,
) -> pd.Series:
    """Return the value of each row by its number; ValueError if the rows have changed."""
    start, stop = _range_of(numbers)
    # Dask may read several partitions as one, but never a part of one.
    is_cut_as_before = start in edges and stop in edges
    if not is_cut_as_before or (len(numbers) == 0 and np.diff(edges).all()):
        raise ValueError(
            rows_changed_message(f"has another partition from row {start} to {stop}")
        )
    rows, parts = float_rows(frame, dtype), np.searchsorted(edges, [start, stop])
    actual = [
        row_checksum(rows[edges[i] - start : edges[i + 1] - start], places).total
        for i in range(*parts)
    ]
    if len(rows) != stop - start or actual != checksums[slice(*parts)].tolist():
        raise ValueError(rows_changed_message(f"has other rows from row {start} to {stop}"))
    values = [_rows_of(some, start, stop) for some in given[:n_values]]
    found = function(*values, *given[n_values:]) if function else values[0]
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

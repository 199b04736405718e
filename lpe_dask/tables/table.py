"""Read what users have as blocks of rows, and give results back in the kind that came in.

    NumPy | pandas | Dask array | Dask DataFrame | Parquet, CSV
        -> Table.rows       dask array (n_rows, n_features), one chunk of features
        -> Table.restore    dask array (n_rows,) -> array or Series with the index that came

Nothing is computed here but the lengths of frames where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Complex, Number, Real
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.tables.column_names import check_distinct, identity, places_of
from lpe_dask.tables.files import is_paths, read_frame
from lpe_dask.tasks import (
    Shared,
    compute,
    enter,
    for_frames,
    held_of,
    is_large,
    is_shared,
    meta_of,
    same,
    simplified,
    under_own_keys,
    value_of,
)

#: Bytes of a chunk of an array that the client holds, and about how many there are.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, N_CHUNKS = 8 * 2**20, 128 * 2**20, 64

#: Rows of a frame that are made rows of an array at a time.
CONVERTED_ROWS = 2**14

#: By what hashes of rows are mixed: an odd number whose bits look random, and half a word.
_HASH_FACTOR, _HASH_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass(frozen=True, slots=True)
class Table:
    """One input, whatever its kind.

    Attributes
    ----------
    rows : dask array of shape (n_rows, n_features)
        Whole or floating-point numbers or booleans, one chunk of features; the sizes of the
        row chunks are NaN for a frame, and for an array that does not know them.
    columns : list, optional
        Names of the columns, of any kind, where the input has names.
    labels : list of str
        What to call the columns in messages.
    restore : callable
        ``restore(values, name)`` turns a dask array of shape (n_rows,), in the chunks of
        ``rows``, into the kind that came in; computes for NumPy and pandas.
    frame : dask DataFrame, optional
        The columns to measure, where that is what came in.
    is_lazy : bool
        Whether it came as a Dask collection, and results are to be one.
    reread : callable, optional
        Gives ``rows`` anew, where this process has them.
    """

    rows: da.Array
    columns: list[Any] | None
    labels: list[str]
    restore: Callable[[da.Array, str], Any]
    frame: Any = None
    is_lazy: bool = False
    reread: Callable[[], da.Array] | None = None


def read_table(X: Any, learnt_columns: Sequence[Any] | None = None) -> Table:
    """Return ``X`` as a `Table`.

    Parameters
    ----------
    X : array-like, DataFrame, dask array, dask DataFrame, str or path, or a list of paths
        Of shape (n_rows, n_features). Paths are read by `read_frame`.
    learnt_columns : sequence, optional
        The columns that a model was fitted on: a frame is reordered to them by name and its
        other columns are left out; an array is taken by position. None: all, as they come.

    Raises
    ------
    TypeError
        For columns that are not numbers, sparse ones, or an array of an unknown number of
        columns. Objects in Dask collections are looked at by the tasks that read them.
    ValueError
        For missing columns, two of one name, complex numbers, or another number of
        dimensions.
    """
    if is_paths(X):
        X = read_frame(X, columns=learnt_columns)
        X = X if learnt_columns is None else select_columns(X, learnt_columns)
        check_numeric(X)  # objects in files, such as lists or dates, are no numbers
    if is_frame(X):
        return _read_any_frame(X, learnt_columns)
    if isinstance(X, da.Array):
        return _read_dask_array(X)
    if is_dask_collection(X):  # not to be computed for this
        _check_dimensions(getattr(X, "ndim", 0), "(n,)")
    return _read_numpy(X)


def select_columns(X: Any, columns: Sequence[Any]) -> Any:
    """Return the frame ``X``, or that in the files it names, with these columns only.

    Names are the same as `column_names.identity` says.
    """
    if is_paths(X):
        X = read_frame(X, columns=columns)
    if not is_frame(X):
        raise TypeError(
            f"columns={list(columns)} selects columns of a frame by name, but the rows "
            f"came as {type(X).__name__}. Select by position instead, for example X[:, [0, "
            f"1]]."
        )
    check_distinct(columns)
    places = places_of(X.columns)
    missing = [name for name in columns if identity(name) not in places]
    if missing:
        raise ValueError(
            f"the rows lack the columns {missing}; needed are {list(columns)}, found are "
            f"{list(X.columns)}. Add them, or choose others (columns=, --columns)."
        )
    chosen = columns_at(X, [place for name in columns for place in places[identity(name)]])
    check_distinct(chosen.columns)
    return chosen


def columns_at(frame: Any, places: Sequence[int]) -> Any:
    """Return the columns of a frame at these positions.

    By name where that means the same, so that no others are read: pandas and Dask take
    booleans for a choice of rows, and NaN for no name.
    """
    names = list(frame.columns)
    if list(places) == list(range(len(names))):
        return frame
    if isinstance(frame, pd.DataFrame):
        return frame.iloc[:, list(places)]
    if all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        return frame[[names[place] for place in places]]
    meta = meta_of(frame).iloc[:, list(places)]
    # Dask could not enforce it: names that are NaN are unequal to it.
    return frame.map_partitions(columns_at, list(places), meta=meta, enforce_metadata=False)


def is_frame(X: Any) -> bool:
    """Return whether ``X`` is a pandas or Dask DataFrame."""
    return isinstance(X, pd.DataFrame) or (
        is_dask_collection(X)
        and hasattr(X, "map_partitions")
        and X.ndim == 2
        and hasattr(X, "columns")
    )


# NumPy and what becomes it


def _read_numpy(X: Any) -> Table:
    from sklearn.utils import check_array  # not for workers, which import this module

    array = check_array(
        X, dtype=None, ensure_all_finite=False, ensure_2d=False, allow_nd=True,
        ensure_min_samples=0,
    )  # fmt: skip
    _check_dimensions(array.ndim, array.shape)
    _check_type(array.dtype)
    if array.dtype == object:
        array = _rows_of_objects(array)
    labels = _numbered(array.shape[1])
    return Table(_cut(array), None, labels, to_numpy, reread=partial(_cut, array))


def to_numpy(values: da.Array | NDArray[Any], name: str) -> NDArray[Any]:
    """Return the values; computes. The name is for kinds that have one."""
    return values if isinstance(values, np.ndarray) else np.asarray(*compute(values))


def _cut(array: NDArray[Any]) -> da.Array:
    """Return an array on the client as a dask array: one task a block, no copy of it."""
    # Every chunk costs some tasks and, on a cluster, messages: not worth it for small ones.
    chunk_bytes = min(MAX_CHUNK_BYTES, max(MIN_CHUNK_BYTES, array.nbytes // N_CHUNKS))
    step = max(1, chunk_bytes // max(1, array.dtype.itemsize * array.shape[1]))
    starts = range(0, max(1, len(array)), step)
    blocks = [enter(array[start : start + step], "lpe-input") for start in starts]
    name = f"lpe-rows-{uuid4().hex}"
    tasks = {(name, i, 0): (same, block.key) for i, block in enumerate(blocks)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=blocks)
    sizes = tuple(min(step, len(array) - start) for start in starts)
    return da.Array(graph, name, (sizes, (array.shape[1],)), meta=array[:0])


def _numbered(n_features: int) -> list[str]:
    return [f"column {i}" for i in range(n_features)]


def _check_dimensions(n_dimensions: int, shape: Any) -> None:
    if n_dimensions != 2:
        raise ValueError(
            f"Expected 2D array, got {n_dimensions}D array instead: X has the shape "
            f"{shape}. Reshape your data: X.reshape(-1, 1) if it is a single column, "
            f"X.reshape(1, -1) if it is a single row (X.to_frame() for a Series)."
        )


def _check_type(dtype: np.dtype[Any]) -> None:
    """Raise for what no rows can be; whether objects are numbers is for later."""
    if dtype.kind == "c":
        raise ValueError(_is_complex(f"X has dtype {dtype}"))
    if dtype.kind not in "biufO":
        raise TypeError(
            f"X has dtype {dtype}, but rows must be real numbers or booleans. Leave out "
            f"what is none, or make numbers of it."
        )


def _is_complex(given: str) -> str:
    return (
        f"Complex data not supported: {given}, but rows must be real numbers. Give real "
        f"and imaginary parts as columns of their own."
    )


# Dask arrays


def _read_dask_array(X: da.Array) -> Table:
    _check_dimensions(X.ndim, X.shape)
    _check_type(X.dtype)
    if not isinstance(meta_of(X), np.ndarray):
        raise TypeError(
            f"Sparse data was passed, or other blocks than NumPy's: X is made of "
            f"{type(meta_of(X)).__name__}, but rows must be dense. Make them so, for "
            f"example X.map_blocks(lambda block: block.todense())."
        )
    if np.isnan(X.shape[1]):
        raise TypeError(
            f"X has an unknown number of columns (shape={X.shape}), but a search needs to "
            f"know it. Compute it once with X.compute_chunk_sizes()."
        )
    if X.shape[1] == 0:
        raise ValueError(_no_features(X.shape))
    rows = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
    if X.dtype == object:
        rows = rows.map_blocks(_rows_of_objects, dtype=float, meta=np.empty((0, 0)))
    return Table(rows, None, _numbered(X.shape[1]), _to_itself, is_lazy=True)


def _to_itself(values: da.Array, name: str) -> da.Array:
    return values


def _no_features(shape: tuple[int, ...]) -> str:
    return (
        f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required."
    )


# Frames


def _read_any_frame(frame: Any, learnt_columns: Sequence[Any] | None) -> Table:
    if learnt_columns is not None:
        frame = select_columns(frame, learnt_columns)
    if len(frame.columns) == 0:
        raise ValueError(_no_features((len(frame.index), 0)))
    check_distinct(frame.columns)
    frame = _with_numbers(frame)
    names = list(frame.columns)
    labels = [str(name) for name in names]
    if isinstance(frame, pd.DataFrame):
        restore = partial(_to_series, index=frame.index)
        rows = float_rows(frame)
        reread = partial(_cut, rows)
        return Table(_cut(rows), names, labels, restore, reread=reread)
    restore = partial(_to_dask_series, frame=frame)
    return Table(_rows_of_dask_frame(frame), names, labels, restore, frame, is_lazy=True)


def _with_numbers(frame: Any) -> Any:
    """Return a frame of numbers, made of objects where all are numbers.

    What Dask reads is looked at in its tasks.
    """
    is_object = pd.api.types.is_object_dtype
    objects = [i for i, dtype in enumerate(frame.dtypes) if is_object(dtype)]
    if isinstance(frame, pd.DataFrame) or not objects:
        return _of_numbers(frame, objects)
    meta = _of_numbers(meta_of(frame), objects)  # an empty column has no other objects
    return frame.map_partitions(_of_numbers, objects, meta=meta, enforce_metadata=False)


def check_numeric(frame: Any) -> None:
    """Raise an error, naming them, if ``frame`` has columns that are not real numbers.

    TypeError, but ValueError for complex numbers.
    """
    is_complex = pd.api.types.is_complex_dtype
    complex_ = [name for name, dtype in frame.dtypes.items() if is_complex(dtype)]
    if complex_:
        raise ValueError(_is_complex(f"the columns {complex_} hold some"))
    numeric = [name for name, dtype in frame.dtypes.items() if _is_number(dtype)]
    others = {name: dtype for name, dtype in frame.dtypes.items() if not _is_number(dtype)}
    if others:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in others.items())
        names = ",".join(map(str, numeric))
        remedy = (
            f"Choose the columns to measure: columns={numeric} in Python or a job file, "
            f"--columns {names} on the command line."
        )
        if not numeric:
            remedy = "There are no others: give a table with columns of numbers."
        raise TypeError(
            f"rows must be dense numbers or booleans, but these columns are not: {listed}. "
            f"{remedy}"
        )


def _is_number(dtype: Any) -> bool:
    types = pd.api.types
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return False
    # Arrow's booleans are no numbers to pandas
    return types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)


def _to_series(values: da.Array | NDArray[Any], name: str, index: pd.Index) -> pd.Series:
    return _as_series(to_numpy(values, name), index, name)


def tasks_of_frame(frame: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Return the graph of a dask frame, series or index, and one key for each partition.

    Only needed columns are read. A full optimization would also read several partitions as
    one where columns were left out, and results have to come in the partitions of the user.
    """
    read = simplified(frame)
    return under_own_keys(read.__dask_graph__()), list(read.__dask_keys__())


def _rows_of_dask_frame(frame: Any) -> da.Array:
    graph, keys = tasks_of_frame(frame)
    name = f"lpe-rows-{uuid4().hex}"
    source = f"lpe-frame-{name}"
    # The type of the whole frame, not of a partition: blocks must be what the array says.
    dtype = _number_type(frame)
    tasks = {(name, i, 0): (float_rows, key, dtype) for i, key in enumerate(keys)}
    layers = HighLevelGraph({source: graph, name: tasks}, {source: set(), name: {source}})
    chunks = ((np.nan,) * len(keys), (len(frame.columns),))
    return da.Array(layers, name, chunks, meta=np.empty((0, 0), dtype))


def _to_dask_series(values: da.Array, name: str, frame: Any) -> Any:
    # Row numbers are made of the frame itself, so that Dask knows the result to belong to
    # it row by row: `frame.assign(p=...)` then needs no divisions, and no shuffle.
    column = columns_at(frame, [0])
    numbers = column.map_partitions(_ones, meta=_empty_series("row", int)).cumsum()
    (whole,) = for_frames([delayed(np.asarray)(values)])
    meta = _empty_series(name, values.dtype)
    return numbers.map_partitions(_take_rows, name, whole, meta=meta)


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
    numbers = frame.map_partitions(_ones, meta=_empty_series("row", int)).cumsum()
    (edges,) = for_frames([enter(np.cumsum([0, *chunks]), "lpe-edges")])
    own = [_readable(shared) for shared in (hashes, *values)]
    entered = for_frames([enter(argument, "lpe-shared") for argument in arguments])
    return numbers.map_partitions(
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


def with_known_rows(rows: da.Array, sizes: Sequence[int]) -> da.Array:
    """Return the same blocks, with the sizes of the row chunks filled in."""
    return da.Array(
        rows.dask, rows.name, (tuple(sizes), rows.chunks[1]), meta=meta_of(rows)
    )


# The functions below run inside tasks.


def _of_numbers(frame: pd.DataFrame, objects: Sequence[int]) -> pd.DataFrame:
    """Return a frame with the objects of some columns as the numbers that they are."""
    converted = frame.copy(deep=False) if objects else frame
    for i in objects:
        numbers = _numbers_among(frame.iloc[:, i].to_numpy())
        if numbers is not None:
            converted.isetitem(i, numbers)
    check_numeric(converted)
    return converted


def _rows_of_objects(array: NDArray[np.object_]) -> NDArray[np.float64]:
    rows, others = np.empty(array.shape), []
    for i, column in enumerate(array.T):
        numbers = _numbers_among(column)
        if numbers is None:
            others.append(f"column {i}")
        else:
            rows[:, i] = numbers
    if others:
        raise TypeError(
            f"the argument must be rows of numbers: no string or other object is taken for "
            f"a number, but there are some in {', '.join(others)}. Leave these out, for "
            f"example X[:, [0, 1]], or make numbers of them."
        )
    return rows


def _numbers_among(objects: NDArray[np.object_]) -> NDArray[np.float64] | None:
    """Return objects as numbers, of which None and NA are NaN; None if others are there."""
    kinds = set(map(type, objects))
    if any(issubclass(kind, Complex) and not issubclass(kind, Real) for kind in kinds):
        raise ValueError(_is_complex("there are complex numbers among the objects of X"))
    numbers = (Number, np.bool_, type(None), type(pd.NA))
    if not all(issubclass(kind, numbers) for kind in kinds):
        return None
    return pd.Series(objects, dtype=object).to_numpy(np.float64, na_value=np.nan)


def float_rows(
    frame: pd.DataFrame, dtype: type[np.floating] | None = None
) -> NDArray[np.floating]:
    """Return the numbers of a frame, of shape (n_rows, n_features); NA is NaN.

    As float32 where all columns are, if ``dtype`` does not say otherwise: half the memory,
    and the same numbers. A frame that is one array already, as pandas makes it of NumPy's,
    is not copied where that has the order of rows.

    Raises
    ------
    ValueError
        If ``dtype`` is float32, and does not hold the numbers.
    """
    found = _number_type(frame)
    if dtype == np.float32 != found:
        return _as_float32(frame)
    dtype = dtype or found
    convert = partial(pd.DataFrame.to_numpy, dtype=dtype, na_value=np.nan)
    head = convert(frame.iloc[:1])
    if np.may_share_memory(head, frame.iloc[:, 0].to_numpy()):
        return np.ascontiguousarray(convert(frame))
    # pandas would gather its columns first, and turn them into rows in a second copy.
    rows = np.empty(frame.shape, dtype)
    for start in range(0, len(frame), CONVERTED_ROWS):
        part = slice(start, start + CONVERTED_ROWS)
        rows[part] = convert(frame.iloc[part])
    return rows


def _as_float32(frame: pd.DataFrame) -> NDArray[np.float32]:
    rows = float_rows(frame)
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    if not np.array_equal(narrow, rows, equal_nan=True):
        types = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
        raise ValueError(
            f"a partition has the types {types}, but the dask DataFrame says float32, "
            f"which does not hold all of its numbers. Say what they are, for example with "
            f"ddf = ddf.astype('float64')."
        )
    return narrow


def _number_type(frame: Any) -> type[np.floating]:
    is_single = all(dtype == np.float32 for dtype in frame.dtypes)
    return np.float32 if is_single else np.float64


def _ones(frame: pd.DataFrame) -> pd.Series:
    return _as_series(np.ones(len(frame), int), frame.index, "row")


def _take_rows(numbers: pd.Series, name: str, whole: NDArray[Any]) -> pd.Series:
    """Return the value of each row, told by its number, which counts from 1."""
    start, stop = _range_of(numbers)
    return _as_series(whole[start:stop], numbers.index, name)


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
    return _as_series(found, numbers.index, name)


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


def _as_series(values: NDArray[Any], index: pd.Index, name: str) -> pd.Series:
    return pd.Series(values, index, name=name)


# Results that follow from other results


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
        return _as_series(mapped, values.index, name)
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
    return _as_series(function(values.to_numpy(), *arguments), values.index, name)

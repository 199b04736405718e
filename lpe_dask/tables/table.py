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
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.tables.column_names import check_distinct
from lpe_dask.tables.columns import is_frame, select_columns
from lpe_dask.tables.files import is_paths, read_frame
from lpe_dask.tables.numeric import (
    check_numeric,
    check_type,
    float_rows,
    number_type,
    of_numbers,
    rows_of_objects,
)
from lpe_dask.tables.results import to_dask_series, to_numpy, to_series
from lpe_dask.tasks import enter, meta_of, same, simplified, under_own_keys

#: Bytes of a chunk of an array that the client holds, and about how many there are.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, N_CHUNKS = 8 * 2**20, 128 * 2**20, 64


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
    restore: Callable[[da.Array, str], Any]
    frame: Any = None
    is_lazy: bool = False
    reread: Callable[[], da.Array] | None = None

    @property
    def labels(self) -> list[str]:
        """What to call the columns in messages."""
        if self.columns is None:
            return [f"column {i}" for i in range(self.rows.shape[1])]
        return list(map(str, self.columns))


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


# NumPy and what becomes it


def _read_numpy(X: Any) -> Table:
    from sklearn.utils import check_array  # not for workers, which import this module

    array = check_array(
        X, dtype=None, ensure_all_finite=False, ensure_2d=False, allow_nd=True,
        ensure_min_samples=0,
    )  # fmt: skip
    _check_dimensions(array.ndim, array.shape)
    check_type(array.dtype)
    if array.dtype == object:
        array = rows_of_objects(array)
    return Table(_cut(array), None, to_numpy, reread=partial(_cut, array))


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


def _check_dimensions(n_dimensions: int, shape: Any) -> None:
    if n_dimensions != 2:
        raise ValueError(
            f"Expected 2D array, got {n_dimensions}D array instead: X has the shape "
            f"{shape}. Reshape your data: X.reshape(-1, 1) if it is a single column, "
            f"X.reshape(1, -1) if it is a single row (X.to_frame() for a Series)."
        )


# Dask arrays


def _read_dask_array(X: da.Array) -> Table:
    _check_dimensions(X.ndim, X.shape)
    check_type(X.dtype)
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
        rows = rows.map_blocks(rows_of_objects, dtype=float, meta=np.empty((0, 0)))
    return Table(rows, None, _to_itself, is_lazy=True)


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
    if isinstance(frame, pd.DataFrame):
        restore = partial(to_series, index=frame.index)
        rows = float_rows(frame)
        return Table(_cut(rows), names, restore, reread=partial(_cut, rows))
    restore = partial(to_dask_series, frame=frame)
    return Table(_rows_of_dask_frame(frame), names, restore, frame, is_lazy=True)


def _with_numbers(frame: Any) -> Any:
    """Return a frame of numbers, made of objects where all are numbers.

    What Dask reads is looked at in its tasks.
    """
    is_object = pd.api.types.is_object_dtype
    objects = [i for i, dtype in enumerate(frame.dtypes) if is_object(dtype)]
    if isinstance(frame, pd.DataFrame) or not objects:
        return of_numbers(frame, objects)
    meta = of_numbers(meta_of(frame), objects)  # an empty column has no other objects
    return frame.map_partitions(of_numbers, objects, meta=meta, enforce_metadata=False)


def _rows_of_dask_frame(frame: Any) -> da.Array:
    # Only needed columns are read. A full optimization would also read several partitions
    # as one where columns were left out, and results come in the partitions of the user.
    read = simplified(frame)
    keys = list(read.__dask_keys__())
    name = f"lpe-rows-{uuid4().hex}"
    source = f"lpe-frame-{name}"
    # The type of the whole frame, not of a partition: blocks must be what the array says.
    dtype = number_type(frame)
    tasks = {(name, i, 0): (float_rows, key, dtype) for i, key in enumerate(keys)}
    graph = {source: under_own_keys(read.__dask_graph__()), name: tasks}
    layers = HighLevelGraph(graph, {source: set(), name: {source}})
    chunks = ((np.nan,) * len(keys), (len(frame.columns),))
    return da.Array(layers, name, chunks, meta=np.empty((0, 0), dtype))


def with_known_rows(rows: da.Array, sizes: Sequence[int]) -> da.Array:
    """Return the same blocks, with the sizes of the row chunks filled in."""
    return da.Array(
        rows.dask, rows.name, (tuple(sizes), rows.chunks[1]), meta=meta_of(rows)
    )

"""Read the input of users as blocks of rows, and return results in its kind.

    NumPy | pandas | Polars, Arrow | Dask array | Dask DataFrame | Parquet, CSV
        -> Source           an array, a frame, or a Dask collection of these
        -> Table.rows       dask array (n_rows, n_features), one chunk of features
        -> Table.restore    dask array (n_rows,) -> array or Series with the index of X

Nothing of Dask is computed here, but for `values_in_memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.arrays import as_array
from lpe_dask.tables.categories import Categories
from lpe_dask.tables.column_names import check_names
from lpe_dask.tables.columns import is_frame, select_columns, select_positions
from lpe_dask.tables.exact_numbers import NO_OFFSETS, ColumnOffsets, are_numbers
from lpe_dask.tables.interop import ConvertedTable, as_table
from lpe_dask.tables.numeric import check_numeric, float_rows, number_type
from lpe_dask.tables.output_series import to_dask_series, to_foreign, to_numpy, to_series
from lpe_dask.tables.partitions import (
    RowEncoder,
    as_frame,
    error_context,
    frame_of_part,
    part_of_columns,
    rows_of_part,
)
from lpe_dask.tables.table_files import is_path_like, read_frame
from lpe_dask.tables.value_types import check_value_types, column_label, kind_of_type
from lpe_dask.tasks import (
    LocalValue,
    compute,
    frame_tasks,
    map_partitions,
    meta_of,
    new_array,
    new_tasks,
    source_names,
    to_task,
    with_selection,
)

#: Bytes of a chunk of an array in this process, and about how many chunks there are.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, N_CHUNKS = 8 * 2**20, 128 * 2**20, 64

#: Most bytes of categories that each task carries; larger ones are a task of their own, or
#: the tasks of 100,000 partitions would have gigabytes of them.
CARRIED_BYTES = 2**14


@dataclass(frozen=True, slots=True)
class Source:
    """What users bring, before its values are converted.

    Attributes
    ----------
    X : DataFrame, ndarray, dask DataFrame or dask array
    names : list or int
        Of the columns; of an array how many.
    meta : DataFrame
        With the types of the columns; without rows, if it is lazy.
    restore : callable
        As `Table.restore`; not for a dask DataFrame, whose results have its index.
    is_in_files : bool
        Whether it is read from files here, in which names and types are certain.
    """

    X: Any
    names: list[Any] | int
    meta: pd.DataFrame
    restore: Callable[[Any, str], Any]
    is_in_files: bool = False

    @property
    def is_lazy(self) -> bool:
        """Whether it is a Dask collection."""
        return not isinstance(self.X, pd.DataFrame | np.ndarray)

    def checked_frame(self) -> Any:
        """Return a dask DataFrame whose tasks select columns as `part_of_columns` does."""
        return self.X if self.is_in_files else with_selection(self.X, part_of_columns)

    def parts(self) -> tuple[list[Any], list[float], Any]:
        """Return the keys of the partitions, their rows, and what has them."""
        if isinstance(self.X, da.Array):
            keys = [(self.X.name, i, 0) for i in range(self.X.numblocks[0])]
            return keys, list(self.X.chunks[0]), self.X
        keys, graph = frame_tasks(self.checked_frame())
        return keys, [np.nan] * len(keys), graph

    def select(self, places: Sequence[int]) -> Source:
        """Return some columns of a lazy frame, so that no others are read."""
        X = select_positions(self.X, list(places))
        return replace(self, X=X, names=list(X.columns), meta=meta_of(X))


def open_source(
    X: Any,
    columns: Sequence[Any] | None = None,
    kinds: Mapping[int, str | None] | None = None,
) -> Source:
    """Return a table of any kind, with these columns only if it has names.

    Parameters and errors as of `read_table`; ``kinds`` as of `table_files.open_table`.
    """
    if is_in_files := is_path_like(X):
        X = read_frame(X, columns=columns, kinds=kinds)
    X, kind = as_table(X, columns), None
    if isinstance(X, ConvertedTable):
        X, kind = X.frame, X.kind
    if getattr(getattr(X, "dtype", None), "names", None):
        raise TypeError(
            f"X is a structured array of the shape {X.shape}, whose columns have names "
            f"{list(X.dtype.names)}. Give a frame: pd.DataFrame(X.ravel()), or of a Dask "
            f"array dask.dataframe.from_dask_array(X)."
        )
    if is_frame(X):
        X = X if columns is None else select_columns(X, columns)
        check_names(X.columns)
        names = list(X.columns)
        if is_dask_collection(X):
            return Source(X, names, meta_of(X), _to_itself, is_in_files)
        of_pandas = partial(to_series, index=X.index)
        return Source(X, names, X, partial(to_foreign, kind=kind) if kind else of_pandas)
    if is_dask_collection(X):  # must not be computed here
        return _of_dask_array(X)
    from sklearn.utils import check_array  # not for workers, which import this module

    array = check_array(
        as_array(X), dtype=None, ensure_all_finite=False, ensure_2d=False, allow_nd=True,
        ensure_min_samples=0,
    )  # fmt: skip
    _check_dimensions(array.ndim, array.shape)
    return Source(array, array.shape[1], as_frame(array), to_numpy)


def _of_dask_array(X: Any) -> Source:
    shape = X.shape if isinstance(X, da.Array) else "(n,)"
    _check_dimensions(getattr(X, "ndim", 0), shape)
    if not isinstance(meta_of(X), np.ndarray):
        raise TypeError(
            f"Sparse data was passed, or other blocks than NumPy's: X consists of "
            f"{type(meta_of(X)).__name__}, but rows must be dense. Convert them, for "
            f"example X.map_blocks(lambda block: block.todense())."
        )
    if np.isnan(X.shape[1]):
        raise TypeError(
            f"X has an unknown number of columns (shape={X.shape}), which a search needs. "
            f"Compute it once with X.compute_chunk_sizes()."
        )
    meta = as_frame(np.empty((0, X.shape[1]), X.dtype))
    if X.dtype.kind in "UT":
        meta = meta.astype("string")
    X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
    return Source(X, X.shape[1], meta, _to_itself)


def _to_itself(values: da.Array, name: str) -> da.Array:
    return values


def _check_dimensions(n_dimensions: int, shape: Any) -> None:
    if n_dimensions != 2:
        raise ValueError(
            f"Expected 2D array, got {n_dimensions}D array instead: X has the shape "
            f"{shape}. Reshape your data: X.reshape(-1, 1) if it is a single column, "
            f"X.reshape(1, -1) if it is a single row (X.to_frame() for a Series)."
        )


def values_in_memory(X: Any, but: Collection[int]) -> pd.DataFrame:
    """Return the values of a table as they came, checked; computes.

    ``but`` has the positions of categorical columns.
    """
    source, check = open_source(X), partial(_checked_frame, but=tuple(but))
    if not source.is_lazy:
        return check(source.X)
    keys, sizes, collection = source.parts()
    tasks = (
        (error_context, key, i, source.names, check, n_rows)
        for i, (key, n_rows) in enumerate(zip(keys, sizes, strict=True))
    )
    frames = compute(*new_tasks("values", tasks, [collection]))
    return pd.concat(frames, ignore_index=isinstance(source.X, da.Array))


@dataclass(frozen=True, slots=True)
class Table:
    """An input of any kind.

    Attributes
    ----------
    rows : dask array of shape (n_rows, n_features)
        Whole or floating-point numbers or booleans, codes in categorical columns; one chunk
        of features; the sizes of the row chunks are NaN for a frame, and for an array that
        does not know them.
    columns : list, optional
        Names of the columns, of any kind, where the input has names.
    restore : callable
        ``restore(values, name)`` turns a dask array of shape (n_rows,), in the chunks of
        ``rows``, into the kind of the input; computes for NumPy and pandas.
    frame : dask DataFrame, optional
        The columns to measure, if the input was one; also with codes.
    source : dask DataFrame, optional
        What is read for ``frame``, unchecked, in the same partitions: only its index may be
        used. Where values are converted, ``frame`` itself.
    is_lazy : bool
        Whether input and results are Dask collections.
    reread : callable, optional
        Returns ``rows`` in a new graph, if they are in this process.
    """

    rows: da.Array
    columns: list[Any] | None
    restore: Callable[[da.Array, str], Any]
    frame: Any = None
    source: Any = None
    is_lazy: bool = False
    reread: Callable[[], da.Array] | None = None

    @property
    def labels(self) -> list[str]:
        """Names of the columns for messages."""
        if self.columns is None:
            return [f"column {i}" for i in range(self.rows.shape[1])]
        return list(map(str, self.columns))


def read_table(
    X: Any,
    fitted_columns: Sequence[Any] | None = None,
    categories: Categories | None = None,
    *,
    minima: ColumnOffsets = NO_OFFSETS,
    is_nominal: bool = False,
) -> Table:
    """Return ``X`` as a `Table`.

    Parameters
    ----------
    X : array-like, DataFrame, dask array, dask DataFrame, str or path, or a list of paths
        Of shape (n_rows, n_features); or what `as_table` takes. Paths are read by
        `read_frame`.
    fitted_columns : sequence, optional
        The columns that a model was fitted on: a frame is reordered to them by name and its
        other columns are left out; an array is taken by position. None: all columns.
    categories : Categories, optional
        The categorical columns, whose values become codes; None: all columns are numbers.
    minima : ColumnOffsets, optional
        The columns whose numbers are measured from their least nominal one.
    is_nominal : bool, default=False
        Whether the categories were learned from all these rows, so that every value is
        known: ValueError in the task that finds another one.

    Raises
    ------
    TypeError
        For columns that are not numbers, sparse ones, or an array of an unknown number of
        columns; for categorical ones of another type than their levels. Objects in Dask
        collections that are not read from files are checked by the tasks that read them.
    ValueError
        For missing columns, two of one name, complex numbers, or another number of
        dimensions.
    PrecisionError
        For a number that float64 cannot hold; of Dask collections in tasks.
    """
    categories = categories or Categories()
    source = open_source(X, fitted_columns, categories.kinds)
    meta = source.meta
    if meta.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={meta.shape}) while a minimum of 1 is "
            f"required."
        )
    labels, objects = list(map(column_label, meta.columns)), _objects(meta)
    check_value_types(list(map(kind_of_type, meta.dtypes)), labels, categories.kinds)
    if source.is_lazy:  # objects in files, such as lists or dates, are not numbers
        check_numeric(meta, categories.places, () if source.is_in_files else objects)
    is_plain = not (objects or categories.places or minima.places)
    encoder = RowEncoder(source.names, minima, is_nominal)
    if not source.is_lazy:
        reread = chunk_array(encoder.rows(source.X, categories))
        names = None if isinstance(source.names, int) else source.names
        return Table(reread(), names, source.restore, reread=reread)
    if isinstance(source.X, da.Array):
        return _of_blocks(source, encoder, categories)
    dtype = number_type(meta, categories.places)
    return _of_partitions(source, replace(encoder, dtype=dtype), categories, is_plain)


def _objects(frame: pd.DataFrame) -> list[int]:
    """Return the positions of columns of objects."""
    is_object = map(pd.api.types.is_object_dtype, frame.dtypes)
    return [i for i, is_one in enumerate(is_object) if is_one]


def _entered(categories: Categories) -> Any:
    """Return the categories for tasks, which small ones let be one with what reads."""
    held = LocalValue(categories, "lpe-categories")
    is_carried = held.n_bytes <= CARRIED_BYTES and not held.is_large
    return categories if is_carried else to_task(held, "")


def _of_blocks(source: Source, encoder: RowEncoder, categories: Categories) -> Table:
    X, entered = source.X, _entered(categories)
    depends: list[Any] = [X]
    encoded = encoder.rows(meta_of(X).reshape(0, X.shape[1]), categories)
    if isinstance(entered, Delayed):
        depends, entered = [X, entered], entered.key
    keys, sizes, _ = source.parts()
    tasks = (
        (rows_of_part, key, i, n_rows, entered, encoder)
        for i, (key, n_rows) in enumerate(zip(keys, sizes, strict=True))
    )
    rows = new_array("rows", tasks, depends, X.chunks, encoded)
    return Table(rows, None, source.restore, is_lazy=True)


def _of_partitions(
    source: Source, encoder: RowEncoder, categories: Categories, is_plain: bool
) -> Table:
    columns = list(source.meta.columns)
    names = pd.Index(columns, tupleize_cols=False)
    frame = read = source.checked_frame()
    if not (is_plain and source.is_in_files):
        meta = pd.DataFrame(index=source.meta.index, columns=names, dtype=encoder.dtype)
        frame = map_partitions(
            read, frame_of_part, _entered(categories), encoder, meta=meta,
            enforce_metadata=False,
        )  # fmt: skip
    read = read if is_plain else frame
    index = select_positions(read, [0])
    if source_names(index) == source_names(read):  # no less would be read
        index = frame
    keys, frames = frame_tasks(frame)
    tasks = ((float_rows, key, encoder.dtype) for key in keys)
    chunks = ((np.nan,) * len(keys), (len(names),))
    rows = new_array("rows", tasks, [frames], chunks, np.empty((0, 0), encoder.dtype))
    restore = partial(to_dask_series, frame=index)
    return Table(rows, columns, restore, frame, read, is_lazy=True)


def chunk_array(array: NDArray[Any]) -> Callable[[], da.Array]:
    """Return rows of this process as a function that makes a dask array of them.

    A task for each chunk, no copy.
    """
    # Each chunk costs some tasks and, on a cluster, messages: too much for small ones.
    chunk_bytes = min(MAX_CHUNK_BYTES, max(MIN_CHUNK_BYTES, array.nbytes // N_CHUNKS))
    step = max(1, chunk_bytes // max(1, array.dtype.itemsize * array.shape[1]))
    starts = range(0, max(1, len(array)), step)
    blocks = [LocalValue(array[start : start + step], "lpe-input") for start in starts]
    return partial(_entered_rows, blocks, array[:0])


def _entered_rows(blocks: list[LocalValue], meta: NDArray[Any]) -> da.Array:
    entered = LocalValue.tasks(blocks)
    tasks = ((np.asanyarray, block.key) for block in entered)
    sizes = tuple(len(block.value) for block in blocks)
    return new_array("rows", tasks, entered, (sizes, (meta.shape[1],)), meta)


def with_chunk_sizes(rows: da.Array, sizes: Sequence[int]) -> da.Array:
    """Return the same array with known sizes of its row chunks."""
    return da.Array(
        rows.dask, rows.name, (tuple(sizes), rows.chunks[1]), meta=meta_of(rows)
    )


# The function below runs inside tasks.


def _checked_frame(part: Any, but: tuple[int, ...]) -> pd.DataFrame:
    frame = as_frame(part)
    objects = [i for i in _objects(frame) if i not in but]
    numbers = [i for i in objects if are_numbers(frame.iloc[:, i].to_numpy(object))]
    check_numeric(frame, but, numbers)
    return frame

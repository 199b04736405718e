"""Read the input of users as blocks of rows, and return results in its kind.

    NumPy | pandas | Polars, Arrow | Dask array | Dask DataFrame | Parquet, CSV
        -> Table.rows       dask array (n_rows, n_features), one chunk of features
        -> Table.restore    dask array (n_rows,) -> array or Series with the index of X

Nothing of Dask is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.arrays import array_of
from lpe_dask.tables.categories import Categories, coded_rows, kinds_of
from lpe_dask.tables.column_names import check_distinct
from lpe_dask.tables.columns import columns_at, is_frame, select_columns
from lpe_dask.tables.files import is_paths, read_frame
from lpe_dask.tables.foreign import NamedTable, as_table
from lpe_dask.tables.kinds import check_kinds, kind_of_type, label_of
from lpe_dask.tables.large_numbers import (
    NO_MINIMA,
    Minima,
    exact_rows,
    may_lose_digits,
    rows_or_sign,
)
from lpe_dask.tables.levels import tasks_of_frame
from lpe_dask.tables.numeric import (
    check_numeric,
    check_type,
    float_rows,
    number_type,
    rows_of_objects,
)
from lpe_dask.tables.partitions import (
    checked_blocks,
    numeric_frame,
    numeric_part,
    with_checked_names,
    without_masks,
)
from lpe_dask.tables.results import to_dask_series, to_foreign, to_numpy, to_series
from lpe_dask.tasks import (
    Held,
    enter,
    enter_all,
    for_frames,
    held_of,
    is_large,
    meta_of,
    names_of_sources,
    new_array,
    same,
)

#: Bytes of a chunk of an array in this process, and about how many chunks there are.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, N_CHUNKS = 8 * 2**20, 128 * 2**20, 64

#: Most bytes of categories that each task carries; larger ones are a task of their own, or
#: the tasks of 100,000 partitions would have gigabytes of them.
CARRIED_BYTES = 2**14


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
    minima: Minima = NO_MINIMA,
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
    minima : Minima, optional
        The columns whose numbers are measured from their least nominal one.
    is_nominal : bool, default=False
        Whether the categories were learned from all these rows, so that every value is
        known: ValueError in the task that finds another one.

    Raises
    ------
    TypeError
        For columns that are not numbers, sparse ones, or an array of an unknown number of
        columns; for categorical ones of another type than their levels. Objects in Dask
        collections are checked by the tasks that read them.
    ValueError
        For missing columns, two of one name, complex numbers, or another number of
        dimensions.
    PrecisionError
        For a number that float64 cannot hold; of Dask collections in tasks. Where nominal
        rows have no minima yet, their tasks give a sign instead: see `rows_or_sign`.
    """
    if is_in_files := is_paths(X):
        X = read_frame(X, columns=fitted_columns, kinds=kinds_of(categories))
    coding, X = _Coding(categories, minima, is_nominal), as_table(X, fitted_columns)
    if isinstance(X, NamedTable):
        table = _read_any_frame(X.frame, fitted_columns, coding, is_in_files=False)
        return replace(table, restore=partial(to_foreign, kind=X.kind))
    if getattr(getattr(X, "dtype", None), "names", None):
        raise TypeError(
            f"X is a structured array of the shape {X.shape}, whose columns have names "
            f"{list(X.dtype.names)}. Give a frame: pd.DataFrame(X.ravel()), or of a Dask "
            f"array dask.dataframe.from_dask_array(X)."
        )
    if is_frame(X):
        return _read_any_frame(X, fitted_columns, coding, is_in_files=is_in_files)
    if isinstance(X, da.Array):
        return _read_dask_array(X, coding)
    if is_dask_collection(X):  # must not be computed here
        _check_dimensions(getattr(X, "ndim", 0), "(n,)")
    return _read_numpy(X, coding)


@dataclass(frozen=True, slots=True)
class _Coding:
    """How values become numbers: see `coded_frame`, and `exact_frame`."""

    categories: Categories | None
    minima: Minima
    is_nominal: bool

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of the categorical columns."""
        return () if self.categories is None else self.categories.places

    def entered(self) -> Any:
        """Return the categories for tasks, which small ones let be one with what reads."""
        held = held_of(self.categories, "lpe-categories")
        is_carried = held.n_bytes <= CARRIED_BYTES and not is_large(held.n_bytes)
        return self.categories if is_carried else enter(held, "")

    def in_tasks(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        """Return what converts rows in tasks; that of nominal ones may give a sign."""
        is_first = self.is_nominal and not self.minima.places
        return partial(rows_or_sign, convert) if is_first else convert


# NumPy and what can be converted to it


def _read_numpy(X: Any, coding: _Coding) -> Table:
    from sklearn.utils import check_array  # not for workers, which import this module

    array = check_array(
        array_of(X), dtype=None, ensure_all_finite=False, ensure_2d=False, allow_nd=True,
        ensure_min_samples=0,
    )  # fmt: skip
    _check_dimensions(array.ndim, array.shape)
    _check_types(array, coding)
    if coding.categories is None:
        array = _numbers(array, coding.minima)
    else:
        array = coded_rows(
            array, coding.categories, minima=coding.minima, is_nominal=coding.is_nominal
        )
    reread = cut_rows(array)
    return Table(reread(), None, to_numpy, reread=reread)


def cut_rows(array: NDArray[Any]) -> Callable[[], da.Array]:
    """Return what gives rows of this process as a dask array, in a graph of the moment.

    A task for each chunk, no copy.
    """
    # Each chunk costs some tasks and, on a cluster, messages: too much for small ones.
    chunk_bytes = min(MAX_CHUNK_BYTES, max(MIN_CHUNK_BYTES, array.nbytes // N_CHUNKS))
    step = max(1, chunk_bytes // max(1, array.dtype.itemsize * array.shape[1]))
    starts = range(0, max(1, len(array)), step)
    blocks = [Held(array[start : start + step], "lpe-input") for start in starts]
    return partial(_entered_rows, blocks, array[:0])


def _entered_rows(blocks: list[Held], meta: NDArray[Any]) -> da.Array:
    entered = enter_all(blocks)
    tasks = ((same, block.key) for block in entered)
    sizes = tuple(len(block.value) for block in blocks)
    return new_array("rows", tasks, entered, (sizes, (meta.shape[1],)), meta)


def _check_types(array: Any, coding: _Coding) -> None:
    """Raise for an array of what rows cannot have, as far as its type tells."""
    kinds = kinds_of(coding.categories)
    if not kinds or array.dtype.kind not in "UT":  # text may be in categories
        check_type(array.dtype)
    n_columns = 0 if np.isnan(array.shape[1]) else array.shape[1]
    labels = list(map(label_of, range(n_columns)))
    check_kinds([kind_of_type(array.dtype)] * n_columns, labels, kinds)


def _check_dimensions(n_dimensions: int, shape: Any) -> None:
    if n_dimensions != 2:
        raise ValueError(
            f"Expected 2D array, got {n_dimensions}D array instead: X has the shape "
            f"{shape}. Reshape your data: X.reshape(-1, 1) if it is a single column, "
            f"X.reshape(1, -1) if it is a single row (X.to_frame() for a Series)."
        )


# Dask arrays


def _read_dask_array(X: da.Array, coding: _Coding) -> Table:
    _check_dimensions(X.ndim, X.shape)
    _check_types(X, coding)
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
    if X.shape[1] == 0:
        raise ValueError(_no_features(X.shape))
    X = without_masks(X)
    minima, is_coded = coding.minima, coding.categories is not None
    is_exact = X.dtype == object or minima.places or may_lose_digits(X.dtype)
    is_later = bool(is_exact or len(X.chunks[1]) > 1)
    rows = checked_blocks(X, has_text=is_coded, converts=not (is_coded or is_later))
    if is_coded:
        rows = _coded_array(rows, coding)
    elif is_later:
        meta = _numbers(np.empty((0, X.shape[1]), X.dtype), minima)
        convert = coding.in_tasks(_numbers)
        tasks = ((convert, (rows.name, i, 0), minima) for i in range(rows.numblocks[0]))
        rows = new_array("numbers", tasks, [rows], rows.chunks, meta)
    return Table(rows, None, _to_itself, is_lazy=True)


def _coded_array(rows: da.Array, coding: _Coding) -> da.Array:
    entered, depends = coding.entered(), [rows]
    if isinstance(entered, Delayed):
        depends, entered = [rows, entered], entered.key
    function = coding.in_tasks(
        partial(coded_rows, minima=coding.minima, is_nominal=coding.is_nominal)
    )
    tasks = ((function, (rows.name, i, 0), entered) for i in range(rows.numblocks[0]))
    dtype = rows.dtype if rows.dtype == np.float32 else np.float64
    return new_array("coded", tasks, depends, rows.chunks, np.empty((0, 0), dtype))


def _numbers(array: NDArray[Any], minima: Minima) -> NDArray[Any]:
    rows = exact_rows(array_of(array), minima)
    return rows_of_objects(rows) if rows.dtype == object else rows


def _to_itself(values: da.Array, name: str) -> da.Array:
    return values


def _no_features(shape: tuple[int, ...]) -> str:
    return (
        f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required."
    )


# Frames


def _read_any_frame(
    frame: Any,
    fitted_columns: Sequence[Any] | None,
    coding: _Coding,
    *,
    is_in_files: bool,
) -> Table:
    if fitted_columns is not None:
        frame = select_columns(frame, fitted_columns)
    kinds, labels = kinds_of(coding.categories), list(map(label_of, frame.columns))
    check_kinds(list(map(kind_of_type, frame.dtypes)), labels, kinds)
    if is_in_files:  # objects in files, such as lists or dates, are not numbers
        check_numeric(frame, but=coding.places)
    if len(frame.columns) == 0:
        raise ValueError(_no_features((len(frame.index), 0)))
    check_distinct(frame.columns)
    names = list(frame.columns)
    if isinstance(frame, pd.DataFrame):
        frame = numeric_frame(
            frame, coding.categories, coding.minima, is_nominal=coding.is_nominal
        )
        restore = partial(to_series, index=frame.index)
        reread = cut_rows(float_rows(frame))
        return Table(reread(), names, restore, reread=reread)
    converted, source = _numeric_dask_frame(frame, coding, is_in_files=is_in_files)
    index = columns_at(source, [0])
    if names_of_sources(index) == names_of_sources(source):  # no less would be read
        index = converted
    restore = partial(to_dask_series, frame=index)
    rows = _rows_of_dask_frame(converted, coding)
    return Table(rows, names, restore, converted, source, is_lazy=True)


def _numeric_dask_frame(
    frame: Any, coding: _Coding, *, is_in_files: bool
) -> tuple[Any, Any]:
    """Return `Table.frame` and `Table.source` of a dask frame."""
    declared = meta_of(frame)
    meta = numeric_frame(declared, coding.categories, coding.minima)
    has_objects = any(map(pd.api.types.is_object_dtype, declared.dtypes))
    is_plain = not (has_objects or coding.places or coding.minima.places)
    if is_plain and is_in_files:  # the reader of files checks names and types
        return frame, frame
    entered = None if coding.categories is None else coding.entered()
    (categories,) = for_frames([entered])
    source = with_checked_names(frame)
    converted = source.map_partitions(
        numeric_part, categories, names=list(frame.columns), minima=coding.minima,
        is_nominal=coding.is_nominal, meta=meta, enforce_metadata=False,
    )  # fmt: skip
    return converted, source if is_plain else converted


def _rows_of_dask_frame(frame: Any, coding: _Coding) -> da.Array:
    keys, frames = tasks_of_frame(frame)
    # The type of the whole frame, not of a partition: blocks must have that of the array.
    dtype = number_type(frame)
    convert = coding.in_tasks(float_rows)
    tasks = ((convert, key, dtype) for key in keys)
    chunks = ((np.nan,) * len(keys), (len(frame.columns),))
    return new_array("rows", tasks, [frames], chunks, np.empty((0, 0), dtype))


def with_known_rows(rows: da.Array, sizes: Sequence[int]) -> da.Array:
    """Return the same array with known sizes of its row chunks."""
    return da.Array(
        rows.dask, rows.name, (tuple(sizes), rows.chunks[1]), meta=meta_of(rows)
    )

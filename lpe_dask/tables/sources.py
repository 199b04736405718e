"""Open what users bring, in one of a few forms, before its values are converted.

    NumPy | pandas | Polars, Arrow | Dask array | Dask DataFrame | Parquet, CSV
        -> Source           an array, a frame, or a Dask collection of these

Nothing of Dask is computed here, but by `Source.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection

from lpe_dask import dask_array as da
from lpe_dask.tables.arrays import as_array
from lpe_dask.tables.column_names import check_names
from lpe_dask.tables.columns import is_frame, select_columns, select_positions
from lpe_dask.tables.exact_numbers import are_numbers
from lpe_dask.tables.interop import ConvertedTable, as_table
from lpe_dask.tables.numeric import check_numeric
from lpe_dask.tables.output_series import to_foreign, to_numpy, to_series
from lpe_dask.tables.partitions import as_frame, error_context, part_of_columns
from lpe_dask.tables.table_files import is_path_like, read_frame
from lpe_dask.tasks import compute, frame_tasks, meta_of, new_tasks, with_selection


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

    def values(self, but: Collection[int]) -> pd.DataFrame:
        """Return the values as they came, checked; computes.

        ``but`` has the positions of categorical columns.
        """
        check = partial(_checked_frame, but=tuple(but))
        if not self.is_lazy:
            return check(self.X)
        keys, sizes, collection = self.parts()
        tasks = (
            (error_context, key, i, self.names, check, n_rows)
            for i, (key, n_rows) in enumerate(zip(keys, sizes, strict=True))
        )
        frames = compute(*new_tasks("values", tasks, [collection]))
        return pd.concat(frames, ignore_index=isinstance(self.X, da.Array))

    def select(self, places: Sequence[int]) -> Source:
        """Return some columns of a lazy frame, so that no others are read."""
        X = select_positions(self.X, list(places))
        return replace(self, X=X, names=list(X.columns), meta=meta_of(X))

    def without_last(self, n_columns: int) -> Source:
        """Return all columns but so many of the last ones."""
        if n_columns == 0:
            return self
        n_left = self.meta.shape[1] - n_columns
        if is_frame(self.X) and self.is_lazy:
            return self.select(range(n_left))
        names: Any = n_left if isinstance(self.names, int) else self.names[:n_left]
        meta = self.meta.iloc[:, :n_left]
        X = self.X.iloc[:, :n_left] if is_frame(self.X) else self.X[:, :n_left]
        return replace(self, X=X, names=names, meta=meta)


def open_source(
    X: Any,
    columns: Sequence[Any] | None = None,
    kinds: Mapping[int, str | None] | None = None,
) -> Source:
    """Return a table of any kind, with these columns only if it has names.

    ``columns`` as ``fitted_columns`` of `Table.of`, as are errors; ``kinds`` as of
    `table_files.open_table`.
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


def object_columns(frame: pd.DataFrame) -> list[int]:
    """Return the positions of columns of objects."""
    is_object = map(pd.api.types.is_object_dtype, frame.dtypes)
    return [i for i, is_one in enumerate(is_object) if is_one]


# The function below runs inside tasks.


def _checked_frame(part: Any, but: tuple[int, ...]) -> pd.DataFrame:
    frame = as_frame(part)
    objects = [i for i in object_columns(frame) if i not in but]
    numbers = [i for i in objects if are_numbers(frame.iloc[:, i].to_numpy(object))]
    check_numeric(frame, but, numbers)
    return frame

"""Read the input of users as blocks of rows, and return results in its kind.

    Source
        -> Table.rows       dask array (n_rows, n_features), one chunk of features
        -> Table.restore    dask array (n_rows,) -> array or Series with the index of X

Nothing of Dask is computed here, but by `Table.read_sample`, `read_with_offsets` and
`Table.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.categories import Categories
from lpe_dask.tables.column_offsets import learn_offsets
from lpe_dask.tables.columns import select_positions
from lpe_dask.tables.errors import PrecisionError
from lpe_dask.tables.exact_numbers import NO_OFFSETS, ColumnOffsets
from lpe_dask.tables.interop import as_table
from lpe_dask.tables.levels import learn_categories
from lpe_dask.tables.numeric import check_numeric, float_rows, number_type
from lpe_dask.tables.original_values import original_values
from lpe_dask.tables.output_series import (
    map_blocks,
    map_frame_rows,
    map_values,
    to_dask_series,
    to_verified_series,
)
from lpe_dask.tables.partitions import (
    RowEncoder,
    columns_of_rows,
    frame_of_part,
    rows_of_part,
)
from lpe_dask.tables.row_checks import Checksums, validated_rows
from lpe_dask.tables.row_status import RowStatus, status_codes, status_names
from lpe_dask.tables.sources import Source, object_columns, open_source
from lpe_dask.tables.value_types import check_value_types, column_label, kind_of_type
from lpe_dask.tasks import (
    LocalValue,
    frame_tasks,
    map_partitions,
    meta_of,
    new_array,
    source_names,
    to_task,
)

_Read = TypeVar("_Read")

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
        does not know them. An array of NumPy where few rows stay one (``max_whole``).
    columns : list, optional
        Names of the columns, of any kind, where the input has names.
    restore : callable
        ``restore(values, name)`` turns a dask array of shape (n_rows,), in the chunks of
        ``rows``, into the kind of the input; computes for NumPy and pandas.
    types : list
        Of the columns of the input.
    given : Source, optional
        The input, for `values`; None once it is released.
    frame : dask DataFrame, optional
        The columns to measure, if the input was one; also with codes.
    source : dask DataFrame, optional
        What is read for ``frame``, unchecked, in the same partitions: only its index may be
        used. Where values are converted, ``frame`` itself.
    is_lazy : bool
        Whether input and results are Dask collections.
    reread : callable, optional
        Returns ``rows`` in a new graph, if they are in this process.
    categories : Categories, optional
        The categorical columns, whose values became codes; None: all columns are numbers.
    minima : ColumnOffsets
        The columns whose numbers are measured from their least nominal one.
    """

    rows: da.Array
    columns: list[Any] | None
    restore: Callable[[da.Array, str], Any]
    types: list[Any]
    given: Source | None
    frame: Any = None
    source: Any = None
    is_lazy: bool = False
    reread: Callable[[], da.Array] | None = None
    categories: Categories | None = None
    minima: ColumnOffsets = NO_OFFSETS

    @classmethod
    def of(
        cls,
        X: Any,
        fitted_columns: Sequence[Any] | None = None,
        categories: Categories | None = None,
        *,
        minima: ColumnOffsets = NO_OFFSETS,
        is_nominal: bool = False,
        max_whole: int = 0,
    ) -> Table:
        """Return ``X`` as a table.

        Parameters
        ----------
        X : array-like, DataFrame, dask array, dask DataFrame, or path or paths
            Of shape (n_rows, n_features); or what `as_table` takes. Paths are read by
            `read_frame`.
        fitted_columns : sequence, optional
            The columns that a model was fitted on: a frame is reordered to them by name and
            its other columns are left out; an array is taken by position. None: all
            columns.
        categories, minima
            As the attributes.
        is_nominal : bool, default=False
            Whether the categories were learned from all these rows, so that every value is
            known: ValueError in the task that finds another one.
        max_whole : int, default=0
            Up to so many rows that are in this process stay an array of NumPy.

        Raises
        ------
        TypeError
            For columns that are not numbers, sparse ones, or an array of an unknown number
            of columns; for categorical ones of another type than their levels. Objects in
            Dask collections that are not read from files are checked by the tasks that read
            them.
        ValueError
            For missing columns, two of one name, complex numbers, or another number of
            dimensions.
        PrecisionError
            For a number that float64 cannot hold; of Dask collections in tasks.
        """
        coded = categories or Categories()
        kinds = coded.kinds
        if fitted_columns is not None:
            kinds = coded.kinds_among(len(fitted_columns))
        source = open_source(X, fitted_columns, kinds)
        meta = source.meta.iloc[:, : source.meta.shape[1] - coded.n_by]
        if meta.shape[1] == 0:
            raise ValueError(
                f"Found array with 0 feature(s) (shape={meta.shape}) while a minimum of 1 "
                f"is required."
            )
        labels, objects = list(map(column_label, meta.columns)), object_columns(meta)
        check_value_types(list(map(kind_of_type, meta.dtypes)), labels, coded.kinds)
        if source.is_lazy:  # objects in files, such as lists or dates, are not numbers
            check_numeric(meta, coded.places, () if source.is_in_files else objects)
        is_plain = not (objects or coded.places or minima.places or coded.n_by)
        encoder = RowEncoder(source.names, minima, is_nominal)
        if not source.is_lazy:
            rows = encoder.rows(source.X, coded)
            table = _of_array(source, rows, coded.n_by, max_whole)
        elif isinstance(source.X, da.Array):
            table = _of_blocks(source, encoder, coded)
        else:
            encoder = replace(encoder, dtype=number_type(meta, coded.places))
            table = _of_partitions(source, encoder, coded, is_plain)
        return replace(table, categories=categories, minima=minima)

    @classmethod
    def read_sample(
        cls,
        X: Any,
        categorical: str | Sequence[Any] | None,
        read: Callable[[Table], _Read],
        *,
        max_partitions: int,
    ) -> _Read:
        """Return what is read of a table by categories and minima of some partitions.

        Computes.

        Parameters
        ----------
        X : as for `of`
        categorical, max_partitions : as for `levels.learn_categories`
        read : callable
            Computes something of the table. Where it, or making the table, raises
            PrecisionError, minima are learned and it is called again.
        """
        X = as_table(X)  # once: what reads a stream cannot do so again
        categories = learn_categories(X, categorical, max_partitions=max_partitions)
        found = read_with_offsets(
            X, categories, read, is_nominal=False, max_partitions=max_partitions
        )
        return found[1]

    @property
    def labels(self) -> list[str]:
        """Names of the columns for messages."""
        n_columns = self.rows.shape[1] - self.has_groups
        if self.columns is None:
            return [f"column {i}" for i in range(n_columns)]
        return list(map(str, self.columns))

    @property
    def has_groups(self) -> bool:
        """Whether the last column of rows has the numbers of groups."""
        return self.categories is not None and self.categories.groups is not None

    @property
    def kinds(self) -> dict[int, str | None]:
        """What the categorical columns have, by position; see `Categories.kinds`."""
        return {} if self.categories is None else self.categories.kinds

    def values(self) -> pd.DataFrame:
        """Return the values as they came, checked; computes."""
        assert self.given is not None
        n_measured, n_columns = len(self.types), self.given.meta.shape[1]
        return self.given.values(but=[*self.kinds, *range(n_measured, n_columns)])

    def without_input(self) -> Table:
        """Return the table without the input, which a search need not keep in memory."""
        return replace(self, given=None)

    def original(
        self, rows: NDArray[np.float64], types: Sequence[Any] | None = None
    ) -> pd.DataFrame:
        """Return numbers and codes as values.

        Parameters
        ----------
        rows : ndarray of shape (n, n_features)
        types : sequence, optional
            Of the columns; None: those of the input.
        """
        types = self.types if types is None else types
        measured = rows[:, : rows.shape[1] - self.has_groups]
        coded = self.categories or Categories()
        return original_values(measured, types[: measured.shape[1]], coded, self.minima)

    def map_rows(
        self, function: Callable[..., Any], *arguments: Any, name: str, dtype: Any
    ) -> Any:
        """Return a function of each row, in the kind of the input; lazily for Dask.

        Parameters
        ----------
        function : callable
            From rows of shape (n, n_features) to an array of shape (n,).
        arguments, name, dtype
            As for `output_series.map_values`.
        """
        if self.frame is not None:
            return map_frame_rows(
                self.frame, function, *arguments, rows=self.rows, name=name, dtype=dtype
            )
        found = map_blocks([self.rows], function, *arguments, name=name, dtype=dtype)
        return self.restore(found, name)

    def status_codes(
        self, *, measures_gaps: bool, is_small: LocalValue | None = None
    ) -> Any:
        """Return the number of the status of each row, in the kind of the input.

        Parameters as for `row_status.status_codes`.
        """
        function = partial(
            status_codes, measures_gaps=measures_gaps, has_groups=self.has_groups
        )
        small = () if is_small is None else (is_small,)
        return self.map_rows(function, *small, name=RowStatus.COLUMN, dtype=np.int8)

    def status(self, **given: Any) -> Any:
        """Return the status of each row, in the kind of the input; lazily for Dask.

        Text for arrays and other libraries, categories for pandas and Dask frames.
        Parameters as for `status_codes`.
        """
        codes = self.status_codes(**given)
        names = map_values(codes, status_names, name=RowStatus.COLUMN, dtype=object)
        is_series = isinstance(names, pd.Series) or self.frame is not None
        return names.astype(RowStatus.TYPE) if is_series else names

    def validated_rows(self, sizes: Sequence[int], checksums: Checksums) -> da.Array:
        """Return the rows, lazily, in the chunks of their first reading.

        As `row_checks.validated_rows`.
        """
        return validated_rows(self.rows, sizes, checksums)

    def restore_verified(self, values: da.Array, name: str) -> Any:
        """Return the same as ``restore``, for rows that are read before these values are.

        Those of a dask DataFrame are compared: see `output_series.to_verified_series`.
        """
        if self.frame is None:
            return self.restore(values, name)
        return to_verified_series(values, name, self.frame, self.rows)


def read_with_offsets(
    X: Any,
    categories: Categories | None,
    read: Callable[[Table], _Read],
    *,
    is_nominal: bool,
    max_partitions: int | None = None,
) -> tuple[Table, _Read]:
    """Return a table, and what is read of it; computes.

    Parameters as for `Table.of` and `Table.read_sample`; ``max_partitions=None`` learns
    minima from all partitions.

    Raises
    ------
    PrecisionError
        If there are numbers beyond `MAX_EXACT` as far apart.
    ValueError, TypeError
        As `Table.of` and ``read``.
    """
    make = partial(Table.of, X, categories=categories, is_nominal=is_nominal)
    try:
        table = make()
        return table, read(table)
    except PrecisionError:
        minima = learn_offsets(X, categories, max_partitions=max_partitions)
    table = make(minima=minima)
    return table, read(table)


def _entered(categories: Categories) -> Any:
    """Return the categories for tasks, which small ones let be one with what reads."""
    held = LocalValue(categories, "lpe-categories")
    is_carried = held.n_bytes <= CARRIED_BYTES and not held.is_large
    return categories if is_carried else to_task(held, "")


def _of_array(source: Source, rows: NDArray[Any], n_by: int, max_whole: int) -> Table:
    n_measured = source.meta.shape[1] - n_by
    names = None if isinstance(source.names, int) else source.names[:n_measured]
    types = list(source.meta.dtypes)[:n_measured]
    if 0 < len(rows) <= max_whole:
        return Table(rows, names, source.restore, types, source)
    reread = _chunks_of(rows)
    return Table(reread(), names, source.restore, types, source, reread=reread)


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
    chunks = (X.chunks[0], (encoded.shape[1],))
    rows = new_array("rows", tasks, depends, chunks, encoded)
    types = list(source.meta.dtypes)[: X.shape[1] - categories.n_by]
    return Table(rows, None, source.restore, types, source, is_lazy=True)


def _of_partitions(
    source: Source, encoder: RowEncoder, categories: Categories, is_plain: bool
) -> Table:
    n_measured = source.meta.shape[1] - categories.n_by
    columns = list(source.meta.columns)[:n_measured]
    names = columns_of_rows(source.names, categories)
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
    types = list(source.meta.dtypes)[:n_measured]
    return Table(rows, columns, restore, types, source, frame, read, is_lazy=True)


def _chunks_of(array: NDArray[Any]) -> Callable[[], da.Array]:
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
    tasks = ((np.asanyarray, block.key) for block in entered)  # the same arrays
    sizes = tuple(len(block.value) for block in blocks)
    return new_array("rows", tasks, entered, (sizes, (meta.shape[1],)), meta)

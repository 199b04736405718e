"""Take tables in memory that are no frames by the names of their columns.

Polars and what else narwhals knows | Arrow | dict of columns | rows with names
    --as_table--> ConvertedTable: a pandas frame, and the kind of its results
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set, ValuesView
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection
from numpy.typing import NDArray

from lpe_dask.tables.arrays import as_array

logger = logging.getLogger(__name__)

#: Kinds of results beside those that narwhals names, such as "polars".
NUMPY, ARROW = "numpy", "pyarrow"

#: Types of Arrow whose numbers would be floats in pandas beside missing ones.
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}


@dataclass(frozen=True, slots=True)
class ConvertedTable:
    """A table in memory of another kind than pandas'.

    Attributes
    ----------
    frame : DataFrame
        Its rows.
    kind : str
        Of its results: "numpy", "pyarrow", or what narwhals calls a library.
    """

    frame: pd.DataFrame
    kind: str


def as_table(X: Any, columns: Sequence[Any] | None = None) -> Any:
    """Return a table in memory that has names, but is no frame; anything else as it is.

    Parameters
    ----------
    X : object
        What reads rows only once, such as a reader of Arrow, is to be converted once. A
        lazy frame is collected, and a log line says so.
    columns : sequence, optional
        Those that are needed, if they are all there: others may be left out. None: all.

    Returns
    -------
    X : ConvertedTable or object

    Raises
    ------
    ValueError, TypeError
        For a dict or rows with names that are no table.
    """
    if isinstance(X, ConvertedTable | pd.DataFrame | pd.Series | str | PathLike):
        return X
    if is_dask_collection(X) and isinstance(getattr(X, "ndim", None), int):
        return X
    _check_is_table(X)
    if isinstance(X, list | tuple):
        rows = [_row(row) for row in X] if len(X) and _row(X[0]) is not None else None
        return X if rows is None else ConvertedTable(_frame_of_rows(rows), NUMPY)
    if isinstance(X, Mapping) and not hasattr(X, "ndim"):  # as sparse ones of scipy have
        return ConvertedTable(_frame_of_columns(X), NUMPY)
    if (names := getattr(getattr(X, "dtype", None), "names", None)) and len(X.shape) == 1:
        X = X if isinstance(X, np.ndarray) else np.asarray(X)
        return ConvertedTable(_frame_of_columns({name: X[name] for name in names}), NUMPY)
    if isinstance(X, np.ndarray):
        return X
    return _frame_of_library(X, columns)


def from_library(
    values: Any,
) -> tuple[NDArray[Any], Callable[[NDArray[Any], str], Any]] | None:
    """Return a series of another library as an array; None for others.

    And a function that makes such a series of an array and a name.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.to_numpy(zero_copy_only=False), partial(to_library, kind=ARROW)
    own: Any = np.ndarray | pd.Series | list | tuple
    if isinstance(values, own) or is_dask_collection(values):
        return None
    import narwhals as nw

    series = nw.from_native(values, allow_series=True, pass_through=True)
    if not isinstance(series, nw.Series):
        return None
    return series.to_numpy(), partial(to_library, kind=series.implementation.value)


def to_library(values: NDArray[Any], name: str, kind: str) -> Any:
    """Return values as the series of a kind."""
    if kind == NUMPY:
        return values
    if kind == ARROW:
        return pa.array(values)
    import narwhals as nw

    backend: Any = kind
    return nw.new_series(name, values, backend=backend).to_native()


def frame_to_library(frame: pd.DataFrame, like: Any) -> Any:
    """Return the rows of a frame, without index, as a table of the library of a series."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    if isinstance(like, pa.Array | pa.ChunkedArray):
        return table
    import narwhals as nw

    backend = nw.from_native(like, series_only=True).implementation
    return nw.from_arrow(table, backend=backend).to_native()


def _check_is_table(X: Any) -> None:
    """Raise TypeError for what has rows, but is no table of them."""
    first = X[0] if isinstance(X, list | tuple) and len(X) > 0 else X
    if is_dask_collection(first):
        raise TypeError(
            f"X has a {type(first).__name__} of Dask. Give a Dask DataFrame or array, for "
            f"example bag.to_dataframe() or dask.dataframe.from_delayed([...]), or compute "
            f"it first: dask.compute(X)[0]."
        )
    if hasattr(X, "_asdict") or (dataclasses.is_dataclass(X) and _row(X) is not None):
        raise TypeError(
            f"X is a single row, a {type(X).__name__}. Give a list of rows: [X]."
        )
    is_arrow = hasattr(X, "__arrow_c_stream__")
    if isinstance(X, Iterator | ValuesView | Set) and not is_arrow:
        raise TypeError(
            f"X is a {type(X).__name__}, which is no list of rows. Give one: list(X)."
        )


# Other libraries


def _frame_of_library(X: Any, columns: Sequence[Any] | None) -> Any:
    """Return a frame of narwhals, or what has the interface of Arrow, as a table."""
    import narwhals as nw

    kind = ARROW
    if not isinstance(X, pa.Table):  # which may have columns of one name
        frame = nw.from_native(X, pass_through=True)
        own = nw.Implementation.PANDAS, nw.Implementation.DASK
        if getattr(frame, "implementation", None) in own:  # in the frame of narwhals
            return frame.to_native()
        if isinstance(frame, nw.LazyFrame):
            frame = _collected(frame, columns)
        if isinstance(frame, nw.DataFrame):
            kind = frame.implementation.value
            needed = _needed(frame.columns, columns)
            frame = frame if needed is None else frame.select(needed)
            with _conversion_errors(frame.schema):
                X = frame.to_arrow()
        elif (read := _read_arrow(X)) is not None:
            X = read
        else:
            return X
    return ConvertedTable(frame_of_arrow(X), kind)


def _collected(lazy: Any, columns: Sequence[Any] | None) -> Any:
    names = lazy.collect_schema().names()
    needed = _needed(names, columns)
    if needed is None and columns is not None:
        lazy = lazy.head(0)  # to be refused, as it lacks some
    frame = (lazy if needed is None else lazy.select(needed)).collect()
    logger.info(
        "the lazy frame of %s was collected into this process: %d rows, %d columns",
        lazy.implementation.value, *frame.shape,
    )  # fmt: skip
    return frame


def _needed(names: Sequence[str], columns: Sequence[Any] | None) -> list[str] | None:
    """Return the names of the columns that are needed; None if some are not there."""
    return None if columns is None or {*columns} - {*names} else list(columns)


def _read_arrow(X: Any) -> pa.Table | None:
    """Return an object with the interface of Arrow as a table; None without columns."""
    if hasattr(X, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(X)
        except pa.ArrowInvalid:  # a series
            return None
        return reader.read_all()
    if isinstance(X, pa.Array) and not pa.types.is_struct(X.type):
        return None
    return pa.table(X) if hasattr(X, "__arrow_c_array__") else None


def frame_of_arrow(table: pa.Table, index: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table of Arrow as pandas has it, with all digits of its columns.

    Parameters
    ----------
    table : pyarrow.Table
    index : sequence of str
        The columns that become the index, by the metadata of pandas.
    """
    columns = zip(table.column_names, table.columns, strict=True)
    measured = [column for name, column in columns if name not in index]
    loses = any(column.type in _NULLABLE and column.null_count for column in measured)

    def type_of(type_: pa.DataType) -> Any:
        if pa.types.is_decimal(type_) or pa.types.is_null(type_):  # else objects
            return pd.ArrowDtype(type_)
        return _NULLABLE.get(type_) if loses else None

    with _conversion_errors(dict(zip(table.schema.names, table.schema.types, strict=True))):
        return table.to_pandas(
            types_mapper=type_of, date_as_object=False, use_threads=False
        )


@contextmanager
def _conversion_errors(types: Mapping[str, Any]) -> Iterator[None]:
    """Raise TypeError with the types of a table, if one of them cannot be converted."""
    try:
        yield
    except pa.ArrowInvalid as error:
        listed = {name: str(type_) for name, type_ in types.items()}
        raise TypeError(
            f"a table has a column that cannot be converted ({error}), of the types "
            f"{listed}. Convert it to numbers or text, or leave it out."
        ) from error


# Columns and rows by name, in Python


def _frame_of_columns(columns: Mapping[Any, Any]) -> pd.DataFrame:
    if lazy := [name for name, of in columns.items() if is_dask_collection(of)]:
        raise TypeError(
            f"a dict has Dask collections in {lazy}. Give a Dask DataFrame, for example "
            f"dask.dataframe.from_dask_array(dask.array.stack(list(X.values()), axis=1), "
            f"columns=list(X)), or compute them first: dask.compute(X)[0]."
        )
    series = {name: _column(of) for name, of in columns.items()}
    indexes = [of.index for of in series.values() if isinstance(of, pd.Series)]
    if any(not index.equals(indexes[0]) for index in indexes):
        raise ValueError(
            "the columns of a dict have different indexes, so it is unknown which values "
            "belong to one row. Give pd.DataFrame(X), which joins them by index, or "
            "arrays without one."
        )
    if odd := {name: np.shape(of) for name, of in series.items() if np.ndim(of) != 1}:
        raise ValueError(
            f"a column must have one value for each row, but these have the shapes {odd}. "
            f"Give a list of dicts, [X], for a single row; and each column of an array by "
            f"a name of its own."
        )
    lengths = {name: len(of) for name, of in series.items()}
    if len({*lengths.values()}) > 1:
        raise ValueError(
            f"the columns of a dict must be of one length, but there are so many values: "
            f"{lengths}. Give each as many."
        )
    names = pd.Index([*series], dtype=object, tupleize_cols=False)
    return pd.DataFrame(dict(enumerate(series.values()))).set_axis(names, axis=1)


def _column(values: Any) -> Any:
    """Return a column of a dict as pandas takes it, with all digits of whole numbers."""
    if isinstance(values, pd.Series):
        return values
    if isinstance(values, Mapping):  # as pandas' to_dict gives them
        return pd.Series(as_array([*values.values()]), pd.Index([*values], dtype=object))
    if hasattr(values, "__arrow_c_stream__") and np.ndim(values) == 1:
        values = pa.chunked_array(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return frame_of_arrow(pa.table({"": values}))[""].array
    values = as_array(values)
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        return values.astype(values.dtype.newbyteorder("="))
    return values


def _row(row: Any) -> dict[Any, Any] | None:
    """Return a row that has names as a dict; None for others."""
    if hasattr(row, "_asdict"):  # a named tuple
        return dict(row._asdict())
    if hasattr(row, "keys"):  # a dict, or a row of a database
        return {name: row[name] for name in row.keys()}  # noqa: SIM118
    if names := getattr(getattr(row, "dtype", None), "names", None):
        return dict(zip(names, row.tolist(), strict=True))
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return None


def _frame_of_rows(rows: list[dict[Any, Any] | None]) -> pd.DataFrame:
    """Return rows as a frame; what a row does not have is missing there."""
    if (without := [i for i, row in enumerate(rows) if row is None]) != []:
        raise TypeError(
            f"row 0 of a list has names, but row {without[0]} has none. Give all rows as "
            f"dicts, or all as lists."
        )
    names = dict.fromkeys(name for row in rows if row for name in row)
    return _frame_of_columns(
        {name: [row.get(name) for row in rows if row is not None] for name in names}
    )

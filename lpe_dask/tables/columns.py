"""Choose columns of a frame, by name or by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from dask.base import is_dask_collection

from lpe_dask.tables.column_names import (
    check_names,
    positions_by_name,
    resolve_by,
    with_last,
)
from lpe_dask.tables.column_selection import ExcludedColumns
from lpe_dask.tables.interop import ConvertedTable, as_table
from lpe_dask.tables.table_files import is_path_like, read_frame


def select_columns(
    X: Any,
    columns: Sequence[Any] | ExcludedColumns,
    categorical: str | Sequence[Any] | None = None,
    by: Sequence[Any] = (),
) -> Any:
    """Return the table ``X``, or that in the files it names, with these columns only.

    And with those that divide rows into groups, ``by``, after them. Columns of a CSV that
    are named there, or in ``categorical``, are text.
    """
    if is_path_like(X):
        X = read_frame(X, columns=columns, categorical=categorical, by=by)
    named = None if isinstance(columns, ExcludedColumns) else with_last(columns, by)
    X = as_table(X, named)
    if isinstance(X, ConvertedTable):
        return replace(X, frame=select_columns(X.frame, columns, by=by))
    if not is_frame(X):
        given = f"columns={columns}"
        if isinstance(columns, ExcludedColumns):
            given = f"exclude={columns.excluded}"
        raise TypeError(
            f"{given} selects columns of a frame by name, but the rows are a "
            f"{type(X).__name__}. Select by position instead, for example X[:, [0, 1]]."
        )
    of_groups = resolve_by(by, X.columns)
    if isinstance(columns, ExcludedColumns):
        columns = [name for name in columns.of(X.columns) if name not in of_groups]
    columns = with_last(columns, of_groups)
    places = positions_by_name(X.columns)
    missing = [name for name in columns if name not in places]
    if missing:
        raise ValueError(
            f"the rows lack the columns {missing}; needed are {list(columns)}, found are "
            f"{list(X.columns)}. Add them, or choose others (columns=, --columns)."
        )
    chosen = [place for name in columns for place in places[name]]
    check_names(X.columns[chosen])
    return select_positions(X, chosen)


def select_positions(frame: Any, places: Sequence[int]) -> Any:
    """Return the columns of a frame at these positions.

    By name in a lazy frame, so that no others are read.
    """
    names = list(frame.columns)
    if list(places) == list(range(len(names))):
        return frame
    if isinstance(frame, pd.DataFrame):
        return frame.iloc[:, list(places)]
    return frame[[names[place] for place in places]]


def is_frame(X: Any) -> bool:
    """Return whether ``X`` is a pandas or Dask DataFrame."""
    return isinstance(X, pd.DataFrame) or (
        is_dask_collection(X)
        and hasattr(X, "map_partitions")
        and X.ndim == 2
        and hasattr(X, "columns")
    )

"""Open the tables of files, with the columns that are to be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lpe_dask.tables.column_names import resolve_by, resolve_names, with_last
from lpe_dask.tables.column_selection import ExcludedColumns
from lpe_dask.tables.columns import select_columns
from lpe_dask.tables.group_levels import with_columns_last
from lpe_dask.tables.numeric import check_numeric
from lpe_dask.tables.table_files import (
    FileTable,
    Paths,
    format_paths,
    open_table,
    resolve_columns,
)
from lpe_dask.tables.value_types import check_value_types, column_label
from lpe_dask.tasks import meta_of


def open_features(
    path: Paths,
    given: Sequence[Any] | ExcludedColumns | None,
    names: Sequence[Any] | None = None,
    *,
    categorical: str | Sequence[Any] | None = None,
    kinds: Mapping[int, str | None] | None = None,
    by: Sequence[Any] = (),
) -> tuple[FileTable, Any]:
    """Return a table in files, and the frame of its columns to measure.

    These are numbers, but for categorical columns; after them are those that divide rows
    into groups. Errors name the files.

    Parameters
    ----------
    path : str, path, or a sequence of them
    given : sequence or ExcludedColumns, optional
        Columns to measure as a user gives them, see `column_names.resolve_names`.
    names : sequence, optional
        Columns to measure if none are given, by their exact names; None: all.
    categorical : {None, "auto"} or sequence
        The categorical columns of nominal rows.
    kinds : mapping of int to str or None, optional
        Those of rows to score, by position, and what the nominal rows have there, as far as
        that is known: see `Categories.kinds_among`.
    by : sequence
        Columns that divide rows into groups.
    """
    given = resolve_columns(path, given, categorical, by)
    asked = names if given is None else given
    read = None if asked is None else with_last(asked, by)
    # What nominal rows have there says how those of other rows are read.
    table = open_table(path, read, kinds, categorical, by if kinds is None else ())
    frame = table.frame()
    chosen = names if given is None else resolve_names(given, frame.columns)
    kinds = kinds or {}
    try:
        of_groups = resolve_by(by, [*frame.columns, *table.differing])
        if chosen is None:
            chosen = table.default_columns(categorical, by=by)
        chosen = with_last(chosen, of_groups)
        table.check_same(chosen)
        frame = select_columns(frame, chosen)
        if len(frame.columns) == 0:
            raise ValueError("no columns to measure. Name some (columns=, --columns).")
        if by:
            frame = with_columns_last(frame, by)
        found = table.kinds(list(frame.columns))
        places = {*kinds, *table.categorical_kinds(frame, categorical, len(by))}
        labels = list(map(column_label, frame.columns))
        check_value_types(found, labels, kinds, len(by))
        check_numeric(meta_of(frame), but=places)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{format_paths(path)}: {error}") from error
    return table, frame

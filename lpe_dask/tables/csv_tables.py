"""Open the CSV files of a table: their layout, their columns, and the types of these.

files --beginnings--> schema of all, CsvBlocks
"""

from __future__ import annotations

import csv
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lpe_dask.storage import redact, retried
from lpe_dask.tables import folder_keys
from lpe_dask.tables.column_names import as_given
from lpe_dask.tables.compressed import COMPRESSED
from lpe_dask.tables.csv_blocks import (
    COMPARED,
    CsvBlock,
    beginning,
    cut,
    is_beyond,
    is_exact,
    parse_exactly,
)
from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.csv_hints import Looks
from lpe_dask.tables.csv_lines import TO_UTF8, header, problems
from lpe_dask.tables.differing import differences
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.kinds import BOOLEAN, TEXT, WHOLE
from lpe_dask.tables.listing import path_of
from lpe_dask.tables.row_groups import READERS

logger = logging.getLogger(__name__)

#: Separators that are recognized in a CSV file.
CSV_SEPARATORS = ",;\t|"


def open_files(
    filesystem: Any,
    names: list[str],
    columns: Sequence[Any] | None,
    kinds: Mapping[int, str | None],
    categorical: str | Sequence[Any] | None,
    given: Mapping[str, Any],
) -> tuple[list[CsvBlock], pa.Schema, dict[str, str]]:
    """Return the blocks of a table, and its schema.

    And the columns that are not in all files, and not in the schema: how files differ.

    Parameters
    ----------
    filesystem : fsspec filesystem
    names : list of str
        Of the files; the first with rows decides about the types of all.
    columns : sequence of str, optional
        The columns that will be measured; None: all.
    kinds : mapping of int to str
        What some of these are, by their position among them: as in `files.open_table`.
    categorical : {None, "auto"} or sequence of str
        Columns whose values are categories: those that are named are text, or booleans.
    given : mapping
        Options, as `CsvOptions.given` returns them.

    Raises
    ------
    TableError
        If a file cannot be read, or looks like one that is to be read otherwise; or if
        files without column names have other numbers of columns.
    """
    form = CsvFormat()
    if given:
        from lpe_dask.tables.csv_options import CsvOptions  # not for workers

        form = CsvOptions.of(given).form()
    for name in names:
        found, sample, looks = _sample(filesystem, name, form, given)
        if sample.num_rows > 0:
            break
    columns_of = _columns_of(filesystem, names, looks)
    differing = differences(names, columns_of)
    keys, unlike = folder_keys.of_files(names, {*sample.column_names, *differing})
    measured = sample.column_names
    if columns is not None:
        measured = as_given(columns, [*measured, *keys[0]])
    kind_of = {n: kinds.get(i) for i, n in enumerate(measured) if n not in keys[0]}
    if categorical is not None and not isinstance(categorical, str):
        # A code such as 007 is no number, whatever the others look like.
        named = {*as_given(categorical, measured)} & kind_of.keys()
        for name in named & {*sample.column_names}:
            if not pa.types.is_boolean(sample.schema.field(name).type):
                kind_of[name] = TEXT
    looks.check(
        sample.schema, [name for name, kind in kind_of.items() if kind != TEXT], columns
    )
    schema = pa.schema(
        [(f.name, _type(f, kind_of)) for f in sample.schema if f.name not in differing]
    )
    # Compared as whole numbers, a code with leading zeros would be one of them.
    marked = pa.schema(
        f.with_metadata(COMPARED) if kind_of.get(f.name) == WHOLE else f for f in schema
    )
    is_whole = not form.is_cut or any(_is_compressed(name) for name in names)
    if not form.is_cut:
        logger.info("%s: each file is read at once, as %s", redact(names[0]), form.encoding)
    blocks = [
        CsvBlock(
            filesystem.unstrip_protocol(name), start, n_bytes, own, of_file, found, marked
        )
        for name, own, of_file in zip(names, columns_of, keys, strict=True)
        for start, n_bytes in ([(0, None)] if is_whole else cut(filesystem, name))
    ]
    of_keys = [(key, folder_keys.TYPE) for key in keys[0]]
    return blocks, pa.schema([*schema, *of_keys]), differing | unlike


def _columns_of(filesystem: Any, names: list[str], first: Looks) -> list[list[str]]:
    """Return the columns of files, in the order of each; of one they are known."""
    form = first.form

    def of_file(name: str) -> list[str]:
        if name == first.name:
            return list(first.names)
        content, is_whole = beginning(filesystem, name)
        looks = replace(first, name=name, content=content)
        with _explained_by_layout(looks):
            lines = _plain_lines(name, content, form, is_whole=is_whole)
            is_other = _first_line(lines) not in (b"", line)
            if form.has_header and form.names and is_other:
                raise TableError(
                    f"the names that were given replace those of each file by position, "
                    f"but the names in {name} are not those in {first.name}. Give files "
                    f"with the same columns in the same order, or leave names out."
                )
            return header(name, lines, form)[0]

    line = _first_line(_plain_lines(first.name, first.content, form, is_whole=False))
    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(of_file, names))
    if not form.has_header and len({*map(len, found)}) > 1:
        widths = dict(zip(map(len, found), names, strict=True))
        raise TableError(
            f"files without column names must have the same columns, but there are so many "
            f"in each: {widths}. Name files of one kind, for example as a glob."
        )
    shared: dict[tuple[str, ...], list[str]] = {}  # once in the graph
    return [shared.setdefault(tuple(columns), columns) for columns in found]


def _first_line(lines: bytes) -> bytes:
    return next((line.strip() for line in lines.splitlines() if line.strip()), b"")


@contextmanager
def _explained_by_layout(looks: Looks) -> Iterator[None]:
    """Raise what a file looks like instead of an error, if it looks like anything."""
    try:
        yield
    except TableError as error:
        raise TableError(looks.layout() or str(error)) from error


@retried
def count_rows(filesystem: Any, names: list[str], form: CsvFormat) -> int:
    """Return about how many rows files have together."""
    content, is_whole = beginning(filesystem, names[0])
    lines = content.splitlines(keepends=True)
    n_before = form.has_header + len(form.skipped)
    if is_whole and len(names) == 1:
        return max(0, len(lines) - n_before)
    n_bytes = sum(int(filesystem.size(name)) for name in names)
    if _is_compressed(names[0]):
        # Other formats have about the same size.
        n_bytes = n_bytes * len(content) // len(zlib.compress(content))
    rows = lines[n_before : None if is_whole else -1]  # the last may be cut
    return n_bytes * len(rows) // max(1, sum(map(len, rows)))


def _is_compressed(name: str) -> bool:
    return path_of(name).lower().endswith(COMPRESSED)


def _type(field: pa.Field, measured: Mapping[Any, str | None]) -> pa.DataType:
    """Return the type to read a column as, which has to hold all later values, too.

    Whole numbers may be followed by fractions, and missing values by numbers.

    Parameters
    ----------
    field : pyarrow.Field
        As its first rows look.
    measured : mapping of str to str or None
        The columns that are measured, and what they are where that is known.
    """
    types, found = pa.types, field.type
    if field.name not in measured or measured[field.name] == TEXT:
        return pa.large_string()
    if types.is_boolean(found) or (
        measured[field.name] == BOOLEAN and types.is_null(found)
    ):
        return pa.bool_()
    if types.is_null(found) or types.is_floating(found):
        return pa.float64()
    return found if is_exact(found) else pa.large_string()


def _sample(
    filesystem: Any, name: str, form: CsvFormat, given: Mapping[str, Any]
) -> tuple[CsvFormat, pa.Table, Looks]:
    """Return the format of a file, its first rows in the types they seem to have, and more.

    The last is what they look like.
    """
    content, is_whole = beginning(filesystem, name)
    looks = Looks(name, content, form, given)
    lines = _plain_lines(name, content, form, is_whole=is_whole)
    if "separator" not in given:
        try:
            text = _first_line(lines).decode(errors="replace")
            form = replace(
                form, separator=csv.Sniffer().sniff(text, CSV_SEPARATORS).delimiter
            )
        except csv.Error:  # a single column
            if "," in (form.decimal, form.thousands):
                form = replace(form, separator=";")
    looks = replace(looks, form=form)
    with _explained_by_layout(looks):
        names, n_before, rest = header(name, lines, form)
        rows, is_open = rest.splitlines(keepends=True), form.is_open(rest)
        while not is_whole and rows:
            is_open ^= form.is_open(rows.pop())  # it may be cut, also within quotes
            if not is_open:
                break
        rest = b"".join(rows)
        for line, what in problems(rest, form, names, []):
            raise TableError(f"{name}, line {1 + n_before + line}: {what}")
    sample = parse_exactly(rest, form, names, [])
    for i, column in enumerate(sample.columns):  # fractions may follow small whole numbers
        if pa.types.is_integer(column.type) and not is_beyond(column):
            sample = sample.set_column(i, names[i], column.cast(pa.float64()))
    return form, sample, replace(looks, names=names, n_before=n_before, rows=rest)


def _plain_lines(name: str, content: bytes, form: CsvFormat, *, is_whole: bool) -> bytes:
    """Return the beginning of a file in UTF-8, without what is skipped."""
    try:
        return form.without_skipped(form.utf8(content, is_whole=is_whole))
    except UnicodeError as error:
        raise TableError(f"{name} is not {form.encoding}: {error}. {TO_UTF8}") from error

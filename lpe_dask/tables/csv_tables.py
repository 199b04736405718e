"""Open the CSV files of a table: their layout, their columns, and the types of these.

files --beginnings--> schema of all, CsvBlocks
"""

from __future__ import annotations

import csv
import logging
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from typing import Any

import pyarrow as pa

from lpe_dask.storage import redact, retried
from lpe_dask.tables import hive_partitions
from lpe_dask.tables.column_names import format_option, resolve_names
from lpe_dask.tables.compressed import COMPRESSED
from lpe_dask.tables.csv_blocks import (
    COMPARED,
    CsvBlock,
    beginning,
    cut,
    exceeds_float64,
    is_exact,
    read_lines,
)
from lpe_dask.tables.csv_dialect import CsvDialect
from lpe_dask.tables.csv_errors import TO_UTF8, CsvLineError, header
from lpe_dask.tables.csv_sniffing import (
    LOOKED_AT,
    layout_options,
    looks_like_data,
    remedy,
    value_options,
)
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.listing import path_of
from lpe_dask.tables.parquet_files import N_READER_THREADS
from lpe_dask.tables.schema_diff import differences
from lpe_dask.tables.value_types import BOOLEAN, TEXT, WHOLE

logger = logging.getLogger(__name__)

#: Separators that are recognized in a CSV file.
CSV_SEPARATORS = ",;\t|"


def open_files(
    filesystem: Any,
    names: list[str],
    columns: Sequence[Any] | None,
    kinds: Mapping[int, str | None],
    categorical: str | Sequence[Any] | None,
    by: Sequence[Any],
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
        What some of these are, by their position: as in `table_files.open_table`.
    categorical : {None, "auto"} or sequence of str
        Columns whose values are categories: those that are named are text, or booleans.
    by : sequence of str
        Columns that divide rows into groups: likewise.
    given : mapping
        Options, as `CsvOptions.given` returns them.

    Raises
    ------
    TableError
        If a file cannot be read, or looks like one that is to be read otherwise; or if
        files without column names have other numbers of columns.
    """
    form = CsvDialect()
    if given:
        from lpe_dask.tables.csv_options import CsvOptions  # not for workers

        form = CsvOptions.of(given).form()
    for name in names:
        first = _Beginning.of(filesystem, name, form, given)
        if first.sample.num_rows > 0:
            break
    form, sample = first.form, first.sample
    columns_of = _columns_of(filesystem, names, first)
    differing = differences(names, columns_of)
    keys, unlike = hive_partitions.of_files(names, {*first.names, *differing})
    measured = first.names
    if columns is not None:
        measured = resolve_names(columns, [*measured, *keys[0]])
    kind_of = {n: kinds.get(i) for i, n in enumerate(measured) if n not in keys[0]}
    named = [] if categorical is None or isinstance(categorical, str) else categorical
    # A code such as 007 is no number, whatever the others look like.
    texts = {*resolve_names([*named, *by], measured)} & {*first.names}
    for name in texts & kind_of.keys():
        if not pa.types.is_boolean(sample.schema.field(name).type):
            kind_of[name] = TEXT
    first.check([n for n, kind in kind_of.items() if kind != TEXT], columns)
    schema = pa.schema(
        [(f.name, _type(f, kind_of)) for f in sample.schema if f.name not in differing]
    )
    # Compared as whole numbers, a code with leading zeros would be one of them.
    marked = pa.schema(
        f.with_metadata(COMPARED) if kind_of.get(f.name) == WHOLE else f for f in schema
    )
    is_whole = not form.is_splittable or any(_is_compressed(name) for name in names)
    if not form.is_splittable:
        logger.info("%s: each file is read at once, as %s", redact(names[0]), form.encoding)
    blocks = [
        CsvBlock(
            filesystem.unstrip_protocol(name), start, n_bytes, own, of_file, form, marked
        )
        for name, own, of_file in zip(names, columns_of, keys, strict=True)
        for start, n_bytes in ([(0, None)] if is_whole else cut(filesystem, name))
    ]
    of_keys = [(key, hive_partitions.TYPE) for key in keys[0]]
    return blocks, pa.schema([*schema, *of_keys]), differing | unlike


def _columns_of(filesystem: Any, names: list[str], first: _Beginning) -> list[list[str]]:
    """Return the columns of files, in the order of each; of one they are known."""
    form = first.form

    def of_file(name: str) -> list[str]:
        if name == first.name:
            return first.names
        other = _Beginning.of(filesystem, name, form, first.given, first)
        is_other = other.line not in (b"", first.line)
        if form.has_header and form.names and is_other:
            raise TableError(
                f"the names that were given replace those of each file by position, but "
                f"the names in {name} are not those in {first.name}. Give files with the "
                f"same columns in the same order, or leave names out."
            )
        return other.names

    with ThreadPoolExecutor(N_READER_THREADS) as readers:
        found = list(readers.map(of_file, names))
    if not form.has_header and len({*map(len, found)}) > 1:
        widths = dict(zip(map(len, found), names, strict=True))
        raise TableError(
            f"files without column names must have the same columns, but there are so many "
            f"in each: {widths}. Name files of one kind, for example as a glob."
        )
    shared: dict[tuple[str, ...], list[str]] = {}  # once in the graph
    return [shared.setdefault(tuple(columns), columns) for columns in found]


@retried
def count_rows(filesystem: Any, names: list[str], form: CsvDialect) -> int:
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


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The beginning of a file: its columns, and its first rows as they look.

    Attributes
    ----------
    name : str
    content : bytes
        As it is in the file.
    form : CsvDialect
        What it is read with.
    given : mapping
        The options that were given.
    line : bytes
        The first one that is not blank, in UTF-8.
    names : list of str
        Of the columns.
    n_before : int
        Lines before the rows.
    rows : bytes
        In UTF-8.
    sample : pyarrow.Table, optional
        The rows, in the types that they seem to have.
    """

    name: str
    content: bytes
    form: CsvDialect
    given: Mapping[str, Any]
    line: bytes
    names: list[str]
    n_before: int
    rows: bytes
    sample: pa.Table

    @classmethod
    def of(
        cls,
        filesystem: Any,
        name: str,
        form: CsvDialect,
        given: Mapping[str, Any],
        first: _Beginning | None = None,
    ) -> _Beginning:
        """Return that of a file; of another than the first without rows."""
        content, is_whole = beginning(filesystem, name)
        try:
            lines = form.plain(content, is_first=True, is_whole=is_whole)
        except UnicodeError as error:
            raise TableError(
                f"{name} is not {form.encoding}: {error}. {TO_UTF8}"
            ) from error
        line = next((s.strip() for s in lines.splitlines() if s.strip()), b"")
        if "separator" not in given and first is None:
            form = replace(form, separator=_separator(line, form))
        try:
            names, n_before, rest = header(name, lines, form)
            sample: pa.Table = None
            if first is None:
                rest = _whole_rows(rest, form) if not is_whole else rest
                sample = read_lines(rest, form, names, [])
        except (TableError, CsvLineError) as error:
            text = str(error)
            if isinstance(error, CsvLineError):
                text = f"{name}, line {1 + n_before + error.args[0]}: {error.args[1]}"
            raise TableError(_layout(name, content, form, given) or text) from error
        for i, column in enumerate(() if sample is None else sample.columns):
            # Fractions may follow small whole numbers.
            if pa.types.is_integer(column.type) and not exceeds_float64(column):
                sample = sample.set_column(i, names[i], column.cast(pa.float64()))
        return cls(name, content, form, given, line, names, n_before, rest, sample)

    def check(self, measured: Sequence[str], named: Sequence[str] | None) -> None:
        """Raise TableError if the file looks like one that is to be read otherwise.

        Parameters
        ----------
        measured : sequence of str
            The columns that will be measured, but for those of text.
        named : sequence of str, optional
            The columns that a user or a model named; None: all are measured.
        """
        lines = StringIO(self.rows.decode("utf-8", "replace"), newline="")
        rows = list(islice(filter(None, self.form.reader(lines)), LOOKED_AT))
        there = [name for name in measured if name in self.names]
        is_there = len(there) == len(measured)
        is_decided = (named is not None and is_there) or {*self.given} & {"header", "names"}
        looks_odd = not is_decided and looks_like_data(self.names, rows, self.form)
        texts = [name for name in there if _is_text(self.sample.schema.field(name).type)]
        if looks_odd or texts or not is_there:
            layout = _layout(self.name, self.content, self.form, self.given)
            if layout and (texts or not is_there or "separator" in layout):
                raise TableError(layout)
        if looks_odd:
            raise TableError(
                f"{self.name}: the column names look like a row: {self.names[:5]}. If they "
                f"are one: {remedy({'header': False}, self.given)}; if not: --csv "
                f"header=true."
            )
        found: dict[str, dict[str, Any]] = {}
        for name in texts:
            place = self.names.index(name)
            values = [row[place] for row in rows]
            if options := value_options(values, self.form, self.n_before):
                found[name] = options
        if not found:
            return
        first = next((n for n in found if "skip_rows" in found[n]), next(iter(found)))
        options = dict(found[first])
        if "skip_rows" not in options:  # of units, which are no markers
            options = {k: v for o in reversed(found.values()) for k, v in o.items()}
            markers = [m for o in found.values() for m in o.get("na_values", ())]
            options |= {"na_values": list(dict.fromkeys(markers))} if markers else {}
        raise TableError(
            f"{self.name}: column {first!r} looks like numbers that are written in another "
            f"way; to read it: {remedy(options, self.given)}. If it is text, name it: "
            f"{format_option('--categorical', [first])}."
        )


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _layout(name: str, content: bytes, form: CsvDialect, given: Mapping[str, Any]) -> str:
    """Return an error that says how to read a file by its looks; "" if it is plain."""
    if options := layout_options(content, form, given):
        return f"{name}: it looks like a file to be read by {remedy(options, given)}."
    return ""


def _separator(line: bytes, form: CsvDialect) -> str:
    """Return the separator of a file by its first line."""
    try:
        return csv.Sniffer().sniff(line.decode(errors="replace"), CSV_SEPARATORS).delimiter
    except csv.Error:  # a single column
        return ";" if "," in (form.decimal, form.thousands) else form.separator


def _whole_rows(lines: bytes, form: CsvDialect) -> bytes:
    """Return lines without the last one, which may be cut, also within quotes."""
    rows, is_open = lines.splitlines(keepends=True), form.is_open(lines)
    while rows:
        is_open ^= form.is_open(rows.pop())
        if not is_open:
            break
    return b"".join(rows)

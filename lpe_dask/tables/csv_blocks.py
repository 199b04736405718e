"""Cut CSV files into blocks of bytes, and read these as tables of Arrow.

    file --beginning--> schema, CsvBlock --one task each--> pyarrow.Table

Measured columns are read as numbers, or as text if they begin with some or are known to be
categories of text; all others as text without changes. Floats lose digits of whole numbers:
those of a block are read as such where floats would. An error names the file, the line and
the column: only then is a block read by Python, line by line.
"""

from __future__ import annotations

import csv
import logging
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from io import BytesIO, StringIO
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fsspec.utils import read_block

from lpe_dask.storage import retried
from lpe_dask.tables import folder_keys
from lpe_dask.tables.column_names import as_given
from lpe_dask.tables.compressed import COMPRESSED, check_text, opened
from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.csv_hints import Looks, comment_of, hint_at, value_hint
from lpe_dask.tables.differing import differences
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.kinds import BOOLEAN, TEXT, WHOLE
from lpe_dask.tables.large_numbers import MOST_UNITS
from lpe_dask.tables.listing import locate
from lpe_dask.tables.row_groups import READERS

logger = logging.getLogger(__name__)

#: Bytes of a CSV file that decide its separator and the types of its columns.
CSV_SAMPLE_BYTES = 2**18

#: Bytes of a partition of a CSV file: the same on every machine, so that an interrupted run
#: can be resumed on another one.
CSV_BLOCK_BYTES = 2**25

#: Separators that are recognized in a CSV file.
CSV_SEPARATORS = ",;\t|"

#: Bytes that are read at a time to count lines.
_COUNTED_BYTES = 2**24

#: Codes with leading zeros, and what marks columns where they are not the numbers.
_CODE = r"^\s*0\d+\s*$"
_COMPARED = {b"lpe_dask": b"compared"}

#: Added after the last line: a value of its own only if no quote is open before it.
_END = "\0end"

#: Booleans of Arrow, and the remedy for other encodings.
_BOOLEANS = {"true", "false", "1", "0"}
_TO_UTF8 = (
    'Name its encoding, for example --csv encoding=latin-1 (csv={"encoding": "latin-1"}), '
    "or write the file as UTF-8, for example with: iconv -f latin1 -t utf8 FILE."
)


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """The lines that begin in a range of bytes of a file.

    Attributes
    ----------
    name : str
        URL.
    start : int
    n_bytes : int, optional
        None: the whole file, which may be compressed.
    names : list of str
        Its columns, in their order.
    keys : dict of str to str or None
        The values in the names of its folders, such as ``year=2026``: always text.
    form : CsvFormat
    schema : pyarrow.Schema
        The columns of all files of the table; numbers, booleans and text.
    """

    name: str
    start: int
    n_bytes: int | None
    names: list[str]
    keys: dict[str, str | None]
    form: CsvFormat
    schema: pa.Schema

    def read(self, names: list[str]) -> pa.Table:
        """Return some columns.

        Raises
        ------
        TableError
            If a line has another number of values, or values of another type.
        """
        lines = self._lines()
        if self.start == 0:
            found, _, lines = _header(self.name, lines, self.form)
            if found != self.names:
                raise TableError(
                    f"{self.name} was changed: its first line names {found}, and "
                    f"named {self.names} when it was opened. Start again."
                )
        own = [name for name in names if name not in self.keys] or self.names[:1]
        fields = [self.schema.field(name) for name in own]
        if self.form.is_open(lines):  # Arrow would read the rest as one long value
            self._check(lines, fields)
        if compared := [f.with_type(pa.large_string()) for f in fields if f.metadata]:
            text = self.form.parse(lines, self.names, compared)
            if any(
                pc.any(pc.match_substring_regex(c, _CODE)).as_py() for c in text.columns
            ):
                self._check(lines, fields)
        try:
            table = _parse_exactly(lines, self.form, self.names, fields)
            if self.form.quote and table.num_rows < lines.count(b"\n"):
                self._check(lines, fields)  # values of several lines, perhaps by a slip
            for name in self.keys.keys() & {*names}:
                column = folder_keys.column(self.keys[name], table.num_rows)
                table = table.append_column(name, column)
            return table.select(names)
        except pa.ArrowInvalid as error:
            self._check(lines, fields)
            raise TableError(
                f"{self.name}, from line {self._line()} on: {error}"
            ) from error

    def _lines(self) -> bytes:
        try:
            lines = self.form.utf8(self._bytes())
        except UnicodeError as error:
            raise TableError(
                f"{self.name} is not {self.form.encoding}: {error}."
            ) from error
        return self.form.without_skipped(lines) if self.start == 0 else lines

    @retried
    def _bytes(self) -> bytes:
        with opened(*locate(self.name), self.start) as file:
            if self.n_bytes is None:
                return bytes(file.read())
            return bytes(read_block(file, self.start, self.n_bytes, b"\n"))

    def _check(self, lines: bytes, fields: list[pa.Field]) -> None:
        """Raise TableError for the first wrong line, if any."""
        for line, what in _problems(lines, self.form, self.names, fields):
            raise TableError(f"{self.name}, line {self._line() + line}: {what}")

    @retried
    def _line(self) -> int:
        """Return the number of the first line, without the header; reads all before it."""
        if self.start == 0:
            return 1 + _header(self.name, self._lines(), self.form)[1]
        n_breaks, n_left = 0, self.start
        with opened(*locate(self.name)) as file:
            while n_left > 0 and (some := file.read(min(n_left, _COUNTED_BYTES))):
                n_breaks += some.count(b"\n")
                n_left -= len(some)
        return n_breaks + 2  # the previous line ends in this block


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
        f.with_metadata(_COMPARED) if kind_of.get(f.name) == WHOLE else f for f in schema
    )
    is_whole = not form.is_cut or any(name.lower().endswith(COMPRESSED) for name in names)
    if not form.is_cut:
        logger.info("%s: each file is read at once, as %s", names[0], form.encoding)
    blocks = [
        CsvBlock(
            filesystem.unstrip_protocol(name), start, n_bytes, own, of_file, found, marked
        )
        for name, own, of_file in zip(names, columns_of, keys, strict=True)
        for start, n_bytes in ([(0, None)] if is_whole else _cut(filesystem, name))
    ]
    of_keys = [(key, folder_keys.TYPE) for key in keys[0]]
    return blocks, pa.schema([*schema, *of_keys]), differing | unlike


def _columns_of(filesystem: Any, names: list[str], first: Looks) -> list[list[str]]:
    """Return the columns of files, in the order of each; of one they are known."""
    form = first.form

    @retried
    def of_file(name: str) -> list[str]:
        if name == first.name:
            return list(first.names)
        content, is_whole = _beginning(filesystem, name)
        looks = replace(first, name=name, content=content)
        with _said_by_layout(looks):
            lines = _plain_lines(name, content, form, is_whole=is_whole)
            return _header(name, lines, form)[0]

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


@contextmanager
def _said_by_layout(looks: Looks) -> Iterator[None]:
    """Raise what a file looks like instead of an error, if it looks like anything."""
    try:
        yield
    except TableError as error:
        raise TableError(looks.layout() or str(error)) from error


@retried
def count_rows(filesystem: Any, names: list[str], form: CsvFormat) -> int:
    """Return about how many rows files have together."""
    content, is_whole = _beginning(filesystem, names[0])
    lines = content.splitlines(keepends=True)
    n_before = form.has_header + len(form.skipped)
    if is_whole and len(names) == 1:
        return max(0, len(lines) - n_before)
    n_bytes = sum(int(filesystem.size(name)) for name in names)
    if names[0].lower().endswith(COMPRESSED):
        # Other formats have about the same size.
        n_bytes = n_bytes * len(content) // len(zlib.compress(content))
    rows = lines[n_before : None if is_whole else -1]  # the last may be cut
    return n_bytes * len(rows) // max(1, sum(map(len, rows)))


@retried
def _cut(filesystem: Any, name: str) -> list[tuple[int, int]]:
    n_bytes = max(1, int(filesystem.size(name)))
    return [(start, CSV_BLOCK_BYTES) for start in range(0, n_bytes, CSV_BLOCK_BYTES)]


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
    return found if _is_exact(found) else pa.large_string()


def _sample(
    filesystem: Any, name: str, form: CsvFormat, given: Mapping[str, Any]
) -> tuple[CsvFormat, pa.Table, Looks]:
    """Return the format of a file, its first rows in the types they seem to have, and more.

    The last is what they look like.
    """
    content, is_whole = _beginning(filesystem, name)
    looks = Looks(name, content, form, given)
    lines = _plain_lines(name, content, form, is_whole=is_whole)
    if "separator" not in given:
        first = next((line for line in lines.splitlines() if line.strip()), b"")
        try:
            text = first.decode(errors="replace")
            form = replace(
                form, separator=csv.Sniffer().sniff(text, CSV_SEPARATORS).delimiter
            )
        except csv.Error:  # a single column
            if "," in (form.decimal, form.thousands):
                form = replace(form, separator=";")
    looks = replace(looks, form=form)
    with _said_by_layout(looks):
        names, n_before, rest = _header(name, lines, form)
        rows, is_open = rest.splitlines(keepends=True), form.is_open(rest)
        while not is_whole and rows:
            is_open ^= form.is_open(rows.pop())  # it may be cut, also within quotes
            if not is_open:
                break
        rest = b"".join(rows)
        for line, what in _problems(rest, form, names, []):
            raise TableError(f"{name}, line {1 + n_before + line}: {what}")
    sample = _parse_exactly(rest, form, names, [])
    for i, column in enumerate(sample.columns):  # fractions may follow small whole numbers
        if pa.types.is_integer(column.type) and not _is_beyond(column):
            sample = sample.set_column(i, names[i], column.cast(pa.float64()))
    return form, sample, replace(looks, names=names, n_before=n_before, rows=rest)


def _plain_lines(name: str, content: bytes, form: CsvFormat, *, is_whole: bool) -> bytes:
    """Return the beginning of a file in UTF-8, without what is skipped."""
    try:
        return form.without_skipped(form.utf8(content, is_whole=is_whole))
    except UnicodeError as error:
        raise TableError(f"{name} is not {form.encoding}: {error}. {_TO_UTF8}") from error


@retried
def _beginning(filesystem: Any, name: str) -> tuple[bytes, bool]:
    """Return the beginning of a file with at least a row, and whether it is the whole."""
    with opened(filesystem, name) as file:
        content = file.read(CSV_SAMPLE_BYTES)
        check_text(name, content)
        while content.count(b"\n") < 2 and len(content) < CSV_BLOCK_BYTES:
            if not (more := file.read(CSV_SAMPLE_BYTES)):
                break
            content += more
        return content, not file.read(1)


def _header(name: str, content: bytes, form: CsvFormat) -> tuple[list[str], int, bytes]:
    """Return the names of columns, how many lines end with them, and the other lines.

    Blank lines may precede the names, which may contain line breaks in quotes.
    """
    file = BytesIO(content)
    reader = form.reader((line.decode() for line in file), strict=True)
    try:
        found: list[str] = next((values for values in reader if not _is_blank(values)), [])
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name}, line 1: the column names are not UTF-8. {_TO_UTF8}"
        ) from error
    except csv.Error as error:
        raise TableError(
            f"{name}, line {max(1, reader.line_num)}: the column names cannot be read "
            f"({error}). Close their quotes, and end lines with a line feed; of a file "
            f"with carriage returns alone: tr '\\r' '\\n' < FILE."
        ) from error
    if not found:
        raise TableError(f"{name} is empty; a CSV file starts with a line of column names.")
    if form.names and len(form.names) != len(found):
        raise TableError(
            f"{name}, line {reader.line_num}: {len(found)} values, but names has "
            f"{len(form.names)}. Give a name for each column."
        )
    if not form.has_header:
        names = list(form.names) or [str(i) for i in range(len(found))]
        return names, 0, content
    names = [text or f"Unnamed: {i}" for i, text in enumerate(form.names or found)]
    if twice := sorted({text for text in names if names.count(text) > 1}):
        raise TableError(
            f"{name}, line {reader.line_num}: column names must differ from each other, "
            f"but {twice} occur more than once. If they are a row: --csv header=false "
            f'(csv={{"header": False}}); else rename them, or give names for all columns: '
            f"--csv names=A,B (names in csv=)."
        )
    return names, reader.line_num, content[file.tell() :]


def _is_blank(values: list[str]) -> bool:
    """Return whether a line was blank, without even a separator or quotes."""
    return not values or (len(values) == 1 and values[0].isspace())


# The functions below run inside tasks.


def _parse_exactly(
    lines: bytes, form: CsvFormat, names: list[str], fields: list[pa.Field]
) -> pa.Table:
    """Return what `CsvFormat.parse` does, with whole numbers beyond floats.

    Columns of these have a type for them: that of the field where this holds all values.
    """
    read = [f.with_type(pa.float64()) if _is_exact(f.type) else f for f in fields]
    table = form.parse(lines, names, read)
    for i, field in enumerate(table.schema):
        if not pa.types.is_floating(field.type):
            continue
        column, own = table.column(i), [f.type for f in fields[i : i + 1]]
        types = [type_ for type_ in own if pa.types.is_integer(type_)]
        if _is_beyond(column):
            text = [field.with_type(pa.large_string())]
            text = form.parse(lines, names, text).column(0)
            if (digits := _digits(column, text, form)) is not None:
                column = digits
                types += [pa.int64(), pa.uint64(), pa.decimal256(76, 0)]
            elif own:
                _check_digits(field.name, text)
        for type_ in types:
            with suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, column.cast(type_))
                break
    return table


def _is_exact(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_decimal(type_)


def _is_beyond(column: pa.ChunkedArray) -> bool:
    """Return whether there are numbers from 2**53 on."""
    extremes = pc.min_max(column).as_py().values()
    return any(abs(x) >= MOST_UNITS for x in extremes if x is not None)


def _digits(
    numbers: pa.ChunkedArray, text: pa.ChunkedArray, form: CsvFormat
) -> pa.ChunkedArray | None:
    """Return the text of a column of numbers, if it is of digits only."""
    if form.thousands:
        text = pc.replace_substring(text, form.thousands, "")
    text = pc.utf8_trim_whitespace(pc.if_else(pc.is_null(numbers), None, text))
    text = pc.replace_substring_regex(text, r"^\+", "")
    is_whole = pc.all(pc.match_substring_regex(text, r"^-?\d+$")).as_py()
    return text if is_whole else None


def _check_digits(name: str, text: pa.ChunkedArray) -> None:
    """Raise ArrowInvalid if numbers beside others of other kinds lose digits as floats."""
    long = text.filter(pc.match_substring_regex(text, r"^\s*[+-]?\d{16,}\s*$"))
    # Not those that were written from a float, as it has these digits.
    lossy = (v for v in long.to_pylist() if Decimal(repr(float(v))) != Decimal(v))
    if (found := next(lossy, None)) is not None:
        raise pa.ArrowInvalid(
            f"column {name!r} has {found.strip()}, of which floats lose digits, and others "
            f"that are no whole numbers. Write all as whole numbers, in a smaller unit, or "
            f"leave the column out (columns=, --columns)."
        )


def _problems(
    lines: bytes, form: CsvFormat, names: list[str], fields: list[pa.Field]
) -> Iterator[tuple[int, str]]:
    """Yield the lines that are wrong, counted from 0, and why."""
    places = [(names.index(field.name), field) for field in fields]
    text = StringIO(lines.decode("utf-8", "surrogateescape"), newline="").readlines()
    # Arrow has no such limit. It holds for the process, so it is the same for all threads.
    csv.field_size_limit(sys.maxsize)
    reader = form.reader(chain(text, [_END]))
    line = 0
    for values in reader:
        if values == [_END]:
            return
        if values and values[-1].endswith(_END):
            continue  # a quote is open: reported below
        if reader.line_num > line + 1 and _is_torn(text[line : reader.line_num], form):
            yield (
                line,
                f"a quote is open for {reader.line_num - line} lines, and other text "
                f"follows it. Write quotes within values twice, and put these into "
                f"quotes; or where quotes are parts of values: --csv quote= "
                f'(csv={{"quote": ""}}).',
            )
        elif values and len(values) != len(names):
            comment = {} if form.comment else comment_of(values[0])
            yield (
                line,
                f"{len(values)} values, but the file has {len(names)} columns. Correct the "
                f"line, or put values that contain the separator into quotes"
                f"{hint_at(comment, '; or, if it is a comment')}.",
            )
        elif values:
            wrong = (_not_of_type(values[i], field, form) for i, field in places)
            yield from ((line, what) for what in wrong if what)
        line = reader.line_num
    yield (
        line,
        "a quoted value begins here that has no end in the same block of "
        f"{CSV_BLOCK_BYTES} bytes. Close the quote; if values contain line breaks, "
        "compress the file (gzip), which is then read as a whole, or write it as Parquet; "
        'where quotes are parts of values: --csv quote= (csv={"quote": ""}).',
    )


def _is_torn(lines: list[str], form: CsvFormat) -> bool:
    """Return whether a quoted value of several lines is followed by other text."""
    try:
        list(form.reader(lines, strict=True))
    except csv.Error:
        return True
    return False


def _not_of_type(value: str, field: pa.Field, form: CsvFormat) -> str | None:
    """Return why a value cannot be read; None if it can."""
    if not value.isascii() and value != value.encode(errors="replace").decode():
        return f"column {field.name!r} has bytes that are not UTF-8. {_TO_UTF8}"
    if pa.types.is_large_string(field.type) or form.is_missing(value):
        return None
    if field.metadata and re.match(_CODE, value):
        return (
            f"column {field.name!r} has {value!r}, a code with leading zeros, but the "
            f"nominal rows have whole numbers in this categorical column. Fit nominal rows "
            f"that have text there: from a CSV, or after frame[name].astype(str)."
        )
    is_boolean = pa.types.is_boolean(field.type)
    if value.lower() in _BOOLEANS if is_boolean else form.number(value) is not None:
        return None
    kind = "true or false" if is_boolean else "a number"
    return (
        f"column {field.name!r} has {value!r}, which is not {kind}. Correct the line, or "
        f"leave out the column (columns=, --columns)"
        f"{hint_at(value_hint(value, form), '; or read it with')}."
    )

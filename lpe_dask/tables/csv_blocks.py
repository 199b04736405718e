"""Cut CSV files into blocks of bytes, and read these as tables of Arrow.

    file --beginning--> CsvLayout, CsvBlock --one task each--> pyarrow.Table

What is measured is read as numbers, all else as the text that stands there. An error names
the file, the line and the column: only then is a block read by Python, line by line.
"""

from __future__ import annotations

import csv
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from itertools import chain
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from fsspec.utils import read_block

from lpe_dask.storage import retried
from lpe_dask.tables.errors import TableError

#: Bytes of a CSV file from which its separator and the types of its columns are settled.
CSV_SAMPLE_BYTES = 2**18

#: Bytes of a partition of a CSV file: the same on every machine, so that a run that was
#: interrupted may go on elsewhere.
CSV_BLOCK_BYTES = 2**25

#: Separators that are told apart in a CSV file.
CSV_SEPARATORS = ",;\t|"

#: Endings of names of files that cannot be cut.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")

#: What stands for a number that is missing.
_MISSING = [*pv.ConvertOptions().null_values, "<NA>", "None"]

#: Bytes that Arrow parses at a time, at most, and that are read to count lines.
_PARSED_BYTES, _COUNTED_BYTES = 2**30, 2**24

#: A line after the last: a value of its own only if no quote before it is open.
_END = "\0 end"

#: What Arrow takes for booleans, and what to do about other encodings.
_BOOLEANS = {"true", "false", "1", "0"}
_TO_UTF8 = "Write the file as UTF-8, for example with: iconv -f latin1 -t utf8 FILE."


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """What the lines of files have in common.

    Attributes
    ----------
    first : str
        URL of the file that says so.
    separator : str
    schema : pyarrow.Schema
        Columns as they stand in the files; numbers, booleans and text.
    """

    first: str
    separator: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """The lines that begin in some bytes of a file.

    Attributes
    ----------
    name : str
        URL.
    start : int
    n_bytes : int, optional
        None: the whole file, which may be compressed.
    layout : CsvLayout
    """

    name: str
    start: int
    n_bytes: int | None
    layout: CsvLayout

    def read(self, names: list[str]) -> pa.Table:
        """Return some columns.

        Raises
        ------
        TableError
            If a line is not like the others, or its values are not of the type.
        """
        lines = self._lines()
        if self.start == 0:
            found, _, lines = _header(self.name, lines, self.layout.separator)
            self._check_names(found)
        fields = [self.layout.schema.field(name) for name in names]
        if lines.count(b'"') % 2:  # Arrow would take what follows for one long value
            self._check(lines, fields)
        try:
            return _parse(lines, self.layout.separator, self.layout.schema.names, fields)
        except pa.ArrowInvalid as error:
            self._check(lines, fields)
            raise TableError(
                f"{self.name}, from line {self._line()} on: {error}"
            ) from error

    @retried
    def _lines(self) -> bytes:
        filesystem, path = fsspec.core.url_to_fs(self.name)
        if self.n_bytes is None:
            with filesystem.open(path, "rb", compression="infer") as file:
                whole: bytes = file.read()
                return whole
        with filesystem.open(path, "rb") as file:
            block: bytes = read_block(file, self.start, self.n_bytes, b"\n")
            return block

    def _check_names(self, found: list[str]) -> None:
        if found != self.layout.schema.names:
            raise TableError(
                f"{self.name} and {self.layout.first} are no parts of one table: its first "
                f"line names {found}, not {self.layout.schema.names}. Name files with the "
                f"same columns in the same order."
            )

    def _check(self, lines: bytes, fields: list[pa.Field]) -> None:
        """Raise TableError for the first line that is not what it should be, if any."""
        for line, what in _problems(lines, self.layout, fields):
            raise TableError(f"{self.name}, line {self._line() + line}: {what}")

    @retried
    def _line(self) -> int:
        """Return the number of the first line, without the header; reads all before it."""
        if self.start == 0:
            return 1 + _header(self.name, self._lines(), self.layout.separator)[1]
        filesystem, path = fsspec.core.url_to_fs(self.name)
        n_breaks, n_left = 0, self.start
        with filesystem.open(path, "rb") as file:
            while n_left > 0 and (some := file.read(min(n_left, _COUNTED_BYTES))):
                n_breaks += some.count(b"\n")
                n_left -= len(some)
        return n_breaks + 2  # the line that began before has its end in here


def open_files(
    filesystem: Any, names: list[str], columns: Sequence[Any] | None
) -> tuple[list[CsvBlock], pa.Schema]:
    """Return the blocks of a table, and its schema.

    Parameters
    ----------
    filesystem : fsspec filesystem
    names : list of str
        Of the files; the first with rows decides about the others.
    columns : sequence of str, optional
        Those that will be measured; None: all.
    """
    for name in names:
        separator, sample = _sample(filesystem, name)
        if sample.num_rows > 0:
            break
    schema = pa.schema([(field.name, _type(field, columns)) for field in sample.schema])
    layout = CsvLayout(filesystem.unstrip_protocol(name), separator, schema)
    is_compressed = any(name.lower().endswith(COMPRESSED) for name in names)
    blocks = [
        CsvBlock(filesystem.unstrip_protocol(name), start, n_bytes, layout)
        for name in names
        for start, n_bytes in ([(0, None)] if is_compressed else _cut(filesystem, name))
    ]
    return blocks, schema


@retried
def count_rows(filesystem: Any, names: list[str]) -> int:
    """Return about how many rows files have together."""
    name = names[0]
    with filesystem.open(name, compression="infer") as file:
        content = file.read(CSV_SAMPLE_BYTES)
        is_whole = not file.read(1)
    lines = content.splitlines(keepends=True)
    n_bytes = sum(int(filesystem.size(name)) for name in names)
    if is_whole and len(names) == 1:
        return max(0, len(lines) - 1)
    if name.lower().endswith(COMPRESSED):
        # Other formats come out about as small.
        n_bytes = n_bytes * len(content) // len(zlib.compress(content))
    rows = lines[1 : None if is_whole else -1]  # without the names; the last may be cut
    return n_bytes * len(rows) // max(1, sum(map(len, rows)))


@retried
def _cut(filesystem: Any, name: str) -> list[tuple[int, int]]:
    n_bytes = max(1, int(filesystem.size(name)))
    return [(start, CSV_BLOCK_BYTES) for start in range(0, n_bytes, CSV_BLOCK_BYTES)]


def _type(field: pa.Field, measured: Sequence[Any] | None) -> pa.DataType:
    """Return the type to read a column as, which its later values must not change.

    Whole numbers may have fractions later, and what is all missing may be anything.
    """
    if measured is not None and field.name not in measured:
        return pa.large_string()
    if pa.types.is_boolean(field.type):
        return field.type
    types = pa.types
    is_open = types.is_null(field.type) or types.is_integer(field.type)
    is_number = is_open or types.is_floating(field.type)
    return pa.float64() if is_number else pa.large_string()


@retried
def _sample(filesystem: Any, name: str) -> tuple[str, pa.Table]:
    """Return the separator of a file, and its first rows in the types they seem to have."""
    with filesystem.open(name, "rb", compression="infer") as file:
        content, is_whole = _beginning(file)
    lines = content.removeprefix(BOM_UTF8).splitlines()
    first = next((line for line in lines if line.strip()), b"").decode(errors="replace")
    try:
        separator = csv.Sniffer().sniff(first, CSV_SEPARATORS).delimiter
    except csv.Error:  # a single column
        separator = ","
    names, n_before, rest = _header(name, content, separator)
    if not names:
        raise ValueError(f"{name} is empty; a CSV file starts with a line of column names.")
    lines = rest.splitlines(keepends=True)
    n_quotes = rest.count(b'"')
    while not is_whole and lines:
        n_quotes -= lines.pop().count(b'"')  # it may be cut, also within quotes
        if n_quotes % 2 == 0:
            break
    layout = CsvLayout(name, separator, pa.schema([(n, pa.large_string()) for n in names]))
    rows = b"".join(lines)
    for line, what in _problems(rows, layout, []):
        raise TableError(f"{name}, line {1 + n_before + line}: {what}")
    return separator, _parse(rows, separator, names, None)


def _beginning(file: Any) -> tuple[bytes, bool]:
    """Return the beginning of a file, a row at least, and whether it is all of it."""
    content = file.read(CSV_SAMPLE_BYTES)
    while content.count(b"\n") < 2 and len(content) < CSV_BLOCK_BYTES:
        if not (more := file.read(CSV_SAMPLE_BYTES)):
            break
        content += more
    return content, not file.read(1)


def _header(name: str, content: bytes, separator: str) -> tuple[list[str], int, bytes]:
    """Return the names of columns, the lines with and before them, and what follows.

    Lines without anything may stand before the names, and line breaks in quotes within.
    """
    file = BytesIO(content)
    lines = (line.decode("utf-8-sig") for line in file)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        found = next((values for values in reader if not _is_blank(values)), [])
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
    names = [text or f"Unnamed: {i}" for i, text in enumerate(found)]
    if twice := sorted({text for text in names if names.count(text) > 1}):
        raise TableError(
            f"{name}, line {reader.line_num}: column names must differ from each other, "
            f"but {twice} are there more than once. Rename them."
        )
    return names, reader.line_num, content[file.tell() :]


def _is_blank(values: list[str]) -> bool:
    """Return whether nothing stood in a line, not even a separator or quotes."""
    return not values or (len(values) == 1 and values[0].isspace())


# The functions below run inside tasks.


def _parse(
    lines: bytes, separator: str, names: list[str], fields: list[pa.Field] | None
) -> pa.Table:
    """Return columns of the fields; None: all, of the types they seem to have."""
    if not lines.strip():
        return pa.schema(fields or [(name, pa.null()) for name in names]).empty_table()
    table = pv.read_csv(
        BytesIO(lines),
        pv.ReadOptions(
            column_names=names,
            use_threads=False,
            block_size=min(len(lines) + 1, _PARSED_BYTES),
        ),
        pv.ParseOptions(delimiter=separator, newlines_in_values=True),
        pv.ConvertOptions(
            column_types=pa.schema(fields or []),
            include_columns=[field.name for field in fields or []],
            null_values=_MISSING,
        ),
    )
    for i, field in enumerate(fields or []):
        if pa.types.is_large_string(field.type):
            text = table.column(i)
            text = pc.if_else(pc.equal(text, ""), pa.scalar(None, field.type), text)
            table = table.set_column(i, field, text)
    return table


def _problems(
    lines: bytes, layout: CsvLayout, fields: list[pa.Field]
) -> Iterator[tuple[int, str]]:
    """Yield what is wrong, and in which line, counted from 0."""
    names = layout.schema.names
    places = [(names.index(field.name), field) for field in fields]
    text = StringIO(lines.decode("utf-8", "surrogateescape"), newline="")
    # Arrow has no such limit. It is one of the process: lowered again, it would be in the
    # way of other threads.
    csv.field_size_limit(max(csv.field_size_limit(), len(lines) + len(_END)))
    reader = csv.reader(chain(text, [_END]), delimiter=layout.separator)
    line = 0
    for values in reader:
        if values == [_END]:
            return
        if values and values[-1].endswith(_END):
            continue  # as the last one
        if values and len(values) != len(names):
            yield line, _not_as_many(values, names)
        elif values:
            found = (_not_of_type(values[i], field) for i, field in places)
            yield from ((line, what) for what in found if what)
        line = reader.line_num
    yield (
        line,
        "a quoted value begins here that has no end in the same block of "
        f"{CSV_BLOCK_BYTES} bytes. Close the quote; where values hold line breaks, "
        "compress the file (gzip), which is then read whole, or write it as Parquet.",
    )


def _not_as_many(values: list[str], names: list[str]) -> str:
    return (
        f"{len(values)} values, but the file has {len(names)} columns. Mend the line, or "
        f"put values that hold the separator into quotes."
    )


def _not_of_type(value: str, field: pa.Field) -> str | None:
    """Return why a value cannot be read; None if it can."""
    if not value.isascii() and value != value.encode(errors="replace").decode():
        return f"column {field.name!r} has bytes that are not UTF-8. {_TO_UTF8}"
    if pa.types.is_large_string(field.type) or value.strip() in _MISSING:
        return None
    is_boolean = pa.types.is_boolean(field.type)
    if value.lower() in _BOOLEANS if is_boolean else _is_number(value):
        return None
    kind = "true or false" if is_boolean else "a number"
    return (
        f"column {field.name!r} has {value!r}, which is not {kind}. Mend the line, or "
        f"leave out the column (columns=, --columns)."
    )


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return "_" not in value

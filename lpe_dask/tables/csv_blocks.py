"""Cut CSV files into blocks of bytes, and read these as tables of Arrow.

    file --beginning--> schema, CsvBlock --one task each--> pyarrow.Table

Measured columns are read as numbers, or as text if they begin with some or are known to be
categories of text; all others as text without changes. Floats lose digits of whole numbers:
those of a block are read as such where floats would. An error names the file, the line and
the column: only then is a block read by Python, line by line.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fsspec.utils import read_block

from lpe_dask.storage import redact_errors, retried
from lpe_dask.tables import folder_keys
from lpe_dask.tables.compressed import check_text, opened
from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.csv_lines import CODE, header, problems
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.large_numbers import MOST_UNITS
from lpe_dask.tables.listing import locate

#: Bytes of a CSV file that decide its separator and the types of its columns.
CSV_SAMPLE_BYTES = 2**18

#: Bytes of a partition of a CSV file: the same on every machine, so that an interrupted run
#: can be resumed on another one.
CSV_BLOCK_BYTES = 2**25

#: Bytes that are read at a time to count lines.
_COUNTED_BYTES = 2**24

#: What marks columns where codes with leading zeros are not the numbers.
COMPARED = {b"lpe_dask": b"compared"}


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

    @redact_errors()
    def read(self, names: list[str]) -> pa.Table:
        """Return some columns.

        Raises
        ------
        TableError
            If a line has another number of values, or values of another type.
        """
        lines = self._lines()
        if self.start == 0:
            found, _, lines = header(self.name, lines, self.form)
            if found != self.names:
                raise TableError(
                    f"{self.name} was changed: its first line names {found}, and "
                    f"named {self.names} when it was opened. Start again."
                )
        own = [name for name in names if name not in self.keys] or self.schema.names[:1]
        fields = [self.schema.field(name) for name in own]
        if self.form.is_open(lines):  # Arrow would read the rest as one long value
            self._check(lines, fields)
        if compared := [f.with_type(pa.large_string()) for f in fields if f.metadata]:
            text = self.form.parse(lines, self.names, compared)
            if any(pc.any(pc.match_substring_regex(c, CODE)).as_py() for c in text.columns):
                self._check(lines, fields)
        try:
            table = parse_exactly(lines, self.form, self.names, fields)
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
        for line, what in problems(lines, self.form, self.names, fields):
            raise TableError(f"{self.name}, line {self._line() + line}: {what}")

    @retried
    def _line(self) -> int:
        """Return the number of the first line, without the header; reads all before it."""
        if self.start == 0:
            return 1 + header(self.name, self._lines(), self.form)[1]
        n_breaks, n_left = 0, self.start
        with opened(*locate(self.name)) as file:
            while n_left > 0 and (some := file.read(min(n_left, _COUNTED_BYTES))):
                n_breaks += some.count(b"\n")
                n_left -= len(some)
        return n_breaks + 2  # the previous line ends in this block


@retried
def cut(filesystem: Any, name: str) -> list[tuple[int, int]]:
    """Return the first byte and the number of bytes of each block of a file."""
    n_bytes = max(1, int(filesystem.size(name)))
    return [(start, CSV_BLOCK_BYTES) for start in range(0, n_bytes, CSV_BLOCK_BYTES)]


@retried
def beginning(filesystem: Any, name: str) -> tuple[bytes, bool]:
    """Return the beginning of a file with at least a row, and whether it is the whole."""
    with opened(filesystem, name) as file:
        content = file.read(CSV_SAMPLE_BYTES)
        check_text(name, content)
        while content.count(b"\n") < 2 and len(content) < CSV_BLOCK_BYTES:
            if not (more := file.read(CSV_SAMPLE_BYTES)):
                break
            content += more
        return content, not file.read(1)


# The functions below run inside tasks.


def parse_exactly(
    lines: bytes, form: CsvFormat, names: list[str], fields: list[pa.Field]
) -> pa.Table:
    """Return what `CsvFormat.parse` does, with whole numbers beyond floats.

    Columns of these have a type for them: that of the field where this holds all values.
    """
    read = [f.with_type(pa.float64()) if is_exact(f.type) else f for f in fields]
    table = form.parse(lines, names, read)
    for i, field in enumerate(table.schema):
        if not pa.types.is_floating(field.type):
            continue
        column, own = table.column(i), [f.type for f in fields[i : i + 1]]
        types = [type_ for type_ in own if pa.types.is_integer(type_)]
        if is_beyond(column):
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


def is_exact(type_: pa.DataType) -> bool:
    """Return whether a type holds whole numbers or decimals exactly."""
    return pa.types.is_integer(type_) or pa.types.is_decimal(type_)


def is_beyond(column: pa.ChunkedArray) -> bool:
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

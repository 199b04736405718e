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
from lpe_dask.tables import hive_partitions
from lpe_dask.tables.compressed import check_text, opened
from lpe_dask.tables.csv_dialect import CsvDialect
from lpe_dask.tables.csv_errors import CsvLineError, check_quotes, explained, header
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.exact_numbers import MAX_EXACT
from lpe_dask.tables.listing import resolve_path

#: Bytes of a CSV file that decide its separator and the types of its columns.
CSV_SAMPLE_BYTES = 2**18

#: Bytes of a partition of a CSV file: the same on every machine, so that an interrupted run
#: can be resumed on another one.
CSV_BLOCK_BYTES = 2**25

#: Bytes that are read at a time to count lines.
_COUNTED_BYTES = 2**24

#: What marks columns where codes with leading zeros are not the numbers, and these.
COMPARED = {b"lpe_dask": b"compared"}
_CODE = r"^\s*0\d+\s*$"


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
    form : CsvDialect
    schema : pyarrow.Schema
        The columns of all files of the table; numbers, booleans and text.
    """

    name: str
    start: int
    n_bytes: int | None
    names: list[str]
    keys: dict[str, str | None]
    form: CsvDialect
    schema: pa.Schema

    @redact_errors()
    def read(self, names: list[str]) -> pa.Table:
        """Return some columns.

        Raises
        ------
        TableError
            If a line has another number of values, or values of another type.
        """
        lines, n_before = self._lines(), 0
        if self.start == 0:
            found, n_before, lines = header(self.name, lines, self.form)
            if found != self.names:
                raise TableError(
                    f"{self.name} was changed: its first line names {found}, and "
                    f"named {self.names} when it was opened. Start again."
                )
        own = [name for name in names if name not in self.keys] or self.schema.names[:1]
        try:
            fields = [self.schema.field(name) for name in own]
            table = read_lines(lines, self.form, self.names, fields)
        except CsvLineError as error:
            line, what = error.args
            line += 1 + (n_before if self.start == 0 else self._n_before())
            raise TableError(f"{self.name}, line {line}: {what}") from error
        for name in self.keys.keys() & {*names}:
            column = hive_partitions.column(self.keys[name], table.num_rows)
            table = table.append_column(name, column)
        return table.select(names)

    def _lines(self) -> bytes:
        try:
            return self.form.plain(self._bytes(), is_first=self.start == 0)
        except UnicodeError as error:
            raise TableError(
                f"{self.name} is not {self.form.encoding}: {error}."
            ) from error

    @retried
    def _bytes(self) -> bytes:
        with opened(*resolve_path(self.name)) as file:
            if self.n_bytes is None:
                return bytes(file.read())
            return bytes(read_block(file, self.start, self.n_bytes, b"\n"))

    @retried
    def _n_before(self) -> int:
        """Return how many lines are before the block; reads them all."""
        n_breaks, n_left = 1, self.start  # the previous line ends in this block
        with opened(*resolve_path(self.name)) as file:
            while n_left > 0 and (some := file.read(min(n_left, _COUNTED_BYTES))):
                n_breaks += some.count(b"\n")
                n_left -= len(some)
        return n_breaks


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


def read_lines(
    lines: bytes, form: CsvDialect, names: list[str], fields: list[pa.Field]
) -> pa.Table:
    """Return some columns of lines; without any all, as they look.

    Raises
    ------
    CsvLineError
        For a line with another number of values, a value of another type, or a quote that
        is not closed.
    """
    if form.is_open(lines):  # Arrow would read the rest as one long value
        check_quotes(lines, form)
    try:
        table = _parse_exactly(lines, form, names, fields)
        if coded := [field for field in fields if field.metadata]:
            _check_codes(lines, form, names, coded)
    except pa.ArrowInvalid as error:
        raise explained(error, lines, form, names) from error
    if form.quote and table.num_rows < lines.count(b"\n"):
        check_quotes(lines, form)  # values of several lines, perhaps by a slip
    return table


def _check_codes(
    lines: bytes, form: CsvDialect, names: list[str], fields: list[pa.Field]
) -> None:
    """Raise ArrowInvalid for a code with leading zeros, which numbers do not keep."""
    as_text = [field.with_type(pa.large_string()) for field in fields]
    table = form.parse(lines, names, as_text)
    for name, column in zip(table.column_names, table.columns, strict=True):
        place = pc.index(pc.match_substring_regex(column, _CODE), True).as_py()
        if place >= 0:
            raise pa.ArrowInvalid(
                f"Row #{place + 1}: column {name!r} has '{column[place]}', a code with "
                f"leading zeros, but the nominal rows have whole numbers there. Fit "
                f"nominal rows that have text there: from a CSV, or after "
                f"frame[name].astype(str)"
            )


def _parse_exactly(
    lines: bytes, form: CsvDialect, names: list[str], fields: list[pa.Field]
) -> pa.Table:
    """Parse as `CsvDialect.parse` does, with whole numbers beyond floats.

    Columns of these have a type for them: that of the field where this holds all values.
    """
    read = [f.with_type(pa.float64()) if is_exact(f.type) else f for f in fields]
    table = form.parse(lines, names, read)
    for i, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and exceeds_float64(table.column(i)):
            text = form.parse(lines, names, [field.with_type(pa.large_string())]).column(0)
            if form.thousands:
                text = pc.replace_substring(text, form.thousands, "")
            text = pc.if_else(
                pc.is_null(table.column(i)), None, pc.utf8_trim_whitespace(text)
            )
            if (exact := _exact(pc.utf8_ltrim(text, "+"))) is not None:
                table = table.set_column(i, field.name, exact)
            elif fields:
                _check_digits(field.name, text)
        elif fields and pa.types.is_integer(fields[i].type):
            with suppress(pa.ArrowInvalid):
                table = table.set_column(
                    i, field.name, table.column(i).cast(fields[i].type)
                )
    return table


def is_exact(type_: pa.DataType) -> bool:
    """Return whether a type holds whole numbers or decimals exactly."""
    return pa.types.is_integer(type_) or pa.types.is_decimal(type_)


def exceeds_float64(column: pa.ChunkedArray) -> bool:
    """Return whether there are numbers from 2**53 on."""
    extremes = pc.min_max(column).as_py().values()
    return any(abs(x) >= MAX_EXACT for x in extremes if x is not None)


def _exact(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return text as whole numbers, if it is of these only."""
    is_whole = pc.all(pc.match_substring_regex(text, r"^[+-]?\d+$")).as_py()
    for type_ in (pa.int64(), pa.uint64(), pa.decimal256(76, 0)) if is_whole else ():
        with suppress(pa.ArrowInvalid):
            return text.cast(type_)
    return None


def _check_digits(name: str, text: pa.ChunkedArray) -> None:
    """Raise ArrowInvalid if numbers beside others of other kinds lose digits as floats."""
    is_long = pc.fill_null(pc.match_substring_regex(text, r"^[+-]?\d{16,}$"), False)
    for place in pc.indices_nonzero(is_long).to_pylist():
        digits = text[place].as_py()
        # Not those that were written from a float, as it has these digits.
        if Decimal(repr(float(digits))) != Decimal(digits):
            raise pa.ArrowInvalid(
                f"Row #{place + 1}: column {name!r} has {digits}, of which floats lose "
                f"digits, and others that are no whole numbers. Write all as whole "
                f"numbers, in a smaller unit"
            )

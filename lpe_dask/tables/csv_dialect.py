"""How the bytes of a CSV file mean values: what tasks need to read a block of it.

    bytes --plain--> lines with one separator, without comments --parse--> table of Arrow

Arrow's reader does as much of it as it can. What it cannot is done before, on the bytes
(encoding, comments, spaces around separators), or after, on columns of text (thousands,
markers of missing values).
"""

from __future__ import annotations

import codecs
import csv
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

#: Values that mean a missing number.
MISSING = [*pv.ConvertOptions().null_values, "<NA>", "None"]

#: Most bytes that Arrow parses at a time.
_PARSED_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The options of `CsvOptions`, with the values in use.

    Attributes
    ----------
    separator : str
        A blank: any number of spaces and tabs.
    strips_spaces : bool
        Whether spaces around the separator are no part of values.
    decimal, thousands, quote, comment : str
        "" for none.
    skipped : tuple of int
        Lines that are left out, counted from 1, ascending.
    has_header : bool
    names : tuple of str
        () for those in the file, or their numbers.
    na_values : tuple of str
    encoding : str
    """

    separator: str = ","
    strips_spaces: bool = False
    decimal: str = "."
    thousands: str = ""
    quote: str = '"'
    comment: str = ""
    skipped: tuple[int, ...] = ()
    has_header: bool = True
    names: tuple[str, ...] = ()
    na_values: tuple[str, ...] = ()
    encoding: str = "utf-8"

    @property
    def is_splittable(self) -> bool:
        """Whether files can be cut at line feeds before they are decoded."""
        plain = bytes(range(128))
        try:
            return plain.decode(self.encoding) == plain.decode("ascii")
        except UnicodeError:
            return False

    def plain(self, content: bytes, *, is_first: bool, is_whole: bool = True) -> bytes:
        """Return lines in UTF-8; comments and skipped lines are blank, spaces left out.

        Parameters
        ----------
        content : bytes
        is_first : bool
            Whether it is the beginning of a file, of which some lines may be skipped.
        is_whole : bool, default=True
            Whether it does not end within a character.

        Raises
        ------
        UnicodeDecodeError
            For bytes that are not of the encoding, where that is not UTF-8.
        """
        if codecs.lookup(self.encoding).name != "utf-8":
            decoder = codecs.getincrementaldecoder(self.encoding)()
            content = decoder.decode(content, final=is_whole).encode()
        content = content.removeprefix(codecs.BOM_UTF8) if is_first else content
        skipped = self.skipped if is_first else ()
        if not (self.comment or self.strips_spaces or skipped):
            return content
        if self.strips_spaces:
            content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines, is_open, comment = [], False, self.comment.encode()
        for number, line in enumerate(BytesIO(content), 1):
            is_comment = comment and line.lstrip().startswith(comment)
            if number in skipped or (is_comment and not is_open):
                line = b"\n"
            was_open, is_open = is_open, is_open ^ self.is_open(line)
            if self.strips_spaces and not (was_open or is_open):
                line = line.strip() + b"\n"
            lines.append(line)
        return self._without_spaces(lines) if self.strips_spaces else b"".join(lines)

    def _without_spaces(self, lines: list[bytes]) -> bytes:
        """Return lines without spaces around separators."""
        text = (line.decode(errors="surrogateescape") for line in lines)
        if self.separator == " ":
            text = (line.replace("\t", " ") for line in text)
        plain = StringIO()
        writer = csv.writer(plain, lineterminator="\n", **self._dialect)
        for values in self.reader(text, skipinitialspace=True):
            writer.writerow([value.strip(" \t") for value in values])
        return plain.getvalue().encode(errors="surrogateescape")

    @property
    def _dialect(self) -> dict[str, Any]:
        quoting = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        return {
            "delimiter": self.separator, "quotechar": self.quote or None, "quoting": quoting
        }  # fmt: skip

    def is_open(self, lines: bytes) -> bool:
        """Return whether a quote may be open at the end of lines."""
        return bool(self.quote) and lines.count(self.quote.encode()) % 2 == 1

    def reader(self, lines: Iterable[str], **options: Any) -> Any:
        """Return Python's reader of the same lines, which knows their numbers."""
        # Arrow has no such limit. It holds for the process, so for all threads the same.
        csv.field_size_limit(sys.maxsize)
        return csv.reader(lines, **options, **self._dialect)

    def parse(self, lines: bytes, names: list[str], fields: list[pa.Field]) -> pa.Table:
        """Return the columns of the fields; without any all, as they look.

        Raises
        ------
        pyarrow.ArrowInvalid
            For a line with another number of values, or a value of another type.
        """
        if not lines.strip():
            return pa.schema(fields or [(name, pa.null()) for name in names]).empty_table()
        read = fields
        if self.thousands:
            text, is_number = pa.large_string(), pa.types.is_floating
            read = [f.with_type(text) if is_number(f.type) else f for f in fields]
        table = pv.read_csv(
            BytesIO(lines),
            pv.ReadOptions(
                column_names=names,
                use_threads=False,
                block_size=min(len(lines) + 1, _PARSED_BYTES),
            ),
            pv.ParseOptions(
                delimiter=self.separator,
                quote_char=self.quote or False,
                newlines_in_values=True,
            ),
            pv.ConvertOptions(
                column_types=pa.schema(read),
                include_columns=[field.name for field in fields],
                null_values=[*MISSING, *self.na_values],
                decimal_point=self.decimal,
            ),
        )
        for i, field in enumerate(fields or table.schema):
            column = self._converted(table.column(i), field, is_known=bool(fields))
            table = table.set_column(i, field.with_type(column.type), column)
        return table

    def _converted(self, column: Any, field: pa.Field, *, is_known: bool) -> Any:
        """Return a column as Arrow has read it with what Arrow could not do."""
        if pa.types.is_large_string(field.type):
            markers = pa.array(["", *self.na_values], field.type)
            is_marker = pc.is_in(column, markers)
            return pc.if_else(is_marker, pa.scalar(None, field.type), column)
        if self.thousands and str(column.type) in ("string", "large_string"):
            try:
                column = self._ungrouped(column, field.name)
            except pa.ArrowInvalid:
                if is_known:
                    raise
                return column
        # Those of more digits are compared as text only: floats lose digits.
        numbers = [self.number(marker) for marker in self.na_values if len(marker) < 16]
        markers = [number for number in numbers if number is not None]
        if markers and pa.types.is_floating(column.type):
            is_marker = pc.is_in(column, pa.array(markers, column.type))
            column = pc.if_else(is_marker, pa.scalar(None, column.type), column)
        return column

    def _ungrouped(self, column: Any, name: str) -> Any:
        """Return text with thousands as numbers, null where a marker is."""
        text = pc.utf8_trim_whitespace(column)
        missing = pa.array([*MISSING, *self.na_values], text.type)
        text = pc.if_else(pc.is_in(text, missing), pa.scalar(None, text.type), text)
        is_valid = pc.match_substring_regex(text, self._grouped())
        if (place := pc.index(is_valid, False).as_py()) >= 0:
            raise pa.ArrowInvalid(
                f"Row #{place + 1}: column {name!r}: invalid value '{text[place]}'"
            )
        text = pc.replace_substring(text, self.thousands, "")
        return pc.replace_substring(text, self.decimal, ".").cast(pa.float64())

    def _grouped(self) -> str:
        """Return a pattern of numbers: with groups of digits, the last one of three."""
        thousands, decimal = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(\d+|\d{{1,3}}({thousands}\d{{2,3}})*{thousands}\d{{3}})"
        digits = rf"({whole}({decimal}\d*)?|{decimal}\d+)"
        return rf"^[+-]?({digits}([eE][+-]?\d+)?|(?i:nan|inf|infinity))$"

    def number(self, value: str) -> float | None:
        """Return a value as a number; None if it is not one."""
        value = value.strip()
        if self.thousands and re.match(self._grouped(), value):
            value = value.replace(self.thousands, "")
        if self.decimal != ".":
            value = value.replace(".", "_").replace(self.decimal, ".")
        try:
            return None if "_" in value else float(value)
        except ValueError:
            return None

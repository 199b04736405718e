"""How the bytes of a CSV file mean values: what tasks need to read a block of it.

    bytes --utf8--> lines with one separator, without comments --parse--> table of Arrow

Arrow's reader does as much of it as it can. What it cannot is done before, on the bytes
(encoding, comments, spaces around separators), or after, on columns of text (thousands,
markers of missing values).
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

#: Values that mean a missing number.
MISSING = [*pv.ConvertOptions().null_values, "<NA>", "None"]

#: Most bytes that Arrow parses at a time.
_PARSED_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The options of `CsvOptions`, with the values in use.

    Attributes
    ----------
    separator : str
        A blank: any number of spaces and tabs.
    is_spaced : bool
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
    is_spaced: bool = False
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
    def is_cut(self) -> bool:
        """Whether files can be cut at line feeds before they are decoded."""
        plain = bytes(range(128))
        try:
            return plain.decode(self.encoding) == plain.decode("ascii")
        except UnicodeError:
            return False

    def utf8(self, content: bytes, *, is_whole: bool = True) -> bytes:
        """Return lines as UTF-8, with comments as blank lines.

        Raises
        ------
        UnicodeDecodeError
            For bytes that are not of the encoding, where that is not UTF-8.
        """
        if codecs.lookup(self.encoding).name != "utf-8":
            decoder = codecs.getincrementaldecoder(self.encoding)()
            content = decoder.decode(content, final=is_whole).encode()
        if self.comment:
            pattern = rb"(?m)^[ \t]*" + re.escape(self.comment.encode()) + rb"[^\n]*"
            if self.quote and (quote := self.quote.encode()) in content:  # not within them
                q = re.escape(quote)
                pattern = rb"%b|(%b[^%b]*%b)" % (pattern, q, q, q)
                content = re.sub(pattern, lambda m: m[1] or b"", content)
            else:
                content = re.sub(pattern, b"", content)
        return self._with_plain_separators(content) if self.is_spaced else content

    def _with_plain_separators(self, content: bytes) -> bytes:
        """Return lines without spaces around separators, and at their ends."""
        plain = self.separator.encode()
        separator = rb"[ \t]*" + re.escape(plain) + rb"[ \t]*"
        if self.separator == " ":
            separator = rb"[ \t]+"
        ends, begin = rb"[ \t]+(?=\r?$)", rb"^[ \t]*"
        quote = re.escape(self.quote.encode())
        if not quote or self.quote.encode() not in content:
            content = re.sub(rb"(?m)^[ \t]+|" + ends, b"", content)
            return re.sub(separator, plain.replace(b"\\", b"\\\\"), content)
        value = quote + rb"(?:[^" + quote + rb"]|" + quote * 2 + rb")*" + quote
        boundary = rb"(?m)" + ends + rb"|(" + begin + rb"|" + separator + rb")(" + value
        return re.sub(
            boundary + rb")?",
            lambda m: (plain if _divides(m, plain) else b"") + (m[2] or b""),
            content,
        )

    def without_skipped(self, lines: bytes) -> bytes:
        """Return the beginning of a file, in UTF-8, with skipped lines as blank ones."""
        lines = lines.removeprefix(codecs.BOM_UTF8)
        if not self.skipped:
            return lines
        file, skipped = BytesIO(lines), set(self.skipped)
        head = (
            b"\n" if number in skipped else line
            for number, line in enumerate(islice(file, self.skipped[-1]), 1)
        )
        return b"".join([*head, file.read()])

    def is_open(self, lines: bytes) -> bool:
        """Return whether a quote may be open at the end of lines."""
        return bool(self.quote) and lines.count(self.quote.encode()) % 2 == 1

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> Any:
        """Return Python's reader of the same lines, which knows their numbers."""
        if not self.quote:
            return csv.reader(lines, delimiter=self.separator, quoting=csv.QUOTE_NONE)
        return csv.reader(
            lines, delimiter=self.separator, quotechar=self.quote, strict=strict
        )

    def parse(self, lines: bytes, names: list[str], fields: list[pa.Field]) -> pa.Table:
        """Return the columns of the fields; without any all, as they look.

        Raises
        ------
        pyarrow.ArrowInvalid
            For a line with another number of values, or a value of another type.
        """
        if not lines.strip():
            return pa.schema(fields or [(name, pa.null()) for name in names]).empty_table()
        text, numbers = pa.large_string(), pa.types.is_floating
        is_plain = not self.thousands and not self.na_values
        read = [f if is_plain or not numbers(f.type) else f.with_type(text) for f in fields]
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
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if not is_known:  # only text has values that Arrow could not read
            if not is_text or (not self.thousands and not self.na_values):
                return column
            try:
                return self._numbers(column)
            except pa.ArrowInvalid:
                return column
        if pa.types.is_floating(field.type):
            return self._numbers(column) if is_text else column
        if pa.types.is_large_string(field.type):
            for marker in ("", *self.na_values):
                column = pc.if_else(
                    pc.equal(column, marker), pa.scalar(None, field.type), column
                )
        return column

    def _numbers(self, column: Any) -> Any:
        """Return text as numbers: without thousands, and null where a marker is."""
        text = pc.utf8_trim_whitespace(column)
        missing = {marker.strip() for marker in (*MISSING, *self.na_values)}
        is_missing = pc.is_in(text, pa.array(sorted(missing), text.type))
        if self.thousands:
            is_valid = pc.match_substring_regex(text, self._grouped())
            if not pc.all(pc.or_(is_valid, is_missing), min_count=0).as_py():
                raise pa.ArrowInvalid("a value is not a number with thousands")
            text = pc.replace_substring(text, self.thousands, "")
        if self.decimal != ".":
            if pc.any(pc.match_substring(text, "."), min_count=0).as_py():
                raise pa.ArrowInvalid("a value has a point for its decimal comma")
            text = pc.replace_substring(text, self.decimal, ".")
        text = pc.if_else(is_missing, pa.scalar(None, text.type), text)
        numbers = text.cast(pa.float64())
        sentinels = pa.array(
            [n for v in self.na_values if (n := self.number(v)) is not None]
        )
        if len(sentinels) > 0:
            is_sentinel = pc.is_in(numbers, sentinels.cast(pa.float64()))
            # Floats lose digits of long whole numbers: these are compared as text, above.
            is_long = pc.match_substring_regex(text, r"^[+-]?\d{16,}$")
            is_sentinel = pc.and_(is_sentinel, pc.invert(is_long))
            numbers = pc.if_else(is_sentinel, pa.scalar(None, pa.float64()), numbers)
        return numbers

    def _grouped(self) -> str:
        """Return what numbers match: with groups of digits, the last one of three."""
        thousands, decimal = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(\d*|\d{{1,3}}({thousands}\d{{2,3}})*{thousands}\d{{3}})"
        return rf"^[+-]?({whole}({decimal}\d*)?([eE][+-]?\d+)?|(?i:nan|inf|infinity))$"

    def number(self, value: str) -> float | None:
        """Return a value as a number; None if it is not one."""
        value = value.strip()
        if self.thousands and self.thousands in value:
            if not re.match(self._grouped(), value):
                return None
            value = value.replace(self.thousands, "")
        if self.decimal != ".":
            value = value.replace(".", "_").replace(self.decimal, ".")
        try:
            return None if "_" in value else float(value)
        except ValueError:
            return None

    def is_missing(self, value: str) -> bool:
        """Return whether a value means a missing number."""
        if not self.thousands and not self.na_values:
            return value in MISSING  # as to Arrow, which takes blanks for parts of them
        return value.strip() in {v.strip() for v in (*MISSING, *self.na_values)}


def _divides(found: re.Match[bytes], separator: bytes) -> bool:
    """Return whether what was found between two values divides them."""
    if found[1] is None:  # the end of a line
        return False
    is_begin = (
        found.start() == 0 or found.string[found.start() - 1 : found.start()] == b"\n"
    )
    return not is_begin or (separator != b" " and separator in found[1])

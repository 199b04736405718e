"""Read the column names of a CSV file, and say which of its lines are wrong, and why.

By Python, line by line: for the beginning of a file, and where Arrow found a mistake.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from itertools import chain

import pyarrow as pa

from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.csv_hints import hint_at
from lpe_dask.tables.csv_layouts import comment_of
from lpe_dask.tables.csv_values import value_hint
from lpe_dask.tables.errors import TableError

#: Codes with leading zeros.
CODE = r"^\s*0\d+\s*$"

#: The remedy for other encodings.
TO_UTF8 = (
    'Name its encoding, for example --csv encoding=latin-1 (csv={"encoding": "latin-1"}), '
    "or write the file as UTF-8, for example with: iconv -f latin1 -t utf8 FILE."
)

#: Added after the last line: a value of its own only if no quote is open before it.
_END = "\0end"

#: Booleans of Arrow.
_BOOLEANS = {"true", "false", "1", "0"}


def header(name: str, content: bytes, form: CsvFormat) -> tuple[list[str], int, bytes]:
    """Return the names of columns, how many lines end with them, and the other lines.

    Blank lines may precede the names, which may contain line breaks in quotes.
    """
    file = BytesIO(content)
    reader = form.reader((line.decode() for line in file), strict=True)
    try:
        found: list[str] = next((values for values in reader if not _is_blank(values)), [])
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name}, line 1: the column names are not UTF-8. {TO_UTF8}"
        ) from error
    except csv.Error as error:
        raise TableError(
            f"{name}, line {max(1, reader.line_num)}: the column names cannot be read "
            f"({error}). Close their quotes, and end lines with a line feed; of a file "
            f"with carriage returns alone: tr '\\r' '\\n' < FILE."
        ) from error
    if not found and not form.names:
        raise TableError(
            f"{name} is empty. A CSV file starts with a line of column names; give names "
            f"for files that have none: --csv names=A,B (names in csv=)."
        )
    if form.names and found and len(form.names) != len(found):
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


def problems(
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
        "a quoted value begins here that has no end in the same block of the file. Close "
        "the quote; if values contain line breaks, compress the file (gzip), which is then "
        "read as a whole, or write it as Parquet; "
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
        return f"column {field.name!r} has bytes that are not UTF-8. {TO_UTF8}"
    if pa.types.is_large_string(field.type) or form.is_missing(value):
        return None
    if field.metadata and re.match(CODE, value):
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

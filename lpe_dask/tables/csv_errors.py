"""Read the column names of a CSV file, and say which of its lines are wrong, and why.

By Python, line by line: for the beginning of a file, and where Arrow found a mistake.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import BytesIO, StringIO
from typing import Any

from lpe_dask.storage import single_line
from lpe_dask.tables.csv_dialect import CsvDialect
from lpe_dask.tables.csv_sniffing import comment_option, remedy, value_options
from lpe_dask.tables.errors import TableError

#: The remedy for other encodings.
TO_UTF8 = (
    'Name its encoding, for example --csv encoding=latin-1 (csv={"encoding": "latin-1"}), '
    "or write the file as UTF-8, for example with: iconv -f latin1 -t utf8 FILE."
)

#: What Arrow says of a wrong row: its column and its number, and what else it is without.
_COLUMN, _ROW = re.compile(r"In CSV column #(\d+)"), re.compile(r"Row #(\d+): ")
_NOISE = re.compile(r"Row #\d+: |CSV (parse|conversion) error( to \w+)?: ")


class CsvLineError(ValueError):
    """A line that cannot be read, counted from 0, and why."""


def header(name: str, content: bytes, form: CsvDialect) -> tuple[list[str], int, bytes]:
    """Return the names of columns, how many lines end with them, and the other lines.

    Blank lines may precede the names, which may contain line breaks in quotes.

    Raises
    ------
    TableError
        If there are none, or two of one name, or they cannot be read.
    """
    file = BytesIO(content)
    reader = form.reader((line.decode() for line in file), strict=True)
    try:
        found: list[str] = next(
            (v for v in reader if v and not (len(v) == 1 and v[0].isspace())), []
        )
    except (UnicodeDecodeError, csv.Error) as error:
        advice = TO_UTF8
        if isinstance(error, csv.Error):
            advice = (
                "Close their quotes, and end lines with a line feed; of a file with "
                "carriage returns alone: tr '\\r' '\\n' < FILE."
            )
        raise TableError(
            f"{name}, line {max(1, reader.line_num)}: the column names cannot be read "
            f"({error}). {advice}"
        ) from error
    names = list(form.names or found)
    if not names:
        raise TableError(
            f"{name} is empty. A CSV file starts with a line of column names; give names "
            f"for files that have none: --csv names=A,B (names in csv=)."
        )
    if found and len(names) != len(found):
        raise TableError(
            f"{name}, line {reader.line_num}: {len(found)} values, but names has "
            f"{len(names)}. Give a name for each column."
        )
    if not form.has_header:
        return names if form.names else [*map(str, range(len(found)))], 0, content
    names = [text or f"Unnamed: {i}" for i, text in enumerate(names)]
    if twice := sorted({text for text in names if names.count(text) > 1}):
        raise TableError(
            f"{name}, line {reader.line_num}: column names must differ from each other, "
            f"but {twice} occur more than once. If they are a row: "
            f"{remedy({'header': False})}; else rename them, or give names for all "
            f"columns: --csv names=A,B (names in csv=)."
        )
    return names, reader.line_num, content[file.tell() :]


def check_quotes(lines: bytes, form: CsvDialect) -> None:
    """Raise CsvLineError if a quote has no end, or other text behind it."""
    reader, line = form.reader(_text(lines), strict=True), 0
    try:
        for _ in reader:
            line = reader.line_num
    except csv.Error as error:
        n_lines = reader.line_num - line
        what = f"a quote is open for {n_lines} lines, and other text follows it"
        if "end of data" in str(error):
            what = "a quoted value begins here that has no end in this block of the file"
        raise CsvLineError(
            line,
            f"{what}. Write quotes within values twice, and put these into quotes; if "
            f"values contain line breaks, compress the file (gzip), which is then read as "
            f"a whole; or where quotes are parts of values: {remedy({'quote': ''})}.",
        ) from error


def explained(
    error: Exception, lines: bytes, form: CsvDialect, names: Sequence[str]
) -> CsvLineError:
    """Return an error of Arrow with the line, and the option that may read it."""
    options: dict[str, Any] = {}
    line, text = (
        0,
        _COLUMN.sub(lambda m: f"column {names[int(m[1])]!r}", single_line(error)),
    )
    if row := _ROW.search(text):
        reader = form.reader(_text(lines))
        rows = filter(None, reader)
        for _ in range(int(row[1]) - 1):
            next(rows)
            line = reader.line_num
        values = next(rows)
        place = next((i for i, n in enumerate(names) if f"column {n!r}: " in text), None)
        if place is None:
            options = comment_option(values[0], form)
        else:
            options = value_options([values[place]], form)
    text = _NOISE.sub("", text)
    advice = f"; or read it with {remedy(options)}." if options else "."
    if "UTF8" in text or "\ufffd" in text:
        advice = f". {TO_UTF8}"
    return CsvLineError(
        line, f"{text}. Correct it, or leave the column out (columns=, --columns){advice}"
    )


def _text(lines: bytes) -> StringIO:
    return StringIO(lines.decode("utf-8", "replace"), newline="")

"""Say how a CSV file that is not read as it is looks, by the options that read it.

    lines --separator, quote, comment, first line--> values --decimal, thousands, markers-->

Nothing is read otherwise than it was asked for: a guess ends in an error that names it.
"""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from lpe_dask.tables.column_names import join_names
from lpe_dask.tables.csv_dialect import CsvDialect

#: How text in other encodings begins; that of UTF-32 begins like UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip

#: With what comments begin.
_COMMENTS = ("#", "%", "//", "--")

#: Separators that files are tried with, the likely ones first.
_LIKELY = (",", ";", "\t", "|")
_SEPARATORS = (*_LIKELY, " ", "^", "~", ":", "\x01", "\x1f", "!", "&", "/")

#: Decimal points and thousands that numbers are tried with, the likely ones first; "" for
#: the decimal point of the format.
_NOTATIONS = [
    (".", ""), (",", ""), ("", ","), (",", "."), *product(("", ","), " '_\u00a0\u202f"),
]  # fmt: skip

#: A number in any notation.
_NUMBER = re.compile(
    r"[+-]?(\d{1,3}([,. '_\u00a0\u202f]\d{3})+|\d*)([.,]\d*)?([eE][+-]?\d+)?"
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")

#: Texts that nobody means as a value.
_MARKERS = {
    "?", "-", "--", "---", ".", "*", "\\N", "NULL", "null", "none", "na", "n.a.", "#N/A",
    "missing", "NA", "N/A", "NaN", "None", "<NA>", "nan", "n/a",
}  # fmt: skip

#: Most markers in a column, and lines of units.
_MAX_MARKERS, _MAX_UNITS = 5, 3

#: Lines that are looked at.
LOOKED_AT = 200

#: The number of a line, and its values.
_Row = tuple[int, list[str]]


def layout_options(
    content: bytes, form: CsvDialect, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options by which the lines of a file have values; {} if it is plain.

    Parameters
    ----------
    content : bytes
        The beginning of the file.
    form : CsvDialect
        What it was read with.
    given : mapping
        The options that were given.
    """
    if "encoding" not in given:
        encodings = [of for mark, of in _MARKS.items() if content.startswith(mark)]
        if not encodings and content[1:4:2] == b"\0\0":
            encodings = ["utf-16-le"]
        if encodings:
            return {"encoding": encodings[0]}
    text = form.plain(content, is_first=False, is_whole=False)
    numbered = enumerate(text.decode("utf-8-sig", "replace").splitlines(), 1)
    lines = [(i, line) for i, line in numbered if line.strip()][:LOOKED_AT]
    if not lines:
        return {}
    first, below = lines[0][1], [line.strip() for _, line in lines[1:]]
    if "skip_rows" not in given:
        if first.lstrip('"').startswith("TOA5"):
            return {"skip_rows": [1, 3, 4]}  # of a data logger
        if line := re.match("sep=(.)$", first):
            return {"skip_rows": lines[0][0], "separator": line[1]}  # of Excel
    is_single = below and form.separator not in first and "decimal" not in given
    if is_single and all(map(_DECIMAL_COMMA.fullmatch, below)):
        return {"decimal": ","}
    most, rows, options = (0.0, 0.0), list[_Row](), dict[str, Any]()
    for tried, dialect in _dialects(lines, form, given):
        divided = _divided(lines, dialect)
        evenness = _evenness([values for _, values in divided], dialect.separator)
        if evenness > most:
            most, rows, options = evenness, divided, tried
    if not rows:
        return {}
    options = {k: v for k, v in options.items() if v != getattr(form, k)}
    width = len(rows[-1][1])
    begin = next(i for i, (_, values) in enumerate(rows) if len(values) == width)
    (number, names), *others = rows[begin:]
    # The names may be above, beside rows of another width.
    has_names = not all(map(_is_number, filter(str.strip, names)))
    if begin > 0 and "skip_rows" not in given and has_names:
        options["skip_rows"] = number - 1
    is_headless = looks_like_data(names, [values for _, values in others], form)
    if options and "header" not in given and is_headless:
        options["header"] = False
    return options


def _dialects(
    lines: Sequence[tuple[int, str]], form: CsvDialect, given: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], CsvDialect]]:
    """Yield options that lines may be divided by, and their formats; first as it is."""
    others = {
        "separator": [s for s in _SEPARATORS if s != form.decimal],
        "quote": ["", "'"],
        "comment": [
            c for c in _COMMENTS if any(s.lstrip().startswith(c) for _, s in lines)
        ],
    }
    choices: list[list[Any]] = [
        [getattr(form, key), *(() if key in given else values)]
        for key, values in others.items()
    ]
    for choice in product(*choices):
        options: dict[str, Any] = dict(zip(others, choice, strict=True))
        separator = options["separator"]
        # Two of them in each line are a separator of their own, which nothing reads.
        if separator == " " or not all(separator * 2 in line for _, line in lines):
            strips_spaces = separator == " " or form.strips_spaces
            # The lines are decoded already.
            plain = replace(form, strips_spaces=strips_spaces, encoding="utf-8")
            yield options, replace(plain, **options)


def _divided(lines: Sequence[tuple[int, str]], form: CsvDialect) -> list[_Row]:
    """Return the values of lines, without comments."""
    rows = list[_Row]()
    for number, line in lines:
        if not (form.comment and line.lstrip().startswith(form.comment)):
            text = form.plain(line.encode(), is_first=False).decode()
            rows.append((number, next(form.reader([text]), [])))
    return rows


def _evenness(rows: list[list[str]], separator: str) -> tuple[float, float]:
    """Return the share of lines that have as many values as the last, if it has numbers.

    And the share of numbers in the last one, if it was divided by a likely separator.
    """
    width = len(rows[-1]) if rows else 0
    numbers = [_is_number(value) for value in rows[-1]] if width > 1 else []
    # The last of all lines are rows, where lines of a title or of names come first.
    if not any(numbers) or any(len(row) != width for row in rows[len(rows) // 2 :]):
        return 0.0, 0.0
    share = sum(len(row) == width for row in rows) / len(rows)
    return share, sum(numbers) / width if separator in _LIKELY else 0.0


def _is_number(value: str) -> bool:
    is_matched = _NUMBER.fullmatch(value.strip()) is not None
    return is_matched and any(map(str.isdigit, value))


def looks_like_data(
    names: Sequence[str], rows: Sequence[Sequence[str]], form: CsvDialect
) -> bool:
    """Return whether column names look like a row: with numbers where rows have numbers.

    Not so those that count, such as 0, 1, 2 or 2024, 2025.
    """
    numbers: list[float] = []
    for i, name in enumerate(names):
        number = form.number(name)
        below = [row[i] for row in rows if i < len(row) and row[i].strip()]
        n_numbers = sum(form.number(value) is not None for value in below)
        if number is not None and number == number and n_numbers * 2 >= len(below) > 0:
            numbers.append(number)
    if not numbers:
        return False
    is_counter = numbers == [numbers[0] + i for i in range(len(numbers))]
    return not (is_counter and (len(numbers) > 1 or numbers[0] == 0))


def value_options(
    values: Sequence[str], form: CsvDialect, n_before: int = 0
) -> dict[str, Any]:
    """Return the options by which the text of a column is numbers; {} if it is text.

    Parameters
    ----------
    values : sequence of str
        "" where there is nothing.
    form : CsvDialect
        What they were read with.
    n_before : int, default=0
        Lines before the first one.
    """
    present = [(i, value) for i, value in enumerate(values) if value != ""]
    notations = [(form.decimal, form.thousands)]
    if not form.thousands:
        notations += sorted(
            ((decimal or form.decimal, thousands) for decimal, thousands in _NOTATIONS),
            key=lambda notation: notation[0] == form.separator,
        )
    elif form.decimal == ",":
        notations.append((".", form.thousands))
    others = {
        (decimal, thousands): _others(
            present, replace(form, decimal=decimal, thousands=thousands)
        )
        for decimal, thousands in notations
        if decimal != thousands
    }
    best = min(others, key=lambda notation: len(others[notation]))
    left, notation = others[best], dict(zip(("decimal", "thousands"), best, strict=True))
    options: dict[str, Any] = {k: v for k, v in notation.items() if v != getattr(form, k)}
    if not left:
        return options
    markers = list(dict.fromkeys(value for _, value in left))
    n_numbers, is_known = len(present) - len(left), {m.strip() for m in markers} <= _MARKERS
    places = [i for i, _ in left]
    is_above = places == [*range(len(places))] and len(places) <= _MAX_UNITS
    if is_above and not is_known and n_numbers >= 4 * len(places):  # a line of units
        skipped = [n_before + 1 + i for i in places]
        return options | {"skip_rows": [*form.skipped, *skipped]}
    is_rare = n_numbers >= 20 * len(left) and len({value for _, value in present}) > 20
    is_likely = (is_known or is_rare) and (n_numbers > 0 or len(left) == 1)
    if len(markers) > _MAX_MARKERS or not is_likely:
        return {}
    return options | {"na_values": [*form.na_values, *markers]}


def _others(values: Sequence[tuple[int, str]], form: CsvDialect) -> list[tuple[int, str]]:
    """Return the texts that are neither a number nor a marker of a missing one."""
    return [
        (i, value)
        for i, value in values
        if form.number(value) is None and value not in form.na_values
    ]


def remedy(options: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> str:
    """Return how to give options on the command line, and in Python beside those given.

    Examples
    --------
    >>> remedy({"decimal": ","})
    '--csv decimal=, (csv={"decimal": ","})'
    """
    text = json.dumps({**(given or {}), **options}, ensure_ascii=False)
    text = text.replace(": true", ": True").replace(": false", ": False")
    return f"{' '.join(map(_csv_option, options.items()))} (csv={text})"


def _csv_option(item: tuple[str, Any]) -> str:
    key, value = item
    if key in ("names", "na_values"):
        value = join_names(value)
    elif not isinstance(value, str):
        value = json.dumps(value)
    return "--csv " + shlex.quote(
        f"{key}={ {' ': 'space', chr(9): 'tab'}.get(value, value) }"
    )


def comment_option(value: str, form: CsvDialect) -> dict[str, Any]:
    """Return the option that reads lines which begin like this as comments, if they may."""
    found = [sign for sign in _COMMENTS if value.lstrip().startswith(sign)]
    return {"comment": found[0]} if found and not form.comment else {}

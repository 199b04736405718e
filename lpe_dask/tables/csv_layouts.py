"""Say how the lines of a CSV file are divided into values, and which are no rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.csv_values import Hint, has_decimal_comma, is_numeric

#: The number of a line, the line, and its values; these for a format.
_Line = tuple[int, str, list[str]]
_Divided = tuple[CsvFormat, list[_Line]]

#: With which lines of comments begin.
_COMMENTS = ("#", "%", "//", "--")

#: Separators that files are tried with, the likely ones first.
_LIKELY = (",", ";", "\t", "|")
_SEPARATORS = (*_LIKELY, " ", "^", "~", ":", "\x01", "\x1f", "!", "&", "/")

#: Lines that are looked at.
LOOKED_AT = 200


def layout_hint(lines: Sequence[str], form: CsvFormat, given: Mapping[str, Any]) -> Hint:
    """Return what the lines at the beginning of a file look like; {} if like no other.

    Parameters
    ----------
    lines : sequence of str
        As they are in the file.
    form : CsvFormat
        What they were read with.
    given : mapping
        The options that were given.
    """
    numbered = [(i, s) for i, s in enumerate(lines, 1) if s.strip()][:LOOKED_AT]
    if not numbered:
        return "", {}
    if "skip_rows" not in given and numbered[0][1].lstrip('"').startswith("TOA5"):
        return "it begins like a file of a data logger (TOA5)", {"skip_rows": [1, 3, 4]}
    if "skip_rows" not in given and (sep := re.match("sep=(.)$", numbered[0][1])):
        return "its first line names the separator", {
            "skip_rows": numbered[0][0],
            "separator": sep[1],
        }
    (_, head), *below = numbered
    is_single = bool(below) and form.separator not in head and "decimal" not in given
    if is_single and all(has_decimal_comma(line.strip()) for _, line in below):
        return "it looks like a column of numbers with a decimal comma", {"decimal": ","}
    options: dict[str, Any] = {}
    found, divided = _divided(numbered, form, given)
    if found.separator != form.separator or found.is_spaced != form.is_spaced:
        options["separator"] = found.separator
    if found.quote != form.quote:
        options["quote"] = found.quote
    if found.comment != form.comment:
        options["comment"] = found.comment
    if found.comment:
        divided = [d for d in divided if not d[1].lstrip().startswith(found.comment)]
    most = Counter(len(values) for _, _, values in divided).most_common(1)
    if not most or most[0][0] < 2:
        return "", {}
    begin = next(i for i, d in enumerate(divided) if len(d[2]) == most[0][0])
    if begin > 0 and "skip_rows" not in given:
        above = {
            next(iter(comment_of(line).values()), "") for _, line, _ in divided[:begin]
        }
        if len(above) == 1 and "" not in above and "comment" not in given:
            options["comment"] = above.pop()
        else:
            options["skip_rows"] = divided[begin][0] - 1
    if not options:
        return "", {}
    first, rows = divided[begin][2], [values for _, _, values in divided[begin + 1 :]]
    if "skip_rows" in options and all(
        is_numeric(v, form) for v in filter(str.strip, first)
    ):
        return "", {}  # the names may be above, beside rows of another width
    if "header" not in given and not form.names and is_row(first, rows, form):
        options["header"] = False
    return _what(options), options


def _divided(
    lines: list[tuple[int, str]], form: CsvFormat, given: Mapping[str, Any]
) -> _Divided:
    """Return the format that divides lines into equally many values, and these."""
    separators = [form.separator]
    if "separator" not in given:
        separators += [s for s in _SEPARATORS if s not in (form.separator, form.decimal)]
    # Two of them in each line are a separator of their own, which nothing reads.
    separators = [
        s for s in separators if s == " " or not all(s * 2 in x for _, x in lines)
    ]
    quotes = [form.quote] if "quote" in given else [form.quote, "", "'"]
    comments = [form.comment]
    if not form.comment and "comment" not in given:
        comments += [
            c for c in _COMMENTS if any(s.lstrip().startswith(c) for _, s in lines)
        ]
    best: _Divided = (form, _values(lines, form))
    most = (0.0, 0.0)
    for separator, quote, comment in product(separators, quotes, comments):
        tried = replace(
            form, separator=separator, quote=quote, comment=comment,
            is_spaced=separator == " " or (separator == form.separator and form.is_spaced),
        )  # fmt: skip
        divided = _values(lines, tried)
        evenness = _evenness(divided, form, is_likely=separator in _LIKELY)
        if evenness > most:
            best, most = (tried, divided), evenness
    return best


def _values(lines: list[tuple[int, str]], form: CsvFormat) -> list[_Line]:
    """Return the values of each line, without comments."""
    found: list[_Line] = []
    for number, line in lines:
        if form.comment and line.lstrip().startswith(form.comment):
            continue
        if form.is_spaced and form.separator == " ":
            (line,) = form.utf8(line.encode("utf-8", "replace")).decode().splitlines() or [
                ""
            ]
        found.append((number, line, next(form.reader([line]), [])))
    return found


def _evenness(
    divided: list[_Line], form: CsvFormat, *, is_likely: bool
) -> tuple[float, float]:
    """Return the share of lines that have as many values as most, if these have numbers.

    And the share of numbers in the last one, if it was divided by a likely separator.
    """
    counts = Counter(len(values) for _, _, values in divided)
    n_values, n_lines = counts.most_common(1)[0] if counts else (0, 0)
    rows = [values for _, _, values in divided if len(values) == n_values]
    last = rows[-1] if rows else []
    n_numbers = sum(is_numeric(value, form) for value in last)
    if n_values < 2 or n_numbers == 0:
        return 0.0, 0.0
    # The last of all lines are rows, where lines of a title or of names come first.
    tail = divided[len(divided) // 2 :]
    if any(len(values) != n_values for _, _, values in tail):
        return 0.0, 0.0
    return n_lines / len(divided), n_numbers / n_values if is_likely else 0.0


def _what(options: Mapping[str, Any]) -> str:
    parts = {
        "separator": lambda s: f"values divided by {_name(s)}",
        "quote": lambda s: f"quotes {s}" if s else "no quotes",
        "comment": lambda s: f"comments after {s}",
        "skip_rows": lambda n: f"{n} line{'s' if n > 1 else ''} above the column names",
        "header": lambda _: "no column names",
    }
    said = [parts[key](value) for key, value in options.items()]
    return f"it looks like a file with {' and '.join(said)}"


def _name(separator: str) -> str:
    return {" ": "spaces", "\t": "tabs"}.get(separator, repr(separator))


def is_row(names: Sequence[str], rows: Sequence[Sequence[str]], form: CsvFormat) -> bool:
    """Return whether column names look like a row: with numbers where rows have numbers.

    Not so those that count, such as 0, 1, 2 or 2024, 2025.
    """
    found: list[float] = []
    for i, name in enumerate(names):
        number = form.number(name)
        below = [row[i] for row in rows[:LOOKED_AT] if i < len(row) and row[i].strip()]
        n_numbers = sum(form.number(value) is not None for value in below)
        if (
            number is not None
            and number == number
            and below
            and n_numbers * 2 >= len(below)
        ):
            found.append(number)
    if not found:
        return False
    counted = [found[0] + i for i in range(len(found))]
    is_counter = found == counted and found[0] == int(found[0])
    return not (is_counter and (len(found) > 1 or found[0] == 0))


def comment_of(value: str) -> dict[str, Any]:
    """Return the option that reads lines which begin like this as comments, if they may."""
    found = [sign for sign in _COMMENTS if value.lstrip().startswith(sign)]
    return {"comment": found[0]} if found else {}

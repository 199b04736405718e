"""Say what a CSV file looks like that is to be read otherwise, and the option for it.

Nothing is read otherwise than it was asked for: a guess ends in an error that names the
option, never in numbers.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice, product
from typing import Any

import pyarrow as pa

from lpe_dask.tables.column_names import as_option, join_names
from lpe_dask.tables.csv_format import CsvFormat
from lpe_dask.tables.errors import TableError

logger = logging.getLogger(__name__)

#: What something looks like, and the options that read it so.
Hint = tuple[str, dict[str, Any]]

#: The number of a line, the line, and its values; these for a format.
_Line = tuple[int, str, list[str]]
_Divided = tuple[CsvFormat, list[_Line]]

#: Texts that nobody means as a value, and with which lines of comments begin.
_MARKERS = {
    "?", "-", "--", "---", ".", "*", "\\N", "NULL", "null", "none", "na", "n.a.", "#N/A",
    "missing", "NA", "N/A", "NaN", "None", "<NA>", "nan", "n/a",
}  # fmt: skip
_COMMENTS = ("#", "%", "//", "--")

#: Separators that files are tried with, the likely ones first.
_LIKELY = (",", ";", "\t", "|")
_SEPARATORS = (*_LIKELY, " ", "^", "~", ":", "\x01", "\x1f", "!", "&", "/")

#: Other texts than numbers in a column of numbers, at most; lines that are looked at.
_FEW, _LOOKED_AT = 5, 200

#: How text in other encodings begins; that of UTF-32 begins like UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip

#: Lines that may stand between names and rows.
_UNIT_LINES = 3

_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_GROUPS = re.compile(
    r"[+-]?\d{1,3}(?:(?P<group>[,. '\u00a0\u202f_])\d{3})+(?P<rest>[.,]\d*)?"
)


@dataclass(frozen=True, slots=True)
class Looks:
    """What the beginning of a file looks like.

    Attributes
    ----------
    name : str
    content : bytes
        As it is in the file.
    form : CsvFormat
        What it was read with.
    given : mapping
        The options that were given.
    names : list of str
        Of the columns.
    n_before : int
        Lines before the rows.
    rows : bytes
        In UTF-8.
    """

    name: str
    content: bytes
    form: CsvFormat
    given: Mapping[str, Any]
    names: Sequence[str] = ()
    n_before: int = 0
    rows: bytes = b""

    def layout(self) -> str:
        """Return an error that says how the file looks, and how to read it; "" if plain."""
        what, options = self._layout()
        return f"{self.name}: {what}: {remedy(options, self.given)}." if options else ""

    def check(
        self, schema: pa.Schema, measured: Sequence[str], named: Sequence[str] | None
    ) -> None:
        """Raise TableError if the file looks like one that is to be read otherwise.

        Parameters
        ----------
        schema : pyarrow.Schema
            Of all columns, as they look.
        measured : sequence of str
            The columns that will be measured, but for those of text.
        named : sequence of str, optional
            The columns that a user or a model named; None: all are measured.
        """
        lines = StringIO(self.rows.decode("utf-8", "replace"), newline="")
        reader = self.form.reader(lines)
        rows = list(islice(filter(None, reader), _LOOKED_AT))
        missing = [name for name in measured if name not in schema.names]
        is_named = named is not None and not missing
        is_decided = "header" in self.given or "names" in self.given or is_named
        if not is_decided and is_row(self.names, rows, self.form):
            if "separator" in self._layout()[1]:
                raise TableError(self.layout())
            raise TableError(
                f"{self.name}: the column names look like a row: "
                f"{', '.join(self.names[:5])}. If they are one: "
                f"{remedy({'header': False}, self.given)}; if not: --csv header=true."
            )
        texts = [n for n in measured if n not in missing and _is_text(schema.field(n).type)]
        if (missing or texts) and (layout := self.layout()):
            raise TableError(layout)
        if named is None and any(name.startswith(" ") for name in self.names):
            logger.warning(
                "%s: column names begin with spaces, as values may; to leave these out: %s",
                self.name, remedy({"separator": f"{self.form.separator} "}, self.given),
            )  # fmt: skip
        found = {}
        for name in texts:
            place = self.names.index(name)
            values = [row[place] for row in rows]
            found[name] = column_hint(values, self.form, self.n_before + 1)
        found = {name: hint for name, hint in found.items() if hint[1]}
        if not found:
            return
        first = next((n for n in found if "skip_rows" in found[n][1]), next(iter(found)))
        what, options = found[first]
        if "skip_rows" not in options:  # of units, which are no markers
            markers = [m for _, o in found.values() for m in o.get("na_values", ())]
            options = {k: v for _, o in reversed(found.values()) for k, v in o.items()}
            if markers:
                known = self.given.get("na_values", ())
                options["na_values"] = list(dict.fromkeys([*known, *markers]))
        raise TableError(
            f"{self.name}: column {first!r} {what}: {remedy(options, self.given)}. If it "
            f"is text, name it: {as_option('--categorical', [first])}."
        )

    def _layout(self) -> Hint:
        if "encoding" not in self.given:
            found = [of for mark, of in _MARKS.items() if self.content.startswith(mark)]
            if not found and self.content[1:4:2] == b"\0\0":
                found = ["utf-16-le"]
            if found:
                return f"it is text in {found[0].upper()}", {"encoding": found[0]}
        text = self.form.utf8(self.content, is_whole=False).decode("utf-8-sig", "replace")
        return layout_hint(text.splitlines()[:_LOOKED_AT], self.form, self.given)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


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


def hint_at(options: Mapping[str, Any], lead: str) -> str:
    """Return the remedy for an end of a sentence; "" if there is none."""
    return f"{lead}: {remedy(options)}" if options else ""


def comment_of(value: str) -> dict[str, Any]:
    """Return the option that reads lines which begin like this as comments, if they may."""
    found = [sign for sign in _COMMENTS if value.lstrip().startswith(sign)]
    return {"comment": found[0]} if found else {}


# The lines of a file


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
    numbered = [(i, s) for i, s in enumerate(lines, 1) if s.strip()][:_LOOKED_AT]
    if not numbered:
        return "", {}
    if "skip_rows" not in given and numbered[0][1].lstrip('"').startswith("TOA5"):
        return "it begins like a file of a data logger (TOA5)", {"skip_rows": [1, 3, 4]}
    if "skip_rows" not in given and (sep := re.match("sep=(.)$", numbered[0][1])):
        return "its first line names the separator", {
            "skip_rows": numbered[0][0],
            "separator": sep[1],
        }
    is_single = not any(form.separator in line for _, line in numbered[:1])
    if is_single and all(_COMMA.fullmatch(line.strip()) for _, line in numbered[1:]):
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
    head, rows = divided[begin][2], [values for _, _, values in divided[begin + 1 :]]
    if "skip_rows" in options and all(
        _is_numeric(v, form) for v in filter(str.strip, head)
    ):
        return "", {}  # the names may be above, beside rows of another width
    if "header" not in given and not form.names and is_row(head, rows, form):
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
    n_numbers = sum(_is_numeric(value, form) for value in last)
    if n_values < 2 or n_numbers == 0:
        return 0.0, 0.0
    # The last of all lines are rows, where lines of a title or of names come first.
    tail = divided[len(divided) // 2 :]
    if any(len(values) != n_values for _, _, values in tail):
        return 0.0, 0.0
    return n_lines / len(divided), n_numbers / n_values if is_likely else 0.0


def _is_numeric(value: str, form: CsvFormat) -> bool:
    value = value.strip().strip("'\"")
    return form.number(value) is not None or bool(
        _COMMA.fullmatch(value) or _GROUPS.fullmatch(value)
    )


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
    numbers = [(i, form.number(name)) for i, name in enumerate(names)]
    found = [
        number
        for i, number in numbers
        if number is not None
        and number == number
        and (
            below := [
                row[i] for row in rows[:_LOOKED_AT] if i < len(row) and row[i].strip()
            ]
        )
        and sum(form.number(v) is not None for v in below) * 2 >= len(below)
    ]
    if not found:
        return False
    counted = [found[0] + i for i in range(len(found))]
    is_counter = found == counted and found[0] == int(found[0])
    return not (is_counter and (len(found) > 1 or found[0] == 0))


# The values of a column


def column_hint(values: Sequence[str], form: CsvFormat, first_line: int) -> Hint:
    """Return what the text of a column looks like, if most of it is numbers; else {}.

    Parameters
    ----------
    values : sequence of str
        Without empty ones, which are "".
    form : CsvFormat
    first_line : int
        The line of the first one.
    """
    present = [(i, v) for i, v in enumerate(values) if v != ""]
    others = [(i, v) for i, v in present if not _reads(v, form)]
    if not others:
        return "", {}
    quoted = [v for _, v in others if len(v) > 1 and v[0] == v[-1] == "'"]
    if len(quoted) == len(others) and all(_reads(v[1:-1], form) for v in quoted):
        return _said("numbers in quotes", quoted[0]), {"quote": "'"}
    plain = replace(form, decimal=".")
    if form.decimal == "," and all(_reads(v, plain) for _, v in present):
        return _said("numbers with a decimal point", others[0][1]), {"decimal": "."}
    written = [v for _, v in others if _is_written(v, form)]
    what, options = _as_written(written, [v for _, v in present], form)
    written = written if options else []
    markers = list(dict.fromkeys(v.strip() for _, v in others if v not in written))
    n_numbers = len(present) - len(others) + len(written)
    if not markers:
        return what, options
    is_known = set(markers) <= _MARKERS
    rows = [i for i, v in others if v not in written]
    is_above = rows == list(range(len(rows))) and len(rows) <= _UNIT_LINES
    if is_above and not is_known and n_numbers >= 4 * len(rows):
        number = [*range(first_line, first_line + len(rows))]
        return (
            _said("numbers below a line of units or the like", values[rows[0]]),
            options | {"skip_rows": [*form.skipped, *number]},
        )
    n_others = len(present) - n_numbers
    is_rare = n_numbers >= 20 * n_others and len({v for _, v in present}) > 20
    if len(markers) > _FEW or n_numbers == 0 or not (is_known or is_rare):
        return "", {}
    marked = f"{n_others} of {len(values)} values are {' or '.join(map(repr, markers))}"
    what = f"{what}; {marked}" if what else f"looks like numbers, but {marked}"
    return what, options | {"na_values": markers}


def _reads(value: str, form: CsvFormat) -> bool:
    """Return whether a value is a number, or missing as it is written."""
    is_marked = value.strip() in {v.strip() for v in form.na_values}
    return form.number(value) is not None or is_marked


def _is_written(value: str, form: CsvFormat) -> bool:
    """Return whether a value may be a number that is written otherwise."""
    is_number = _COMMA.fullmatch(value) or _GROUPS.fullmatch(value)
    return bool(is_number) and form.thousands != ","


def _as_written(written: list[str], present: list[str], form: CsvFormat) -> Hint:
    """Return how numbers are written that are no numbers yet."""
    if not written:
        return "", {}
    matches = [_GROUPS.fullmatch(v) for v in written]
    groups = {m["group"] for m in matches if m}
    rests = {m["rest"][0] for m in matches if m and m["rest"]}
    has_points = any("." in v for v in present)
    if all(matches) and len(groups) == 1:
        (group,) = groups
        if "," in rests and group != ",":
            said = _said("numbers with thousands and a decimal comma", written[0])
            return said, {"decimal": ",", "thousands": group}
        certain = has_points or any(v.count(group) > 1 for v in written) or group != ","
        if certain or (form.separator == "," and form.decimal == "."):
            return _said("numbers with thousands", written[0]), {"thousands": group}
        said = _said("numbers with a decimal comma (or thousands=,)", written[0])
        return said, {"decimal": ","}
    if all(map(_COMMA.fullmatch, written)) and not has_points:
        return _said("numbers with a decimal comma", written[0]), {"decimal": ","}
    grouped = [v for v in written if "." in v or " " in v]
    if grouped and not any(v.count(",") > 1 for v in written):
        group = "." if any("." in v for v in grouped) else " "
        said = _said("numbers with thousands and a decimal comma", grouped[0])
        return said, {"decimal": ",", "thousands": group}
    return "", {}


def _said(what: str, example: str) -> str:
    return f"looks like {what}, such as {example!r}"


def value_hint(value: str, form: CsvFormat) -> dict[str, Any]:
    """Return the option that may read a value that is no number; {} if none is likely."""
    if _is_written(value, form):
        return _as_written([value], [value], form)[1]
    if value.strip() in _MARKERS:
        return {"na_values": [value.strip()]}
    return {}

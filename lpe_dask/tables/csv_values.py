"""Say how the values of a CSV column are written that are no numbers yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lpe_dask.tables.csv_format import CsvFormat

#: What something looks like, and the options that read it so.
Hint = tuple[str, dict[str, Any]]

#: Texts that nobody means as a value.
_MARKERS = {
    "?", "-", "--", "---", ".", "*", "\\N", "NULL", "null", "none", "na", "n.a.", "#N/A",
    "missing", "NA", "N/A", "NaN", "None", "<NA>", "nan", "n/a",
}  # fmt: skip

#: Other texts than numbers in a column of numbers, at most.
_FEW = 5

#: Lines that may stand between names and rows.
_UNIT_LINES = 3

_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_GROUPS = re.compile(
    r"[+-]?\d{1,3}(?:(?P<group>[,. '\u00a0\u202f_])\d{3})+(?P<rest>[.,]\d*)?"
)


def is_numeric(value: str, form: CsvFormat) -> bool:
    """Return whether a value is a number, perhaps written otherwise, or in quotes."""
    value = value.strip().strip("'\"")
    return form.number(value) is not None or bool(
        _COMMA.fullmatch(value) or _GROUPS.fullmatch(value)
    )


def has_decimal_comma(value: str) -> bool:
    """Return whether a value is a number with a decimal comma."""
    return _COMMA.fullmatch(value) is not None


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
        return _looks_like("numbers in quotes", quoted[0]), {"quote": "'"}
    plain = replace(form, decimal=".")
    if form.decimal == "," and all(_reads(v, plain) for _, v in present):
        return _looks_like("numbers with a decimal point", others[0][1]), {"decimal": "."}
    written = [v for _, v in others if _is_other_notation(v, form)]
    what, options = _notation_hint(written, [v for _, v in present], form)
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
            _looks_like("numbers below a line of units or the like", values[rows[0]]),
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


def _is_other_notation(value: str, form: CsvFormat) -> bool:
    """Return whether a value may be a number that is written otherwise."""
    is_number = _COMMA.fullmatch(value) or _GROUPS.fullmatch(value)
    return bool(is_number) and form.thousands != ","


def _notation_hint(written: list[str], present: list[str], form: CsvFormat) -> Hint:
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
            said = _looks_like("numbers with thousands and a decimal comma", written[0])
            return said, {"decimal": ",", "thousands": group}
        certain = has_points or any(v.count(group) > 1 for v in written) or group != ","
        if certain or (form.separator == "," and form.decimal == "."):
            return _looks_like("numbers with thousands", written[0]), {"thousands": group}
        said = _looks_like("numbers with a decimal comma (or thousands=,)", written[0])
        return said, {"decimal": ","}
    if all(map(_COMMA.fullmatch, written)) and not has_points:
        return _looks_like("numbers with a decimal comma", written[0]), {"decimal": ","}
    grouped = [v for v in written if "." in v or " " in v]
    if grouped and not any(v.count(",") > 1 for v in written):
        group = "." if any("." in v for v in grouped) else " "
        said = _looks_like("numbers with thousands and a decimal comma", grouped[0])
        return said, {"decimal": ",", "thousands": group}
    return "", {}


def _looks_like(what: str, example: str) -> str:
    return f"looks like {what}, such as {example!r}"


def value_hint(value: str, form: CsvFormat) -> dict[str, Any]:
    """Return the option that may read a value that is no number; {} if none is likely."""
    if _is_other_notation(value, form):
        return _notation_hint([value], [value], form)[1]
    if value.strip() in _MARKERS:
        return {"na_values": [value.strip()]}
    return {}

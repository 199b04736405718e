"""Render templates: how numbers and names are written, and the one style of all pages."""

from __future__ import annotations

import math
import re
from datetime import datetime
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

#: Bytes that a name, and a value, may take on a page.
NAME_BYTES, VALUE_BYTES = 60, 40

#: Seconds and bytes of larger units.
_SECONDS = ((86_400, "days"), (3600, "hours"), (60, "minutes"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

#: What parts words and thousands, but no decimals, where a line may end after it.
_PARTS = re.compile(r"([a-zA-Z0-9]{2}([_/:]|\.(?=[a-zA-Z]))|\d,)(?=\w{2})")

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

#: The least number that is not written with all its digits.
_WHOLE = 10**15

#: Items of a list that are written, and how many lists deep.
_N_ITEMS, _DEPTH = 5, 3


def render(template: str, **content: Any) -> str:
    """Return a template of this package, filled in."""
    return _environment().get_template(template).render(content)


def written(value: Any, form: str = "plain") -> str:
    """Return a value as a page has it.

    Parameters
    ----------
    value : object
        Of JSON.
    form : {"plain", "count", "percent", "level", "seconds", "bytes", "value"}
        Of numbers; "value": of a table, without separators, as they may be ids.

    Examples
    --------
    >>> written(1234567, "count"), written(0.0123, "percent"), written(150, "seconds")
    ('1,234,567', '1.23 %', '2.5 minutes')
    >>> written(None), written(True), written(3 * 2**30, "bytes")
    ('none', 'yes', '3.0 GiB')
    >>> written(None, "value")
    'missing'
    >>> written(1234567, "value"), written(True, "value"), written(0.25, "value")
    ('1234567', 'True', '0.25')
    """
    if value is None:
        return "missing" if form == "value" else "none"
    if form == "value" and isinstance(value, int | float):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return _listed(value) if isinstance(value, list | dict) else str(value)
    if not is_number(value):
        return "too large" if isinstance(value, int) else str(value)
    if abs(value) >= _WHOLE:
        return f"{value:.4g}"
    if form == "percent":
        return f"{value:.2%}".replace("%", " %")
    if form == "level":
        return f"{100 * value:.6g} %"
    if form == "seconds":
        return _in_units(value, _SECONDS, 2, "s")
    if form == "bytes":
        return _in_units(value, _BYTES, 1, "bytes")
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # of a whole number
        return False


def cut(text: Any, most: int = NAME_BYTES) -> str:
    """Return a text on one line, so short that it takes up to so many bytes on a page.

    Signs that change the direction of what follows are left out.

    Examples
    --------
    >>> cut("bytes of the request", 12), cut("a & b"), cut("a & b", 7)
    ('bytes of…', 'a & b', 'a…')
    """
    line = _line(text)
    if _page_bytes(line) <= most:
        return line
    return _beginning(line, most).rstrip() + _ELLIPSIS


def place(url: Any, most: int = NAME_BYTES) -> str:
    """Return where something is, without the scheme of local files; its end matters most.

    Examples
    --------
    >>> place("file:///data/out/2026-11-24"), place("s3://bucket/out/2026-11-24", 18)
    ('/data/out/2026-11-24', '…/out/2026-11-24')
    """
    line = _line(url).removeprefix("file://")
    if _page_bytes(line) <= most:
        return line
    end = _beginning(line[::-1], most)[::-1]
    _, slash, names = end.partition("/")
    return f"{_ELLIPSIS}/{names}" if slash and names else _ELLIPSIS + end


def parted(name: Any, most: int = NAME_BYTES) -> Markup:
    """Return a name, of up to so many bytes, that lines may end in between its words.

    Examples
    --------
    >>> parted("dst_host-rate")
    Markup('dst_<wbr>host-rate')
    """
    return Markup(_PARTS.sub(r"\g<0><wbr>", str(escape(cut(name, most)))))


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def moment(text: Any) -> str:
    """Return the time of ISO 8601 as people write it; other text as it is.

    Examples
    --------
    >>> moment("2026-11-25T12:34:19+00:00"), moment("last night")
    ('25 November 2026, 12:34 UTC', 'last night')
    """
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return cut(text)
    return f"{time.day} {time:%B %Y, %H:%M %Z}".rstrip()


def _line(text: Any) -> str:
    """Return a text on one line, of signs that can be seen and written."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return " ".join(line.split())


def _beginning(line: str, most: int) -> str:
    """Return the part of a line that fits beside an ellipsis."""
    sizes = map(_page_bytes, line[:most])
    n_kept = sum(
        size <= most for size in accumulate(sizes, initial=len(_ELLIPSIS.encode()))
    )
    return line[: max(0, n_kept - 1)]


def _page_bytes(text: str) -> int:
    return len(escape(text).encode())


def _listed(value: Any, depth: int = 1) -> str:
    """Return the beginning of a list, or of a mapping."""

    def item(of: Any) -> str:
        if isinstance(of, list | dict):
            return _listed(of, depth + 1) if depth < _DEPTH else _ELLIPSIS
        return written(of)

    if isinstance(value, dict):
        few = [f"{name}: {item(of)}" for name, of in list(value.items())[:_N_ITEMS]]
    else:
        few = [item(of) for of in value[:_N_ITEMS]]
    more = f" and {len(value) - _N_ITEMS:,} more" if len(value) > _N_ITEMS else ""
    return ", ".join(few) + more


def _in_units(value: float, units: Any, least: float, name: str) -> str:
    for size, unit in units:
        if value >= least * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f} {name}" if value >= 100 else f"{value:.3g} {name}"


def style() -> Markup:
    """Return the style sheet of all pages."""
    return Markup(files("lpe_dask.pages").joinpath("style.css").read_text("utf-8"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lpe_dask.pages", "."), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "written": written, "cut": cut, "place": place, "parted": parted, "moment": moment,
        "sentence": sentence,
    }  # fmt: skip
    environment.globals["value_bytes"] = VALUE_BYTES
    return environment

"""Render templates: how numbers and names are written, and the one style of all pages."""

from __future__ import annotations

import html
import math
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

#: Bytes that a name, and a value, may take on a page.
NAME_BYTES, VALUE_BYTES = 60, 40

#: Seconds and bytes of larger units.
_SECONDS = ((86_400, "days"), (3600, "hours"), (60, "minutes"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def render(template: str, **content: Any) -> str:
    """Return a template of this package, filled in."""
    return _environment().get_template(template).render(content)


def written(value: Any, form: str = "plain") -> str:
    """Return a value as a page has it.

    Parameters
    ----------
    value : object
        Of JSON.
    form : {"plain", "count", "percent", "seconds", "bytes"}
        Of numbers.

    Examples
    --------
    >>> written(1234567, "count"), written(0.0123, "percent"), written(90, "seconds")
    ('1,234,567', '1.23 %', '1.5 minutes')
    >>> written(None), written(True), written(3 * 2**30, "bytes")
    ('none', 'yes', '3.0 GiB')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return _listed(value) if isinstance(value, list | dict) else str(value)
    if not math.isfinite(value):
        return str(value)
    if form == "percent":
        return f"{value:.2%}".replace("%", " %")
    if form == "seconds":
        return _in_units(value, _SECONDS, 2, "s")
    if form == "bytes":
        return _in_units(value, _BYTES, 1, "bytes")
    if form == "count" or isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}"


def cut(text: Any, most: int = NAME_BYTES) -> str:
    """Return a text on one line, so short that it takes up to so many bytes on a page.

    Signs that change the direction of what follows are left out.

    Examples
    --------
    >>> cut("bytes of the request", 12), cut("a & b"), cut("a & b", 7)
    ('bytes of…', 'a & b', 'a…')
    """
    line = "".join(c if c.isprintable() else " " for c in str(text))
    line = " ".join(line.encode(errors="replace").decode().split())
    if _page_bytes(line) <= most:
        return line
    n_bytes, kept = _page_bytes(_ELLIPSIS), []
    for character in line:
        n_bytes += _page_bytes(character)
        if n_bytes > most:
            break
        kept.append(character)
    return "".join(kept).rstrip() + _ELLIPSIS


def _page_bytes(text: str) -> int:
    return len(html.escape(text).encode())


def _listed(value: Any) -> str:
    """Return the beginning of a list, or of a mapping."""
    if isinstance(value, dict):
        pairs = [f"{name}: {written(of)}" for name, of in list(value.items())[:5]]
        more = f" and {len(value) - 5:,} more" if len(value) > 5 else ""
        return ", ".join(pairs) + more
    few = ", ".join(written(of) for of in value[:5])
    return few + (f" and {len(value) - 5:,} more" if len(value) > 5 else "")


def _in_units(value: float, units: Any, least: float, name: str) -> str:
    for size, unit in units:
        if value >= least * size:
            return f"{value / size:.1f} {unit}"
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
    environment.filters |= {"written": written, "cut": cut}
    environment.globals["value_bytes"] = VALUE_BYTES
    return environment

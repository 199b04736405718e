"""A small card about an object, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpe_dask.pages.rendering import render, style


def card(title: str, lines: Mapping[str, Any]) -> str:
    """Return a fragment of HTML, in the style of the pages.

    Parameters
    ----------
    title : str
    lines : mapping of str to object
        What to tell; values of JSON.

    Examples
    --------
    >>> "2,000" in card("A model", {"nominal rows": 2000})
    True
    """
    return render("card.html.jinja", title=title, lines=lines, style=style())

"""What JSON files of ours hold besides text: values of other libraries, and versions."""

from __future__ import annotations

import platform
from importlib import metadata
from numbers import Number
from typing import Any


def to_jsonable(value: Any) -> Any:
    """Convert a value that JSON does not know: for ``default=`` of `json.dumps`.

    Examples
    --------
    >>> import json
    >>> from fractions import Fraction
    >>> json.dumps([Fraction(1, 4), print], default=to_jsonable)
    '[0.25, "<built-in function print>"]'
    """
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, list | int | float | str):
        return listed
    return float(listed) if isinstance(listed, Number) else str(listed)  # type: ignore[arg-type]


def package_versions(*names: str) -> dict[str, str]:
    """Return the versions of Python and of these packages, as they are installed."""
    versions = {name: metadata.version(name) for name in names}
    return {"python": platform.python_version()} | versions

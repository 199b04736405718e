"""Names of columns: which are the same, their positions, and their form in JSON.

pandas takes any value as a name. Two names are the same if they are equal to pandas: 1, 1.0
and NumPy's 1 are, but True and 1 are not; NaN is the same as NaN.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
import re
import shlex
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from lpe_dask.storage import printable


def identity(name: Any) -> Hashable:
    """Return a key that is equal for equal column names only."""
    if isinstance(name, tuple):
        return tuple(map(identity, name))
    if isinstance(name, str):
        return name
    if isinstance(name, bool | np.bool_):
        return bool, bool(name)
    import pandas as pd  # not for what takes text alone, such as `lpe-dask --help`

    if pd.api.types.is_scalar(name) and pd.isna(name):
        return "missing", float if isinstance(name, np.floating) else type(name)
    itself: Hashable = name
    return itself


def places_of(names: Iterable[Any]) -> dict[Hashable, list[int]]:
    """Return the positions of names, by their identity."""
    places: dict[Hashable, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(identity(name), []).append(i)
    return places


def check_distinct(names: Iterable[Any]) -> None:
    """Raise ValueError if names occur more than once, with these names."""
    names = list(names)
    twice = [names[places[0]] for places in places_of(names).values() if len(places) > 1]
    if twice:
        raise ValueError(
            f"column names must differ from each other, but {twice} occur more than once "
            f"in {names}. Rename the columns, or give each once."
        )


def as_given(given: Iterable[Any], names: Iterable[Any]) -> list[Any]:
    """Return the column names that a user gave, possibly as text.

    Text that is not a name means the only name with this text, such as "0" for 0, or that
    without the spaces around it; text of none or several names is returned unchanged.

    Examples
    --------
    >>> as_given(["0", "x", "y"], [0, 1, "x"])
    [0, 'x', 'y']
    """
    names = list(names)
    places = places_of(names)
    written = places_of(map(str, names))

    def meant(name: Any) -> Any:
        if not isinstance(name, str) or identity(name) in places:
            return name
        found = written.get(name) or written.get(name.strip(), [])
        return names[found[0]] if len(found) == 1 else name

    return [meant(name) for name in given]


def split_names(text: str) -> list[str]:
    """Return names that were separated by commas, those with commas in quotes as in CSV.

    Examples
    --------
    >>> split_names(' x, "a,b",c')
    [' x', 'a,b', 'c']
    """
    text = re.sub(r'(^|,) +"', r'\1"', text)  # a quote is one at the beginning only
    names = next(csv.reader(io.StringIO(text, newline="")), [])
    return [name for name in names if name.strip()]


def join_names(names: Iterable[Any]) -> str:
    """Return names as text that `split_names` reads.

    Examples
    --------
    >>> join_names([" x", "a,b"])
    ' x,"a,b"'
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(list(map(str, names)))
    return line.getvalue()


def as_option(option: str, names: Iterable[Any]) -> str:
    """Return an option of the command line with names, quoted for a shell.

    Examples
    --------
    >>> as_option("--columns", [" L_T1", "x"])
    "--columns ' L_T1,x'"
    """
    return f"{option} {printable(shlex.quote(join_names(names)))}"


def name_to_json(name: Any) -> Any:
    """Return a name in a form that JSON keeps exactly; `name_from_json` returns the name.

    Raises
    ------
    TypeError
        For names other than text, numbers, booleans, None, timestamps, dates, and tuples of
        these.
    """
    if isinstance(name, tuple):
        return {"tuple": [_plain_to_json(part) for part in name]}
    return _plain_to_json(name)


def _plain_to_json(name: Any) -> Any:
    if isinstance(name, np.bool_ | np.integer | np.floating):
        name = name.item()
    if isinstance(name, float) and not math.isfinite(name):
        return {"float": repr(name)}
    if name is None or isinstance(name, str | bool | int | float):
        return name
    if isinstance(name, datetime.datetime):  # pandas' are of this kind, NaT among them
        import pandas as pd

        return {"timestamp": pd.Timestamp(name).isoformat()}
    if isinstance(name, datetime.date):
        return {"date": name.isoformat()}
    raise TypeError(
        f"the column name {name!r} is a {type(name).__name__}, which cannot be saved. "
        f"Names can be text, numbers, booleans, None, timestamps, dates, or tuples of "
        f"these. Rename the columns (frame.columns = ...), and fit again."
    )


def name_from_json(content: Any) -> Any:
    """Return the name that `name_to_json` has converted.

    Raises
    ------
    ValueError
        For any other content.
    """
    match content:
        case {"tuple": list(parts), **others} if not others:
            return tuple(map(_plain_from_json, parts))
    return _plain_from_json(content)


def _plain_from_json(content: Any) -> Any:
    match content:
        case None | bool() | int() | float() | str():
            return content
        case {"float": "nan" | "inf" | "-inf" as text, **others} if not others:
            return float(text)
        case {"timestamp": str(text), **others} if not others:
            import pandas as pd

            return pd.Timestamp(text)
        case {"date": str(text), **others} if not others:
            return datetime.date.fromisoformat(text)
    raise ValueError(f"{str(content)[:80]} is not a column name")

"""Names of columns, which are text or whole numbers: positions, options, and files."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterable
from typing import Any

import numpy as np

from lpe_dask.storage import printable


class GroupColumnError(ValueError):
    """Columns cannot divide rows into groups, as one is not there, or is measured."""


def positions_by_name(names: Iterable[Any]) -> dict[Any, list[int]]:
    """Return the positions of names."""
    places: dict[Any, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i)
    return places


def is_name(name: Any) -> bool:
    """Return whether something can be the name of a column that is measured."""
    return isinstance(name, str | int | np.integer) and not isinstance(name, bool)


def check_names(names: Iterable[Any]) -> None:
    """Raise TypeError for names that are neither text nor whole numbers.

    And ValueError for those that occur more than once.
    """
    names = list(names)
    if odd := [name for name in names if not is_name(name)]:
        raise TypeError(
            f"names of columns must be text or whole numbers, but there are {odd[:3]}. "
            f"Rename them, for example frame.columns = list(map(str, frame.columns))."
        )
    twice = [name for name, places in positions_by_name(names).items() if len(places) > 1]
    if twice:
        raise ValueError(
            f"column names must differ from each other, but {twice} occur more than once "
            f"in {names}. Rename the columns, or give each once."
        )


def resolve_names(given: Iterable[Any], names: Iterable[Any]) -> list[Any]:
    """Return the column names that a user gave, possibly as text.

    Text that is not a name means the only name with this text, such as "0" for 0, or that
    without the spaces around it; text of none or several names is returned unchanged.

    Examples
    --------
    >>> resolve_names(["0", "x", "y"], [0, 1, "x"])
    [0, 'x', 'y']
    """
    names = list(names)
    places = positions_by_name(names)
    written = positions_by_name(map(str, names))

    def meant(name: Any) -> Any:
        if not isinstance(name, str) or name in places:
            return name
        found = written.get(name) or written.get(name.strip(), [])
        return names[found[0]] if len(found) == 1 else name

    return [meant(name) for name in given]


def resolve_by(by: Iterable[Any], names: Iterable[Any]) -> list[Any]:
    """Return the names of the columns that divide rows into groups, as `resolve_names`.

    Raises
    ------
    GroupColumnError
        If one is not there, or can be no name: 1.0 and True are equal to 1.
    """
    by, names = list(by), list(names)
    if odd := [name for name in by if not is_name(name)]:
        raise GroupColumnError(
            f"by={by} names {odd}, but columns are named by text, or by whole numbers such "
            f"as 1. Name some of {names} (by=, --by)."
        )
    chosen = resolve_names(by, names)
    if missing := [name for name in chosen if name not in names]:
        raise GroupColumnError(
            f"by={by} names {missing}, but the columns are {names}. Correct it (by=, --by)."
        )
    return chosen


def with_last(columns: Iterable[Any], by: Iterable[Any]) -> list[Any]:
    """Return columns to measure, and after them those that divide rows into groups.

    Raises
    ------
    GroupColumnError
        If one is named as both.
    """
    columns, by = list(columns), list(by)
    if in_both := [name for name in columns if name in by]:
        raise GroupColumnError(
            f"by={by} and columns={columns} both name {in_both}, but columns that divide "
            f"rows into groups are not measured. Leave them out of one of the two (by=, "
            f"--by; columns=, --columns)."
        )
    return [*columns, *by]


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


def format_option(option: str, names: Iterable[Any]) -> str:
    """Return an option of the command line with names, quoted for a shell.

    Examples
    --------
    >>> format_option("--columns", [" L_T1", "x"])
    "--columns ' L_T1,x'"
    """
    return f"{option} {printable(shlex.quote(join_names(names)))}"

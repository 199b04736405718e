"""Choose the categorical columns of a table by their names and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lpe_dask.tables.column_names import positions_by_name, resolve_names
from lpe_dask.tables.value_types import (
    BOOLEAN,
    FLOAT,
    FRACTIONS,
    IMPRECISE,
    LEVEL_TYPES,
    TEXT,
    column_label,
    kind_of_type,
)

_LEAVE_OUT = (
    "Leave it out (categorical=, --categorical; to measure other columns: columns=, "
    "--columns), or"
)
_CONVERT = "convert it, for example with frame[name].astype(str)."

#: What else to do about some kinds.
_REMEDIES = {
    FRACTIONS: "group its values, for example with pd.cut(frame[name], 10).astype(str).",
    IMPRECISE: "read it as whole numbers or text from the start: floats lose digits.",
}


def possible_places(frame: Any, categorical: str | Sequence[Any]) -> list[int]:
    """Return the positions of columns that are, or may be, categorical, ascending."""
    kinds = list(map(kind_of_type, frame.dtypes))
    if isinstance(categorical, str):
        is_category = [isinstance(of, pd.CategoricalDtype) for of in frame.dtypes]
        may_be = [kind in (None, TEXT, BOOLEAN) for kind in kinds]
        return [i for i in range(len(kinds)) if is_category[i] or may_be[i]]
    names, places = list(frame.columns), positions_by_name(frame.columns)
    given = resolve_names(categorical, names)
    if missing := [name for name in given if name not in places]:
        raise ValueError(
            f"categorical={list(categorical)} names {missing}, but the measured columns "
            f"are {names}. Correct it (categorical=, --categorical)."
        )
    chosen = sorted(places[name][0] for name in given)
    for i in chosen:
        if not may_have_levels(kinds[i]):
            raise not_categorical(column_label(names[i]), str(kinds[i]))
    return chosen


def may_have_levels(kind: str | None) -> bool:
    """Return whether values of a kind can be levels, as far as types show."""
    return kind in (None, FLOAT, *LEVEL_TYPES)


def not_categorical(label: str, found: str) -> TypeError:
    """Return an error about a column that cannot be categorical, by what it has."""
    remedy = next((_REMEDIES[kind] for kind in _REMEDIES if kind in found), _CONVERT)
    return TypeError(
        f"categorical columns must be text, categories, booleans or whole numbers, each of "
        f"one of them, but {label} has {found}. {_LEAVE_OUT} {remedy}"
    )

"""Tell what the values of a column are: text, booleans, whole numbers, or none of these.

Types show it before any task reads values, except of objects and of unknown categories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from lpe_dask.tables.errors import CategoryTypeError

#: What the value of a column can be to be a level.
Level = str | bool | int

#: What values can be, if they can be levels; and floats, which can if all are whole.
TEXT, BOOLEAN, WHOLE, FLOAT = "text", "booleans", "whole numbers", "numbers"

#: What floats are that cannot be levels.
FRACTIONS = "numbers with fractions"
IMPRECISE = "numbers of 2**53 or more, as or beside floats, which are not exact there"

#: Kind -> the type of its levels.
LEVEL_TYPES: dict[str, type] = {TEXT: str, BOOLEAN: bool, WHOLE: int}

#: What a column with levels is called, and what a level is there.
CATEGORY = "categorical column", "category"
GROUP = "column that divides rows into groups", "group"

#: What pandas calls them.
INFERRED = {
    "string": TEXT,
    "boolean": BOOLEAN,
    "integer": WHOLE,
    "floating": FLOAT,
    "mixed-integer-float": FLOAT,
}

#: The only category of a Dask frame whose categories are unknown.
_UNKNOWN = "__UNKNOWN_CATEGORIES__"


def kind_of_type(dtype: Any) -> str | None:
    """Return the type of values of a column with this type; None if only they show it.

    `FLOAT` for floats, which may all be whole. The type itself for others.
    """
    types = pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        categories = dtype.categories
        is_known = categories.dtype != object and list(categories[:1]) != [_UNKNOWN]
        return kind_of_values(categories) or None if is_known else None
    if types.is_object_dtype(dtype):
        return None
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return str(dtype)
    if types.is_bool_dtype(dtype):
        return BOOLEAN
    if types.is_integer_dtype(dtype):
        return WHOLE
    if types.is_float_dtype(dtype) or dtype == "null[pyarrow]":
        return FLOAT
    return TEXT if dtype.kind == "T" or types.is_string_dtype(dtype) else str(dtype)


def kind_of_arrow(type_: pa.DataType) -> str | None:
    """Return the same for a column of Arrow; of categories, what they are."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    return kind_of_type(pd.ArrowDtype(type_))


def kind_of_values(values: Any) -> str:
    """Return the type of values that are not missing; "" if there are none."""
    present = values[~pd.isna(values)] if values.dtype == object else values
    if len(present) == 0:
        return ""
    found = pd.api.types.infer_dtype(present, skipna=True)
    if found.startswith("mixed") and found not in INFERRED:
        found = (
            f"values of the types {', '.join(sorted({type(v).__name__ for v in present}))}"
        )
    return INFERRED.get(found, found)


def kind_of_levels(levels: Sequence[Level]) -> str | None:
    """Return the type of the levels of a column; None if there are none."""
    kinds = {type_: kind for kind, type_ in LEVEL_TYPES.items()}
    return kinds[type(levels[0])] if levels else None


def column_label(name: Any) -> str:
    """Return a column as messages call it, by its name or its position."""
    return f"column {name!r}"


def check_value_types(
    found: Sequence[str | None],
    labels: Sequence[str],
    kinds: Mapping[int, str | None],
    n_by: int = 0,
) -> None:
    """Raise TypeError if columns of these types cannot have levels, naming the column.

    Floats wait for the task that reads them: as pandas reads it, a column without any value
    is one of floats.

    Parameters
    ----------
    found : sequence of str or None
        What all measured columns have, as far as their types show.
    labels : sequence of str
        What to call these.
    kinds : mapping of int to str or None
        What nominal rows have in their categorical columns, by position; None where that is
        not known.
    n_by : int, default=0
        How many of the last columns divide rows into groups.
    """
    for place, kind in kinds.items():
        if place < len(found) and kind is not None and found[place] != FLOAT:
            use = CATEGORY if place < len(found) - n_by else GROUP
            check_kind(found[place], kind, labels[place], use)


def check_kind(
    found: str | None,
    fitted: str,
    label: str,
    use: tuple[str, str] = CATEGORY,
    how: str = "",
) -> None:
    """Raise TypeError if values of a kind cannot be levels of the kind that was fitted.

    Parameters
    ----------
    found, fitted : str or None
    label : str
        What to call the column.
    use : {CATEGORY, GROUP}
    how : str, optional
        How to convert values, if there is more to say.
    """
    if found not in (None, "", fitted):
        column, value = use
        raise CategoryTypeError(
            f"{label} has {found}, but the nominal rows have {fitted} in this {column}, "
            f"and values of different types are never the same {value}. Convert it to "
            f"{fitted}{how}."
        )

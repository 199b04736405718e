"""Tell what the values of a column are: text, booleans, whole numbers, or none of these.

Types tell it before any task reads values, except of objects and of unknown categories.
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
    """Return what the values of a column with this type are; None if they must tell.

    `FLOAT` for floats, which may all be whole. The type itself for others.
    """
    types = pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return _kind_of_categories(dtype)
    if isinstance(dtype, pd.ArrowDtype) and is_dictionary(dtype):
        return None
    if dtype.kind == "T":  # NumPy's text of any length
        return TEXT
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return str(dtype)
    if types.is_object_dtype(dtype):
        return None
    if types.is_bool_dtype(dtype):
        return BOOLEAN
    if types.is_integer_dtype(dtype):
        return WHOLE
    if types.is_float_dtype(dtype) or dtype == "null[pyarrow]":
        return FLOAT
    return TEXT if types.is_string_dtype(dtype) else str(dtype)


def kind_of_arrow(type_: pa.DataType) -> str | None:
    """Return the same for a column of Arrow; of categories, what they are."""
    types = pa.types
    if types.is_dictionary(type_):
        return kind_of_arrow(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_):
        return TEXT
    if types.is_boolean(type_):
        return BOOLEAN
    if types.is_integer(type_):
        return WHOLE
    if types.is_floating(type_):
        return FLOAT
    return None if types.is_null(type_) else str(type_)


def is_category(dtype: Any) -> bool:
    """Return whether columns of this type are categories to pandas."""
    is_arrows = isinstance(dtype, pd.ArrowDtype) and is_dictionary(dtype)
    return is_arrows or isinstance(dtype, pd.CategoricalDtype)


def _kind_of_categories(dtype: pd.CategoricalDtype) -> str | None:
    """Return the kind of known categories; None if they are unknown, or of several."""
    categories = dtype.categories
    if categories.dtype == object or list(categories[:1]) == [_UNKNOWN]:
        return None
    return kind_of_values(categories) or None


def is_dictionary(dtype: pd.ArrowDtype) -> bool:
    """Return whether columns of a type of Arrow are categories."""
    return bool(pa.types.is_dictionary(dtype.pyarrow_dtype))


def kind_of_values(values: Any) -> str:
    """Return what values are, without those that are missing; "" if there are no others."""
    present = values[~pd.isna(values)] if values.dtype == object else values
    if len(present) == 0:
        return ""
    found = pd.api.types.infer_dtype(present, skipna=True)
    if found.startswith("mixed") and found not in INFERRED:
        return (
            f"values of the types {', '.join(sorted({type(v).__name__ for v in present}))}"
        )
    return INFERRED.get(found, found)


def kind_of_levels(levels: Sequence[Level]) -> str | None:
    """Return what the levels of a column are; None if there are none."""
    return next(
        (k for k, t in LEVEL_TYPES.items() if levels and type(levels[0]) is t), None
    )


def label_of(name: Any) -> str:
    """Return what to call a column in a message, by its name or its position."""
    return f"column {name!r}"


def check_kinds(
    found: Sequence[str | None], labels: Sequence[str], kinds: Mapping[int, str | None]
) -> None:
    """Raise TypeError if columns of these types cannot have levels, naming the column.

    Floats wait for the task that reads them: as pandas reads it, a column without any value
    is one of floats.

    Parameters
    ----------
    found : sequence of str or None
        What all measured columns have, as far as their types tell.
    labels : sequence of str
        What to call these.
    kinds : mapping of int to str or None
        What nominal rows have in their categorical columns, by position; None where that is
        not known.
    """
    for place, kind in kinds.items():
        if place < len(found) and kind is not None and found[place] != FLOAT:
            check_kind(found[place], kind, labels[place])


def check_kind(found: str | None, fitted: str, label: str) -> None:
    """Raise TypeError if values of a kind cannot be levels of the kind that was fitted."""
    if found in (None, "", fitted):
        return
    raise CategoryTypeError(
        f"{label} has {found}, but the nominal rows have {fitted} in this categorical "
        f"column, and values of different types are never the same category. Convert it to "
        f"{fitted}."
    )

"""Check that columns are real numbers, and convert a frame of them to one array.

    frame --check_numeric--> or an error that says what to do about columns of other types
    frame --float_rows--> float32 or float64 (n_rows, n_features), with codes of categories

Only numbers are accepted, no dates and no complex numbers; text is in categorical columns
only, of which `categories` gives codes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.column_names import format_option
from lpe_dask.tables.exact_numbers import complex_error, numbers_of
from lpe_dask.tables.value_types import (
    LEVEL_TYPES,
    column_label,
    kind_of_type,
    kind_of_values,
)

#: Whether text in files comes as objects, as dates and lists do, which pandas 3 ended.
_TEXT_IS_OBJECTS = pd.Series(["text"]).dtype == object

#: Rows of a frame that are converted at a time.
CONVERTED_ROWS = 2**14

_NOTHING: Mapping[int, Any] = MappingProxyType({})


def check_numeric(
    frame: pd.DataFrame, but: Collection[int] = (), later: Collection[int] = ()
) -> None:
    """Raise TypeError if ``frame`` has columns that are not real numbers, with their names.

    For complex numbers ValueError. Of a lazy frame its metadata are enough.

    Parameters
    ----------
    frame : DataFrame
    but : collection of int
        Positions of categorical columns, which need not be numbers.
    later : collection of int
        Positions of columns of objects that are checked later.
    """
    names = list(frame.columns)
    dtypes = {i: of for i, of in enumerate(frame.dtypes) if i not in {*but, *later}}
    is_complex = pd.api.types.is_complex_dtype
    if complex_ := [names[i] for i, of in dtypes.items() if is_complex(of)]:
        raise complex_error(f"the columns {complex_} are complex")
    if others := [i for i, of in dtypes.items() if not _is_number(of)]:
        listed = ", ".join(f"{names[i]!r} ({dtypes[i]})" for i in others)
        raise TypeError(
            f"rows must be dense numbers or booleans, but these columns are not: {listed}. "
            f"The argument must be of these only, as no string or other object is taken as "
            f"a number. {_remedy(frame, others, but)}"
        )


def _remedy(frame: pd.DataFrame, others: Collection[int], but: Collection[int]) -> str:
    """Return the remedy for columns that are no numbers, some of them perhaps text."""

    def given(**places: Collection[int]) -> str:
        names = {key: [frame.columns[i] for i in sorted(of)] for key, of in places.items()}
        options = " ".join(format_option(f"--{key}", of) for key, of in names.items())
        return f"{', '.join(f'{key}={of}' for key, of in names.items())} ({options})"

    index: Any = frame.columns
    usable = {*range(frame.shape[1])} - {*others}
    choose = "There are no others: give a table with columns of numbers"
    if usable:
        choose = f"Choose the columns to measure: {given(columns=usable)}"
        if isinstance(index, pd.RangeIndex):
            choose += f", or of an array X[:, {sorted(usable)}]"
    texts = {i for i in others if _may_have_levels(frame.iloc[:, i])}
    if not texts:
        return f"{choose}."
    # Dates, for example, are no categories either.
    columns = {} if len(texts) == len(others) else {"columns": usable | texts}
    remedy = given(**columns, categorical=texts | {*but})
    return (
        f"{choose}; or measure text and categories, too, as equal or different: {remedy}."
    )


def _may_have_levels(column: pd.Series) -> bool:
    """Return whether a column that is no number can be categorical, as far as is known."""
    kind = kind_of_type(column.dtype)
    if kind is None:
        kind = kind_of_values(column.cat.categories if hasattr(column, "cat") else column)
    if kind == "":  # not read yet
        return hasattr(column, "cat") or _TEXT_IS_OBJECTS
    return kind in LEVEL_TYPES


def _is_number(dtype: Any) -> bool:
    types = pd.api.types
    # Arrow's booleans are not numeric to pandas.
    is_number = types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)
    is_number = is_number or dtype == "null[pyarrow]"  # all are missing
    return is_number and not isinstance(dtype, pd.SparseDtype)


# The functions below run inside tasks.


def float_rows(
    frame: pd.DataFrame,
    dtype: type[np.floating] | None = None,
    codes: Mapping[int, NDArray[Any]] = _NOTHING,
    origins: Mapping[int, int] = _NOTHING,
) -> NDArray[np.floating]:
    """Return the numbers of a frame, of shape (n_rows, n_features); NA is NaN.

    As float32 where all columns are, unless ``dtype`` is given: half the memory, and the
    same numbers. A frame that is one array already, as pandas makes it of NumPy's, is not
    copied where that is in row order.

    Parameters
    ----------
    frame : DataFrame
    dtype : type, optional
        float32 or float64.
    codes : mapping of int to ndarray
        Of the categorical columns, by position.
    origins : mapping of int to int
        What the numbers of some columns are measured from, by position.

    Raises
    ------
    TypeError
        For columns that are not numbers.
    ValueError
        If ``dtype`` is float32 and cannot represent the numbers, or float64 cannot.
    """
    found = number_type(frame, codes)
    if dtype == np.float32 != found:
        return _as_float32(frame, float_rows(frame, None, codes, origins))
    dtype = dtype or found
    head = frame.iloc[:1].to_numpy()
    is_plain = not (codes or origins) and head.dtype == dtype
    if is_plain and np.may_share_memory(head, frame.iloc[:, 0].to_numpy()):
        return np.ascontiguousarray(frame.to_numpy())
    numbers: dict[int, NDArray[Any] | None] = dict(codes)
    for i, of in enumerate(frame.dtypes):
        if i not in codes and pd.api.types.is_object_dtype(of):
            numbers[i] = _numbers_at(frame, i, origins)
    check_numeric(frame, codes, [i for i, column in numbers.items() if column is not None])
    rows, views = np.empty(frame.shape, dtype), {}
    for i in range(frame.shape[1]):
        column = numbers[i] if i in numbers else _numbers_at(frame, i, origins)
        assert column is not None  # checked
        if column.base is None:  # converted, and not to be kept
            rows[:, i] = column
        else:
            views[i] = column
    # A part of the rows at a time, which the caches of a processor hold.
    for start in range(0, len(frame), CONVERTED_ROWS):
        part = slice(start, start + CONVERTED_ROWS)
        for i, column in views.items():
            rows[part, i] = column[part]
    return rows


def _numbers_at(
    frame: pd.DataFrame, place: int, origins: Mapping[int, int]
) -> NDArray[Any] | None:
    label = column_label(frame.columns[place])
    return numbers_of(frame.iloc[:, place], label, origins.get(place))


def _as_float32(frame: pd.DataFrame, rows: NDArray[np.floating]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    if not np.array_equal(narrow, rows, equal_nan=True):
        types = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
        raise ValueError(
            f"a partition has the types {types}, but the dask DataFrame says float32, "
            f"which cannot represent all of its numbers. Set the types, for example with "
            f"ddf = ddf.astype('float64')."
        )
    return narrow


def number_type(frame: Any, but: Collection[int] = ()) -> type[np.floating]:
    """Return the type for the numbers of a frame: float32 if all columns are of it.

    ``but`` has the positions of columns that do not count.
    """
    dtypes = (dtype for i, dtype in enumerate(frame.dtypes) if i not in but)
    return np.float32 if all(dtype == np.float32 for dtype in dtypes) else np.float64

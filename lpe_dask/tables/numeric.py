"""Check that rows are real numbers, and convert them to one array.

    frame of numbers, or of objects that are --of_numbers--> frame of numbers
    frame of numbers --float_rows--> float32 or float64 (n_rows, n_features)

Only numbers are accepted, no dates and no complex numbers; text is in categorical columns
only, which `categories` has turned into codes before.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from numbers import Complex, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.column_names import as_option
from lpe_dask.tables.kinds import (
    LEVEL_TYPES,
    TEXT,
    is_category,
    is_dictionary,
    kind_of_arrow,
    kind_of_type,
    kind_of_values,
    label_of,
)
from lpe_dask.tables.large_numbers import exact_column, exact_frame

#: Rows of a frame that are converted at a time.
CONVERTED_ROWS = 2**14

#: Whether text in files comes as objects, as dates and lists do, which pandas 3 ended.
_TEXT_IS_OBJECTS = pd.Series(["text"]).dtype == object


def check_type(dtype: np.dtype[Any]) -> None:
    """Raise for types that rows cannot have; objects are checked later."""
    if dtype.kind == "c":
        raise ValueError(_is_complex(f"X has dtype {dtype}"))
    if dtype.kind not in "biufO":
        text = ", or measure them as equal or different (categorical='auto')"
        raise TypeError(
            f"X has dtype {dtype}, but rows must be real numbers or booleans. Drop other "
            f"columns, or convert them to numbers{text if dtype.kind in 'UT' else ''}."
        )


def check_numeric(
    frame: Any, but: Collection[int] = (), later: Collection[int] = ()
) -> None:
    """Raise TypeError if ``frame`` has columns that are not real numbers, with their names.

    For complex numbers ValueError. ``but`` has the positions of categorical columns, which
    need not be, and ``later`` those of objects that are checked later.
    """
    dtypes = dict(enumerate(frame.dtypes))
    names, passed = list(frame.columns), {*but, *later}
    is_complex = pd.api.types.is_complex_dtype
    complex_ = [names[i] for i, of in dtypes.items() if is_complex(of) and i not in passed]
    if complex_:
        raise ValueError(_is_complex(f"the columns {complex_} are complex"))
    others = [i for i, of in dtypes.items() if not _is_number(of) and i not in passed]
    if others:
        listed = ", ".join(f"{names[i]!r} ({dtypes[i]})" for i in others)
        raise TypeError(
            f"rows must be dense numbers or booleans, but these columns are not: {listed}. "
            f"{_remedy(frame, others, but)}"
        )


def _remedy(frame: Any, others: Collection[int], but: Collection[int]) -> str:
    """Return what to do about columns that are no numbers, some of them perhaps text."""
    names = list(frame.columns)
    usable = [name for i, name in enumerate(names) if i not in others]
    choose = (
        f"Choose the columns to measure: columns={usable} in Python or a job file, "
        f"{as_option('--columns', usable)} on the command line"
    )
    if not usable:
        choose = "There are no others: give a table with columns of numbers"
    texts = [i for i in others if _may_have_levels(frame, i)]
    if not texts:
        return f"{choose}."
    categorical = [name for i, name in enumerate(names) if i in {*texts, *but}]
    given = f"categorical={categorical}, {as_option('--categorical', categorical)}"
    if len(texts) < len(others):  # dates, for example, which are no categories either
        left = [name for i, name in enumerate(names) if i in texts or i not in others]
        given = (
            f"columns={left} and categorical={categorical}, "
            f"{as_option('--columns', left)} {as_option('--categorical', categorical)}"
        )
    return f"{choose}; or measure text and categories, too, as equal or different: {given}."


def _may_have_levels(frame: Any, place: int) -> bool:
    """Return whether a column that is no number can be categorical, as far as is known."""
    dtype = frame.dtypes.iloc[place]
    if isinstance(dtype, pd.ArrowDtype) and is_dictionary(dtype):
        return kind_of_arrow(dtype.pyarrow_dtype) in LEVEL_TYPES
    kind = kind_of_type(dtype)
    if kind is None and isinstance(frame, pd.DataFrame):
        column = frame.iloc[:, place]
        kind = kind_of_values(column.cat.categories if is_category(dtype) else column)
    if kind is None:  # not read yet
        return is_category(dtype) or _TEXT_IS_OBJECTS
    return kind in LEVEL_TYPES


def _is_number(dtype: Any) -> bool:
    types = pd.api.types
    # Arrow's booleans are not numeric to pandas.
    is_number = types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)
    is_number = is_number or dtype == "null[pyarrow]"  # all are missing
    return is_number and not isinstance(dtype, pd.SparseDtype)


def _is_complex(given: str) -> str:
    return (
        f"Complex data not supported: {given}, but rows must be real numbers. Give real "
        f"and imaginary parts as separate columns."
    )


# The functions below run inside tasks.


def of_numbers(frame: pd.DataFrame, but: Collection[int] = ()) -> pd.DataFrame:
    """Return a frame with objects converted to numbers, checked; ``but`` has codes."""
    is_object = map(pd.api.types.is_object_dtype, frame.dtypes)
    objects = [i for i, is_one in enumerate(is_object) if is_one]
    converted = frame.copy(deep=False) if objects else frame
    for i in objects:
        label = label_of(frame.columns[i])
        numbers = _numbers_among(frame.iloc[:, i].to_numpy(), label)
        if numbers is not None:
            converted.isetitem(i, numbers)
    check_numeric(converted, but)
    return converted


def rows_of_objects(array: NDArray[np.object_]) -> NDArray[np.float64]:
    """Return an array of objects as numbers; TypeError for other objects."""
    rows, others = np.empty(array.shape), []
    measure_text = ""
    for i, column in enumerate(array.T):
        numbers = _numbers_among(column, label_of(i))
        if numbers is None:
            others.append(f"column {i}")
            if kind_of_values(column) == TEXT:
                measure_text = (
                    ", or measure text as equal or different (categorical=[...] with the "
                    "positions of the columns)"
                )
        else:
            rows[:, i] = numbers
    if others:
        raise TypeError(
            f"the argument must be rows of numbers: no string or other object is taken as "
            f"a number, but there are some in {', '.join(others)}. Drop these, for example "
            f"X[:, [0, 1]], or convert them to numbers{measure_text}."
        )
    return rows


def _numbers_among(objects: NDArray[np.object_], label: str) -> NDArray[np.float64] | None:
    """Return objects as numbers, with NaN for None and NA; None if there are others."""
    kinds = set(map(type, objects))
    if any(issubclass(kind, Complex) and not issubclass(kind, Real) for kind in kinds):
        raise ValueError(_is_complex("there are complex numbers among the objects of X"))
    return exact_column(pd.Series(objects, dtype=object), label)


def float_rows(
    frame: pd.DataFrame, dtype: type[np.floating] | None = None
) -> NDArray[np.floating]:
    """Return the numbers of a frame, of shape (n_rows, n_features); NA is NaN.

    As float32 where all columns are, unless ``dtype`` is given: half the memory, and the
    same numbers. A frame that is one array already, as pandas makes it of NumPy's, is not
    copied where that is in row order.

    Raises
    ------
    ValueError
        If ``dtype`` is float32 and cannot represent the numbers, or float64 cannot.
    """
    frame = exact_frame(frame)
    found = number_type(frame)
    if dtype == np.float32 != found:
        return _as_float32(frame)
    dtype = dtype or found
    convert = partial(pd.DataFrame.to_numpy, dtype=dtype, na_value=np.nan)
    head = convert(frame.iloc[:1])
    if np.may_share_memory(head, frame.iloc[:, 0].to_numpy()):
        return np.ascontiguousarray(convert(frame))
    # pandas would copy its columns first, and convert them to rows in a second copy.
    rows = np.empty(frame.shape, dtype)
    for start in range(0, len(frame), CONVERTED_ROWS):
        part = slice(start, start + CONVERTED_ROWS)
        rows[part] = convert(frame.iloc[part])
    return rows


def _as_float32(frame: pd.DataFrame) -> NDArray[np.float32]:
    rows = float_rows(frame)
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


def number_type(frame: Any) -> type[np.floating]:
    """Return the type for the numbers of a frame: float32 if all columns are of it."""
    is_single = all(dtype == np.float32 for dtype in frame.dtypes)
    return np.float32 if is_single else np.float64

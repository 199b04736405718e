"""See that what rows hold are real numbers, and make one array of them.

    frame of numbers, or of objects that are --of_numbers--> frame of numbers
    frame of numbers --float_rows--> float32 or float64 (n_rows, n_features)

Nothing that is no number is taken for one: no text, no dates, no complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Complex, Number, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Rows of a frame that are made rows of an array at a time.
CONVERTED_ROWS = 2**14


def check_type(dtype: np.dtype[Any]) -> None:
    """Raise for what no rows can be; whether objects are numbers is for later."""
    if dtype.kind == "c":
        raise ValueError(_is_complex(f"X has dtype {dtype}"))
    if dtype.kind not in "biufO":
        raise TypeError(
            f"X has dtype {dtype}, but rows must be real numbers or booleans. Leave out "
            f"what is none, or make numbers of it."
        )


def check_numeric(frame: Any) -> None:
    """Raise an error, naming them, if ``frame`` has columns that are not real numbers.

    TypeError, but ValueError for complex numbers.
    """
    is_complex = pd.api.types.is_complex_dtype
    complex_ = [name for name, dtype in frame.dtypes.items() if is_complex(dtype)]
    if complex_:
        raise ValueError(_is_complex(f"the columns {complex_} hold some"))
    numeric = [name for name, dtype in frame.dtypes.items() if _is_number(dtype)]
    others = {name: dtype for name, dtype in frame.dtypes.items() if not _is_number(dtype)}
    if others:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in others.items())
        names = ",".join(map(str, numeric))
        remedy = (
            f"Choose the columns to measure: columns={numeric} in Python or a job file, "
            f"--columns {names} on the command line."
        )
        if not numeric:
            remedy = "There are no others: give a table with columns of numbers."
        raise TypeError(
            f"rows must be dense numbers or booleans, but these columns are not: {listed}. "
            f"{remedy}"
        )


def _is_number(dtype: Any) -> bool:
    types = pd.api.types
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return False
    # Arrow's booleans are no numbers to pandas
    return types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)


def _is_complex(given: str) -> str:
    return (
        f"Complex data not supported: {given}, but rows must be real numbers. Give real "
        f"and imaginary parts as columns of their own."
    )


# The functions below run inside tasks.


def of_numbers(frame: pd.DataFrame, objects: Sequence[int]) -> pd.DataFrame:
    """Return a frame with the objects of some columns as the numbers that they are."""
    converted = frame.copy(deep=False) if objects else frame
    for i in objects:
        numbers = _numbers_among(frame.iloc[:, i].to_numpy())
        if numbers is not None:
            converted.isetitem(i, numbers)
    check_numeric(converted)
    return converted


def rows_of_objects(array: NDArray[np.object_]) -> NDArray[np.float64]:
    """Return an array of objects as the numbers that they are; TypeError for others."""
    rows, others = np.empty(array.shape), []
    for i, column in enumerate(array.T):
        numbers = _numbers_among(column)
        if numbers is None:
            others.append(f"column {i}")
        else:
            rows[:, i] = numbers
    if others:
        raise TypeError(
            f"the argument must be rows of numbers: no string or other object is taken for "
            f"a number, but there are some in {', '.join(others)}. Leave these out, for "
            f"example X[:, [0, 1]], or make numbers of them."
        )
    return rows


def _numbers_among(objects: NDArray[np.object_]) -> NDArray[np.float64] | None:
    """Return objects as numbers, of which None and NA are NaN; None if others are there."""
    kinds = set(map(type, objects))
    if any(issubclass(kind, Complex) and not issubclass(kind, Real) for kind in kinds):
        raise ValueError(_is_complex("there are complex numbers among the objects of X"))
    numbers = (Number, np.bool_, type(None), type(pd.NA))
    if not all(issubclass(kind, numbers) for kind in kinds):
        return None
    return pd.Series(objects, dtype=object).to_numpy(np.float64, na_value=np.nan)


def float_rows(
    frame: pd.DataFrame, dtype: type[np.floating] | None = None
) -> NDArray[np.floating]:
    """Return the numbers of a frame, of shape (n_rows, n_features); NA is NaN.

    As float32 where all columns are, if ``dtype`` does not say otherwise: half the memory,
    and the same numbers. A frame that is one array already, as pandas makes it of NumPy's,
    is not copied where that has the order of rows.

    Raises
    ------
    ValueError
        If ``dtype`` is float32, and does not hold the numbers.
    """
    found = number_type(frame)
    if dtype == np.float32 != found:
        return _as_float32(frame)
    dtype = dtype or found
    convert = partial(pd.DataFrame.to_numpy, dtype=dtype, na_value=np.nan)
    head = convert(frame.iloc[:1])
    if np.may_share_memory(head, frame.iloc[:, 0].to_numpy()):
        return np.ascontiguousarray(convert(frame))
    # pandas would gather its columns first, and turn them into rows in a second copy.
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
            f"which does not hold all of its numbers. Say what they are, for example with "
            f"ddf = ddf.astype('float64')."
        )
    return narrow


def number_type(frame: Any) -> type[np.floating]:
    """Return the type that holds the numbers of a frame: float32 where all columns are."""
    is_single = all(dtype == np.float32 for dtype in frame.dtypes)
    return np.float32 if is_single else np.float64

"""Convert whole numbers and decimals to float64 without losing digits.

    column within 2**53 units -----------------------------> float64 of its numbers
    column beyond --exact_frame, exact_rows--> float64 of the differences from its least
                                               nominal value, see `minima`

The unit of a whole number is 1, and that of a decimal one of its last digit: float64 holds
2**53 of them on each side of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from lpe_dask.tables.errors import PrecisionError
from lpe_dask.tables.kinds import label_of

#: Units that float64 holds, on each side of zero.
MOST_UNITS = 2**53

#: Decimals of up to so many digits have fewer units.
_FEW_DIGITS = 15

#: Of as many digits as a decimal may have.
_ALL_DIGITS = Context(prec=2000)

_NUMBERS = (Real, Decimal, np.bool_, type(None), type(pd.NA))


@dataclass(frozen=True, slots=True)
class Minima:
    """The columns of a table whose numbers are measured from their least one.

    Attributes
    ----------
    places : tuple of int
        Positions of the columns among those that are measured, ascending.
    values : tuple of int
        Of each, the least value that nominal rows have there, without a fraction.
    digits : tuple of int
        Of each, the most digits that these have after the decimal point.
    """

    places: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    digits: tuple[int, ...] = ()

    def original(self, rows: NDArray[np.float64]) -> dict[int, NDArray[np.object_]]:
        """Return these columns of converted rows as they came, exactly, by position."""
        found = zip(self.places, self.values, self.digits, strict=True)
        return {
            place: np.array([_original(x, *of) for x in rows[:, place]], object)
            for place, *of in found
        }


#: Where all columns are measured from zero.
NO_MINIMA = Minima()


def may_lose_digits(dtype: Any) -> bool:
    """Return whether columns of this type may have numbers that float64 cannot hold."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "iu" and dtype.itemsize == 8
    return pd.api.types.is_integer_dtype(dtype) or _is_decimal(dtype)


# The functions below run inside tasks.


def exact_frame(frame: pd.DataFrame, minima: Minima = NO_MINIMA) -> pd.DataFrame:
    """Return a frame with float64 for decimals, numbers as objects, and where minima are.

    Raises
    ------
    PrecisionError
        If float64 cannot hold a number, naming the column.
    """
    origins, converted = dict(zip(minima.places, minima.values, strict=True)), frame
    for i, dtype in enumerate(frame.dtypes):
        origin = origins.get(i)
        is_object = pd.api.types.is_object_dtype(dtype)
        if origin is None and not is_object and not may_lose_digits(dtype):
            continue
        column = exact_column(frame.iloc[:, i], label_of(frame.columns[i]), origin)
        if column is not None:
            converted = frame.copy(deep=False) if converted is frame else converted
            converted.isetitem(i, column)
    return converted


def exact_rows(
    array: NDArray[Any], minima: Minima = NO_MINIMA, but: Collection[int] = ()
) -> NDArray[Any]:
    """Return the same for an array; ``but`` has the positions of columns without numbers.

    Without minima it is the array itself, checked.
    """
    origins, rows = dict(zip(minima.places, minima.values, strict=True)), array
    is_large = may_lose_digits(array.dtype) and array.size > 0
    is_large = is_large and max(-int(array.min()), int(array.max())) > MOST_UNITS
    if origins:
        rows = array.astype(object if array.dtype == object else np.float64)
    for i in range(array.shape[1]):
        origin = origins.get(i)
        if origin is not None or (is_large and i not in but):
            column = exact_column(pd.Series(array[:, i]), label_of(i), origin)
            if column is not None:
                rows[:, i] = column
    return rows


def rows_or_sign(convert: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
    """Return the rows that a function gives; where float64 cannot hold them, no columns.

    That is how a reading of nominal rows learns of it: a task that fails would be in the
    log of a worker.
    """
    try:
        return convert(*arguments)
    except PrecisionError:
        return np.empty((0, 0))


def exact_column(
    column: pd.Series, label: str, origin: int | None = None
) -> NDArray[np.float64] | None:
    """Return what the numbers of a column exceed an origin by.

    None if whole numbers need no conversion, or there are other objects than numbers.
    """
    if pd.api.types.is_integer_dtype(column.dtype):
        return _exact_whole(column, label, origin)
    objects = column.to_numpy(object)
    if not are_numbers(objects):
        return None
    if origin is not None:
        return np.array([_difference(x, label, origin) for x in objects], np.float64)
    if (beyond := next(filter(is_beyond, objects), None)) is not None:
        raise _beyond(label, beyond, None)
    return pd.Series(objects, dtype=object).to_numpy(np.float64, na_value=np.nan)


def _exact_whole(
    column: pd.Series, label: str, origin: int | None
) -> NDArray[np.float64] | None:
    is_absent = column.isna().to_numpy()
    if is_absent.all():
        return None if origin is None else np.full(len(column), np.nan)
    for value in (int(column.min()), int(column.max())):
        if abs(value - (origin or 0)) > MOST_UNITS:
            raise _beyond(label, value, origin)
    if origin is None:
        return None
    if is_absent.any():
        column = column[~is_absent]
    dtype = np.uint64 if "uint" in str(column.dtype).lower() else np.int64
    # Both wrap around in the same way: the difference is right, as it is small.
    numbers = column.to_numpy(dtype).astype(np.uint64) - np.uint64(origin % 2**64)
    differences = np.full(len(is_absent), np.nan)
    differences[~is_absent] = numbers.view(np.int64)
    return differences


def _difference(value: Any, label: str, origin: int) -> float:
    if is_missing(value):
        return np.nan
    if not is_finite(value):
        return float(value)
    value = value.item() if isinstance(value, np.generic) else value
    difference, digits = Fraction(value) - origin, digits_after_point(value)
    if abs(difference) * 10**digits > MOST_UNITS:
        raise _beyond(label, value, origin)
    if isinstance(value, float) and abs(value) >= MOST_UNITS:
        raise PrecisionError(
            f"{label} has the float {value!r}, but nominal rows have whole numbers or "
            f"decimals of so many digits there that floats leave some out. Give it in "
            f"their type, for example 'Int64' in pandas where values are missing."
        )
    return float(difference)


def are_numbers(objects: NDArray[np.object_]) -> bool:
    """Return whether all objects are real numbers, or missing ones."""
    kinds = set(map(type, objects))
    # To NumPy, durations are whole numbers.
    return all(issubclass(k, _NUMBERS) and not issubclass(k, np.timedelta64) for k in kinds)


def is_missing(value: Any) -> bool:
    """Return whether an object stands for a missing number."""
    is_nan = isinstance(value, float | np.floating | Decimal) and value != value
    return value is None or value is pd.NA or is_nan


def is_finite(value: Any) -> bool:
    """Return whether a number is."""
    return isinstance(value, Integral) or math.isfinite(value)


def is_beyond(value: Any) -> bool:
    """Return whether float64 may lose digits of a number; floats have lost theirs."""
    if isinstance(value, Decimal):
        if not value.is_finite() or not value:
            return False
        if len(value.as_tuple().digits) <= _FEW_DIGITS and value.adjusted() < _FEW_DIGITS:
            return False
        return abs(Fraction(value)) * 10 ** digits_after_point(value) > MOST_UNITS
    return isinstance(value, Integral) and abs(int(value)) > MOST_UNITS


def digits_after_point(value: Any) -> int:
    """Return how many digits a number has after the decimal point; of floats none."""
    if not isinstance(value, Decimal):
        return 0
    exponent = _ALL_DIGITS.normalize(value).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _is_decimal(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def _original(difference: float, origin: int, digits: int) -> Any:
    if not np.isfinite(difference):
        return difference
    units = round(Fraction(difference) * 10**digits) + origin * 10**digits
    return units if digits == 0 else _ALL_DIGITS.scaleb(Decimal(units), -digits)


def _beyond(label: str, value: Any, origin: int | None) -> PrecisionError:
    start = "0" if origin is None else f"the least nominal value, {origin}"
    remedy = "subtract a start and divide to a coarser unit (of nominal rows, too)"
    if digits_after_point(value):
        remedy = "round it to fewer digits, or convert it to float64, which does so"
    return PrecisionError(
        f"{label} has {value}, which is more than 2**53 units of its last digit from "
        f"{start}: float64 cannot hold all such numbers. Before it is given, {remedy}; or "
        f"leave the column out (columns=, --columns)."
    )

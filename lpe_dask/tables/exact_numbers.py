"""Convert whole numbers and decimals to float64 without losing digits.

    column within 2**53 units -----------------------------> float64 of its numbers
    column beyond --numbers_of--> float64 of the differences from its least nominal value,
                                  see `column_offsets`

The unit of a whole number is 1, and that of a decimal one of its last digit: float64 holds
2**53 of them on each side of zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Complex, Integral, Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from lpe_dask.tables.errors import PrecisionError

#: Units that float64 holds, on each side of zero.
MAX_EXACT = 2**53

#: Decimals of up to so many digits have fewer units.
_FEW_DIGITS = 15

#: Of as many digits as a decimal may have.
_ALL_DIGITS = Context(prec=2000)

_NUMBERS = (Real, Decimal, np.bool_, type(None), type(pd.NA))


@dataclass(frozen=True, slots=True)
class ColumnOffsets:
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
NO_OFFSETS = ColumnOffsets()


def numbers_of(
    column: pd.Series, label: str, origin: int | None = None
) -> NDArray[Any] | None:
    """Return the numbers of a column, or what they exceed an origin by; NA is NaN.

    None if there are other objects than numbers.

    Raises
    ------
    PrecisionError
        If float64 cannot hold a number.
    ValueError
        For complex numbers.
    """
    if pd.api.types.is_integer_dtype(column.dtype):
        is_there = column.notna().to_numpy()
        present = column if is_there.all() else column[is_there]
        for value in (int(present.min()), int(present.max())) if len(present) else ():
            if abs(value - (origin or 0)) > MAX_EXACT:
                raise _beyond(label, value, origin)
        if origin is not None:
            dtype = np.uint64 if "uint" in str(column.dtype).lower() else np.int64
            # Both wrap around in the same way: the difference is right, as it is small.
            numbers = present.to_numpy(dtype).astype(np.uint64) - np.uint64(origin % 2**64)
            differences = np.full(len(column), np.nan)
            differences[is_there] = numbers.view(np.int64)
            return differences
    if (
        origin is None
        and isinstance(column.dtype, np.dtype)
        and column.dtype.kind in "biuf"
    ):
        return column.to_numpy()
    has_objects = pd.api.types.is_object_dtype(column.dtype) or _is_decimal(column.dtype)
    if origin is None and not has_objects:
        return column.to_numpy(np.float64, na_value=np.nan)
    objects = column.to_numpy(object)
    if not are_numbers(objects):
        return None
    if origin is not None:
        return np.array([_difference(x, label, origin) for x in objects], np.float64)
    if (beyond := next(filter(exceeds_float64, objects), None)) is not None:
        raise _beyond(label, beyond, None)
    return pd.Series(objects, dtype=object).to_numpy(np.float64, na_value=np.nan)


def are_numbers(objects: NDArray[np.object_]) -> bool:
    """Return whether all are real numbers or missing; ValueError for complex ones."""
    kinds = set(map(type, objects))
    if any(issubclass(kind, Complex) and not issubclass(kind, Real) for kind in kinds):
        raise complex_error("there are complex numbers among the objects of X")
    # To NumPy, durations are whole numbers.
    return np.timedelta64 not in kinds and all(issubclass(k, _NUMBERS) for k in kinds)


def complex_error(given: str) -> ValueError:
    """Return an error about complex numbers."""
    return ValueError(
        f"Complex data not supported: {given}, but rows must be real numbers. Give real "
        f"and imaginary parts as separate columns."
    )


def _difference(value: Any, label: str, origin: int) -> float:
    if not is_finite(value):
        return np.nan if value is None or value is pd.NA else float(value)
    value = value.item() if isinstance(value, np.generic) else value
    difference, digits = Fraction(value) - origin, digits_after_point(value)
    if abs(difference) * 10**digits > MAX_EXACT:
        raise _beyond(label, value, origin)
    if isinstance(value, float) and abs(value) >= MAX_EXACT:
        raise PrecisionError(
            f"{label} has the float {value!r}, but nominal rows have whole numbers or "
            f"decimals of so many digits there that floats leave some out. Give it in "
            f"their type, for example 'Int64' in pandas where values are missing."
        )
    return float(difference)


def is_finite(value: Any) -> bool:
    """Return whether a number is, and is there."""
    is_there = value is not None and value is not pd.NA
    return is_there and (isinstance(value, Integral) or math.isfinite(value))


def exceeds_float64(value: Any) -> bool:
    """Return whether float64 may lose digits of a number; floats have lost theirs."""
    if isinstance(value, Decimal):
        if not value.is_finite() or not value:
            return False
        if len(value.as_tuple().digits) <= _FEW_DIGITS and value.adjusted() < _FEW_DIGITS:
            return False
        return abs(Fraction(value)) * 10 ** digits_after_point(value) > MAX_EXACT
    return isinstance(value, Integral) and abs(int(value)) > MAX_EXACT


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

"""Dates that divide rows into groups: microseconds, with a time zone or without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.errors import TableError
from lpe_dask.tables.value_types import TEXT, column_label

#: What dates are called, beside the kinds of `value_types`.
DATES, ZONED_DATES = "dates", "dates with a time zone"

#: What dates are that are no groups: they have no order.
_BOTH = "dates with and without a time zone"

#: What rows have, and what nominal rows have -> how the first become the second.
CONVERSIONS = {
    (TEXT, DATES): (
        ", for example with pandas.to_datetime. A CSV has text alone: for one, fit nominal "
        "rows that have the same text, for example frame[name].dt.strftime('%Y-%m-%d')"
    ),
    (DATES, ZONED_DATES): ", for example with frame[name].dt.tz_localize('UTC')",
    (ZONED_DATES, DATES): ", for example with frame[name].dt.tz_localize(None)",
}
CONVERSIONS[TEXT, ZONED_DATES] = CONVERSIONS[TEXT, DATES]

#: Text of each date by itself: `astype` writes midnights as others of the column need it.
_AS_TEXT = "make them text, for example with frame[name].map(str, na_action='ignore')"


def are_dates(column: pd.Series) -> bool:
    """Return whether a column has dates, as far as its type shows or its objects."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return True
    if column.dtype != object:
        return str(column.dtype) in ("date32[day][pyarrow]", "date64[ms][pyarrow]")
    return pd.api.types.infer_dtype(column, skipna=True) in ("date", "datetime")


def distinct_dates(column: pd.Series) -> tuple[str, Any, NDArray[np.int64]]:
    """Return the kind of dates, the different ones, and which of these each row has.

    The kind is "" if all are missing. The position of a missing one is -1.

    Raises
    ------
    TableError
        For dates that microseconds do not hold.
    """
    positions, values = pd.factorize(column)
    zones = {getattr(v, "tzinfo", None) for v in values} if values.dtype == object else {}
    has_both = len(zones) > 1 and None in zones
    if len(values) == 0 or has_both:
        kind = _BOTH if has_both else ""
        return kind, np.empty(0, object), np.full(len(column), -1)
    dates = _microseconds(values, len(zones) > 1, column_label(column.name))
    kind = DATES if dates.tz is None else ZONED_DATES
    numbers, different = pd.factorize(dates)  # a day and its midnight are one
    return kind, different, np.append(numbers, -1)[positions]


def in_one_zone(dates: pd.Series) -> pd.Series:
    """Return dates with time zones as ones of the same type; of several zones in UTC."""
    if dates.dtype != object:
        return dates
    return pd.to_datetime(dates, utc=True).dt.as_unit("us")


def _microseconds(values: Any, has_zones: bool, label: str) -> pd.DatetimeIndex:
    try:
        given = pd.DatetimeIndex(pd.to_datetime(values, utc=has_zones))
        dates = given.as_unit("us")
    except pd.errors.OutOfBoundsDatetime as error:
        raise TableError(
            f"{label} has dates that are too early or too late to be counted in "
            f"microseconds, as those that divide rows into groups are. Correct them, or "
            f"{_AS_TEXT}."
        ) from error
    if (is_finer := np.asarray(dates != given)).any():
        raise TableError(
            f"{label} has {given[is_finer][0]}, but dates that divide rows into groups are "
            f"whole microseconds. Round them in all rows, for example with "
            f"frame[name].dt.floor('us'), or {_AS_TEXT}."
        )
    return dates

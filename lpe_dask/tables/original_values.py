"""Turn rows of numbers and codes back into values of the types that came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.categories import Categories
from lpe_dask.tables.exact_numbers import MAX_EXACT, ColumnOffsets


def original_values(
    rows: NDArray[np.float64],
    types: Sequence[Any],
    categories: Categories,
    minima: ColumnOffsets,
) -> pd.DataFrame:
    """Return rows of numbers and codes as values of the types in which they were given."""
    is_changed = minima.places or categories.places
    if not is_changed and all(map(pd.api.types.is_float_dtype, types)):
        return pd.DataFrame(rows, dtype=np.float64)  # far faster than column by column
    columns: dict[int, Any] = {
        place: _cast_like(column, type_)
        for place, (column, type_) in enumerate(zip(rows.T, types, strict=True))
    }
    columns |= minima.original(rows)
    for place, levels in zip(categories.places, categories.levels, strict=True):
        named = np.array([*levels, None], dtype=object)  # the last for a row without one
        codes = np.where(np.isfinite(rows[:, place]), rows[:, place], -1).astype(np.int64)
        columns[place] = named[codes]
    return pd.DataFrame(columns)


def _cast_like(numbers: NDArray[np.float64], type_: Any) -> Any:
    """Return numbers of a column as booleans or whole numbers, if it has these."""
    if pd.api.types.is_bool_dtype(type_):
        return pd.arrays.BooleanArray(numbers == 1, np.isnan(numbers))
    is_missing = np.isnan(numbers)
    whole = np.where(is_missing, 0, numbers)
    if pd.api.types.is_integer_dtype(type_) and (np.abs(whole) < MAX_EXACT).all():
        return pd.arrays.IntegerArray(whole.astype(np.int64), is_missing)
    return numbers

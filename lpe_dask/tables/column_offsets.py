"""Find the columns whose numbers are measured from their least one.

    rows --one task a partition--> extent of each column --merged in a tree--> ColumnOffsets

There are seldom any: only the error of a first reading has the rows read once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from lpe_dask.tables.categories import Categories
from lpe_dask.tables.column_survey import survey_columns
from lpe_dask.tables.exact_numbers import (
    ColumnOffsets,
    digits_after_point,
    exceeds_float64,
    is_finite,
)
from lpe_dask.tables.sources import open_source


@dataclass(frozen=True, slots=True)
class _Extent:
    """What was found in a column.

    Attributes
    ----------
    least : int, optional
        The least value, without a fraction; None if all are missing.
    exceeds_float64 : bool
        Whether float64 may lose digits of some value.
    digits : int
        The most after a decimal point.
    """

    least: int | None = None
    exceeds_float64: bool = False
    digits: int = 0


def learn_offsets(
    X: Any, categories: Categories | None, *, max_partitions: int | None = None
) -> ColumnOffsets:
    """Return the columns with numbers beyond `MAX_EXACT`, and their minima; computes.

    The minima are those of all nominal rows, also of those that are not searched.

    Parameters
    ----------
    X, max_partitions : as for `levels.learn_categories`
    categories : Categories, optional
        Whose columns are not numbers.
    """
    coded = categories or Categories()
    source, but = open_source(X).without_last(coded.n_by), coded.places
    places = [i for i in range(len(source.meta.columns)) if i not in but]
    found = survey_columns(source, places, _extent_of, _merged, max_partitions)
    beyond = [(i, of) for i, of in found.items() if of.exceeds_float64]
    return ColumnOffsets(
        tuple(place for place, _ in beyond),
        tuple(of.least for _, of in beyond if of.least is not None),
        tuple(of.digits for _, of in beyond),
    )


# The functions below run inside tasks.


def _extent_of(column: pd.Series) -> _Extent:
    objects = column.dropna()
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(
        column.dtype
    ):
        objects = objects[np.isfinite(objects.to_numpy(np.float64))]
    elif len(objects) and objects.map(lambda x: isinstance(x, (Real, Decimal))).all():
        objects = objects[objects.map(is_finite).astype(bool)]
    else:
        return _Extent()
    if len(objects) == 0:
        return _Extent()
    is_plain = column.dtype.kind in "iuf" and not hasattr(column.dtype, "pyarrow_dtype")
    some = [objects.min(), objects.max()] if is_plain else objects
    digits = 0 if is_plain else max(map(digits_after_point, some))
    least = min(some)
    if isinstance(least, np.generic):
        least = least.item()  # `floor` would round it to a float
    return _Extent(math.floor(least), any(map(exceeds_float64, some)), digits)


def _merged(found: list[_Extent]) -> _Extent:
    least = [of.least for of in found if of.least is not None]
    return _Extent(
        min(least, default=None),
        any(of.exceeds_float64 for of in found),
        max(of.digits for of in found),
    )

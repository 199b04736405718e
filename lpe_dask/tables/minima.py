"""Find the columns whose numbers are measured from their least one.

    nominal rows --read_exactly--> Table, Nominal, Minima
    rows --one task a partition--> extent of each column --merged in a tree--> Minima

There are seldom any: only the error of a first reading has the rows read once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.categories import Categories
from lpe_dask.tables.errors import PrecisionError
from lpe_dask.tables.large_numbers import (
    MOST_UNITS,
    NO_MINIMA,
    Minima,
    are_numbers,
    digits_after_point,
    is_beyond,
    is_finite,
    is_missing,
)
from lpe_dask.tables.levels import survey_columns
from lpe_dask.tables.nominal import Nominal, read_nominal
from lpe_dask.tables.table import Table, read_table


@dataclass(frozen=True, slots=True)
class _Extent:
    """What was found in a column.

    Attributes
    ----------
    least : int, optional
        The least value, without a fraction; None if all are missing.
    is_beyond : bool
        Whether float64 may lose digits of some value.
    digits : int
        The most after a decimal point.
    """

    least: int | None = None
    is_beyond: bool = False
    digits: int = 0


def read_exactly(
    X: Any, categories: Categories | None, missing: str
) -> tuple[Table, Nominal, Minima]:
    """Return nominal rows, and the minima of columns with numbers beyond `MOST_UNITS`.

    Computes.

    Parameters
    ----------
    X : as for `table.read_table`
    categories : Categories, optional
        Of all these rows.
    missing : as for `nominal.read_nominal`

    Raises
    ------
    PrecisionError
        If there are such numbers as far apart.
    ValueError, TypeError
        As `table.read_table` and `nominal.read_nominal`.
    """
    places = () if categories is None else categories.places
    try:
        table = read_table(X, categories=categories, is_nominal=True)
        return table, read_nominal(table, missing, places), NO_MINIMA
    except PrecisionError:
        minima = learn_minima(X, categories)
    table = read_table(X, categories=categories, minima=minima, is_nominal=True)
    return table, read_nominal(table, missing, places), minima


def learn_minima(
    X: Any, categories: Categories | None, *, most_partitions: int | None = None
) -> Minima:
    """Return the columns with numbers beyond `MOST_UNITS`, and their minima; computes.

    The minima are those of all nominal rows, also of those that are not searched.

    Parameters
    ----------
    X, most_partitions : as for `levels.learn_categories`
    categories : Categories, optional
        Whose columns are not numbers.
    """
    but = () if categories is None else categories.places
    found = survey_columns(X, but, _extent_of, _merged, most_partitions)
    beyond = [(i, of) for i, of in found.items() if of.is_beyond]
    return Minima(
        tuple(place for place, _ in beyond),
        tuple(of.least for _, of in beyond if of.least is not None),
        tuple(of.digits for _, of in beyond),
    )


# The functions below run inside tasks.


def _extent_of(column: pd.Series) -> _Extent:
    is_whole = pd.api.types.is_integer_dtype(column.dtype)
    if is_whole or pd.api.types.is_float_dtype(column.dtype):
        if not is_whole:
            numbers = column.to_numpy(np.float64, na_value=np.nan)
            column = pd.Series(numbers[np.isfinite(numbers)])
        if not column.notna().any():
            return _Extent()
        least, most = column.min(), column.max()
        is_large = is_whole and max(-int(least), int(most)) > MOST_UNITS
        return _Extent(int(least) if is_whole else math.floor(least), is_large)
    objects = column.to_numpy(object)
    return _extent_of_objects(objects) if are_numbers(objects) else _Extent()


def _extent_of_objects(objects: NDArray[np.object_]) -> _Extent:
    finite = [x for x in objects if not is_missing(x) and is_finite(x)]
    if not finite:
        return _Extent()
    return _Extent(
        math.floor(min(finite)), any(map(is_beyond, finite)),
        max(map(digits_after_point, finite)),
    )  # fmt: skip


def _merged(found: list[_Extent]) -> _Extent:
    least = [of.least for of in found if of.least is not None]
    return _Extent(
        min(least, default=None),
        any(of.is_beyond for of in found),
        max(of.digits for of in found),
    )

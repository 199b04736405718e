"""Turn columns of text, categories, booleans or whole numbers into codes.

    column --distinct--> its different values, and which of them each row has
                 --coded--> float32: the number of its level, -1.0 for a level that no
                            nominal row has, NaN for a missing value

Levels have types: the text "1", the whole number 1 and True are different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.arrays import array_of
from lpe_dask.tables.kinds import (
    BOOLEAN,
    FLOAT,
    FRACTIONS,
    IMPRECISE,
    INFERRED,
    TEXT,
    WHOLE,
    Level,
    check_kind,
    is_dictionary,
    kind_of_levels,
    kind_of_values,
    label_of,
)
from lpe_dask.tables.large_numbers import NO_MINIMA, Minima, exact_rows
from lpe_dask.tables.numeric import rows_of_objects
from lpe_dask.tables.results import changed_rows

#: The most levels of a column, and the most characters, or digits, of one.
MOST_LEVELS = 10_000
MOST_CHARACTERS = 1_000

#: Values that are shown of those that are no levels.
MOST_EXAMPLES = 3

#: From here on floats leave out whole numbers.
_FIRST_GAP = 2.0**53

#: Kind -> what makes a level of a value: a plain one, also of an enumeration's members.
_PLAIN: dict[str, Callable[[Any], Level]] = {
    TEXT: str.__str__,
    BOOLEAN: bool,
    WHOLE: int,
}

#: Most bytes of a level beside its text: of the object, and of the place in a tuple.
_LEVEL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Categories:
    """The categorical columns of a table, and the values that nominal rows have there.

    Attributes
    ----------
    places : tuple of int
        Positions of the columns among those that are measured, ascending.
    levels : tuple of tuple
        Of each column, all of one type (str, bool or int), ascending.
    """

    places: tuple[int, ...]
    levels: tuple[tuple[Level, ...], ...]

    @property
    def kinds(self) -> dict[int, str | None]:
        """What the values of each column are, by its position; None where it has none."""
        return dict(zip(self.places, map(kind_of_levels, self.levels), strict=True))

    def __sizeof__(self) -> int:
        """Return about how many bytes it takes: larger ones are not sent inside graphs."""
        levels = (str(level) for of_column in self.levels for level in of_column)
        return sum(_LEVEL_BYTES + len(s.encode(errors="replace")) for s in levels)


@dataclass(frozen=True, slots=True)
class Distinct:
    """The different values of a column.

    Attributes
    ----------
    kind : str
        `TEXT`, `BOOLEAN` or `WHOLE`; for values that are no levels, other words; "" if all
        are missing.
    levels : list
        The values, if they are levels; None for infinite ones, which count as missing.
    positions : ndarray of shape (n_rows,)
        Which of these each row has; -1 for a missing one.
    """

    kind: str
    levels: list[Level | None]
    positions: NDArray[np.integer]


def kinds_of(categories: Categories | None) -> dict[int, str | None]:
    """Return the kinds of categories; {} if there are none."""
    return {} if categories is None else categories.kinds


# The functions below run inside tasks.


def coded_frame(
    frame: pd.DataFrame, categories: Categories, *, is_nominal: bool = False
) -> pd.DataFrame:
    """Return a frame with codes in its categorical columns.

    Parameters
    ----------
    frame : DataFrame
    categories : Categories
    is_nominal : bool
        Whether the levels are those of these rows.

    Raises
    ------
    TypeError
        For values of another type than the levels, naming the column.
    ValueError
        For a value that is no level, if the rows are nominal: they have changed.
    """
    converted = frame.copy(deep=False)
    for place, levels in zip(categories.places, categories.levels, strict=True):
        if place < frame.shape[1]:
            column, label = frame.iloc[:, place], label_of(frame.columns[place])
            converted.isetitem(place, coded(column, levels, label, is_nominal=is_nominal))
    return converted


def coded_rows(
    array: NDArray[Any],
    categories: Categories,
    *,
    minima: Minima = NO_MINIMA,
    is_nominal: bool = False,
) -> NDArray[np.floating]:
    """Return an array of any objects as numbers, with codes in its categorical columns.

    Parameters and errors as for `coded_frame` and `large_numbers.exact_rows`.
    """
    array = array_of(array)
    is_of_numbers = array.dtype.kind in "biuf"
    rows = exact_rows(array, minima, but=categories.places)
    dtype = rows.dtype if rows.dtype == np.float32 else np.float64
    rows = rows.astype(dtype if is_of_numbers else object)
    for place, levels in zip(categories.places, categories.levels, strict=True):
        if place < array.shape[1]:
            column, label = column_of(array, place), label_of(place)
            rows[:, place] = coded(column, levels, label, is_nominal=is_nominal)
    return rows if is_of_numbers else rows_of_objects(rows)


def column_of(array: NDArray[Any], place: int) -> pd.Series:
    """Return a column of an array."""
    return pd.Series(array[:, place], dtype=object if array.dtype.kind in "UTO" else None)


def coded(
    column: pd.Series, levels: Sequence[Level], label: str, *, is_nominal: bool
) -> NDArray[np.float32]:
    """Return the codes of a column, of shape (n_rows,)."""
    found = distinct(column)
    fitted = kind_of_levels(levels)
    if fitted is not None:
        check_kind(found.kind, fitted, label)
    numbers = {level: number for number, level in enumerate(levels)}
    codes = [np.nan if v is None else numbers.get(v, -1) for v in found.levels]
    if is_nominal and -1 in codes:
        raise ValueError(changed_rows(f"has other values in {label}"))
    # The last one is that of missing values, whose position is -1.
    return np.array([*codes, np.nan], np.float32)[found.positions]


def unseen_levels(frame: pd.DataFrame, place: int, levels: Sequence[Level]) -> list[str]:
    """Return the most frequent values of a column that are none of the levels, as text."""
    found, known = distinct(frame.iloc[:, place]), {*levels}
    counts = np.bincount(found.positions[found.positions >= 0], minlength=1)
    order = np.argsort(-counts, kind="stable")[: len(found.levels)]
    ordered = (found.levels[i] for i in order)
    new = [str(level) for level in ordered if level is not None and level not in known]
    return new[:MOST_EXAMPLES]


def distinct(column: pd.Series) -> Distinct:
    """Return the different values of a column, of any type."""
    if column.dtype == object:  # before 1 and True become one: they are equal to pandas
        kind = kind_of_values(column)
        if kind not in INFERRED.values():
            return Distinct(kind, [], np.full(len(column), -1))
    values, positions = _factorized(column)
    kind = kind_of_values(values)
    levels: list[Level | None] = []
    if kind == FLOAT:
        kind, levels = _whole_numbers(values)
    elif kind in _PLAIN:
        levels = list(map(_PLAIN[kind], values))
    else:
        positions = np.full(len(column), -1)
    return Distinct(kind, levels, positions)


def _factorized(column: pd.Series) -> tuple[pd.Index, NDArray[np.integer]]:
    """Return the different values of a column, and which of them each row has."""
    if isinstance(column.dtype, pd.ArrowDtype) and is_dictionary(column.dtype):
        column = _unified(column)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        positions, values = pd.factorize(column)
        return pd.Index(values), positions
    codes, categories = column.cat.codes.to_numpy(), column.cat.categories
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(categories)))
    places = np.full(len(categories) + 1, -1)  # the last for a missing value
    places[used] = np.arange(len(used))
    return categories[used], places[codes]


def _unified(column: pd.Series) -> pd.Series:
    """Return a column of Arrow's dictionaries as pandas' categories."""
    import pyarrow as pa

    chunks = pa.chunked_array(column.array.__arrow_array__())
    return pd.Series(chunks.unify_dictionaries().to_pandas())


def _whole_numbers(values: pd.Index) -> tuple[str, list[Level | None]]:
    """Return floats as whole numbers, if all are; infinite ones are as good as missing."""
    unknown: list[Level | None] = [None] * len(values)
    try:
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    except OverflowError:  # a whole number beside floats
        return IMPRECISE, unknown
    finite = np.isfinite(numbers)
    if (numbers != np.floor(numbers))[finite].any():
        return FRACTIONS, unknown
    if (np.abs(numbers) >= _FIRST_GAP)[finite].any():
        return IMPRECISE, unknown
    levels: list[Level | None] = [
        int(x) if ok else None for x, ok in zip(numbers, finite, strict=True)
    ]
    return (WHOLE if finite.any() else ""), levels

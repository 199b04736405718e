"""Turn columns of text, categories, booleans or whole numbers into codes.

    column --distinct--> its different values, and which of them each row has
                 --coded--> float32: the number of its level, -1.0 for a level that no
                            nominal row has, NaN for a missing value, inf for an
                            infinite one

Levels have types: the text "1", the whole number 1 and True are different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.json_arrays import Elsewhere
from lpe_dask.tables.row_checks import rows_changed_message
from lpe_dask.tables.value_types import (
    BOOLEAN,
    FLOAT,
    FRACTIONS,
    IMPRECISE,
    INFERRED,
    TEXT,
    WHOLE,
    Level,
    check_kind,
    kind_of_levels,
    kind_of_values,
)
from lpe_dask.tasks import frame_tasks, new_tasks

#: The most levels of a column, and the most characters, or digits, of one.
MAX_LEVELS = 10_000
MAX_CHARACTERS = 1_000

#: Values that are shown of those that are no levels.
MAX_EXAMPLES = 3

#: From here on floats leave out whole numbers.
_FIRST_GAP = 2.0**53

#: Kind -> what makes a level of a value: a plain one, also of an enumeration's members.
_PLAIN: dict[str, Callable[[Any], Level]] = {TEXT: str.__str__, BOOLEAN: bool, WHOLE: int}

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
    groups : GroupLevels, optional
        Where the last columns divide rows into groups: these. Rows then have the number of
        their group as one more column, the last.
    """

    places: tuple[int, ...] = ()
    levels: tuple[tuple[Level, ...], ...] = ()
    groups: Elsewhere = None

    @property
    def n_by(self) -> int:
        """How many columns divide rows into groups."""
        return 0 if self.groups is None else len(self.groups.kinds)

    @property
    def kinds(self) -> dict[int, str | None]:
        """What the values of each column are, by its position; None where it has none."""
        return dict(zip(self.places, map(kind_of_levels, self.levels), strict=True))

    def kinds_among(self, n_columns: int) -> dict[int, str | None]:
        """Return the same of so many columns, the last of which divide rows into groups."""
        of_groups = [] if self.groups is None else self.groups.level_kinds
        return {**self.kinds, **dict(enumerate(of_groups, n_columns - self.n_by))}

    def __sizeof__(self) -> int:
        """Return about how many bytes it takes: larger ones are not sent inside graphs."""
        levels = (str(level) for of_column in self.levels for level in of_column)
        of_groups = 0 if self.groups is None else self.groups.__sizeof__()
        n_bytes = sum(_LEVEL_BYTES + len(s.encode(errors="replace")) for s in levels)
        return n_bytes + of_groups

    def new_levels(self, frame: Any, number: int, place: int) -> Delayed:
        """Return a task for `unseen_levels` of a column in a partition of a dask frame."""
        levels = dict(zip(self.places, self.levels, strict=True))
        keys, partitions = frame_tasks(frame)
        task = (unseen_levels, keys[number], place, levels[place])
        (examples,) = new_tasks("unseen-levels", [task], [partitions])
        return examples


# The functions below run inside tasks.


def coded(
    column: pd.Series, levels: Sequence[Level], label: str, *, is_nominal: bool
) -> NDArray[np.float32]:
    """Return the codes of a column, of shape (n_rows,)."""
    kind, found, positions = distinct(column)
    fitted = kind_of_levels(levels)
    if fitted is not None:
        check_kind(kind, fitted, label)
    numbers = {level: number for number, level in enumerate(levels)}
    codes = [np.inf if v is None else numbers.get(v, -1) for v in found]
    if is_nominal and -1 in codes:
        raise ValueError(rows_changed_message(f"has other values in {label}"))
    # The last one is that of missing values, whose position is -1.
    return np.array([*codes, np.nan], np.float32)[positions]


def unseen_levels(frame: pd.DataFrame, place: int, levels: Sequence[Level]) -> list[str]:
    """Return the most frequent values of a column that are none of the levels, as text."""
    _, found, positions = distinct(frame.iloc[:, place])
    counts = pd.Series(positions[positions >= 0]).value_counts()
    new = [str(found[i]) for i in counts.index if found[i] not in {None, *levels}]
    return new[:MAX_EXAMPLES]


def distinct(column: pd.Series) -> tuple[str, list[Level | None], NDArray[np.integer]]:
    """Return the kind of a column, its different values, and which of these each row has.

    The values are None where they are infinite, and [] if they are no levels; the position
    of a missing one is -1.
    """
    if column.dtype == object:  # before 1 and True become one: they are equal to pandas
        kind = kind_of_values(column)
        if kind not in INFERRED.values():
            return kind, [], np.full(len(column), -1)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.cat.remove_unused_categories()
        positions, values = column.cat.codes.to_numpy(), column.cat.categories
    else:
        positions, values = pd.factorize(column)
        values = pd.Index(values)
    kind = kind_of_values(values)
    levels: list[Level | None] = []
    if kind == FLOAT:
        kind, levels = _whole_numbers(values)
    elif kind in _PLAIN:
        levels = list(map(_PLAIN[kind], values))
    return kind, levels, positions if levels else np.full(len(column), -1)


def _whole_numbers(values: pd.Index) -> tuple[str, list[Level | None]]:
    """Return floats as whole numbers, if all are; infinite ones are as good as missing."""
    try:
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    except OverflowError:  # a whole number beside floats
        return IMPRECISE, []
    finite = numbers[np.isfinite(numbers)]
    if (finite != np.floor(finite)).any():
        return FRACTIONS, []
    if (np.abs(finite) >= _FIRST_GAP).any():
        return IMPRECISE, []
    return (WHOLE if len(finite) else ""), [
        int(x) if np.isfinite(x) else None for x in numbers
    ]

"""Find the categorical columns of nominal rows, and the values that these have there.

    column names, types --which of them--> places of the columns
    rows --one task a partition--> different values --merged in a tree--> Categories

A column may have too many different values to keep, or too long ones: `MAX_LEVELS` and one
more are enough to know, and that there are long ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lpe_dask.tables.categorical_columns import (
    may_have_levels,
    not_categorical,
    possible_places,
)
from lpe_dask.tables.categories import (
    MAX_CHARACTERS,
    MAX_LEVELS,
    Categories,
    distinct,
)
from lpe_dask.tables.column_names import format_option
from lpe_dask.tables.column_survey import survey_columns
from lpe_dask.tables.sources import open_source
from lpe_dask.tables.value_types import (
    BOOLEAN,
    LEVEL_TYPES,
    TEXT,
    Level,
    column_label,
    kind_of_type,
)

#: Values of a column that are kept: one more than it may have.
_ENOUGH = MAX_LEVELS + 1

#: The smallest whole number of too many digits.
_LONG = 10**MAX_CHARACTERS


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found in a column of some partitions.

    Attributes
    ----------
    kinds : frozenset of str
        Of the values of each partition, as `distinct` gives them.
    levels : frozenset
        Up to `MAX_LEVELS` and one more.
    has_long : bool
        Whether there are others, of more than `MAX_CHARACTERS`.
    n_values : int
        How many values there are, also equal ones.
    """

    kinds: frozenset[str] = frozenset()
    levels: frozenset[Level] = frozenset()
    has_long: bool = False
    n_values: int = 0

    @property
    def is_id(self) -> bool:
        """Whether nearly all values are different."""
        return self.n_values >= 50 and len(self.levels) > 0.9 * self.n_values


def learn_categories(
    X: Any,
    categorical: str | Sequence[Any] | None,
    *,
    max_partitions: int | None = None,
    n_by: int = 0,
) -> Categories | None:
    """Return the categorical columns of nominal rows, and their levels; computes.

    The levels are those of all nominal rows, also of rows that are not searched: those that
    ``missing="drop"`` leaves out, and calibration rows.

    Parameters
    ----------
    X : as for `Table.of`
        The columns to measure.
    categorical : {None, "auto"} or sequence
        Names of columns, or positions for an array. "auto": all columns of text, categories
        or booleans; those of objects are read to know.
    max_partitions : int, optional
        Read no more than so many, evenly: for a forecast. None: all.
    n_by : int, default=0
        How many of the last columns are not measured.

    Returns
    -------
    categories : Categories or None
        None if there are no such columns, or no table at all: `Table.of` says why.

    Raises
    ------
    TypeError
        For a column of something else than text, categories, booleans or whole numbers, or
        of several of them, naming it.
    ValueError
        For a column that is not there, or that has too many different values or too long
        ones.
    """
    if categorical is None:
        return None
    source = open_source(X).without_last(n_by)
    places = possible_places(source.meta, categorical)
    found = survey_columns(source, places, seen_of, merged_seen, max_partitions)
    if isinstance(categorical, str):
        found = found_categorical(source.meta, found)
    return categories_of(found, list(source.meta.columns)) if found else None


def found_categorical(meta: pd.DataFrame, found: Mapping[int, Seen]) -> dict[int, Seen]:
    """Return the columns that "auto" takes, of those for which it looked at the values.

    Raises
    ------
    TypeError
        For a column of text and other values.
    ValueError
        If nearly all rows differ in one.
    """
    columns = {i: meta.iloc[:, i] for i in found}
    chosen = {i: of for i, of in found.items() if _is_categorical(columns[i], of)}
    _check_no_ids(list(meta.columns), chosen)
    return chosen


def categories_of(found: Mapping[int, Seen], names: Sequence[Any]) -> Categories:
    """Return the levels of columns by what was found in them, by their positions.

    Raises
    ------
    TypeError, ValueError
        As `learn_categories`.
    """
    levels = [_levels(of, column_label(names[place])) for place, of in found.items()]
    return Categories(tuple(found), tuple(levels))


def _is_categorical(column: pd.Series, found: Seen) -> bool:
    """Return whether "auto" takes a column for which it had to look at the values."""
    kinds = found.kinds - {""}
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    if is_category or kind_of_type(column.dtype) is not None:
        return True
    # Of objects. Booleans beside numbers are numbers; what else is no number is refused
    # as without categories.
    if TEXT in kinds and len(kinds) > 1:
        raise not_categorical(column_label(column.name), " and ".join(sorted(kinds)))
    return bool(kinds) and kinds <= {TEXT, BOOLEAN}


def _check_no_ids(names: list[Any], found: Mapping[int, Seen]) -> None:
    """Raise ValueError if "auto" has found a column in which nearly all rows differ."""
    for place, seen in found.items():
        if seen.is_id:
            others = [name for i, name in enumerate(names) if i != place]
            named = [names[i] for i in found]
            raise ValueError(
                f"{column_label(names[place])} has {len(seen.levels):,} different values "
                f"in {seen.n_values:,} rows, so nearly every row would differ from all "
                f"others in it. Leave it out (columns={others}, "
                f"{format_option('--columns', others)}), or if it is a category, name it "
                f"(categorical={named}, {format_option('--categorical', named)})."
            )


def _levels(seen: Seen, label: str) -> tuple[Level, ...]:
    kinds = sorted(seen.kinds - {""})
    if len(kinds) > 1 or not LEVEL_TYPES.keys() >= set(kinds):
        raise not_categorical(label, " and ".join(kinds))
    why = ""
    if seen.has_long:
        why = (
            f"values of more than {MAX_CHARACTERS:,} characters, too long to be a category"
        )
    elif len(seen.levels) > MAX_LEVELS:
        why = f"more than {MAX_LEVELS:,} different values, too many to be a category"
    elif not all(map(_is_unicode, seen.levels)):
        why = "text that is not Unicode (parts of surrogate pairs), which cannot be saved"
    if why:
        raise ValueError(
            f"{label} has {why}. Leave it out (columns=, --columns), or group, shorten or "
            f"repair its values."
        )
    return tuple(sorted(seen.levels))


def _is_unicode(level: Level) -> bool:
    return not isinstance(level, str) or level == level.encode(errors="replace").decode()


# The functions below run inside tasks.


def seen_of(column: pd.Series) -> Seen:
    """Return what is found in a column of a partition.

    Raises
    ------
    TypeError
        If its values cannot be levels.
    """
    kind = kind_of_type(column.dtype)
    if not may_have_levels(kind) and column.notna().any():
        raise not_categorical(column_label(column.name), str(kind))
    kind, levels, positions = distinct(column)
    present = {level for level in levels if level is not None}
    short = {level for level in present if not _is_long(level)}
    n_values, has_long = int((positions >= 0).sum()), len(short) < len(present)
    return Seen(frozenset({kind}), _kept(short), has_long, n_values)


def merged_seen(of_column: list[Seen]) -> Seen:
    """Return what is found in several partitions."""
    return Seen(
        frozenset().union(*(seen.kinds for seen in of_column)),
        _kept(frozenset().union(*(seen.levels for seen in of_column))),
        any(seen.has_long for seen in of_column),
        sum(seen.n_values for seen in of_column),
    )


def _is_long(level: Level) -> bool:
    return len(level) > MAX_CHARACTERS if isinstance(level, str) else abs(level) >= _LONG


def _kept(levels: Iterable[Level]) -> frozenset[Level]:
    """Return the levels, and no more than are needed to refuse them."""
    kept = frozenset(levels)
    return kept if len(kept) <= MAX_LEVELS else frozenset(sorted(kept, key=str)[:_ENOUGH])

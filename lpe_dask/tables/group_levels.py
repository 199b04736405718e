"""The groups of rows, by their values in some columns: which there are, and their codes.

    columns of a partition --_surveyed--> its groups, and how many rows each has
                           --merged_groups in a tree, sorted--> GroupLevels
    columns of a partition --GroupLevels.codes--> the number of the group of each row

Values have types, as those of categories: the text "1", the whole number 1 and True are
different ones. There may be any number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from numpy.typing import NDArray

from lpe_dask.tables.arrays import as_array
from lpe_dask.tables.categories import distinct
from lpe_dask.tables.column_names import GroupColumnError, resolve_by
from lpe_dask.tables.column_survey import survey_parts
from lpe_dask.tables.columns import is_frame, select_columns
from lpe_dask.tables.group_dates import (
    CONVERSIONS,
    DATES,
    ZONED_DATES,
    are_dates,
    distinct_dates,
    in_one_zone,
)
from lpe_dask.tables.group_index import GroupIndex
from lpe_dask.tables.interop import ConvertedTable, as_table
from lpe_dask.tables.sources import Source, open_source
from lpe_dask.tables.table_files import is_path_like, read_frame
from lpe_dask.tables.value_types import (
    BOOLEAN,
    GROUP,
    LEVEL_TYPES,
    WHOLE,
    check_kind,
    column_label,
)

#: More groups than codes that float32 holds.
MAX_GROUPS = 2**24

#: The kinds of values in each column, and the groups with their rows.
GroupSurvey = tuple[list[frozenset[str]], pd.DataFrame]

#: A whole number that an int64 may not hold.
_LARGE = 2**63

#: Column of counts in a frame of groups.
_ROWS = "rows"


@dataclass(frozen=True, slots=True, eq=False)
class GroupLevels:
    """The groups that nominal rows have, sorted by their values.

    Attributes
    ----------
    kinds : tuple of str
        What the values of each column are.
    values : DataFrame of shape (n_groups, n_columns)
        Of each group, in columns 0, 1, ...
    n_rows : ndarray of shape (n_groups,)
        Rows of each group in all nominal rows.
    refuses_unknown : bool, default=False
        Whether rows of other groups are an error.
    index : GroupIndex
        Of the values.
    """

    kinds: tuple[str, ...]
    values: pd.DataFrame
    n_rows: NDArray[np.int64]
    refuses_unknown: bool = False
    index: GroupIndex = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", GroupIndex(self.values))

    @property
    def level_kinds(self) -> list[str | None]:
        """What each column has, as `Categories.kinds` says it; None for dates."""
        return [kind if kind in LEVEL_TYPES else None for kind in self.kinds]

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.values)

    def __sizeof__(self) -> int:
        """Return about the bytes of the values: larger ones are not sent inside graphs."""
        return int(self.values.memory_usage(index=False, deep=True).sum())

    def only(self, numbers: NDArray[np.integer]) -> GroupLevels:
        """Return some of the groups, which then have the numbers 0, 1, ..."""
        values = self.values.iloc[numbers].reset_index(drop=True)
        return GroupLevels(self.kinds, values, self.n_rows[numbers])

    def codes(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Return the number of the group of each row, of shape (n_rows,).

        NaN where a value is missing, -1 where no nominal row has these values.

        Parameters
        ----------
        frame : DataFrame
            The columns, in the order in which they were learned.

        Raises
        ------
        CategoryTypeError
            For a column with values of another type than the nominal rows have.
        ValueError
            For rows of unknown groups, where these are refused.
        """
        found = _Coded.of(frame)
        for kind, fitted, name in zip(found.kinds, self.kinds, frame.columns, strict=True):
            how = CONVERSIONS.get((kind, fitted), "")
            check_kind(kind, fitted, column_label(name), GROUP, how)
        keys = found.groups().drop(columns=_ROWS)
        numbers = self.numbers(keys)
        if self.refuses_unknown and (numbers < 0).any():
            some = keys[numbers < 0].head(3).to_numpy(object).tolist()
            raise ValueError(
                f"{(numbers < 0).sum()} groups have no nominal row, of "
                f"{', '.join(map(column_label, frame.columns))}, such as {some}. Leave "
                f"their rows out, or give small_groups='nan' or 'pool' (--small-groups)."
            )
        return np.append(numbers, np.nan)[found.numbers]

    def numbers(self, keys: pd.DataFrame) -> NDArray[np.int64]:
        """Return the number of the group with the values of each row; -1 if none has.

        Parameters
        ----------
        keys : DataFrame
            Values of the kinds of these groups, in columns 0, 1, ...
        """
        types, is_held = self.values.dtypes.to_dict(), np.ones(len(keys), bool)
        for i, type_ in types.items():
            if type_ == np.int64 and keys[i].dtype == object:
                is_held &= np.array([abs(value) < _LARGE for value in keys[i]], bool)
        numbers = np.full(len(keys), -1)
        numbers[is_held] = self.index.numbers(keys[is_held].astype(types))
        return numbers


def with_columns_last(X: Any, by: Sequence[Any], *, are_positions: bool = False) -> Any:
    """Return a table with the columns that divide rows into groups after all others.

    Parameters
    ----------
    X : array-like, DataFrame, dask array, dask DataFrame, or path or paths
    by : sequence
        Names of columns, or positions for an array.
    are_positions : bool, default=False
        Whether they are positions also in a table that has names.

    Raises
    ------
    GroupColumnError
        If one is not there, or no other is left to be measured.
    """
    X = read_frame(X) if is_path_like(X) else as_table(X)
    if isinstance(X, ConvertedTable):
        frame = with_columns_last(X.frame, by, are_positions=are_positions)
        return replace(X, frame=frame)
    if is_frame(X):
        names = list(X.columns)
        by = names_at(by, names) if are_positions else by
        chosen = resolve_by(by, names)
        _check_any_left(by, chosen, names)
        return select_columns(X, [*(n for n in names if n not in chosen), *chosen])
    X = as_array(X)
    X = X if is_dask_collection(X) else np.asarray(X)
    columns = list(range(X.shape[1] if X.ndim == 2 else 0))
    if any(isinstance(name, str) for name in by):
        raise GroupColumnError(
            f"by={list(by)} has text, but columns of an array have no names. Give their "
            f"positions, whole numbers of {columns} (by=)."
        )
    _check_any_left(by, resolve_by(by, columns), columns)
    return X[:, [*(i for i in columns if i not in by), *by]]


def sample_groups(
    X: Any, n_by: int, *, max_partitions: int
) -> tuple[NDArray[np.int64], Any]:
    """Return how many rows groups have in some partitions, and the measured columns.

    Computes.

    Parameters
    ----------
    X : as `with_columns_last` returns it
    n_by : int
        How many of the last columns divide rows into groups.
    max_partitions : int
    """
    source = open_source(X)
    n_columns = source.meta.shape[1]
    places = range(n_columns - n_by, n_columns)
    groups = learn_groups(source, places, max_partitions)
    return groups.n_rows, without_last(X, n_by)


def without_last(X: Any, n_columns: int) -> Any:
    """Return a frame or an array without so many of the last columns."""
    return open_source(X).without_last(n_columns).X if n_columns else X


def names_at(places: Sequence[int], names: Sequence[Any]) -> list[Any]:
    """Return the names of columns at these positions, as far as there are so many."""
    return [names[place] if place < len(names) else place for place in places]


def _check_any_left(by: Sequence[Any], chosen: Sequence[Any], columns: list[Any]) -> None:
    if len(columns) == len({*chosen}):
        raise GroupColumnError(
            f"by={list(by)} names all columns, so that none is left to be measured. Give "
            f"fewer (by=, --by)."
        )


def learn_groups(
    source: Source, places: Sequence[int], max_partitions: int | None = None
) -> GroupLevels:
    """Return the groups of all rows; computes.

    Parameters
    ----------
    source : Source
    places : sequence of int
        Positions of the columns whose values divide rows into groups; at least one.
    max_partitions : int, optional
        Read no more than so many, evenly: for a forecast. None: all.

    Raises
    ------
    TypeError
        For columns of something else than text, categories, booleans, whole numbers or
        dates, or of several of these.
    ValueError
        If no row has a group, or there are too many groups.
    """
    survey = survey_parts(source, places, _surveyed, merged_groups, max_partitions)
    return levels_of_groups(survey, [source.meta.columns[place] for place in places])


def levels_of_groups(survey: GroupSurvey, names: Sequence[Any]) -> GroupLevels:
    """Return the groups of all rows by their survey; errors are those of `learn_groups`.

    Parameters
    ----------
    survey : GroupSurvey
    names : sequence
        Of the columns.
    """
    (kinds, groups), labels = survey, list(map(column_label, names))
    for of_column, label in zip(kinds, labels, strict=True):
        known = sorted(of_column - {""})
        if len(known) > 1 or not {DATES, ZONED_DATES, *LEVEL_TYPES} >= set(known):
            raise TypeError(
                f"columns that divide rows into groups must be text, categories, booleans, "
                f"whole numbers or dates, each of one of them, but {label} has "
                f"{' and '.join(known)}. Leave it out (by=, --by), or convert it, for "
                f"example with frame[name].astype(str)."
            )
    if len(groups) == 0:
        raise ValueError(
            f"no row has a group: of {', '.join(labels)} at least one value is missing in "
            f"each. Leave such columns out (by=, --by)."
        )
    if len(groups) > MAX_GROUPS:
        raise ValueError(
            f"{', '.join(labels)} have {len(groups):,} different values together, and no "
            f"more than {MAX_GROUPS:,} groups are told apart. Leave a column out (by=, "
            f"--by), or round its values."
        )
    places = list(groups.columns[:-1])
    groups = groups.sort_values(places, ignore_index=True)
    found = tuple(next(iter(of - {""})) for of in kinds)
    return GroupLevels(found, groups[places], groups[_ROWS].to_numpy(np.int64))


# The functions below run inside tasks.


@dataclass(frozen=True, slots=True)
class _Coded:
    """The groups of a partition, by the different values of each column.

    Attributes
    ----------
    kinds : list of str
        Of the values of each column; "" if all are missing.
    levels : list of ndarray
        The different values of each column.
    places : list of ndarray of shape (n_groups,)
        Which of these each group has.
    counts : ndarray of shape (n_groups,)
        Rows of each group.
    numbers : ndarray of shape (n_rows,)
        Of the group of each row; -1 where a value is missing.
    """

    kinds: list[str]
    levels: list[Any]
    places: list[NDArray[np.int64]]
    counts: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _Coded:
        """Return the groups of the rows of a frame."""
        columns = [_distinct(frame.iloc[:, i]) for i in range(frame.shape[1])]
        combined, is_known = np.zeros(len(frame), np.int64), np.ones(len(frame), bool)
        for _, levels, positions in columns:
            is_known &= positions >= 0
            combined = combined * max(1, len(levels)) + positions
            # As few numbers as there are groups: products of many columns could overflow.
            combined = pd.factorize(combined)[0]
        inverse, found = pd.factorize(combined[is_known])
        firsts = np.empty(len(found), np.int64)
        firsts[inverse[::-1]] = np.arange(len(inverse))[::-1]
        counts = np.bincount(inverse, minlength=len(found))
        numbers = np.full(len(frame), -1)
        numbers[is_known] = inverse
        places = [positions[is_known][firsts] for _, _, positions in columns]
        kinds, values = [kind for kind, _, _ in columns], [of for _, of, _ in columns]
        return cls(kinds, values, places, counts, numbers)

    def groups(self) -> pd.DataFrame:
        """Return the values of each group, and how many rows it has."""
        columns: dict[Any, Any] = {
            i: _typed(levels[places] if len(levels) else levels, kind)
            for i, (kind, levels, places) in enumerate(
                zip(self.kinds, self.levels, self.places, strict=True)
            )
        }
        return pd.DataFrame(columns | {_ROWS: self.counts})


def _distinct(column: pd.Series) -> tuple[str, Any, NDArray[np.int64]]:
    """Return the kind of a column, its different values, and which of them rows have.

    -1 where a value is missing, or infinite.
    """
    if are_dates(column):
        return distinct_dates(column)
    kind, levels, places = distinct(column)
    is_none = np.array([level is None for level in levels], bool)
    values: NDArray[Any] = np.empty(len(levels), object)
    values[:] = levels
    positions = places.astype(np.int64)
    if is_none.any():
        positions = np.where((positions >= 0) & is_none[positions], -1, positions)
    return kind, values, positions


def _typed(values: Any, kind: str) -> pd.Series:
    """Return values of a kind as a column, of the same type in all partitions."""
    if kind in (DATES, ZONED_DATES):
        return pd.Series(values)
    if kind == BOOLEAN:
        return pd.Series(values.astype(bool))
    if kind == WHOLE and all(abs(value) < _LARGE for value in values):
        return pd.Series(values.astype(np.int64))
    return pd.Series(values, dtype=object)


def _surveyed(frame: pd.DataFrame) -> GroupSurvey:
    found = _Coded.of(frame)
    return [frozenset({kind}) for kind in found.kinds], found.groups()


def group_codes(frame: pd.DataFrame) -> tuple[GroupSurvey, NDArray[np.float64]]:
    """Return the groups of a partition, sorted, and which of these each row has; or NaN."""
    found = _Coded.of(frame)
    groups = found.groups()
    ordered = groups.sort_values(list(groups.columns[:-1]))
    ranks = np.empty(len(groups))
    ranks[ordered.index] = np.arange(len(groups))
    kinds = [frozenset({kind}) for kind in found.kinds]
    codes = np.append(ranks, np.nan)[found.numbers]
    return (kinds, ordered.reset_index(drop=True)), codes


def merged_groups(surveys: Sequence[GroupSurvey]) -> GroupSurvey:
    """Return the groups of several partitions."""
    kinds = [
        frozenset().union(*of_column)
        for of_column in zip(*(kinds for kinds, _ in surveys), strict=True)
    ]
    rows = pd.concat([of for _, of in surveys if len(of)] or [surveys[0][1]])
    names = list(rows.columns[:-1])
    for name, of_column in zip(names, kinds, strict=True):
        if of_column - {""} == {ZONED_DATES}:
            rows[name] = in_one_zone(rows[name])
    groups: pd.DataFrame = rows.groupby(names, sort=False)[_ROWS].sum().reset_index()
    return kinds, groups.astype(rows.dtypes.to_dict())  # pandas may infer others

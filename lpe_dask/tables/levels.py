"""Find the categorical columns of nominal rows, and the values that these have there.

    column names, types --which of them--> places of the columns
    rows --one task a partition--> different values --merged in a tree--> Categories

A column may have too many different values to keep, or too long ones: `MOST_LEVELS` and one
more are enough to know, and that there are long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.arrays import array_of
from lpe_dask.tables.categories import (
    MOST_CHARACTERS,
    MOST_LEVELS,
    Categories,
    column_of,
    distinct,
)
from lpe_dask.tables.column_names import as_given, as_option, identity, places_of
from lpe_dask.tables.columns import columns_at, is_frame
from lpe_dask.tables.files import is_paths, read_frame
from lpe_dask.tables.foreign import NamedTable, as_table
from lpe_dask.tables.kinds import (
    BOOLEAN,
    FLOAT,
    FRACTIONS,
    IMPRECISE,
    LEVEL_TYPES,
    TEXT,
    Level,
    is_category,
    kind_of_type,
    label_of,
)
from lpe_dask.tables.partitions import (
    checked_blocks,
    naming,
    part_of_columns,
    with_checked_names,
)
from lpe_dask.tasks import (
    compute,
    merge_tasks,
    meta_of,
    new_array,
    settle,
    simplified,
    under_own_keys,
)

#: Partitions whose values one task merges.
MERGED_LEVELS = 16

#: Values of a column that are kept: one more than it may have.
_ENOUGH = MOST_LEVELS + 1

#: The smallest whole number of too many digits.
_LONG = 10**MOST_CHARACTERS

_LEAVE_OUT = (
    "Leave it out (categorical=, --categorical; to measure other columns: columns=, "
    "--columns), or"
)
_CONVERT = "convert it, for example with frame[name].astype(str)."

#: What else to do about some kinds.
_REMEDIES = {
    FRACTIONS: "group its values, for example with pd.cut(frame[name], 10).astype(str).",
    IMPRECISE: "read it as whole numbers or text from the start: floats lose digits.",
}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found in a column.

    Attributes
    ----------
    kinds : frozenset of str
        Of the values of each partition, as in `Distinct`.
    levels : frozenset
        Up to `MOST_LEVELS` and one more.
    has_long : bool
        Whether there are others, of more than `MOST_CHARACTERS`.
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
    X: Any, categorical: str | Sequence[Any] | None, *, most_partitions: int | None = None
) -> Categories | None:
    """Return the categorical columns of nominal rows, and their levels; computes.

    The levels are those of all nominal rows, also of rows that are not searched: those that
    ``missing="drop"`` leaves out, and calibration rows.

    Parameters
    ----------
    X : as for `table.read_table`
        The columns to measure.
    categorical : {None, "auto"} or sequence
        Names of columns, or positions for an array. "auto": all columns of text, categories
        or booleans; those of objects are read to know.
    most_partitions : int, optional
        Read no more than so many, evenly: for a forecast. None: all.

    Returns
    -------
    categories : Categories or None
        None if there are no such columns, or no table at all: `table.read_table` says why.

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
    columns = _columns_of(read_frame(X) if is_paths(X) else X)
    places = columns.places(categorical) if columns.dtypes else []
    if not places:
        return None
    seen = _survey(columns.rows, places, _seen_of, _merged, most_partitions)
    found = dict(zip(places, seen, strict=True))
    if isinstance(categorical, str):
        found = {p: of for p, of in found.items() if columns.is_categorical(p, of)}
        columns.check_no_ids(found)
    return columns.categories(found) if found else None


def categorical_places(
    frame: Any, kinds: Sequence[str | None], categorical: str | Sequence[Any] | None
) -> list[int]:
    """Return the positions of the categorical columns of a table in files; reads no rows.

    Parameters
    ----------
    frame : dask DataFrame
    kinds : list of str or None
        What its columns have, as `FileTable.kinds` gives it.
    categorical : as for `learn_categories`
    """
    if categorical is None:
        return []
    columns = _columns_of(frame)
    places = columns.places(categorical)
    if not isinstance(categorical, str):
        return places
    return [
        i for i in places if is_category(columns.dtypes[i]) or kinds[i] in (TEXT, BOOLEAN)
    ]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a table.

    Attributes
    ----------
    rows : DataFrame, dask DataFrame, ndarray or dask array
    names : list, optional
        None: those of an array have none.
    dtypes : list
    """

    rows: Any
    names: list[Any] | None
    dtypes: list[Any]

    @property
    def labels(self) -> list[str]:
        """What to call the columns in a message."""
        return list(map(label_of, self.names or range(len(self.dtypes))))

    def places(self, categorical: str | Sequence[Any]) -> list[int]:
        """Return the positions of columns that are, or may be, categorical, ascending."""
        if isinstance(categorical, str):
            return [i for i, dtype in enumerate(self.dtypes) if _may_be_category(dtype)]
        chosen = sorted(self._places_of(categorical))
        for place in chosen:
            kind = kind_of_type(self.dtypes[place])
            if not _may_have_levels(kind):
                raise _not_categorical(self.labels[place], str(kind))
        return chosen

    def check_no_ids(self, found: Mapping[int, _Seen]) -> None:
        """Raise ValueError if "auto" has found a column in which nearly all rows differ."""
        for place, seen in found.items():
            if seen.is_id:
                names = self.names or list(range(len(self.dtypes)))
                others = [name for i, name in enumerate(names) if i != place]
                named = [names[i] for i in found]
                raise ValueError(
                    f"{self.labels[place]} has {len(seen.levels):,} different values in "
                    f"{seen.n_values:,} rows, so nearly every row would differ from all "
                    f"others in it. Leave it out (columns={others}, "
                    f"{as_option('--columns', others)}), or if it is a category, name it "
                    f"(categorical={named}, {as_option('--categorical', named)})."
                )

    def categories(self, found: Mapping[int, _Seen]) -> Categories:
        """Return categories, checked, of what was found in the columns at some places."""
        levels = [_levels(seen, self.labels[place]) for place, seen in found.items()]
        return Categories(tuple(found), tuple(levels))

    def _places_of(self, categorical: Sequence[Any]) -> list[int]:
        if self.names is None:
            every: list[Any] = list(range(len(self.dtypes)))
            known = f"X is an array: give positions from 0 to {len(every) - 1}"
        else:
            every = self.names
            known = f"the measured columns are {every}"
            categorical = as_given(categorical, every)
        places = places_of(every)
        missing = [name for name in categorical if identity(name) not in places]
        if missing:
            raise ValueError(
                f"categorical={list(categorical)} names {missing}, but {known}. Correct "
                f"it (categorical=, --categorical)."
            )
        return [places[identity(name)][0] for name in categorical]

    def is_categorical(self, place: int, found: _Seen) -> bool:
        """Return whether "auto" takes a column for which it had to look at the values."""
        kinds = found.kinds - {""}
        if is_category(dtype := self.dtypes[place]) or kind_of_type(dtype) is not None:
            return True
        # Of objects. Booleans beside numbers are numbers; what else is no number is refused
        # as without categories.
        if TEXT in kinds and len(kinds) > 1:
            raise _not_categorical(self.labels[place], " and ".join(sorted(kinds)))
        return bool(kinds) and kinds <= {TEXT, BOOLEAN}


def _may_have_levels(kind: str | None) -> bool:
    return kind in (None, FLOAT, *LEVEL_TYPES)


def _may_be_category(dtype: Any) -> bool:
    return is_category(dtype) or kind_of_type(dtype) in (None, TEXT, BOOLEAN)


def _columns_of(rows: Any) -> _Columns:
    rows = as_table(rows)
    if isinstance(rows, NamedTable):
        rows = rows.frame
    if is_frame(rows):
        return _Columns(rows, list(rows.columns), list(rows.dtypes))
    is_lazy = isinstance(rows, da.Array)
    if not is_lazy and not is_dask_collection(rows):
        rows = np.asarray(array_of(rows))
    is_dense = isinstance(meta_of(rows) if is_lazy else rows, np.ndarray)
    if not is_dense or rows.ndim != 2 or np.isnan(rows.shape[1]):
        return _Columns(rows, None, [])
    return _Columns(rows, None, [rows.dtype] * rows.shape[1])


def _levels(seen: _Seen, label: str) -> tuple[Level, ...]:
    kinds = sorted(seen.kinds - {""})
    if len(kinds) > 1 or not LEVEL_TYPES.keys() >= set(kinds):
        raise _not_categorical(label, " and ".join(kinds))
    if seen.has_long:
        raise ValueError(
            f"{label} has values of more than {MOST_CHARACTERS:,} characters, too long to "
            f"be a category. Leave it out (columns=, --columns), or group or shorten its "
            f"values."
        )
    if len(seen.levels) > MOST_LEVELS:
        raise ValueError(
            f"{label} has more than {MOST_LEVELS:,} different values, too many "
            f"to be a category. Leave it out (columns=, --columns), or group its values."
        )
    if not all(map(_is_unicode, seen.levels)):
        raise ValueError(
            f"{label} has text that is not Unicode (parts of surrogate pairs), "
            f"which cannot be saved. Repair it, or leave the column out (columns=, "
            f"--columns)."
        )
    return tuple(sorted(seen.levels))


def _is_unicode(level: Level) -> bool:
    return not isinstance(level, str) or level == level.encode(errors="replace").decode()


def _not_categorical(label: str, found: str) -> TypeError:
    remedy = next((_REMEDIES[kind] for kind in _REMEDIES if kind in found), _CONVERT)
    return TypeError(
        f"categorical columns must be text, categories, booleans or whole numbers, each of "
        f"one of them, but {label} has {found}. {_LEAVE_OUT} {remedy}"
    )


def survey_columns(
    X: Any,
    but: Collection[int],
    of_column: Callable[[pd.Series], Any],
    merge: Callable[[list[Any]], Any],
    most_partitions: int | None,
) -> dict[int, Any]:
    """Return what is found in all columns but some, by their positions; computes.

    Parameters
    ----------
    X, most_partitions : as for `learn_categories`
    but : collection of int
        Positions of columns to leave out.
    of_column : callable
        Returns what is found in a column of a partition.
    merge : callable
        Returns one of several such, of the same column.
    """
    columns = _columns_of(read_frame(X) if is_paths(X) else X)
    places = [i for i in range(len(columns.dtypes)) if i not in but]
    found = _survey(columns.rows, places, of_column, merge, most_partitions)
    return dict(zip(places, found, strict=True))


def _survey(
    rows: Any,
    places: Sequence[int],
    of_column: Callable[[pd.Series], Any],
    merge: Callable[[list[Any]], Any],
    most: int | None,
) -> list[Any]:
    """Return what is found in some columns; computes."""
    if isinstance(rows, pd.DataFrame):
        return _of_frame(rows.iloc[:, list(places)], of_column)
    if isinstance(rows, np.ndarray):
        return _of_array(rows, places, of_column)
    tasks: list[Any]
    if isinstance(rows, da.Array):
        rows = checked_blocks(rows, has_text=True, converts=False)
        keys, source = [(rows.name, i, 0) for i in range(rows.numblocks[0])], rows
        tasks = [(_of_array, key, list(places), of_column) for key in _some(keys, most)]
    else:
        chosen = columns_at(rows, list(places))
        names = list(chosen.columns)
        keys, source = tasks_of_frame(with_checked_names(chosen))
        numbered = _some(list(enumerate(keys)), most)
        tasks = [(_of_part, key, names, i, of_column) for i, key in numbered]
    # As blocks of an array, they are read like rows: see `settle`.
    chunks = ((np.nan,) * len(tasks), (len(places),))
    surveys = new_array("levels", tasks, [source], chunks, np.empty((0, 0), object))
    surveys = settle(surveys, "lpe-read", is_foreign=True)
    name = f"lpe-levels-{uuid4().hex}"
    keys = [(surveys.name, i, 0) for i in range(len(tasks))]
    merged_by = partial(_merged_columns, merge=merge)
    merged, left = merge_tasks(name, keys, merged_by, MERGED_LEVELS)
    graph = HighLevelGraph.from_collections(
        name, merged | {name: (merged_by, left)}, dependencies=[surveys]
    )
    (found,) = compute(Delayed(name, graph, layer=name))
    return list(found)


def _some(keys: list[Any], most: int | None) -> list[Any]:
    n_read = len(keys) if most is None else min(most, len(keys))
    return [keys[i * len(keys) // n_read] for i in range(n_read)]


def tasks_of_frame(frame: Any) -> tuple[list[Any], Delayed]:
    """Return the keys of the partitions of a dask frame, and the graph that has them.

    Only needed columns are read. A full optimization would also read several partitions as
    one where columns were left out, but results have the partitions of the user.
    """
    read = simplified(frame)
    keys = list(read.__dask_keys__())
    source = f"lpe-frame-{uuid4().hex}"
    graph = HighLevelGraph.from_collections(source, under_own_keys(read.__dask_graph__()))
    return keys, Delayed(keys[0], graph, layer=source)


# The functions below run inside tasks.


def _of_frame(frame: pd.DataFrame, of_column: Callable[[pd.Series], Any]) -> list[Any]:
    return [of_column(frame.iloc[:, i]) for i in range(frame.shape[1])]


def _of_part(
    part: Any, names: list[Any], number: int, of_column: Callable[[pd.Series], Any]
) -> list[Any]:
    frame = part_of_columns(part, names, {"number": number})
    with naming("partition", number):
        return _of_frame(frame, of_column)


def _of_array(
    array: NDArray[Any], places: Sequence[int], of_column: Callable[[pd.Series], Any]
) -> list[Any]:
    array = array_of(array)
    return [of_column(column_of(array, place)) for place in places]


def _merged_columns(
    surveys: list[list[Any]], merge: Callable[[list[Any]], Any]
) -> list[Any]:
    return [merge(list(of_column)) for of_column in zip(*surveys, strict=True)]


def _seen_of(column: pd.Series) -> _Seen:
    kind = kind_of_type(column.dtype)
    if not _may_have_levels(kind) and column.notna().any():
        raise _not_categorical(label_of(column.name), str(kind))
    found = distinct(column)
    present = {level for level in found.levels if level is not None}
    short = set(filterfalse(_is_long, present))
    n_values = int((found.positions >= 0).sum())
    has_long = len(short) < len(present)
    return _Seen(frozenset({found.kind}), _kept(short), has_long, n_values)


def _merged(of_column: list[_Seen]) -> _Seen:
    return _Seen(
        frozenset().union(*(seen.kinds for seen in of_column)),
        _kept(frozenset().union(*(seen.levels for seen in of_column))),
        any(seen.has_long for seen in of_column),
        sum(seen.n_values for seen in of_column),
    )


def _is_long(level: Level) -> bool:
    if isinstance(level, str):
        return len(level) > MOST_CHARACTERS
    return abs(level) >= _LONG


def _kept(levels: Iterable[Level]) -> frozenset[Level]:
    """Return the levels, and no more than are needed to refuse them."""
    kept = frozenset(levels)
    return kept if len(kept) <= MOST_LEVELS else frozenset(sorted(kept, key=str)[:_ENOUGH])

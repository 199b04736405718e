r"""Survey all nominal rows by one reading; computes.

rows of a partition ---RowSurveyor---> RowSurvey ------------> on the client
                                           \--> exact sums --added in a tree--> Moments

a partition with columns of categories, or of groups:
    --> levels of its own --merged in a tree--> Categories of all ---+
    --> rows with codes of its own --RowSurveyor--> RowSurvey ---> recoded by these
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.kernels import Moments
from lpe_dask.tables.categories import Categories
from lpe_dask.tables.group_facts import GroupFacts
from lpe_dask.tables.group_levels import (
    GroupLevels,
    GroupSurvey,
    group_codes,
    levels_of_groups,
    merged_groups,
)
from lpe_dask.tables.levels import (
    Seen,
    categories_of,
    found_categorical,
    merged_seen,
    seen_of,
)
from lpe_dask.tables.partitions import RowEncoder, as_frame, error_context
from lpe_dask.tables.row_survey import RowSurvey, RowSurveyor, recoded
from lpe_dask.tables.sources import Source
from lpe_dask.tasks import LocalValue, compute, freeze, merge_tasks, new_array, new_tasks

#: Rows that are sampled in all, and at least from each chunk: they show the distribution of
#: the rows, on which no exact result depends.
SAMPLE_ROWS, MIN_SAMPLED_ROWS = 16_384, 16

#: The exact sums of rows, and what those of each group have.
_Sums = tuple[Moments | None, GroupFacts | None]

#: Partitions whose exact sums, or levels, one task merges.
_MERGED_SUMS, _MERGED_LEVELS = 8, 16


def n_sampled(n_chunks: int) -> int:
    """Return how many rows are sampled from each of so many chunks."""
    return max(MIN_SAMPLED_ROWS, -(-SAMPLE_ROWS // n_chunks))


@dataclass(frozen=True, slots=True)
class NominalSurvey:
    """What all nominal rows have.

    Attributes
    ----------
    parts : list of RowSurvey
        Of the partitions, without sums.
    moments : Moments, optional
        Of all rows that are kept.
    group_facts : GroupFacts, optional
        Of these, too.
    """

    parts: list[RowSurvey]
    moments: Moments | None = None
    group_facts: GroupFacts | None = None


def survey_rows(
    rows: da.Array,
    surveyor: RowSurveyor,
    learned: NDArray[np.int64] | None = None,
    sizes: Sequence[int] = (),
) -> NominalSurvey:
    """Return the survey of rows of numbers and codes; computes.

    Parameters
    ----------
    rows : dask array
    surveyor : RowSurveyor
    learned : ndarray of int, optional
        Of which rows sums are gathered, ascending; None: of all that are kept.
    sizes : sequence of int
        Rows of the chunks, where some are chosen.
    """
    n_chunks = rows.numblocks[0]
    tasks: list[Any] = [(surveyor.of, (rows.name, i, 0)) for i in range(n_chunks)]
    entered: list[Delayed] = []
    if learned is not None:
        edges = np.cumsum([0, *sizes])
        starts = np.searchsorted(learned, edges).tolist()
        numbers, entered = LocalValue(learned, "lpe-chosen").slices(starts)
        chosen = new_tasks("chosen", numbers, entered)
        entered = chosen[:1]
        tasks = [
            (surveyor.of_some, (rows.name, i, 0), of_chunk.key, int(edges[i]))
            for i, of_chunk in enumerate(chosen)
        ]
    surveys = new_tasks("survey", tasks, [rows, *entered])
    parts, sums = _with_sums_apart(surveys, surveyor)
    found = compute(*parts, *sums)
    return NominalSurvey(list(found[:n_chunks]), *_parts_of(found[n_chunks:]))


def survey_levels(
    source: Source,
    places: Sequence[int],
    n_by: int,
    encoder: RowEncoder,
    surveyor: RowSurveyor,
    *,
    are_found: bool = False,
) -> tuple[Categories, NominalSurvey | None]:
    """Return the levels of categories and groups, and the survey of rows; computes.

    The survey is None if another reading has to make it, by these categories: columns of
    objects that may be categorical turned out not to be.

    Parameters
    ----------
    source : Source
        Lazy.
    places : sequence of int
        Positions of the categorical columns.
    n_by : int
        How many of the last columns divide rows into groups.
    encoder : RowEncoder
    surveyor : RowSurveyor
    are_found : bool, default=False
        Whether these are all that may be categorical, as nobody has named any.

    Raises
    ------
    TypeError, ValueError
        As `levels.learn_categories` and `group_levels.learn_groups`.
    """
    meta = source.meta.iloc[:0]
    coder = _LevelSurveyor(tuple(places), n_by, encoder, surveyor)
    keys, sizes, collection = source.parts()
    tasks = [
        (error_context, key, i, source.names, coder.of, n_rows)
        for i, (key, n_rows) in enumerate(zip(keys, sizes, strict=True))
    ]
    # As blocks of an array, they are read like rows: see `freeze`.
    chunks = ((np.nan,) * len(tasks), (1,))
    surveys = new_array("survey", tasks, [collection], chunks, np.empty((0, 0), object))
    surveys = freeze(surveys, "lpe-read", is_foreign=True)
    parts = [(surveys.name, i, 0) for i in range(len(tasks))]
    name = f"lpe-levels-{uuid4().hex}"
    levels = {f"{name}-of-{i}": (_levels_of, key) for i, key in enumerate(parts)}
    merged, left = merge_tasks(name, list(levels), _merge_levels, _MERGED_LEVELS)
    learned = {f"{name}-all": (_learned, left, coder.places, meta, n_by, are_found)}
    graph = HighLevelGraph.from_collections(
        name, levels | merged | learned, dependencies=[surveys]
    )
    all_levels = Delayed(f"{name}-all", graph, layer=name)
    recode = ((_recoded, key, all_levels.key, coder.places) for key in parts)
    coded = new_tasks("recode", recode, [surveys, all_levels])
    bare, sums = _with_sums_apart(coded, surveyor)
    found = compute(all_levels, *bare, *sums)
    (categories, error), *others = found
    if error is not None:
        raise error
    if categories.places != coder.places:
        return categories, None
    n_parts = len(parts)
    return categories, NominalSurvey(others[:n_parts], *_parts_of(others[n_parts:]))


def _with_sums_apart(
    surveys: list[Delayed], surveyor: RowSurveyor
) -> tuple[list[Delayed], list[Delayed]]:
    """Return tasks for the surveys without sums, and one for the sums of all, if any."""
    if surveyor.sums is None:
        return surveys, []
    bare = new_tasks("survey-of", ((_without_sums, of.key) for of in surveys), surveys)
    name = f"lpe-sums-{uuid4().hex}"
    of_each = {f"{name}-of-{i}": (_sums, of.key) for i, of in enumerate(surveys)}
    merged, keys = merge_tasks(name, list(of_each), _added, _MERGED_SUMS)
    tasks = of_each | merged | {f"{name}-all": (_added, keys)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=surveys)
    return bare, [Delayed(f"{name}-all", graph, layer=name)]


def _parts_of(found: Sequence[_Sums]) -> _Sums:
    return found[0] if len(found) > 0 else (None, None)


# The functions below run inside tasks.


@dataclass(frozen=True, slots=True)
class _Levels:
    """What columns of categories and of groups have.

    Attributes
    ----------
    seen : list of Seen
        Of each column of categories.
    groups : GroupSurvey, optional
    """

    seen: list[Seen]
    groups: GroupSurvey | None


@dataclass(frozen=True, slots=True)
class _PartSurvey:
    """The survey of a partition by its own levels.

    Attributes
    ----------
    levels : _Levels
    categories : Categories, optional
        Of its own; None if these show an error already.
    rows : RowSurvey, optional
        Likewise.
    """

    levels: _Levels
    categories: Categories | None = None
    rows: RowSurvey | None = None


@dataclass(frozen=True, slots=True)
class _LevelSurveyor:
    """Surveys partitions by levels of their own; attributes as for `survey_levels`."""

    places: tuple[int, ...]
    n_by: int
    encoder: RowEncoder
    surveyor: RowSurveyor

    def of(self, part: Any) -> _PartSurvey:
        """Return the survey of a partition."""
        frame = as_frame(part)
        n_measured = frame.shape[1] - self.n_by
        measured = frame.iloc[:, :n_measured]
        seen = [seen_of(measured.iloc[:, i]) for i in self.places]
        groups = of_rows = None
        if self.n_by:
            groups, of_rows = group_codes(frame.iloc[:, n_measured:])
        levels = _Levels(seen, groups)
        try:
            own = categories_of(
                dict(zip(self.places, seen, strict=True)), list(measured.columns)
            )
        except (TypeError, ValueError):  # which is that of all rows, too
            return _PartSurvey(levels)
        rows = self.encoder.rows(measured, own)
        if of_rows is not None:
            dtype = np.result_type(rows.dtype, np.float32)
            rows = np.column_stack([rows, of_rows]).astype(dtype, copy=False)
        if self.encoder.dtype is not None:
            rows = rows.astype(self.encoder.dtype, copy=False)
        return _PartSurvey(levels, own, self.surveyor.of(rows))


def _levels_of(part: _PartSurvey) -> _Levels:
    return part.levels


def _merge_levels(parts: Sequence[_Levels]) -> _Levels:
    seen = [
        merged_seen(list(of_column))
        for of_column in zip(*(part.seen for part in parts), strict=True)
    ]
    groups = [part.groups for part in parts if part.groups is not None]
    return _Levels(seen, merged_groups(groups) if groups else None)


def _learned(
    parts: Sequence[_Levels],
    places: tuple[int, ...],
    meta: pd.DataFrame,
    n_by: int,
    are_found: bool,
) -> tuple[Categories | None, Exception | None]:
    """Return the levels of all rows, or the error about them."""
    levels, groups = _merge_levels(parts), None
    found = dict(zip(places, levels.seen, strict=True))
    n_measured = meta.shape[1] - n_by
    try:
        if levels.groups is not None:
            groups = levels_of_groups(levels.groups, list(meta.columns[n_measured:]))
        if are_found:
            found = found_categorical(meta.iloc[:, :n_measured], found)
        categories = categories_of(found, list(meta.columns))
    except (TypeError, ValueError) as error:
        return None, error
    return replace(categories, groups=groups), None


def _recoded(
    part: _PartSurvey,
    learned: tuple[Categories | None, Exception | None],
    places: tuple[int, ...],
) -> RowSurvey | None:
    """Return the survey of a partition by the codes of all rows."""
    categories, own, rows = learned[0], part.categories, part.rows
    if categories is None or own is None or rows is None:
        return None
    if categories.places != places:
        return None
    codes: list[NDArray[np.int64]] = []
    for levels, some in zip(categories.levels, own.levels, strict=True):
        numbers = {level: number for number, level in enumerate(levels)}
        codes.append(np.array([numbers[level] for level in some], np.int64))
    if categories.groups is not None and part.levels.groups is not None:
        groups: GroupLevels = categories.groups
        codes.append(groups.numbers(part.levels.groups[1].iloc[:, :-1]))
    return recoded(rows, places, codes)


def _without_sums(survey: RowSurvey | None) -> RowSurvey | None:
    return survey and replace(survey, moments=None, group_facts=None)


def _sums(survey: RowSurvey | None) -> _Sums:
    return (None, None) if survey is None else (survey.moments, survey.group_facts)


def _added(parts: Sequence[_Sums]) -> _Sums:
    moments = [of for of, _ in parts if of is not None]
    facts = [of for _, of in parts if of is not None]
    return (
        Moments.add(moments) if moments else None, GroupFacts.add(facts) if facts else None
    )  # fmt: skip

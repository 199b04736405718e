"""Read what some columns have, one task a partition, and merge it in a tree; computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import pandas as pd
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from lpe_dask.tables.partitions import as_frame, error_context
from lpe_dask.tables.sources import Source
from lpe_dask.tasks import compute, freeze, merge_tasks, new_array

_Found = TypeVar("_Found")

#: Partitions of which one task merges what was found.
MERGED_PARTS = 16


def survey_columns(
    source: Source,
    places: Sequence[int],
    of_column: Callable[[pd.Series], _Found],
    merge: Callable[[list[_Found]], _Found],
    most: int | None = None,
) -> dict[int, _Found]:
    """Return what some columns have, each by itself, by their positions; computes.

    Parameters
    ----------
    source : Source
    places : sequence of int
        Positions of the columns.
    of_column : callable
        Returns what is found in a column of a partition.
    merge : callable
        Returns one of several such, of the same column.
    most : int, optional
        Read no more partitions than so many, evenly. None: all.
    """
    if not places:
        return {}
    of_each = partial(_of_each, of_column=of_column)
    found = survey_parts(source, places, of_each, partial(_merge_each, merge=merge), most)
    return dict(zip(places, found, strict=True))


def survey_parts(
    source: Source,
    places: Sequence[int],
    of_part: Callable[[pd.DataFrame], _Found],
    merge: Callable[[list[_Found]], _Found],
    most: int | None = None,
) -> _Found:
    """Return what some columns have together; computes.

    Parameters
    ----------
    source, places, most
        As for `survey_columns`; at least one column.
    of_part : callable
        Returns what is found in these columns of a partition.
    merge : callable
        Returns one of several such.
    """
    if not source.is_lazy:
        return of_part(as_frame(source.X).iloc[:, list(places)])
    positions = list(places)
    if not isinstance(source.names, int):
        source, positions = source.select(places), list(range(len(places)))
    keys, sizes, collection = source.parts()
    n_read = min(most or len(keys), len(keys))
    function = partial(_of_places, places=positions, of_part=of_part)
    tasks = [
        (error_context, keys[i], i, source.names, function, sizes[i])
        for i in (k * len(keys) // n_read for k in range(n_read))
    ]
    # As blocks of an array, they are read like rows: see `freeze`.
    chunks = ((np.nan,) * len(tasks), (len(places),))
    surveys = new_array("levels", tasks, [collection], chunks, np.empty((0, 0), object))
    surveys = freeze(surveys, "lpe-read", is_foreign=True)
    name = f"lpe-levels-{uuid4().hex}"
    keys = [(surveys.name, i, 0) for i in range(len(tasks))]
    merged, left = merge_tasks(name, keys, merge, MERGED_PARTS)
    graph = HighLevelGraph.from_collections(
        name, merged | {name: (merge, left)}, dependencies=[surveys]
    )
    found: _Found
    (found,) = compute(Delayed(name, graph, layer=name))
    return found


# The functions below run inside tasks.


def _of_places(part: Any, places: list[int], of_part: Callable[[pd.DataFrame], Any]) -> Any:
    return of_part(as_frame(part).iloc[:, places])


def _of_each(frame: pd.DataFrame, of_column: Callable[[pd.Series], Any]) -> list[Any]:
    return [of_column(frame.iloc[:, i]) for i in range(frame.shape[1])]


def _merge_each(surveys: list[list[Any]], merge: Callable[[list[Any]], Any]) -> list[Any]:
    return [merge(list(of_column)) for of_column in zip(*surveys, strict=True)]

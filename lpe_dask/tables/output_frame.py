"""Return several results of each row as one table, in the kind of the input.

results in one kind --map_to_frame--> pandas or dask DataFrame, or that of another library
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lpe_dask import dask_array as da
from lpe_dask.tables.interop import frame_to_library, from_library
from lpe_dask.tables.output_series import row_numbers, unwrapped
from lpe_dask.tasks import map_partitions, meta_of, to_task


def map_to_frame(
    values: Sequence[Any], function: Callable[..., pd.DataFrame], *arguments: Any
) -> Any:
    """Return ``function(*values, *arguments)`` as a table, lazily for Dask.

    Parameters
    ----------
    values : sequence of ndarray, Series, dask array or dask Series, or of another library
        Several numbers of each row, all of one kind: results of `Table.restore`.
    function : callable
        From arrays of shape (n,) to a DataFrame of n rows. Its columns and their types do
        not depend on the values.
    arguments : objects
        As for `output_series.map_values`.

    Returns
    -------
    table : DataFrame, dask DataFrame, or a table of another library
        With the index of the values; of arrays it counts from 0.
    """
    if isinstance(values[0], da.Array):
        values = _as_series(values)
    first, given = values[0], list(map(unwrapped, arguments))
    if isinstance(first, np.ndarray | pd.Series):
        found = function(*map(np.asarray, values), *given)
        return found if isinstance(first, np.ndarray) else found.set_axis(first.index)
    if from_library(first) is not None:
        arrays = [from_library(of)[0] for of in values]  # type: ignore[index]
        return frame_to_library(function(*arrays, *given), first)
    meta = function(*(np.empty(0, of.dtype) for of in values), *given)
    entered = [to_task(argument, "lpe-shared") for argument in arguments]
    others = values[1:]
    return map_partitions(
        first, _on_parts, function, len(others), *others, *entered, meta=meta
    )


def _as_series(arrays: Sequence[da.Array]) -> list[Any]:
    """Return arrays of the same rows as dask Series, whose index counts from 0."""
    import dask.dataframe as dd

    frame = dd.from_dask_array(da.stack(arrays, axis=1, allow_unknown_chunksizes=True))
    if np.isnan(arrays[0].shape[0]):  # Dask counts the rows of each chunk from 0
        frame = map_partitions(frame, _numbered, row_numbers(frame), meta=meta_of(frame))
    return [frame[i] for i in range(len(arrays))]


# The functions below run inside tasks.


def _numbered(frame: pd.DataFrame, numbers: pd.Series) -> pd.DataFrame:
    """Return rows by their numbers, which count from 1."""
    return frame.set_axis(pd.Index(numbers.to_numpy() - 1), axis=0)


def _on_parts(
    first: pd.Series, function: Callable[..., pd.DataFrame], n_others: int, *given: Any
) -> pd.DataFrame:
    others = [of.to_numpy() for of in given[:n_others]]
    return function(first.to_numpy(), *others, *given[n_others:]).set_axis(first.index)

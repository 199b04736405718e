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
from lpe_dask.tables.output_series import unwrapped
from lpe_dask.tasks import map_partitions, to_task


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
    first = values[0]
    if isinstance(first, da.Array):
        import dask.dataframe as dd

        stacked = da.stack(values, axis=1, allow_unknown_chunksizes=True)
        frame = dd.from_dask_array(stacked)
        return _map_parts(frame, _on_columns, values, function, *arguments)
    given = list(map(unwrapped, arguments))
    if isinstance(first, np.ndarray | pd.Series):
        found = function(*map(np.asarray, values), *given)
        return found if isinstance(first, np.ndarray) else found.set_axis(first.index)
    if from_library(first) is not None:
        arrays = [from_library(of)[0] for of in values]  # type: ignore[index]
        return frame_to_library(function(*arrays, *given), first)
    return _map_parts(first, _on_all, values, function, *arguments, others=values[1:])


def _map_parts(
    frame: Any,
    on_part: Callable[..., pd.DataFrame],
    values: Sequence[Any],
    function: Callable[..., pd.DataFrame],
    *arguments: Any,
    others: Sequence[Any] = (),
) -> Any:
    nothing = [np.empty(0, of.dtype) for of in values]
    meta = function(*nothing, *map(unwrapped, arguments))
    entered = [to_task(argument, "lpe-shared") for argument in arguments]
    return map_partitions(
        frame, on_part, function, len(others), *others, *entered, meta=meta
    )


# The functions below run inside tasks.


def _on_columns(
    frame: pd.DataFrame, function: Callable[..., pd.DataFrame], _: int, *arguments: Any
) -> pd.DataFrame:
    columns = frame.to_numpy().T
    return function(*columns, *arguments).set_axis(frame.index)


def _on_all(
    first: pd.Series,
    function: Callable[..., pd.DataFrame],
    n_others: int,
    *given: Any,
) -> pd.DataFrame:
    others = [of.to_numpy() for of in given[:n_others]]
    return function(first.to_numpy(), *others, *given[n_others:]).set_axis(first.index)

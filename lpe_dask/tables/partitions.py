"""Turn partitions of frames and blocks of arrays into rows of numbers, checked.

    partition --part_of_columns--> its columns, by name --RowEncoder--> numbers
    block -----checked_block-----> the same block ------/

Dask checks neither names nor types. What is refused in a pandas frame or an array of NumPy
before anything is computed is refused here by the task that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.tables.arrays import as_array
from lpe_dask.tables.categories import Categories, coded
from lpe_dask.tables.column_names import positions_by_name
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.exact_numbers import MAX_EXACT, NO_OFFSETS, ColumnOffsets
from lpe_dask.tables.numeric import float_rows
from lpe_dask.tables.value_types import column_label

#: The column of the numbers of groups, which has no name of a user's.
GROUP = "\0group"

_REPAIR = "Correct it where the partitions are made, or in them, by map_partitions."


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """How the values of a partition become numbers, beside the codes of categories.

    Attributes
    ----------
    names : list or int
        Of the columns; of an array how many.
    minima : ColumnOffsets
        The columns whose numbers are measured from their least nominal one.
    is_nominal : bool
        Whether the categories are those of these rows.
    dtype : type, optional
        Of the rows; None: as `float_rows` has it.
    """

    names: list[Any] | int
    minima: ColumnOffsets = NO_OFFSETS
    is_nominal: bool = False
    dtype: type[np.floating] | None = None

    def rows(self, part: Any, categories: Categories) -> NDArray[Any]:
        """Return the rows of a frame, or of an array, which stays as it is if it can."""
        is_changed = categories.places or self.minima.places or categories.n_by
        if not is_changed and _is_plain(part):
            return np.asarray(part)
        frame = as_frame(part)
        if (groups := categories.groups) is not None:
            n_measured = frame.shape[1] - categories.n_by
            of_groups = groups.codes(frame.iloc[:, n_measured:])
            measured = self.rows(
                frame.iloc[:, :n_measured], replace(categories, groups=None)
            )
            dtype = np.result_type(measured.dtype, np.float32)
            return np.column_stack([measured, of_groups]).astype(dtype, copy=False)
        codes = {}
        for place, levels in zip(categories.places, categories.levels, strict=True):
            if place < frame.shape[1]:
                column, label = frame.iloc[:, place], column_label(frame.columns[place])
                codes[place] = coded(column, levels, label, is_nominal=self.is_nominal)
        origins = dict(zip(self.minima.places, self.minima.values, strict=True))
        return float_rows(frame, self.dtype, codes, origins)


def as_frame(part: Any) -> pd.DataFrame:
    """Return an array as a frame whose columns have numbers, without a copy of numbers."""
    if isinstance(part, pd.DataFrame):
        return part
    array = as_array(part)
    if array.dtype.kind in "mM":  # which pandas would convert to its own
        raise TypeError(
            f"X has dtype {array.dtype}, but rows must be real numbers or booleans. Drop "
            f"other columns, or convert them to numbers."
        )
    if array.dtype.kind in "OUT":  # objects stay so: without values, they are no times
        return pd.DataFrame(array.astype(object, copy=False), dtype=object)
    return pd.DataFrame(array, copy=False)


def _is_plain(part: Any) -> bool:
    """Return whether something is an array of numbers that float64 can hold."""
    if not isinstance(part, np.ndarray) or isinstance(part, np.ma.MaskedArray):
        return False
    if part.dtype.kind in "iu" and part.dtype.itemsize == 8 and part.size > 0:
        return max(-int(part.min()), int(part.max())) <= MAX_EXACT
    return part.dtype.kind in "biuf"


def columns_of_rows(names: Any, categories: Categories) -> pd.Index:
    """Return the names of columns of numbers and codes, the last perhaps that of groups."""
    measured = list(names)[: len(names) - categories.n_by]
    last = [GROUP] if categories.n_by else []
    return pd.Index([*measured, *last], tupleize_cols=False)


# The functions below run inside tasks.


def rows_of_part(
    part: Any,
    number: int,
    n_rows: float,
    categories: Categories,
    encoder: RowEncoder,
) -> NDArray[Any]:
    """Return the rows of a partition or block, checked."""
    return error_context(
        part, number, encoder.names, lambda x: encoder.rows(x, categories), n_rows
    )


def frame_of_part(
    part: Any,
    categories: Categories,
    encoder: RowEncoder,
    *,
    partition_info: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the rows of a partition as a frame with its index."""
    rows = rows_of_part(part, partition_info["number"], np.nan, categories, encoder)
    columns = columns_of_rows(encoder.names, categories)
    return pd.DataFrame(rows, part.index, columns, copy=False)  # still in row order


def error_context(
    part: Any,
    number: int,
    names: list[Any] | int,
    function: Callable[[Any], Any],
    n_rows: float = np.nan,
) -> Any:
    """Return the checked result of a function for a partition or block, which errors name.

    Parameters
    ----------
    part : DataFrame or ndarray
        As tasks get it: of any type.
    number : int
        Of the partition.
    names : list or int
        Of the columns; of an array how many.
    function : callable
    n_rows : float
        Of a block; NaN if it is not known.
    """
    what = "block" if isinstance(names, int) else "partition"
    try:
        if isinstance(names, int):
            return function(_checked_block(part, number, n_rows, names))
        return function(part_of_columns(part, names, {"number": number}))
    except (TypeError, ValueError) as error:
        if len(error.args) == 1 and f"{what} {number}" not in str(error):
            error.args = (f"in {what} {number}: {error}",)
        raise


def _checked_block(block: Any, number: int, n_rows: float, n_columns: int) -> NDArray[Any]:
    if not isinstance(block, np.ndarray) or isinstance(block, np.matrix):
        raise TypeError(
            f"block {number} is of type {type(block).__name__}, but the Dask array says "
            f"NumPy's arrays. Convert it, for example X.map_blocks(numpy.asarray, "
            f"dtype=float)."
        )
    if block.shape[:1] == (0,) and not n_rows > 0:
        return np.empty((0, n_columns), block.dtype)
    n_said = len(block) if block.ndim and np.isnan(n_rows) else n_rows
    if block.shape != (n_said, n_columns):
        raise TableError(
            f"block {number} has the shape {block.shape}, but the Dask array says "
            f"{(n_said, n_columns)}. Correct it where the blocks are made, or in them, by "
            f"map_blocks."
        )
    return block


def part_of_columns(
    part: Any, names: list[Any], partition_info: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the columns of these names of a partition, in this order.

    ``partition_info`` is what `map_partitions` of Dask gives.

    Raises
    ------
    TypeError
        If it is no frame.
    TableError
        If a column is missing, or there are several of its name.
    """
    number = partition_info["number"]
    if not isinstance(part, pd.DataFrame):
        raise TypeError(
            f"partition {number} is of type {type(part).__name__}, but those of a Dask "
            f"DataFrame must be DataFrames of pandas. {_REPAIR}"
        )
    if part.shape == (0, 0):  # as Dask has them for empty ones
        columns = pd.Index(names, tupleize_cols=False)
        return pd.DataFrame(index=part.index, columns=columns, dtype=np.float64)
    if list(part.columns) == names:
        return part
    places = positions_by_name(part.columns)
    found = [places.get(name, []) for name in names]
    for name, of_name in zip(names, found, strict=True):
        if len(of_name) != 1:
            found_are = f"has {len(of_name)} columns" if of_name else "lacks the column"
            raise TableError(
                f"partition {number} {found_are} {name!r}: it has the columns "
                f"{list(part.columns)}, but the Dask DataFrame says {names}. "
                f"{_REPAIR}"
            )
    return part.iloc[:, [place for (place,) in found]]

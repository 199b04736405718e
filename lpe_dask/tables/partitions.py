"""Check in tasks that partitions and blocks are what a Dask collection says of them.

    partition --part_of_columns--> its columns, by name --numeric_frame--> numbers
    block --checked_blocks--> the same block of numbers

Dask checks neither names nor types. What is refused in a pandas frame or an array of NumPy
before anything is computed is refused here by the task that reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tables.arrays import array_of
from lpe_dask.tables.categories import Categories, coded_frame
from lpe_dask.tables.column_names import identity, places_of
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.large_numbers import (
    NO_MINIMA,
    Minima,
    exact_frame,
    exact_rows,
    may_lose_digits,
)
from lpe_dask.tables.numeric import check_numeric, check_type, of_numbers, rows_of_objects
from lpe_dask.tasks import meta_of, new_array, with_selection

_REPAIR = "Correct it where the partitions are made, or in them, by map_partitions."


def checked(X: Any, but: Collection[int]) -> Any:
    """Return a dask frame or array whose tasks check names and types.

    ``but`` has the positions of categorical columns.
    """
    if isinstance(X, da.Array):
        is_exact = X.dtype == object or may_lose_digits(X.dtype)
        return checked_blocks(X, has_text=bool(but), converts=not (but or is_exact))
    return with_checked_names(X).map_partitions(
        _checked_part, names=list(X.columns), but=tuple(but), meta=meta_of(X),
        enforce_metadata=False,
    )  # fmt: skip


def without_masks(rows: da.Array) -> da.Array:
    """Return a dask array of masked blocks as one of values that may be missing, lazily."""
    if not isinstance(meta_of(rows), np.ma.MaskedArray):
        return rows
    dtype = rows.dtype if rows.dtype.kind == "f" else np.dtype(object)
    return rows.map_blocks(_unmasked, dtype, dtype=dtype, meta=np.empty((0, 0), dtype))


def with_checked_names(frame: Any) -> Any:
    """Return a dask frame whose tasks select columns as `part_of_columns` does."""
    return with_selection(frame, part_of_columns)


def checked_blocks(rows: da.Array, *, has_text: bool, converts: bool) -> da.Array:
    """Return a dask array in one chunk of features, whose tasks check its blocks.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
    has_text : bool
        Whether there may be text, which is not converted then.
    converts : bool
        Whether blocks of objects become numbers, and whole numbers beyond 2**53 are errors.
    """
    rows = without_masks(rows)
    tasks = (
        (_checked_block, (rows.name, i, j), i, shape, has_text, converts)
        for i, n_rows in enumerate(rows.chunks[0])
        for j, shape in enumerate(product([n_rows], rows.chunks[1]))
    )
    blocks = new_array("checked", tasks, [rows], rows.chunks, meta_of(rows))
    return blocks.rechunk({1: -1}) if len(rows.chunks[1]) > 1 else blocks


# The functions below run inside tasks.


def _unmasked(block: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a block without mask, of one type whether any value is masked or not."""
    unmasked: NDArray[Any] = array_of(block).astype(dtype, copy=False)
    return unmasked


def numeric_frame(
    frame: pd.DataFrame,
    categories: Categories | None,
    minima: Minima = NO_MINIMA,
    *,
    is_nominal: bool = False,
) -> pd.DataFrame:
    """Return a frame of numbers: less its minima, and codes for categories.

    `numeric.float_rows` checks the whole numbers that have no minima.
    """
    places = () if categories is None else categories.places
    if categories is not None:
        frame = coded_frame(frame, categories, is_nominal=is_nominal)
    return of_numbers(exact_frame(frame, minima) if minima.places else frame, places)


def numeric_part(
    part: Any,
    categories: Categories | None,
    *,
    names: list[Any],
    minima: Minima,
    is_nominal: bool,
    partition_info: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the columns of these names of a partition as `numeric_frame` does."""
    frame = part_of_columns(part, names, partition_info)
    with naming("partition", partition_info["number"]):
        return numeric_frame(frame, categories, minima, is_nominal=is_nominal)


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
    places = places_of(part.columns)
    found = [places.get(identity(name), []) for name in names]
    for name, of_name in zip(names, found, strict=True):
        if len(of_name) != 1:
            found_are = f"has {len(of_name)} columns" if of_name else "lacks the column"
            raise TableError(
                f"partition {number} {found_are} {name!r}: it has the columns "
                f"{list(part.columns)}, but the Dask DataFrame says {names}. "
                f"{_REPAIR}"
            )
    return part.iloc[:, [place for (place,) in found]]


def _checked_part(
    part: Any, names: list[Any], but: tuple[int, ...], partition_info: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the columns of a partition as they are, but for objects, checked."""
    frame = part_of_columns(part, names, partition_info)
    with naming("partition", partition_info["number"]):
        is_object = map(pd.api.types.is_object_dtype, frame.dtypes)
        objects = [i for i, is_one in enumerate(is_object) if is_one]
        check_numeric(frame, but, later=objects)
        return frame


def _checked_block(
    block: Any, number: int, shape: tuple[float, int], has_text: bool, converts: bool
) -> NDArray[Any]:
    if not isinstance(block, np.ndarray) or isinstance(block, np.matrix):
        raise TypeError(
            f"block {number} is of type {type(block).__name__}, but the Dask array says "
            f"NumPy's arrays. Convert it, for example X.map_blocks(numpy.asarray, "
            f"dtype=float)."
        )
    n_rows, n_columns = shape
    if block.shape[:1] == (0,) and not n_rows > 0:
        return np.empty((0, n_columns), block.dtype)
    n_said = len(block) if block.ndim and np.isnan(n_rows) else n_rows
    if block.shape != (n_said, n_columns):
        raise TableError(
            f"block {number} has the shape {block.shape}, but the Dask array says "
            f"{(n_said, n_columns)}. Correct it where the blocks are made, or in them, by "
            f"map_blocks."
        )
    with naming("block", number):
        if not has_text or block.dtype.kind not in "UT":
            check_type(block.dtype)
        if not converts:
            return block
        rows = exact_rows(array_of(block))  # the array need not know of a mask
        return rows_of_objects(rows) if rows.dtype == object else rows


@contextmanager
def naming(what: str, number: int) -> Iterator[None]:
    """Have errors say where they are."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = f"{what} {number}"
        if len(error.args) == 1 and text not in str(error):
            error.args = (f"in {text}: {error}",)
        raise

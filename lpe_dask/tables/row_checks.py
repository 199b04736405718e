"""Compare rows that are read again with those of the first reading."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tasks import meta_of, new_array


@dataclass(frozen=True, slots=True)
class RowChecksum:
    """A number that depends on the values of rows and their order, in two parts.

    Codes of levels may be known only when all rows have been read. Of these, the first part
    has only which ones come before which.

    Attributes
    ----------
    crc : int
        Of the rows, with the ranks of codes among those of their column.
    present : tuple of ndarray
        The different codes of each column of codes, ascending.
    """

    crc: int
    present: tuple[NDArray[np.generic], ...] = ()

    @property
    def total(self) -> int:
        """The number of both parts."""
        total = self.crc
        for codes in self.present:
            total = zlib.crc32(np.ascontiguousarray(codes).data, total)
        return total


@dataclass(frozen=True, slots=True)
class Checksums:
    """Those of the chunks of rows.

    Attributes
    ----------
    totals : list of int
    places : tuple of int
        The columns that have codes.
    """

    totals: list[int]
    places: tuple[int, ...] = ()


def validated_rows(rows: da.Array, sizes: Sequence[int], checksums: Checksums) -> da.Array:
    """Return the same rows, lazily; a chunk that has changed raises ValueError.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
        Its chunks may be unknown; those of the result are known.
    sizes : sequence of int
        Rows of the chunks.
    checksums : Checksums
        Of the chunks.
    """
    tasks = (
        (_checked, (rows.name, i, 0), i, n_rows, expected, checksums.places)
        for i, (n_rows, expected) in enumerate(zip(sizes, checksums.totals, strict=True))
    )
    chunks = (tuple(sizes), rows.chunks[1])
    return new_array("checked", tasks, [rows], chunks, meta_of(rows))


def rows_changed_message(how: str) -> str:
    """Return the message for a table that changed after it was first read."""
    return (
        f"the nominal rows changed when they were read again: the table {how}. It is read "
        f"several times, and must give the same rows in the same order each time. Do not "
        f"change an array while a model needs it; persist a Dask input first "
        f"(ddf = ddf.persist()), or write it to Parquet and read that."
    )


# The functions below run inside tasks: NumPy in, NumPy out.


def row_checksum(rows: NDArray[np.generic], places: Sequence[int] = ()) -> RowChecksum:
    """Return the checksum of rows with codes in the columns at some places."""
    present: list[Any] = []
    if len(places) > 0:
        rows = rows.copy()
    for place in places:
        positions, found = pd.factorize(rows[:, place], use_na_sentinel=False)
        order = np.argsort(found)
        ranks = np.empty(len(found), rows.dtype)
        ranks[order] = np.arange(len(found))
        rows[:, place] = ranks[positions]
        present.append(found[order])
    return RowChecksum(zlib.crc32(np.ascontiguousarray(rows).data), tuple(present))


def _checked(
    rows: NDArray[np.generic],
    number: int,
    n_rows: int,
    expected: int,
    places: tuple[int, ...],
) -> NDArray[np.generic]:
    if len(rows) != n_rows:
        raise ValueError(
            rows_changed_message(
                f"has {len(rows)} rows instead of {n_rows} in partition {number}"
            )
        )
    if row_checksum(rows, places).total != expected:
        raise ValueError(rows_changed_message(f"has other rows in partition {number}"))
    return rows

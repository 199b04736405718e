"""Compare rows that are read again with those of the first reading."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tasks import meta_of, new_array


def validated_rows(
    rows: da.Array, sizes: Sequence[int], checksums: Sequence[int]
) -> da.Array:
    """Return the same rows, lazily; a chunk that has changed raises ValueError.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
        Its chunks may be unknown; those of the result are known.
    sizes : sequence of int
        Rows of the chunks.
    checksums : sequence of int
        Of the chunks, as `checksum` gives them.
    """
    tasks = (
        (_checked, (rows.name, i, 0), i, n_rows, expected)
        for i, (n_rows, expected) in enumerate(zip(sizes, checksums, strict=True))
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


def checksum(rows: NDArray[np.generic]) -> int:
    """Return a number that depends on the values of the rows and their order."""
    return zlib.crc32(np.ascontiguousarray(rows).data)


def _checked(
    rows: NDArray[np.generic], number: int, n_rows: int, expected: int
) -> NDArray[np.generic]:
    if len(rows) != n_rows:
        raise ValueError(
            rows_changed_message(
                f"has {len(rows)} rows instead of {n_rows} in partition {number}"
            )
        )
    if checksum(rows) != expected:
        raise ValueError(rows_changed_message(f"has other rows in partition {number}"))
    return rows

"""Take a sample of a table, and count its rows without reading all of them, if possible.

    table --a few partitions--> rows of each, evenly --> sample, seconds a row
                            --> about how many rows all partitions have

Where a table says by itself how many rows its partitions have, that is taken instead. The
blocks of a saved model are partitions as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.tasks import compute, new_tasks

#: Rows of a sample, and bytes of one as float64, at most.
SAMPLE_ROWS, SAMPLE_BYTES = 65_536, 64 * 2**20

#: Partitions that are read: fewer say little about the others, more take long.
MIN_PARTITIONS, MAX_PARTITIONS = 4, 16


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a table, and what is known of all of them.

    Attributes
    ----------
    rows : ndarray of shape (n_sampled, n_features)
        As they came, in no particular order.
    sizes : sequence of int
        Rows of each partition.
    is_exact : bool
        Whether these were counted, rather than worked out.
    read_seconds : float
        For a row, of one thread.
    """

    rows: NDArray[np.generic]
    sizes: Sequence[int]
    is_exact: bool
    read_seconds: float

    @property
    def n_rows(self) -> int:
        """Rows of the table, or about so many."""
        return sum(self.sizes)


#: The sample where there is no table.
EMPTY_SAMPLE = Sample(np.empty((0, 0)), (), True, 0.0)


def sample_table(
    rows: da.Array, counted: tuple[Sequence[int], bool] | None, n_threads: int
) -> Sample:
    """Return a sample of rows; reads some partitions.

    Parameters
    ----------
    rows : dask array of shape (n, n_features)
        Its chunks are the partitions.
    counted : tuple of sequence of int and bool, optional
        Rows of the partitions and whether they are exact, where that is known.
    n_threads : int
        That read at a time.
    """
    sizes = rows.chunks[0]
    if counted is None and not np.isnan(sizes).any():
        counted = sizes, True
    numbers = _partitions_to_read(len(sizes), None if counted is None else counted[0])
    n_sampled = min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * rows.shape[1]))
    began = time.perf_counter()
    parts = _read(rows, numbers, max(1, n_sampled // len(numbers)))
    seconds = time.perf_counter() - began
    n_read = sum(n_rows for n_rows, _ in parts)
    if counted is None:
        is_all = len(numbers) == len(sizes)
        mean = round(n_read / len(numbers))
        counted = [n for n, _ in parts] if is_all else [mean] * len(sizes), is_all
    taken = np.concatenate([part for _, part in parts])
    order = np.random.default_rng(0).permutation(len(taken))
    busy = min(n_threads, len(numbers))
    return Sample(taken[order], *counted, seconds * busy / max(1, n_read))


def _partitions_to_read(n_partitions: int, sizes: Sequence[int] | None) -> list[int]:
    """Return the numbers of some partitions, evenly, that are not empty if any are not."""
    usable = list(range(n_partitions))
    n_read = MIN_PARTITIONS
    if sizes is not None:
        usable = [i for i in usable if sizes[i] > 0] or usable
        mean = max(1, sum(sizes) // len(usable))
        n_read = min(MAX_PARTITIONS, max(n_read, -(-SAMPLE_ROWS // mean)))
    n_read = min(n_read, len(usable))
    return [usable[i * len(usable) // n_read] for i in range(n_read)]


def _read(
    rows: da.Array, numbers: list[int], n_sampled: int
) -> list[tuple[int, NDArray[np.generic]]]:
    tasks = ((_some, (rows.name, i, 0), n_sampled) for i in numbers)
    return list(compute(*new_tasks("sample", tasks, [rows])))


# Run inside tasks.


def _some(rows: NDArray[np.generic], n_sampled: int) -> tuple[int, NDArray[np.generic]]:
    """Return how many rows there are, and some of them, evenly."""
    n_sampled = min(len(rows), n_sampled)
    which = np.arange(n_sampled) * len(rows) // max(1, n_sampled)
    return len(rows), rows[which]

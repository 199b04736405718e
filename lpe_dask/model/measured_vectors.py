r"""Put the statistics of many nominal rows on storage, in the order of the rows.

    tasks that measure   --written-->   (numbers, statistic)       a file each, in no order
    some files           --combine-->   sorted by number           TASK_NUMBERS rows
    a range of numbers   --place-->     the statistic by number    StoredVector

Names of files are all that passes through the client. With n rows, n / TASK_NUMBERS tasks
read a part of as many files each, whatever the number of tasks that measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.storage import SpooledNumbers, StoredVector, VectorPart, child_url
from lpe_dask.tasks import (
    LocalValue,
    RowCount,
    SpoolEntry,
    compute,
    is_shared,
    new_tasks,
    shared_folder,
    to_task,
)

#: Numbers that a task puts in order, 32 MiB; it holds them a few times over.
TASK_NUMBERS = 2**22


def are_many(n: int) -> bool:
    """Return whether so many statistics go to storage: more than configured.

    Where workers share no storage with this process they stay here.
    """
    most = dask.config.get("lpe-dask.statistics-in-memory")
    return n > int(most) and is_shared()


@dataclass(frozen=True, slots=True)
class MeasuredFile:
    """Some rows that were measured, in a file of the spool.

    Attributes
    ----------
    url : str
        Of a file of numbers and statistics.
    n_rows : int
    """

    url: str
    n_rows: int

    def read(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the numbers of the rows and their statistic."""
        numbers, statistic = SpooledNumbers(self.url).parts([(0, 0, None), (1, 0, None)])
        return numbers, statistic


def measured_vector(tasks: list[Delayed], n_rows: int, n_measured: int) -> StoredVector:
    """Return the statistic of rows by their numbers, NaN where not measured; computes.

    Parameters
    ----------
    tasks : list of Delayed
        Each gives the numbers of some rows, and their statistic.
    n_rows : int
        Above all of the numbers.
    n_measured : int
        Rows that tasks measure.
    """
    folder = shared_folder("measured")
    writes = ((_write_measured, task.key, folder.url) for task in tasks)
    rows = RowCount("measured", rows_of_file, n_measured)
    files = compute(*new_tasks("write-measured", writes, tasks), rows=rows)
    return vector_of_files([file for file in files if file.n_rows > 0], n_rows, folder)


def vector_of_files(files: Sequence[Any], n_rows: int, folder: SpoolEntry) -> StoredVector:
    """Return the same for files that are there; computes.

    Parameters
    ----------
    files : sequence of MeasuredFile
        Or of others that have ``n_rows`` and ``read``.
    n_rows : int
    folder : SpoolEntry
        For what is written meanwhile.
    """
    edges = range_edges(n_rows)
    held = to_task(edges, "lpe-edges")
    together = ((_combine, some, held.key, folder.url) for some in _in_groups(files))
    combined = to_task(
        list(compute(*new_tasks("combine", together, [held]))), "lpe-combined"
    )
    entry = shared_folder("statistics")
    given = (_place, combined.key)
    places = (
        (*given, i, *of_range, entry.url)
        for i, of_range in enumerate(pairwise(edges.tolist()))
    )
    parts = compute(*new_tasks("place", places, [combined]))
    return StoredVector.of([part for of_range in parts for part in of_range], entry)


def range_edges(n: int) -> NDArray[np.int64]:
    """Return where ranges of up to `TASK_NUMBERS` of so many numbers begin and end."""
    return np.append(np.arange(0, n, TASK_NUMBERS), n)


def _in_groups(files: Sequence[Any]) -> list[list[Any]]:
    """Return files in groups of about `TASK_NUMBERS` rows."""
    groups: list[list[Any]] = []
    n_rows = TASK_NUMBERS
    for file in files:
        if n_rows + file.n_rows > TASK_NUMBERS:
            groups.append([])
            n_rows = 0
        groups[-1].append(file)
        n_rows += file.n_rows
    return groups


def rows_of_file(file: Any) -> int:
    """Return the rows in a `MeasuredFile`, or in another one."""
    return int(file.n_rows)


def spread(vector: StoredVector, is_there: NDArray[np.bool_]) -> StoredVector:
    """Return the numbers of a vector in the places that are theirs; computes.

    Parameters
    ----------
    vector : StoredVector
    is_there : ndarray of shape (n,)
        Which of n places have the numbers, in their order; NaN is in the others.
    """
    edges = range_edges(len(is_there)).tolist()
    masks, entered = LocalValue(is_there, "lpe-places").slices(edges)
    chosen = new_tasks("chosen", masks, entered)
    whole = to_task(vector, "lpe-statistic")
    sizes = [np.count_nonzero(is_there[slice(*of_range)]) for of_range in pairwise(edges)]
    bounds = pairwise(np.cumsum([0, *sizes]).tolist())
    entry = shared_folder("statistics")
    tasks = (
        (_spread, whole.key, mask.key, *of_range, entry.url)
        for mask, of_range in zip(chosen, bounds, strict=True)
    )
    parts = compute(*new_tasks("spread", tasks, [whole, *chosen]))
    return StoredVector.of([part for of_range in parts for part in of_range], entry)


# The functions below run inside tasks: NumPy in, files out.


def _write_measured(
    measured: tuple[NDArray[np.int64], NDArray[np.float64]], folder: str
) -> MeasuredFile:
    url = child_url(folder, f"measured-{uuid4().hex}")
    SpooledNumbers.write(url, *measured)
    return MeasuredFile(url, len(measured[0]))


def _combine(files: Sequence[Any], edges: NDArray[np.int64], folder: str) -> str:
    """Write the rows of some files by number, and where ranges begin; return the URL."""
    read = [file.read() for file in files]
    numbers, statistic = map(np.concatenate, zip(*read, strict=True))
    order = np.argsort(numbers)
    numbers = numbers[order]
    url = child_url(folder, f"combined-{uuid4().hex}")
    starts = np.searchsorted(numbers, edges)
    SpooledNumbers.write(url, starts, numbers, statistic[order])
    return url


def _place(
    urls: Sequence[str], i: int, first: int, stop: int, folder: str
) -> list[VectorPart]:
    """Write the statistics of a range of numbers."""
    placed = np.full(stop - first, np.nan)
    for url in urls:
        file = SpooledNumbers(url)
        (bounds,) = file.parts([(0, i, i + 2)])
        start, end = bounds.tolist()
        numbers, statistic = file.parts([(1, start, end), (2, start, end)])
        placed[numbers - first] = statistic
    return VectorPart.write(placed, folder)


def _spread(
    vector: StoredVector, is_there: NDArray[np.bool_], start: int, stop: int, folder: str
) -> list[VectorPart]:
    """Write a range of places, with the numbers from ``start`` to ``stop``."""
    values = np.full(len(is_there), np.nan)
    values[is_there] = vector.part(start, stop)
    return VectorPart.write(values, folder)

"""Keep what a fit has measured so far, so that a later one resumes from it.

    tasks --recorded--> (numbers, statistic) of some rows each, written as they are known
    files --known-->    the same, whatever blocks and workers they came from

A statistic belongs to a row, not to a block, so a fit may go on with other workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.model.measured_vectors import (
    measured_vector,
    rows_of_file,
    vector_of_files,
)
from lpe_dask.storage import (
    Folder,
    StoredVector,
    UnsafeFileError,
    columns_of,
    parquet_of,
)
from lpe_dask.tasks import RowCount, compute, new_tasks, shared_folder

logger = logging.getLogger(__name__)

#: Columns of a file of measured rows.
_COLUMNS = {"number": np.int64, "statistic": np.float64}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder of measured rows, for one set of nominal rows and one way to measure them.

    Attributes
    ----------
    url : str
        Of the folder; it and the folder around it that holds other checkpoints are made
        when they are needed.
    """

    url: str

    def known(self, n_rows: int) -> NDArray[np.float64]:
        """Return the statistic of all rows, of shape (n_rows,), NaN where not known."""
        statistic = np.full(n_rows, np.nan)
        for _, numbers, values in self._files(n_rows):
            statistic[numbers] = values
        return statistic

    def known_files(self, n_rows: int) -> tuple[list[CheckpointFile], NDArray[np.bool_]]:
        """Return the files with known rows, and of all rows which are known."""
        is_known, files = np.zeros(n_rows, bool), []
        for name, numbers, _ in self._files(n_rows):
            is_known[numbers] = True
            files.append(CheckpointFile(self.url, name, len(numbers)))
        return files, is_known

    def _files(
        self, n_rows: int
    ) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.float64]]]:
        """Yield the name of each file, and the numbers of its rows and their statistic."""
        folder, most = Folder(self.url), 2 * 16 * n_rows + 2**20
        for name in folder.names("rows-"):
            try:
                content = folder.read(name, most) or b""
                columns = columns_of(content, _COLUMNS, folder.path(name))
                numbers = columns["number"]
                if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n_rows:
                    raise ValueError(f"{folder.path(name)} has numbers of no rows")
            except (UnsafeFileError, IsADirectoryError, ValueError) as error:
                # its rows are measured again
                logger.warning("ignored a damaged checkpoint file: %s", error)
                continue
            yield name, numbers, columns["statistic"]

    def recorded(self, tasks: list[Delayed]) -> list[Delayed]:
        """Return tasks that write what ``tasks`` give, and give it themselves."""
        recording = ((_record_and_return, task.key, self.url) for task in tasks)
        return new_tasks("record", recording, tasks)

    def filed(self, tasks: list[Delayed]) -> list[Delayed]:
        """Return tasks that write what ``tasks`` give, and give the `CheckpointFile`."""
        filing = ((_record, task.key, self.url) for task in tasks)
        return new_tasks("record", filing, tasks)


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """Some rows that were measured, in a file of a checkpoint.

    Attributes
    ----------
    url : str
        Of the checkpoint.
    name : str
    n_rows : int
    """

    url: str
    name: str
    n_rows: int

    def read(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the numbers of the rows and their statistic."""
        folder = Folder(self.url)
        content, path = folder.read(self.name), folder.path(self.name)
        if content is None:
            raise FileNotFoundError(f"{path}, with measured rows, was removed")
        columns = columns_of(content, _COLUMNS, path, self.n_rows)
        return columns["number"], columns["statistic"]


def measure_with_checkpoint(
    numbers: NDArray[np.int64] | None,
    n_rows: int,
    measure: Callable[[NDArray[np.int64] | None], list[Delayed]],
    checkpoint: Checkpoint | None,
) -> NDArray[np.float64]:
    """Return the statistic of some rows, in their order; computes what is not known yet.

    Parameters
    ----------
    numbers : ndarray of int, optional
        Of the rows, ascending; None: of all rows.
    n_rows : int
        Above all of the numbers.
    measure : callable
        From the numbers of rows that are not known yet to tasks that give the numbers of
        some of them each, and their statistic.
    checkpoint : Checkpoint, optional
        None: nothing is known, and nothing kept.
    """
    statistic, open_numbers = np.full(n_rows, np.nan), numbers
    if checkpoint is not None:
        statistic = checkpoint.known(n_rows)
        open_numbers = _still_open(numbers, ~np.isnan(statistic))
    n_open = n_rows if open_numbers is None else len(open_numbers)
    tasks = measure(open_numbers) if n_open else []
    if checkpoint is not None:
        tasks = checkpoint.recorded(tasks)

    def place(result: tuple[NDArray[np.int64], NDArray[np.float64]]) -> None:
        """Keep a result where it belongs, not beside the others."""
        of_task, values = result
        statistic[of_task] = values

    compute(*tasks, rows=RowCount("measured", _n_rows, n_open), take=place)
    return statistic if numbers is None else statistic[numbers]


def measure_to_storage(
    numbers: NDArray[np.int64] | None,
    n_rows: int,
    measure: Callable[[NDArray[np.int64] | None], list[Delayed]],
    checkpoint: Checkpoint | None,
) -> StoredVector:
    """Return the statistic of all rows, NaN where not measured, as a vector on storage.

    Computes; parameters as for `measure_with_checkpoint`.
    """
    if checkpoint is None:
        n_open = n_rows if numbers is None else len(numbers)
        return measured_vector(measure(numbers), n_rows, n_open)
    files, is_known = checkpoint.known_files(n_rows)
    open_numbers = _still_open(numbers, is_known)
    n_open = n_rows if open_numbers is None else len(open_numbers)
    tasks = checkpoint.filed(measure(open_numbers)) if n_open else []
    rows = RowCount("measured", rows_of_file, n_open)
    files += [file for file in compute(*tasks, rows=rows) if file.n_rows > 0]
    return vector_of_files(files, n_rows, shared_folder("measured"))


def _still_open(
    numbers: NDArray[np.int64] | None, is_known: NDArray[np.bool_]
) -> NDArray[np.int64] | None:
    """Return which of some rows are not known yet; None: all rows."""
    if not is_known.any():
        return numbers
    if numbers is None:
        return np.flatnonzero(~is_known)
    return numbers[~is_known[numbers]]


def _n_rows(result: Any) -> int:
    """Return the rows that a task has measured."""
    return len(result[0])


# The functions below run inside tasks.


def _record(
    measured: tuple[NDArray[np.int64], NDArray[np.float64]], url: str
) -> CheckpointFile:
    folder, name = Folder(url), f"rows-{uuid4().hex}.parquet"
    folder.make()
    columns: dict[str, NDArray[Any]] = dict(zip(_COLUMNS, measured, strict=True))
    folder.write(name, parquet_of(columns))
    return CheckpointFile(url, name, len(measured[0]))


def _record_and_return(
    measured: tuple[NDArray[np.int64], NDArray[np.float64]], url: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    _record(measured, url)
    return measured

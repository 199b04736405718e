"""Keep what a fit has measured so far, so that a later one resumes from it.

    tasks --recorded--> (numbers, statistic) of some rows each, written as they are known
    files --known-->    the same, whatever blocks and workers they came from

A statistic belongs to a row, not to a block, so a fit may go on with other workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.storage import Folder, UnsafeFileError, columns_of, parquet_of
from lpe_dask.tasks import RowCount, compute, new_tasks

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
            statistic[numbers] = columns["statistic"]
        return statistic

    def recorded(self, tasks: list[Delayed]) -> list[Delayed]:
        """Return tasks that write what ``tasks`` give, and give it themselves."""
        recording = ((_record, task.key, self.url) for task in tasks)
        return new_tasks("record", recording, tasks)


def measure_with_checkpoint(
    numbers: NDArray[np.int64],
    n_rows: int,
    measure: Callable[[NDArray[np.int64]], list[Delayed]],
    checkpoint: Checkpoint | None,
) -> NDArray[np.float64]:
    """Return the statistic of some rows, in their order; computes what is not known yet.

    Parameters
    ----------
    numbers : ndarray of int
        Of the rows, ascending.
    n_rows : int
        Above all of the numbers.
    measure : callable
        From the numbers of rows that are not known yet to tasks that give the numbers of
        some of them each, and their statistic.
    checkpoint : Checkpoint, optional
        None: nothing is known, and nothing kept.
    """
    if checkpoint is None:
        statistic = np.full(n_rows, np.nan)
        open_numbers = numbers
        tasks = measure(open_numbers)
    else:
        statistic = checkpoint.known(n_rows)
        open_numbers = numbers[np.isnan(statistic[numbers])]
        tasks = checkpoint.recorded(measure(open_numbers)) if len(open_numbers) else []
    rows = RowCount("measured", _n_rows, len(open_numbers))
    for of_task, values in compute(*tasks, rows=rows):
        statistic[of_task] = values
    return statistic[numbers]


def _n_rows(result: Any) -> int:
    """Return the rows that a task has measured."""
    return len(result[0])


# Runs inside tasks.


def _record(
    measured: tuple[NDArray[np.int64], NDArray[np.float64]], url: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    folder = Folder(url)
    folder.make()
    columns: dict[str, NDArray[Any]] = dict(zip(_COLUMNS, measured, strict=True))
    folder.write(f"rows-{uuid4().hex}.parquet", parquet_of(columns))
    return measured

"""Show how many rows a run has measured or scored, and the time left.

compute --Computation--> one line, or log records
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from lpe_dask.tasks import Computation

logger = logging.getLogger(__name__)

#: Seconds between two records where there is no terminal.
LOG_SECONDS = 10.0

#: Seconds after which a rate is meaningful.
LEAST_SECONDS = 0.5

#: Is called whenever a computation that counts rows has moved.
_Show = Callable[["RowProgress"], None]


class RowProgress:
    """How far a computation is that counts rows, and how fast it was.

    Parameters
    ----------
    computation : Computation
    clock : callable
        Seconds that never decrease.
    """

    def __init__(
        self, computation: Computation, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.computation = computation
        self._clock = clock
        self._began = self._moved = clock()
        self._n_done = computation.n_done

    @property
    def is_complete(self) -> bool:
        """Whether all results are there."""
        return self.computation.n_done == self.computation.n_results

    def moves(self) -> bool:
        """Return whether there are more results than at the last call."""
        has_moved = self.computation.n_done != self._n_done
        if has_moved:
            self._n_done, self._moved = self.computation.n_done, self._clock()
        return has_moved

    def describe(self) -> str:
        """Return the rows done, the rate and the time left."""
        computation = self.computation
        rows, n_done = computation.rows, computation.n_done
        assert rows is not None
        text = f"{rows.verb} {computation.rows_done:,}"
        if rows.total is None:
            text += f" rows, {n_done} of {computation.n_results} parts"
        else:
            text += f" of {rows.total:,} rows"
        elapsed = self._moved - self._began
        if n_done == 0 or elapsed < LEAST_SECONDS:
            return text
        text += f", {_rate(computation.rows_done / elapsed)} rows/s"
        if self.is_complete:
            return text
        # Results are of about one size; how many rows there are may not be known.
        left = (computation.n_results - n_done) * elapsed / n_done
        left -= self._clock() - self._moved
        return f"{text}, {timedelta(seconds=max(0, round(left)))} left"


def _rate(per_second: float) -> str:
    """Return a rate with three significant digits."""
    digits = max(0, 2 - math.floor(math.log10(max(per_second, 1e-9))))
    return f"{per_second:,.{min(digits, 2)}f}"


@contextmanager
def show_progress(console: Console) -> Iterator[Callable[[Computation], None]]:
    """Show rows done, their rate and the time left while the context is open.

    Gives a function to call whenever a computation has moved. On a terminal there is one
    line, kept up to date; elsewhere there are log records of level INFO, at most one in
    `LOG_SECONDS` and one at the end of each computation.
    """
    latest: list[RowProgress] = []
    with _line(console) if console.is_terminal else _records() as show:

        def listen(computation: Computation) -> None:
            if computation.rows is None:
                return
            if not latest or latest[0].computation is not computation:
                latest[:] = [RowProgress(computation)]
                show(latest[0])
            elif latest[0].moves():
                show(latest[0])

        yield listen


class _Description(ProgressColumn):
    """The text beside the bar; made at each refresh, so that the time left is current."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["rows"].describe())


@contextmanager
def _line(console: Console) -> Iterator[_Show]:
    """Give a function that keeps one line of a terminal up to date."""
    # The bar fills the rest of the line.
    words = _Description(table_column=Column(no_wrap=True))
    bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
    with Progress(
        words, bar, console=console, refresh_per_second=4, expand=True
    ) as progress:
        lines: list[TaskID] = []

        def show(rows: RowProgress) -> None:
            if not lines:
                lines.append(progress.add_task("", rows=rows))
            computation = rows.computation
            progress.update(
                lines[0], rows=rows,
                completed=computation.n_done, total=computation.n_results,
            )  # fmt: skip

        yield show


@contextmanager
def _records() -> Iterator[_Show]:
    """Give a function that logs, at most once in `LOG_SECONDS`."""
    logged = time.monotonic()

    def show(rows: RowProgress) -> None:
        nonlocal logged
        now = time.monotonic()
        if rows.is_complete or now - logged >= LOG_SECONDS:
            logged = now
            logger.info("%s", rows.describe())

    yield show

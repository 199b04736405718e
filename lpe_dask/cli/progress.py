"""Show how many rows a run has measured or scored, and the time left.

compute --Computation--> one line, or log records
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

from lpe_dask.tasks import Computation

logger = logging.getLogger(__name__)

#: Seconds between two records where there is no terminal.
LOG_SECONDS = 10.0

#: Seconds after which a rate is meaningful.
MIN_SECONDS = 0.5

#: What shows how far a computation is; see `compute`.
_Listener = Callable[[Computation], None]


def show_progress(console: Console) -> AbstractContextManager[_Listener]:
    """Return a context that shows rows done, their rate and the time left.

    Gives a listener of `compute`. On a terminal there is one line, kept up to date;
    elsewhere there are log records of level INFO, at most one in `LOG_SECONDS` and one at
    the end of each computation.
    """
    return _line(console) if console.is_terminal else _records()


def describe(computation: Computation, seconds: float) -> str:
    """Return the progress after some seconds, with rows, the rate and the time left."""
    rows, n_done = computation.rows, computation.n_done
    assert rows is not None
    text = f"{rows.verb} {computation.rows_done:,}"
    if rows.total is None:
        text += f" rows, {n_done} of {computation.n_results} parts"
    else:
        text += f" of {rows.total:,} rows"
    if n_done == 0 or seconds < MIN_SECONDS:
        return text
    if computation.rows_done > 0:
        text += f", {_rate(computation.rows_done / seconds)} rows/s"
    if n_done == computation.n_results:
        return text
    # Results are of about one size; how many rows there are may not be known.
    left = (computation.n_results - n_done) * seconds / n_done
    return f"{text}, {timedelta(seconds=round(left))} left"


def numbers(computation: Computation, seconds: float) -> dict[str, Any]:
    """Return the progress after some seconds, for machines."""
    rows = computation.rows
    assert rows is not None
    return {
        "step": rows.verb,
        "rows_done": computation.rows_done,
        "rows": rows.total,
        "parts_done": computation.n_done,
        "parts": computation.n_results,
        "seconds": round(seconds, 3),
    }


def _rate(per_second: float) -> str:
    """Return a rate with three significant digits, and no more than two after the point."""
    digits = 2 - math.floor(math.log10(max(per_second, 1.0)))
    return f"{per_second:,.{max(0, digits)}f}"


class _Description(ProgressColumn):
    """The text beside the bar; made at each refresh, so that the time left is current."""

    def render(self, task: Task) -> Text:
        seconds = task.finished_time or task.elapsed or 0.0
        return Text(describe(task.fields["computation"], seconds))


@contextmanager
def _line(console: Console) -> Iterator[_Listener]:
    """Give a listener that keeps one line of a terminal up to date."""
    # The bar fills the rest of the line.
    words = _Description(table_column=Column(no_wrap=True))
    bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
    with Progress(
        words, bar, console=console, refresh_per_second=4, expand=True
    ) as progress:

        def show(computation: Computation) -> None:
            if computation.rows is None:
                return
            shown = [task.id for task in progress.tasks]
            if not shown or progress.tasks[0].fields["computation"] is not computation:
                progress.add_task("", total=computation.n_results, computation=computation)
                for task in shown:
                    progress.remove_task(task)
            progress.update(progress.task_ids[0], completed=computation.n_done)

        yield show


@contextmanager
def _records() -> Iterator[_Listener]:
    """Give a listener that logs, at most once in `LOG_SECONDS`."""
    latest: Computation | None = None
    began = logged = time.monotonic()

    def show(computation: Computation) -> None:
        nonlocal latest, began, logged
        if computation.rows is None:
            return
        now = time.monotonic()
        if computation is not latest:
            latest, began = computation, now
        is_done = computation.n_done == computation.n_results
        has_ended = not computation.is_open and is_done
        if has_ended or (not is_done and now - logged >= LOG_SECONDS):
            logged = now
            seconds = now - began
            about = {"event": "progress", "fields": numbers(computation, seconds)}
            logger.info("%s", describe(computation, seconds), extra=about)

    yield show

"""Show the progress of a search, and the time left.

    tiles done, total --Tally--> one line, or log records

A tile is one join task: a share of the rows against all blocks of the nominal rows. A run
may search more than once (the nominal rows among themselves, then the rows to score); each
search is counted on its own.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from lpe_dask.tasks import COUNTED_PREFIXES

logger = logging.getLogger(__name__)

#: Seconds between two records where there is no terminal.
LOG_SECONDS = 10.0

#: Seconds after which a rate is meaningful.
LEAST_SECONDS = 0.5

#: The key of a tile: the prefix, then the hexadecimal number of its search. A scheduler may
#: keep the prefix only as the name of a group.
_TILE_KEY = re.compile(rf"(?:{'|'.join(COUNTED_PREFIXES)})(?:-([0-9a-f]+))?(?![^-])")


@dataclass(slots=True)
class _Search:
    """The progress of one search.

    Attributes
    ----------
    began, moved : float
        Seconds, when it was first seen and when a tile was last done.
    done, total : int
        Tiles.
    n_rows : int, optional
        Rows that all tiles together measure, if that is known.
    """

    began: float
    moved: float
    done: int = 0
    total: int = 0
    n_rows: int | None = None

    def describe(self, now: float) -> str:
        """Return the tiles done, the rate and the time left as part of a sentence."""
        text = f"{self.done} of {self.total} tiles"
        done, unit = float(self.done), ""
        if self.n_rows is not None:
            done, unit = self.n_rows * self.done / self.total, " rows"  # of about one size
            text += f", {done:,.0f} of {self.n_rows:,} rows"
        elapsed = self.moved - self.began
        if self.done == 0 or elapsed < LEAST_SECONDS:
            return text
        left = (self.total - self.done) * elapsed / self.done - (now - self.moved)
        time_left = timedelta(seconds=max(0, round(left)))
        return f"{text}, {_rate(done / elapsed)}{unit}/s, {time_left} left"


def _rate(per_second: float) -> str:
    """Return a rate with three significant digits."""
    digits = max(0, 2 - math.floor(math.log10(max(per_second, 1e-9))))
    return f"{per_second:,.{digits}f}"


#: Shows one search, and is told the time.
_Show = Callable[[_Search, float], None]


@dataclass(slots=True)
class Tally:
    """The searches seen so far; shows each that has moved.

    Attributes
    ----------
    show : callable
        ``show(search, now)`` is called when a search is new or has moved.
    clock : callable
        Seconds that never decrease.
    """

    show: _Show
    clock: Callable[[], float] = time.monotonic
    _n_rows: int | None = None
    _searches: dict[str, _Search] = field(default_factory=dict)

    def expect(self, n_rows: int | None) -> None:
        """Set how many rows each search from now on measures; None: unknown."""
        self._n_rows = n_rows

    def put(self, name: str, done: int, total: int) -> None:
        """Set how many of the ``total`` tiles of a search are done."""
        now = self.clock()
        new = _Search(began=now, moved=now, n_rows=self._n_rows)
        search = self._searches.setdefault(name, new)
        if (done, total) != (search.done, search.total):
            search.done, search.total, search.moved = done, total, now
            self.show(search, now)

    def put_open(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Set the counts that `tiles_of` returned.

        A scheduler forgets tiles that nobody needs any more, so the missing tiles of a
        search that it once had are done.
        """
        before = {name: search.total for name, search in self._searches.items()}
        for name in {**before, **counts}:
            n_open, n_known = counts.get(name, (0, 0))
            total = max(n_known, before.get(name, 0))
            self.put(name, total - n_open, total)


@contextmanager
def show_progress(console: Console) -> Iterator[Tally]:
    """Show tiles and rows done, their rate and the time left while the context is open.

    Gives the tally to fill. On a terminal this is one line, kept up to date; elsewhere log
    records of level INFO, at most one in `LOG_SECONDS` and one at the end of each search.
    """
    with _line(console) if console.is_terminal else _records() as show:
        yield Tally(show)


# Which tasks are tiles


def tiles_of(groups: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return how many tiles of each search are open, and how many there are.

    Parameters
    ----------
    groups : mapping
        The same, by the name of a group of tasks.
    """
    counts: dict[str, tuple[int, int]] = {}
    for name, (n_open, n_known) in groups.items():
        search = search_of(name)
        if search is not None:
            before = counts.get(search, (0, 0))
            counts[search] = (before[0] + n_open, before[1] + n_known)
    return counts


def search_of(key: Any) -> str | None:
    """Return the number of the search that a tile belongs to, None for other tasks."""
    name = key[0] if isinstance(key, tuple) else key
    match = _TILE_KEY.match(name) if isinstance(name, str) else None
    return None if match is None else match.group(1) or ""


# Two ways to show


class _Description(ProgressColumn):
    """The text beside the bar; made at each refresh, so that the time left is current."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["search"].describe(time.monotonic()))


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

        def show(search: _Search, now: float) -> None:
            if not lines:
                lines.append(progress.add_task("", search=search))
            progress.update(
                lines[0], search=search, completed=search.done, total=search.total
            )

        yield show


@contextmanager
def _records() -> Iterator[_Show]:
    """Give a function that logs, at most once in `LOG_SECONDS`."""
    logged: list[float] = []

    def show(search: _Search, now: float) -> None:
        last = logged[-1] if logged else search.began
        if search.done == search.total or now - last >= LOG_SECONDS:
            logged[:] = [now]
            logger.info("measured %s", search.describe(now))

    yield show

"""Show the progress of a search, and the time left.

    scheduler of a cluster  ---- polled by a thread ----+
                                                        +--> tiles done, total --> one line
    scheduler of this process  ---- callback -----------+

A tile is one join task: a share of the rows against all blocks of the nominal rows. A run
may search more than once (the nominal rows among themselves, then the rows to score); each
search is counted on its own. If showing the progress fails, the run continues.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dask.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from lpe_dask.tasks import active_client

logger = logging.getLogger(__name__)

#: Prefixes of the keys that are counted: searches in space, and walks along a graph.
TILE_PREFIXES = ("lpe-join", "lpe-walk")

#: Seconds between two looks at the scheduler of a cluster.
POLL_SECONDS = 0.3

#: Seconds between two records where there is no terminal.
LOG_SECONDS = 10.0

#: Seconds after which a rate is meaningful.
LEAST_SECONDS = 0.5

#: Seconds that the end of a run may wait for an answer to the last look.
LAST_POLL_SECONDS = 2.0

#: The key of a tile: the prefix, then the hexadecimal number of its search. A scheduler may
#: keep the prefix only as the name of a group.
_TILE_KEY = re.compile(rf"(?:{'|'.join(TILE_PREFIXES)})(?:-([0-9a-f]+))?(?![^-])")

#: States of a task that is not done.
_OPEN_STATES = ("waiting", "no-worker", "queued", "processing")


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
        """Set the counts that `count_tiles` returned.

        A scheduler forgets tiles that nobody needs any more, so the missing tiles of a
        search that it once had are done.
        """
        before = {name: search.total for name, search in self._searches.items()}
        for name in {**before, **counts}:
            n_open, n_known = counts.get(name, (0, 0))
            total = max(n_known, before.get(name, 0))
            self.put(name, total - n_open, total)


@contextmanager
def show_progress(
    console: Console | None = None,
) -> Iterator[Callable[[int | None], None]]:
    """Show tiles and rows done, their rate and the time left while the context is open.

    Gives a function to call with the number of rows that the next searches measure; without
    it, only tiles are shown.

    On a terminal this is one line, kept up to date; elsewhere log records of level INFO, at
    most one in `LOG_SECONDS` and one at the end of each search. Computes inside may run on
    the distributed client that is active on entry, or on a local scheduler.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to show it; standard error if omitted.
    """
    console = Console(stderr=True) if console is None else console
    client = active_client()
    with _line(console) if console.is_terminal else _records() as show:
        tally = Tally(show)
        with _TileCallback(tally) if client is None else _polling(client, tally):
            yield tally.expect


# Two ways to count


class _TileCallback(Callback):
    """Counts the tiles of every graph that a scheduler of this process runs."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally
        self._done, self._total = Counter[str](), Counter[str]()

    def _start_state(self, graph: Mapping[Any, Any], state: Mapping[str, Any]) -> None:
        searches = map(_search_of, graph)
        self._total.update(search for search in searches if search is not None)
        for search, total in self._total.items():
            self._tally.put(search, self._done[search], total)

    def _posttask(
        self, key: Any, result: Any, graph: Any, state: Any, worker_id: Any
    ) -> None:
        search = _search_of(key)
        if search is not None:
            self._done[search] += 1
            self._tally.put(search, self._done[search], self._total[search])


@contextmanager
def _polling(client: Any, tally: Tally) -> Iterator[None]:
    """Ask the scheduler from a thread, which ends with the context."""
    stop = threading.Event()

    def poll() -> None:
        try:
            while not stop.wait(POLL_SECONDS):
                tally.put_open(client.run_on_scheduler(count_tiles))
        except (Exception, asyncio.CancelledError) as error:
            logger.debug("the scheduler does not tell its progress: %r", error)

    thread = threading.Thread(target=poll, name="lpe-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LAST_POLL_SECONDS)
    tally.put_open({})  # no error was raised, so all is done


def count_tiles(dask_scheduler: Any) -> dict[str, tuple[int, int]]:
    """Return how many tiles of each search are open, and how many the scheduler has.

    Runs on the scheduler.
    """
    counts: dict[str, tuple[int, int]] = {}
    known = dask_scheduler.task_prefixes
    for prefix in [known[name] for name in TILE_PREFIXES if name in known]:
        for group in prefix.groups:
            search = _search_of(group.name)
            if search is not None:
                n_open, n_known = counts.get(search, (0, 0))
                n_open += sum(group.states[state] for state in _OPEN_STATES)
                n_known += sum(group.states.values()) - group.states["forgotten"]
                counts[search] = (n_open, n_known)
    return counts


def _search_of(key: Any) -> str | None:
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

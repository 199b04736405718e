"""Watch a run while it computes: its progress, its workers, and whether anything moves.

    scheduler of a cluster  ---- asked by a thread ----+--> progress     how far the run is
                                                       +--> log lines    workers come and go
    scheduler of this process  ---- callback ----------+--> standstill   nothing moves

If watching fails, the run continues.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from dask.callbacks import Callback
from rich.console import Console

from lpe_dask.cli.progress import Tally, search_of, show_progress, tiles_of
from lpe_dask.cli.standstill import Standstill
from lpe_dask.tasks import Look, Observation, observed

logger = logging.getLogger(__name__)

#: Seconds between two looks at the scheduler: for a line on a terminal, and for a log.
LINE_SECONDS, LOG_SECONDS = 0.3, 2.0

#: Most workers that a log line names of those that came or went between two looks.
MOST_NAMED = 3

#: Seconds that the end of a run may wait for an answer to the last look.
LAST_LOOK_SECONDS = 2.0


@contextmanager
def watch(
    give_up_after: float = math.inf, console: Console | None = None
) -> Iterator[Callable[[int | None], None]]:
    """Watch what is computed while the context is open.

    Gives a function to call with the number of rows that the next searches measure; without
    it, only tiles are shown. Computes inside may run on the distributed client that is
    active on entry, or on a local scheduler.

    Parameters
    ----------
    give_up_after : float
        Seconds without a finished task after which the run is ended; inf: never.
    console : rich.console.Console, optional
        Where to show the progress; standard error if omitted.
    """
    console = Console(stderr=True) if console is None else console
    pause = LINE_SECONDS if console.is_terminal else LOG_SECONDS
    with observed() as observation, show_progress(console) as tally:
        standstill = Standstill(observation.client, give_up_after)
        if observation.client is None:
            with (
                _TaskCallback(tally) as tasks,
                _repeated(lambda: standstill.see(tasks.look()), pause),
            ):
                yield tally.expect
            return
        with _repeated(partial(_look, observation, tally, standstill), pause):
            yield tally.expect
        tally.put_open({})  # no error was raised, so all is done


@contextmanager
def _repeated(action: Callable[[], None], pause: float) -> Iterator[None]:
    """Call a function again and again, in a thread that ends with the context."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(pause):
            try:
                action()
            except (Exception, asyncio.CancelledError) as error:
                logger.debug("the run is not watched: %r", error)

    thread = threading.Thread(target=repeat, name="lpe-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LAST_LOOK_SECONDS)


# A scheduler of this process


class _TaskCallback(Callback):
    """Counts the tasks of every graph that a scheduler of this process runs, and tiles."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally
        self._done, self._total = Counter[str](), Counter[str]()
        self._n_graphs = self._n_finished = 0

    def look(self) -> Look:
        """Return how far the tasks are; while a graph runs, some task of it is open."""
        return Look(n_open=self._n_graphs, n_finished=self._n_finished)

    def _start(self, graph: Mapping[Any, Any]) -> None:
        self._n_graphs += 1

    def _finish(self, graph: Any, state: Any, is_failed: bool) -> None:
        self._n_graphs -= 1

    def _start_state(self, graph: Mapping[Any, Any], state: Mapping[str, Any]) -> None:
        searches = map(search_of, graph)
        self._total.update(search for search in searches if search is not None)
        for search, total in self._total.items():
            self._tally.put(search, self._done[search], total)

    def _posttask(
        self, key: Any, result: Any, graph: Any, state: Any, worker_id: Any
    ) -> None:
        self._n_finished += 1
        search = search_of(key)
        if search is not None:
            self._done[search] += 1
            self._tally.put(search, self._done[search], self._total[search])


# The scheduler of a cluster


def _look(observation: Observation, tally: Tally, standstill: Standstill) -> None:
    """Ask the scheduler once, and pass on what it answers."""
    before = observation.last
    try:
        look = observation.look()
    except (Exception, asyncio.CancelledError) as error:
        logger.debug("the scheduler does not answer: %r", error)
        standstill.see(None)
        return
    tally.put_open(tiles_of(look.groups))
    _log_workers(before, look)
    standstill.see(look)


def _log_workers(before: Look, look: Look) -> None:
    """Say which workers came and went, and what is done again for it."""
    for kind in dict.fromkeys(what for what, _ in look.events):
        named = [address for what, address in look.events if what == kind]
        who = ", ".join(named) if len(named) <= MOST_NAMED else f"{len(named)} workers"
        logger.info("%s: %s; workers: %d", kind, who, look.n_workers)
    if (n_again := look.n_repeated - before.n_repeated) > 0:
        why = ", as their workers are gone" if look.n_lost > before.n_lost else ""
        logger.info("tasks done again%s: %d", why, n_again)

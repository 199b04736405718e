"""Notice that no task is done any more: say so each minute, or give up.

    compute --Computation--> results that are there --+--> all is well, a line, or the end
    scheduler <--asked by a thread-- tasks at work ---+

Workers that Dask does not hear from are its own business (``worker-ttl``). If asking fails,
the run continues.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from lpe_dask.cli.interrupts import StallTimeout, interrupt_main
from lpe_dask.kernels import compiler
from lpe_dask.tasks import Computation, Workers, active_client

logger = logging.getLogger(__name__)

#: Seconds without a finished task after which a line says so, and again after as many.
STALL_SECONDS = 60.0

#: Seconds between two questions to the scheduler.
QUERY_SECONDS = 2.0

#: Most workers that a line names.
MAX_NAMED = 5

#: Seconds that the end of a run may wait for an answer to the last question.
LAST_QUERY_SECONDS = 2.0

#: What a scheduler answers: tasks by the address of their worker, and how many notices its
#: workers have sent.
_Answer = tuple[dict[str, list[Any]], int]


@dataclass
class StallDetector:
    """How long no task was done.

    Attributes
    ----------
    query : callable, optional
        Returns the tasks that are at work on a cluster, and how many notices workers have
        sent (that they compile). None: they are in this process.
    give_up_after : float
        Seconds after which the run ends; inf: never.
    clock : callable
        Seconds that never decrease.
    """

    query: Callable[[], _Answer] | None
    give_up_after: float
    clock: Callable[[], float] = time.monotonic
    _computation: Computation = field(default_factory=lambda: Computation(0, is_open=False))
    _answer: _Answer | None = None
    _last_progress: float = 0.0
    _n_lines: int = 0

    def listen(self, computation: Computation) -> None:
        """Take note of a computation that has moved."""
        self._computation = computation
        self._reset()

    def check(self) -> None:
        """Ask which tasks are at work, and act if nothing has changed for long."""
        # Where this process is at work and not its tasks, or compiles for them.
        if not self._computation.is_open or compiler.is_compiling:
            self._reset()
            return
        answer = None
        if self.query is not None:
            try:
                answer = self.query()
            except (Exception, asyncio.CancelledError) as error:
                logger.debug("the scheduler does not answer: %r", error)
        if answer is not None and answer != self._answer:
            self._answer = answer
            self._reset()
        stalled = self.clock() - self._last_progress
        duration = timedelta(seconds=round(stalled))
        if stalled >= STALL_SECONDS * (self._n_lines + 1):
            self._n_lines += 1
            logger.info("no task was done for %s: %s", duration, self._state(answer))
        if stalled >= self.give_up_after:
            self._reset()
            reason = (
                f"the run was given up, as no task was done for {duration}: "
                f"{self._state(answer)}. What was written is complete; start the same run "
                f"again to resume, or let it wait for longer (--give-up-after)."
            )
            interrupt_main(StallTimeout(reason))

    def _reset(self) -> None:
        self._last_progress, self._n_lines = self.clock(), 0

    def _state(self, answer: _Answer | None) -> str:
        """Return the state of results and workers as part of a sentence."""
        n_open = self._computation.n_results - self._computation.n_done
        text = f"results that are open: {n_open}"
        if self.query is None:
            return f"{text}, in this process"
        if answer is None:
            return f"{text}; the scheduler does not answer"
        text += f", workers: {len(answer[0])}"
        if not answer[0]:
            return f"{text}; start some, or wait until the cluster does"
        busy = [f"tasks at {worker}: {len(tasks)}" for worker, tasks in answer[0].items()]
        return "; ".join([text, *busy[:MAX_NAMED]])


@contextmanager
def detect_stalls(give_up_after: float) -> Iterator[Callable[[Computation], None]]:
    """Watch the computations of the active workers while the context is open.

    Gives a listener of `compute`.

    Parameters
    ----------
    give_up_after : float
        Seconds without a finished task after which the run ends; inf: never.
    """
    client = active_client()
    query = None if client is None else partial(Workers.at_work, client)
    detector = StallDetector(query, give_up_after)
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(QUERY_SECONDS):
            detector.check()

    thread = threading.Thread(target=repeat, name="lpe-stall-detection", daemon=True)
    thread.start()
    try:
        yield detector.listen
    finally:
        ended.set()
        thread.join(LAST_QUERY_SECONDS)

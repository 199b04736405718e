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
from datetime import timedelta
from functools import partial
from typing import Any

from lpe_dask.cli.interrupts import interrupt_main
from lpe_dask.kernels import is_compiling
from lpe_dask.tasks import TOPIC, Computation, Listener, active_client, timeout

logger = logging.getLogger(__name__)

#: Seconds without a finished task after which a line says so, and again after as many.
STALL_SECONDS = 60.0

#: Seconds between two questions to the scheduler.
LOOK_SECONDS = 2.0

#: Most workers that a line names.
MOST_NAMED = 5

#: Seconds that the end of a run may wait for an answer to the last question.
LAST_LOOK_SECONDS = 2.0

#: The tasks at work, by the address of their worker.
_AtWork = dict[str, list[Any]]

#: What a scheduler answers: these, and how many notices its workers have sent.
_Answer = tuple[_AtWork, int]


class StallDetector:
    """How long no task was done.

    Parameters
    ----------
    ask : callable, optional
        Returns the tasks that are at work on a cluster, and how many notices workers have
        sent (that they compile). None: they are in this process.
    give_up_after : float
        Seconds after which the run ends; inf: never.
    clock : callable
        Seconds that never decrease.
    """

    def __init__(
        self,
        ask: Callable[[], _Answer] | None,
        give_up_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._give_up_after = give_up_after
        self._clock = clock
        self._moved = clock()
        self._n_said = 0
        self._computation = Computation(0, is_open=False)
        self._answer: _Answer | None = None

    def listen(self, computation: Computation) -> None:
        """Take note of a computation that has moved."""
        self._computation = computation
        self._move()

    def look(self) -> None:
        """Ask which tasks are at work, and act if nothing has changed for long."""
        # Where this process is at work and not its tasks, or compiles for them.
        if not self._computation.is_open or is_compiling():
            self._move()
            return
        answer = at_work = None
        if self._ask is not None:
            try:
                answer = self._ask()
                at_work, _ = answer
            except (Exception, asyncio.CancelledError) as error:
                logger.debug("the scheduler does not answer: %r", error)
            if answer is not None and answer != self._answer:
                self._answer = answer
                self._move()
        still = self._clock() - self._moved
        if still >= STALL_SECONDS * (self._n_said + 1):
            self._n_said += 1
            logger.info("no task was done for %s: %s", _words(still), self._state(at_work))
        if still >= self._give_up_after:
            self._move()
            interrupt_main(
                f"the run was given up, as no task was done for {_words(still)}: "
                f"{self._state(at_work)}. What was written is complete; start the same run "
                f"again to resume, or let it wait for longer (--give-up-after)."
            )

    def _move(self) -> None:
        self._moved, self._n_said = self._clock(), 0

    def _state(self, at_work: _AtWork | None) -> str:
        """Return what is known about results and workers as part of a sentence."""
        n_open = self._computation.n_results - self._computation.n_done
        text = f"results that are open: {n_open}"
        if self._ask is None:
            return f"{text}, in this process"
        if at_work is None:
            return f"{text}; the scheduler does not answer"
        text += f", workers: {len(at_work)}"
        if not at_work:
            return f"{text}; start some, or wait until the cluster does"
        busy = [f"tasks at {worker}: {len(tasks)}" for worker, tasks in at_work.items()]
        return "; ".join([text, *busy[:MOST_NAMED]])


def _words(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def detect_stalls(give_up_after: float) -> Iterator[Listener]:
    """Watch the computations of the active workers while the context is open.

    Gives a listener of `compute`.

    Parameters
    ----------
    give_up_after : float
        Seconds without a finished task after which the run ends; inf: never.
    """
    client = active_client()

    def ask() -> _Answer:
        assert client is not None
        call = partial(client.sync, callback_timeout=timeout("look"))
        at_work: _AtWork = call(client.scheduler.processing, workers=None)
        return at_work, len(call(client.scheduler.events, topic=TOPIC))

    detector = StallDetector(None if client is None else ask, give_up_after)
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(LOOK_SECONDS):
            detector.look()

    thread = threading.Thread(target=repeat, name="lpe-stall-detection", daemon=True)
    thread.start()
    try:
        yield detector.listen
    finally:
        ended.set()
        thread.join(LAST_LOOK_SECONDS)

"""Notice that nothing moves any more: say so, free what can be freed, or give up.

every look --Standstill--> a task was done: all is well
                   +--> not for a minute: a line each minute, and `rescue`
                   +--> not for --give-up-after: the run ends, and can be resumed
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

import dask

from lpe_dask.cli.interrupts import interrupt_main
from lpe_dask.cli.rescue import restart_silent, separate
from lpe_dask.tasks import Look, Observation

logger = logging.getLogger(__name__)


class Standstill:
    """How long nothing has moved.

    Parameters
    ----------
    observation : Observation
        Of the workers.
    give_up_after : float, optional
        Seconds after which the run ends; None: never.
    clock : callable
        Seconds that never decrease.
    """

    def __init__(
        self,
        observation: Observation,
        give_up_after: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observation = observation
        self._give_up_after = give_up_after
        self._patience = dask.config.get("lpe-dask.timeouts.standstill")
        self._clock = clock
        self._moved = clock()
        self._n_finished = 0
        self._n_said = 0

    def move(self) -> None:
        """Note that something has moved now."""
        self._moved = self._clock()
        self._n_said = 0

    def see(self, look: Look | None) -> None:
        """Take in what the scheduler sees; None: it did not answer."""
        # Without an open task this process is at work, not the workers.
        if look is not None and (look.n_finished != self._n_finished or not look.n_open):
            self._n_finished = look.n_finished
            self.move()
        self.check(look)

    def check(self, look: Look | None = None) -> None:
        """Act if nothing has moved for long."""
        still = self._clock() - self._moved
        if still >= self._patience * (self._n_said + 1):
            self._n_said += 1
            logger.info("no task was done for %s: %s", _words(still), _state(look))
            if look is not None and self._observation.client is not None:
                restart_silent(self._observation.client, look, self._patience)
                if self._n_said > 1:  # after restarts have had their time
                    separate(self._observation.client)
        if self._give_up_after is not None and still >= self._give_up_after:
            self.move()
            interrupt_main(
                f"the run was given up, as no task was done for {_words(still)}: "
                f"{_state(look)}. What was written is complete; start the same run again "
                f"to resume, or let it wait for longer (--give-up-after)."
            )


def _state(look: Look | None) -> str:
    """Return what is known about tasks and workers as part of a sentence."""
    if look is None:
        return "nothing is known of the workers"
    text = f"{look.n_open} are open, workers: {look.n_workers}"
    if not look.n_workers:
        return f"{text}; start some, or wait until the cluster does"
    held = [
        f"{address} has {n_tasks} (last heartbeat {silence:.0f} s ago)"
        for address, n_tasks, silence in look.holders
    ]
    return "; ".join([text, *held])


def _words(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))

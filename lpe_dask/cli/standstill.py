"""Notice that nothing moves any more: say so, free what can be freed, or give up.

every look --Standstill.see--> a task was done: all is well
                         +--> not for a minute: a line each minute, and `rescue`
                         +--> not for --give-up-after: the run ends, and can be resumed
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from lpe_dask.cli.interrupts import interrupt_main
from lpe_dask.cli.rescue import restart_silent, separate
from lpe_dask.tasks import Look, timeout

logger = logging.getLogger(__name__)

#: Most workers that a line names.
MOST_NAMED = 5


class Standstill:
    """How long nothing has moved.

    Parameters
    ----------
    client : distributed.Client, optional
        Of the cluster; None: the tasks run in this process.
    give_up_after : float
        Seconds after which the run ends; inf: never.
    clock : callable
        Seconds that never decrease.
    """

    def __init__(
        self,
        client: Any | None,
        give_up_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._give_up_after = give_up_after
        self._patience = timeout("standstill")
        self._clock = clock
        self._moved = clock()
        self._n_finished = 0
        self._n_said = 0
        self._has_separated = False

    def see(self, look: Look | None) -> None:
        """Take in how far the tasks are, and act if nothing has moved for long.

        Parameters
        ----------
        look : Look, optional
            None: the scheduler did not answer.
        """
        now = self._clock()
        # Without an open task this process is at work, and not its tasks.
        if look is not None and (look.n_finished != self._n_finished or not look.n_open):
            self._n_finished, self._moved, self._n_said = look.n_finished, now, 0
        still = now - self._moved
        if still >= self._patience * (self._n_said + 1):
            self._n_said += 1
            logger.info("no task was done for %s: %s", _words(still), self._state(look))
            if self._client is not None and look is not None:
                restart_silent(self._client, look, self._patience)
                # After restarts have had their time; sooner where it may be a worker that
                # was removed, and was started anew in the same place.
                if self._n_said > 1 or self._has_separated:
                    self._has_separated |= separate(self._client, look)
        if still >= self._give_up_after:
            self._moved = now
            interrupt_main(
                f"the run was given up, as no task was done for {_words(still)}: "
                f"{self._state(look)}. What was written is complete; start the same run "
                f"again to resume, or let it wait for longer (--give-up-after)."
            )

    def _state(self, look: Look | None) -> str:
        """Return what is known about tasks and workers as part of a sentence."""
        if look is None:
            return "the scheduler does not answer"
        if self._client is None:
            return f"{look.n_open} are open in this process"
        text = f"{look.n_open} are open, workers: {look.n_workers}"
        if not look.n_workers:
            return f"{text}; start some, or wait until the cluster does"
        held = [
            f"{address} has {n_tasks} (last heartbeat {silence:.0f} s ago)"
            for address, n_tasks, silence in look.holders[:MOST_NAMED]
        ]
        return "; ".join([text, *held])


def _words(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))

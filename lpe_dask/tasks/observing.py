"""What a run sees of the workers that it computes on: comings, losses, what is done again.

    scheduler: plugin  <--asked--  Observation  --> log lines, counts of a summary

Without a cluster there is nothing to see, and all counts are 0.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from lpe_dask.storage import brief
from lpe_dask.tasks.timeouts import timeout
from lpe_dask.tasks.workers import active_client

logger = logging.getLogger(__name__)

#: Prefixes of the keys of tasks that are counted by group: searches in space, and walks
#: along a graph.
COUNTED_PREFIXES = ("lpe-join", "lpe-walk")


@dataclass(frozen=True, slots=True)
class Look:
    """What a scheduler answered, counted since the observation began.

    Tasks are those of the client that observes.

    Attributes
    ----------
    groups : mapping
        From the name of a group of tasks, of all clients, to how many of them are open, and
        how many the scheduler has.
    n_open : int
        Tasks that are not done.
    n_finished : int
        Tasks that were done for the first time.
    n_repeated : int
        Starts of tasks that had been started before.
    n_lost : int
        Workers that were lost with tasks or results.
    n_spilled : int
        Bytes that workers have written to disk for want of memory, whatever they did.
    n_workers : int
        Workers that are there now.
    holders : sequence
        Workers with tasks, those first that were silent for longest: address, number of
        tasks, seconds since the last heartbeat.
    events : sequence
        New since the last look: what happened, and the address of the worker.
    """

    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    n_open: int = 0
    n_finished: int = 0
    n_repeated: int = 0
    n_lost: int = 0
    n_spilled: int = 0
    n_workers: int = 0
    holders: Sequence[tuple[str, int, float]] = ()
    events: Sequence[tuple[str, str]] = ()


class Observation:
    """Asks the observer of a scheduler; without a client, all that it sees is nothing.

    Parameters
    ----------
    client : distributed.Client, optional

    Attributes
    ----------
    client : distributed.Client, optional
        None as well where a scheduler runs no functions of others.
    last : Look
        What it saw last.
    n_users : int
        Contexts that are open, see `observed`.
    """

    def __init__(self, client: Any | None) -> None:
        self.client = client
        self.last = Look()
        self.n_users = 0
        self._n_events = 0
        self._name: str | None = None
        with suppress(OSError):  # it is tried again at each look
            self._start()

    def look(self) -> Look:
        """Return what the scheduler sees now; OSError if it does not answer."""
        self._start()
        if self.client is not None and self._name is not None:
            ask = getattr(self.client.scheduler, self._name)
            answer = self.client.sync(
                ask, n_events=self._n_events, callback_timeout=timeout("look")
            )
            self._n_events = answer.pop("n_events")
            self.last = Look(**answer)
        return self.last

    def counts(self) -> dict[str, int]:
        """Return the counts for a summary; those of the last look if nothing answers."""
        try:
            look = self.look()
        except Exception as error:  # not worth a run that is complete
            logger.info("the scheduler does not tell what it saw: %s", brief(error))
            look = self.last
        return {
            "workers_lost": look.n_lost,
            "tasks_repeated": look.n_repeated,
            "bytes_spilled": look.n_spilled,
        }

    def end(self) -> None:
        """Remove the observer; a scheduler that is gone has none."""
        if self.client is None or self._name is None:
            return
        if self.client.status == "running":
            with suppress(Exception):
                self._run(_plugin().stop, self._name)

    def _start(self) -> None:
        """Add an observer to the scheduler, once."""
        if self.client is None or self._name is not None:
            return
        try:
            self._name = self._run(_plugin().start, self.client.id, COUNTED_PREFIXES)
        except OSError:
            raise
        except Exception as error:
            logger.info("the scheduler does not tell what it sees: %s", brief(error))
            self.client = None

    def _run(self, function: Any, *args: Any) -> Any:
        assert self.client is not None
        return self.client.run_on_scheduler(
            function, *args, callback_timeout=timeout("look")
        )


def _plugin() -> Any:
    """Return the module of the plugin, which imports `distributed`."""
    from lpe_dask.tasks import scheduler_plugin

    return scheduler_plugin


@contextmanager
def observed() -> Iterator[Observation]:
    """Return a context that gives what the active scheduler sees until its end.

    While another such context is open for the same client, it gives the same.
    """
    client = active_client()
    if client is None:
        yield Observation(None)
        return
    with _changing:
        observation = _observations.get(client) or Observation(client)
        _observations[client] = observation
        observation.n_users += 1
    try:
        yield observation
    finally:
        with _changing:
            observation.n_users -= 1
            is_last = observation.n_users == 0
            if is_last:
                del _observations[client]
        if is_last:
            observation.end()


def observed_counts() -> dict[str, int]:
    """Return the counts of the context that is open, for a summary; else 0."""
    client = active_client()
    active = None if client is None else _observations.get(client)
    return (active or Observation(None)).counts()


#: Those that are at work, by client.
_observations: WeakKeyDictionary[Any, Observation] = WeakKeyDictionary()
_changing = threading.Lock()

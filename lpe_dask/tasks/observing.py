"""What a run sees of the workers that it computes on: comings, losses, what is done again.

    scheduler: Observer  <--asked--  Observation  --> log lines, counts of a summary

Without a cluster there is nothing to see, and all counts are 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import dask

from lpe_dask.storage import brief
from lpe_dask.tasks.workers import active_client

logger = logging.getLogger(__name__)

#: Prefixes of the keys of tasks that are counted by group: searches in space, and walks
#: along a graph.
COUNTED_PREFIXES = ("lpe-join", "lpe-walk")


@dataclass(frozen=True, slots=True)
class Look:
    """What a scheduler answered, counted since the observation began.

    Attributes
    ----------
    groups : mapping
        From the name of a group of tasks to how many of them are open, and how many the
        scheduler has.
    n_open : int
        Tasks of all groups that are not done.
    n_finished : int
        Tasks that were done for the first time.
    n_repeated : int
        Starts of tasks that had been started before.
    n_lost : int
        Workers that were lost with tasks or results.
    n_spilled : int
        Bytes that workers have written to disk for want of memory.
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
    last : Look
        What it saw last.
    """

    def __init__(self, client: Any | None) -> None:
        self.client = client
        self.last = Look()
        self._n_events = 0
        self._name = None if client is None else _started(client)

    def look(self) -> Look:
        """Return what the scheduler sees now; raises if it does not answer."""
        if self.client is None or self._name is None:
            return self.last
        ask = getattr(self.client.scheduler, self._name)
        answer = self.client.sync(
            ask, n_events=self._n_events, callback_timeout=_patience()
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
            from lpe_dask.tasks import observer

            with suppress(Exception):
                self.client.run_on_scheduler(
                    observer.stop, self._name, callback_timeout=_patience()
                )


def _patience() -> float:
    return dask.config.get("lpe-dask.timeouts.look")


def _started(client: Any) -> str | None:
    from lpe_dask.tasks import observer  # imports distributed

    try:
        return client.run_on_scheduler(
            observer.start, client.id, COUNTED_PREFIXES, callback_timeout=_patience()
        )
    except Exception as error:  # one that runs no functions of others, for example
        logger.info("the scheduler does not tell what it sees: %s", brief(error))
        return None


@contextmanager
def observed() -> Iterator[Observation]:
    """Return a context that gives what the active scheduler sees until its end.

    Within it another such context gives the same.
    """
    client = active_client()
    if client is None:
        yield Observation(None)
        return
    if (active := _observations.get(client)) is not None:
        yield active
        return
    observation = _observations[client] = Observation(client)
    try:
        yield observation
    finally:
        del _observations[client]
        observation.end()


def observed_counts() -> dict[str, int]:
    """Return the counts of the context that is open, for a summary; else 0."""
    client = active_client()
    active = None if client is None else _observations.get(client)
    return (active or Observation(None)).counts()


#: Those that are at work, by client.
_observations: WeakKeyDictionary[Any, Observation] = WeakKeyDictionary()

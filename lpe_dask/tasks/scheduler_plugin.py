"""A plugin of the scheduler that counts what happens to the tasks and workers of a run.

It runs in the process of the scheduler, which a client asks by `Observer.look`. Nothing is
printed there for a question, so it may be asked often.
"""

from __future__ import annotations

import time
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from lpe_dask import __version__
from lpe_dask.tasks.version_guard import guard

#: Most comings and goings of workers that are kept for a client.
MOST_EVENTS = 1000

#: What an event of the scheduler names of a worker that has gone: tasks and results.
_TAKEN = ("processing-tasks", "lost-computed-tasks", "lost-scattered-tasks")

#: States of a task that is not done.
_OPEN_STATES = ("waiting", "no-worker", "queued", "processing")


class Observer(SchedulerPlugin):
    """Counts the tasks of one client, and the workers, from when it is attached.

    Parameters
    ----------
    scheduler : Scheduler
    client : str
        Id of the client. The observer ends with it.
    prefixes : tuple of str
        The first parts of the keys of tasks that are counted group by group.
    """

    def __init__(self, scheduler: Any, client: str, prefixes: tuple[str, ...]) -> None:
        self.name = f"lpe-observer-{client}"
        self._scheduler = scheduler
        self._client = client
        self._prefixes = prefixes
        # Keys of the client's tasks, as long as the scheduler has them.
        self._own, self._open = _tasks_of(scheduler, client)
        self._started: set[Any] = set()
        self._finished: set[Any] = set()
        self._n_finished = 0
        self._n_repeated = 0
        self._n_lost = 0
        self._n_events = 0
        self._events: list[tuple[str, str]] = []
        self._spilled_before = _bytes_spilled(scheduler)

    def attach(self) -> None:
        """Begin to count, and answer questions."""
        self._scheduler.add_plugin(self, name=self.name)
        self._scheduler.handlers[self.name] = self.look
        # Workers that join get the guard before their first task.
        away = f"{self.name}-away"
        self._scheduler.handlers[away] = self.turn_away
        self._scheduler.worker_plugins[away] = guard(__version__, away)

    def detach(self) -> None:
        """End that; it may have ended already."""
        self._scheduler.plugins.pop(self.name, None)
        self._scheduler.handlers.pop(self.name, None)
        self._scheduler.handlers.pop(f"{self.name}-away", None)
        self._scheduler.worker_plugins.pop(f"{self.name}-away", None)

    def look(self, n_events: int = 0) -> dict[str, Any]:
        """Return all counts, and the events after the first ``n_events``."""
        new = min(self._n_events - n_events, len(self._events))
        return {
            "groups": self._groups(),
            "n_open": len(self._open),
            "n_finished": self._n_finished,
            "n_repeated": self._n_repeated,
            "n_lost": self._n_lost,
            "n_spilled": _bytes_spilled(self._scheduler) - self._spilled_before,
            "n_workers": len(self._scheduler.workers),
            "holders": self._holders(),
            "n_events": self._n_events,
            "events": self._events[len(self._events) - new :],
        }

    def turn_away(self, worker: str, found: str) -> None:
        """Keep that a worker has another version, and ends."""
        self._keep(f"turned away ({found} instead of lpe_dask {__version__})", worker)

    # What the scheduler calls

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: list[Any], **kwargs: Any
    ) -> None:
        """Note which tasks are those of the client."""
        if client == self._client:
            self._own.update(tasks)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any
    ) -> None:
        """Count a task that starts or is done, for the first time or again."""
        if key not in self._own:
            return
        if finish in _OPEN_STATES:
            self._open.add(key)
        else:
            self._open.discard(key)
        if finish == "processing":
            self._n_repeated += key in self._started
            self._started.add(key)
        elif finish == "memory" and start == "processing":
            self._n_finished += key not in self._finished
            self._finished.add(key)
        elif finish == "forgotten":
            for keys in (self._own, self._started, self._finished):
                keys.discard(key)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Keep that a worker has come."""
        self._keep("joined", worker)

    def log_event(self, topic: str, msg: Any) -> None:
        """Keep that a worker has gone; it is lost if tasks or results went with it."""
        if topic != "all" or not isinstance(msg, dict):
            return
        if msg.get("action") == "remove-worker":
            taken = (key for name in _TAKEN for key in msg.get(name) or ())
            is_lost = not self._own.isdisjoint(taken)
            self._n_lost += is_lost
            self._keep("lost" if is_lost else "left", msg["worker"])

    def remove_client(self, scheduler: Any, client: str) -> None:
        """End with the client."""
        if client == self._client:
            self.detach()

    def _keep(self, what: str, worker: str) -> None:
        self._n_events += 1
        self._events = [*self._events[1 - MOST_EVENTS :], (what, worker)]

    def _groups(self) -> dict[str, tuple[int, int]]:
        """Return how many tasks of each group are open, and how many there are."""
        known = self._scheduler.task_prefixes
        groups = [
            group
            for name in self._prefixes
            if name in known
            for group in known[name].groups
        ]
        return {
            group.name: (
                sum(group.states[state] for state in _OPEN_STATES),
                sum(group.states.values()) - group.states["forgotten"],
            )
            for group in groups
        }

    def _holders(self) -> list[tuple[str, int, float]]:
        """Return workers with tasks: address, tasks, seconds since the last heartbeat."""
        now = time.time()
        workers = (
            (ws, sum(ts.key in self._own for ts in ws.processing))
            for ws in self._scheduler.workers.values()
        )
        holders = [
            (ws.address, n_tasks, max(0.0, now - ws.last_seen))
            for ws, n_tasks in workers
            if n_tasks
        ]
        return sorted(holders, key=lambda holder: -holder[2])


def _tasks_of(scheduler: Any, client: str) -> tuple[set[Any], set[Any]]:
    """Return the keys of the tasks that a client waits for, and of those not done."""
    own, is_open = set(), set()
    state = scheduler.clients.get(client)
    found = [] if state is None else list(state.wants_what)
    while found:
        task = found.pop()
        if task.key not in own:
            own.add(task.key)
            if task.state in _OPEN_STATES:
                is_open.add(task.key)
            found += task.dependencies
    return own, is_open


def _bytes_spilled(scheduler: Any) -> int:
    """Return how much all workers have written to their disks so far, for want of memory.

    The metrics of workers are counted by what they did it for, whatever that was.
    """
    metrics = scheduler.cumulative_worker_metrics.items()
    return int(sum(n for name, n in metrics if name[-2:] == ("disk-write", "bytes")))


# The functions below run on schedulers.


def start(client: str, prefixes: tuple[str, ...], dask_scheduler: Any) -> str:
    """Add an observer to a scheduler, and return the name by which it is asked."""
    stop(f"lpe-observer-{client}", dask_scheduler)  # that of an attempt without an answer
    observer = Observer(dask_scheduler, client, prefixes)
    observer.attach()
    return observer.name


def stop(name: str, dask_scheduler: Any) -> None:
    """Remove an observer from a scheduler."""
    if (observer := dask_scheduler.plugins.get(name)) is not None:
        observer.detach()

r"""Send values to workers that see no storage of this process.

    computed at once      scattered, and sent again where a worker was lost with it
    lazy, a graph of up   in pieces of a literal's size within the graph
    to CARRIED_BYTES
    lazy, larger          scattered: the graph keeps it there, but it does not survive
                          the worker that holds it

A task of a lost value raises `LostError`, so that nothing waits for it forever.
"""

from __future__ import annotations

import logging
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import cloudpickle
import dask
from dask.delayed import Delayed

from lpe_dask.tasks.private_uses import function_of
from lpe_dask.tasks.workers import active_client

logger = logging.getLogger(__name__)

#: Most bytes that the graph of a lazy result carries, all literals together.
CARRIED_BYTES = 8 * 2**20

#: Seconds for which workers keep a value that no graph here needs any more.
KEPT_SECONDS = 10.0

#: How often a computation is begun again because a worker was lost with what it was sent.
ATTEMPTS = 5

T = TypeVar("T")


class LostError(RuntimeError):
    """A worker was lost that alone held a value of this process."""


def raise_lost(key: str) -> None:
    """Raise `LostError`: the task of a scattered value that nobody holds any more."""
    raise LostError(
        f"a worker was lost that held {key}, which this computation needs, and no other "
        f"has it: workers share no storage with the process that sent it. Name a folder or "
        f"URL that all of them can write to (configuration key lpe-dask.spool, --spool), "
        f"and build the result again."
    )


class Scattered:
    """A value in the memory of workers: kept there as long as this is here.

    As a task of this process it gives the value; one that was sent to a scheduler runs only
    where nobody holds the value any more, and raises `LostError`.

    Parameters
    ----------
    held : literals.Held
    client : Client
        To send it with.
    """

    def __init__(self, held: Any, client: Any) -> None:
        self.value = held.value
        self.key = f"{held.name}-{uuid4().hex}"
        _await_worker(client)
        future = client.scatter({self.key: held.value}, hash=False)[self.key]
        self._futures = [future]
        finalizer = weakref.finalize(self, _release_later, client.loop, self._futures)
        finalizer.atexit = False

    @property
    def client(self) -> Any:
        """The client whose workers hold it, None if it is known that none does."""
        for future in self._futures:
            is_there = future.status in ("pending", "finished")
            if is_there and future.client.status == "running":
                return future.client
        return None

    def release(self) -> None:
        """Let workers forget it."""
        self._futures.clear()

    def __call__(self) -> Any:
        """Return the value."""
        return self.value

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (raise_lost, self.key)

    def __dask_tokenize__(self) -> str:
        return self.key


def _await_worker(client: Any) -> None:
    """Wait for a worker as tasks do: to scatter among none fails after some seconds."""
    if not client.nthreads():
        logger.warning(
            "%s has no workers yet: data above 1 MiB are sent to the first one.",
            getattr(client.scheduler, "address", client),
        )
        client.wait_for_workers(1)


def _release_later(loop: Any, futures: list[Any]) -> None:
    """Let workers forget a value once a graph that was sent with it has arrived.

    A scheduler that is still reading the graph does not know that its tasks need the value.
    A finalizer: it takes no lock.
    """
    with suppress(Exception):  # the loop may have ended
        loop.add_callback(loop.call_later, KEPT_SECONDS, futures.clear)


@dataclass
class _Plan:
    """How the values of one computation are sent.

    Attributes
    ----------
    is_eager : bool
        Whether they are sent again if they are lost.
    carried : int
        Bytes of them in the graph.
    sent : list of Scattered
        Those to be released at the end.
    in_workers : int
        Bytes of them that only workers keep, for a lazy result.
    persisted : list of weak references to futures
        Of what was begun with them. Callers that want the results keep the futures: others
        must not stay in the memory of workers until the end.
    """

    is_eager: bool = False
    carried: int = 0
    in_workers: int = 0
    sent: list[Scattered] = field(default_factory=list)
    persisted: list[Any] = field(default_factory=list)


_plan: ContextVar[_Plan | None] = ContextVar("lpe_dask_plan", default=None)


def enter(held: Any, literal_bytes: int) -> Delayed:
    """Return a `values.Held` as a task for workers of the active client."""
    with lazily() as plan:
        if not plan.is_eager and carries(held.n_bytes):
            return carried(held, literal_bytes)
        client = active_client()
        if plan.is_eager:
            scattered = Scattered(held, client)  # released at the end: for no other graph
            plan.sent.append(scattered)
        else:
            scattered = _scattered(held, client)
            plan.in_workers += held.n_bytes
        return _by_its_key(scattered.key, (scattered,))


def carried(held: Any, literal_bytes: int) -> Delayed:
    """Return a `values.Held` as a task of a graph that has all of it, in pieces."""
    with lazily() as plan:
        plan.carried += held.n_bytes
    content, key = cloudpickle.dumps(held.value), f"{held.key}-whole"
    piece_bytes = max(1, literal_bytes)
    starts = range(0, len(content), piece_bytes)
    graph = {
        f"{held.key}-{i}": content[start : start + piece_bytes]
        for i, start in enumerate(starts)
    }
    return Delayed(key, {**graph, key: (_unpickled, list(graph))})


def _scattered(held: Any, client: Any) -> Scattered:
    """Return a value as it was sent with a client, sent now if it was not or is lost."""
    there = {scattered.client: scattered for scattered in held.scattered}
    if client not in there:
        there[client] = Scattered(held, client)
    there.pop(None, None)  # graphs that name those that are lost have them still
    held.scattered = list(there.values())
    return there[client]


def _by_its_key(key: str, task: Any) -> Delayed:
    """Return a task that gives what is scattered under a key.

    It has a second dependency, so that no optimization makes one task of it and ``task``,
    which is to run only where nobody holds the value.
    """
    nothing, given = f"{key}-nothing", f"{key}-given"
    return Delayed(given, {key: task, nothing: None, given: (_first, key, nothing)})


def is_eager() -> bool:
    """Return whether what is entered now is computed at once, and sent again if lost."""
    plan = _plan.get()
    return plan is not None and plan.is_eager


def carries(n_bytes: int) -> bool:
    """Return whether the graph that is built now has room for so many more bytes."""
    return (_plan.get() or _Plan()).carried + n_bytes <= CARRIED_BYTES


def needs_sent(tasks: list[Delayed]) -> bool:
    """Return whether tasks, which share one graph, need values that were scattered."""
    graph = tasks[0].dask if tasks else {}
    return any(isinstance(function_of(task), Scattered) for task in dict(graph).values())


@contextmanager
def lazily() -> Iterator[_Plan]:
    """Count what all values entered in the context carry as that of one graph."""
    if (plan := _plan.get()) is not None:
        yield plan
        return
    plan = _Plan()
    token = _plan.set(plan)
    try:
        yield plan
    finally:
        _plan.reset(token)
    if plan.in_workers:
        logger.warning(
            "%d MiB are kept in the memory of workers, as no storage is shared with them: "
            "the result is lost with the worker that holds them (configuration key "
            "lpe-dask.spool, --spool)", plan.in_workers >> 20,
        )  # fmt: skip


def eagerly(compute: Callable[[], T]) -> T:
    """Return what a function computes; values it enters are sent again if they are lost.

    The function enters them itself, each time that it is called.
    """
    if (plan := _plan.get()) is not None and plan.is_eager:
        return compute()
    for _ in range(ATTEMPTS - 1):
        with suppress(LostError):
            return _attempt(compute)
        logger.warning("a worker was lost with data of this process: they are sent again")
    return _attempt(compute)


def _attempt(compute: Callable[[], T]) -> T:
    plan = _Plan(is_eager=True)
    token = _plan.set(plan)
    try:
        return compute()
    except BaseException:
        _cancel(plan.persisted)
        raise
    finally:
        _plan.reset(token)
        for scattered in plan.sent:
            scattered.release()


def persist_cancellably(tasks: list[Delayed]) -> list[Delayed]:
    """Return tasks as `dask.persist` does, cancelled if what they are for fails."""
    persisted = list(dask.persist(*tasks))
    if (plan := _plan.get()) is not None:
        futures = [future for task in persisted for future in task.dask.values()]
        plan.persisted += map(weakref.ref, futures)
    return persisted


def _cancel(persisted: list[Any]) -> None:
    """Let workers go on with nothing, though a traceback may still hold the futures."""
    client = active_client()
    futures = [future for reference in persisted if (future := reference()) is not None]
    if client is None or not futures:
        return
    with suppress(Exception):  # there may be no scheduler any more
        client.cancel(futures)


# The functions below run inside tasks.


def _first(value: Any, nothing: None) -> Any:
    return value


def _unpickled(pieces: list[bytes]) -> Any:
    return pickle.loads(b"".join(pieces))

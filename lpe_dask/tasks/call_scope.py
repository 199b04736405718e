r"""Limit what one call of a user sends in graphs, and end what it began if it fails.

Workers that share no storage with this process get large values in pieces within graphs:

    a lazy result                   LAZY_BYTES of them
    a call that computes at once    AT_ONCE_BYTES
    more                            ValueError, before anything is sent
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import dask
from dask.delayed import Delayed

from lpe_dask.tasks.worker_pool import active_client

#: Most bytes of large values in the graph of a lazy result, where no storage is shared.
LAZY_BYTES = 8 * 2**20

#: Most bytes of them in all graphs of a call that computes at once.
AT_ONCE_BYTES = 256 * 2**20


@dataclass
class CallScope:
    """What a call has entered and begun so far.

    Attributes
    ----------
    is_at_once : bool
        Whether it computes; False for one that returns a lazy result.
    sizes : dict
        Bytes of the large values that it has entered, by key: each counts once.
    begun : list of weak references to futures
        Of what it had computed. Those who want the results keep the futures.
    """

    is_at_once: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    begun: list[Any] = field(default_factory=list)

    def check(self) -> None:
        """Raise ValueError if what was entered is too much for graphs."""
        n_bytes = sum(self.sizes.values())
        if n_bytes <= (AT_ONCE_BYTES if self.is_at_once else LAZY_BYTES):
            return
        what = "this call" if self.is_at_once else "this lazy result"
        raise ValueError(
            f"{what} needs {n_bytes / 2**20:.1f} MiB of data that only this process has, "
            f"and the workers of the cluster share no storage with it. They can be sent "
            f"{LAZY_BYTES / 2**20:g} MiB for a lazy result, and {AT_ONCE_BYTES / 2**20:g} "
            f"MiB in a call that computes at once. Set the configuration key "
            f"lpe-dask.spool (--spool) to a folder or URL that all workers can write to, "
            f"or let the workers read the data: give Parquet files or a Dask collection "
            f"that reads files."
        )


_call: ContextVar[CallScope | None] = ContextVar("lpe_dask_call", default=None)


@contextmanager
def lazy_scope() -> Iterator[CallScope]:
    """Count what is entered in the context as that of one graph, or of the call around."""
    if (call := _call.get()) is not None:
        yield call
        return
    call = CallScope()
    token = _call.set(call)
    try:
        yield call
    finally:
        _call.reset(token)


@contextmanager
def eager_scope() -> Iterator[None]:
    """Let the context be a call that computes; if it fails, nothing goes on running."""
    if (call := _call.get()) is not None and call.is_at_once:
        yield
        return
    call = CallScope(is_at_once=True)
    token = _call.set(call)
    try:
        yield
    except BaseException:
        _cancel(call.begun)
        raise
    finally:
        _call.reset(token)


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Give the bytes of the large values that are entered in the context, by key.

    They do not count around it.
    """
    with lazy_scope() as call:
        before, call.sizes = call.sizes, {}
        try:
            yield call.sizes
        finally:
            call.sizes = before


def count(sizes: Mapping[str, int], *, is_shared: bool) -> None:
    """Count large values, with their bytes by key, as entered.

    Raises
    ------
    ValueError
        If no storage is shared, and the call has then entered too much.
    """
    with lazy_scope() as call:
        call.sizes.update(sizes)
        if not is_shared:
            call.check()


def persist(tasks: list[Delayed]) -> list[Delayed]:
    """Return tasks as `dask.persist` does, cancelled if the call that wants them fails."""
    persisted = list(dask.persist(*tasks))
    with lazy_scope() as call:
        futures = [future for task in persisted for future in task.dask.values()]
        call.begun += map(weakref.ref, futures)
    return persisted


def _cancel(begun: list[Any]) -> None:
    """Let workers go on with nothing, though a traceback may still hold the futures."""
    client = active_client()
    futures = [future for reference in begun if (future := reference()) is not None]
    if client is None or not futures:
        return
    with suppress(Exception):  # there may be no scheduler any more
        client.cancel(futures)

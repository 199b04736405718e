"""Bring what the client holds into a graph: once, as a task that others depend on.

A literal rides in every task that names it, through the client and the scheduler. Nothing
above `LITERAL_BYTES` does: with an active client a larger value is scattered to its
workers, and the graph holds the future.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.sizeof import sizeof

from lpe_dask.resources import active_client

#: Most bytes of a value that may ride in a graph.
LITERAL_BYTES = 2**20


def enter(value: Any, name: str) -> Delayed:
    """Return ``value`` as one task, to be named as a dependency by all that read it.

    Parameters
    ----------
    value : object
        An array or a small object; not changed afterwards. What is a task already, such as
        a `Delayed`, comes back as it is.
    name : str
        First part of the key; the dashboard groups tasks by it.
    """
    if is_dask_collection(value):
        return value
    key = f"{name}-{uuid4().hex}"
    if sizeof(value) <= LITERAL_BYTES:
        return Delayed(key, {key: value})
    client = active_client()
    if client is not None:
        return Delayed(key, {key: client.scatter(value, hash=False)})
    return Delayed(key, {key: (_Held(value, key),)})


class _Held:
    """A task that gives a large value of this process; named, so that nobody hashes it.

    Dask frames hash all that is in a graph, which would take seconds for each gigabyte.
    """

    def __init__(self, value: Any, key: str) -> None:
        self._value = value
        self._key = key

    def __call__(self) -> Any:
        return self._value

    def __dask_tokenize__(self) -> str:
        return self._key

    def __sizeof__(self) -> int:
        return int(sizeof(self._value))

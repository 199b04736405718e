"""Let a fork of this process go on: what its parent's threads held there is free here.

A fork has the thread that forked and no other. Whatever waits in it for another one, for a
lock that this one held or for work that it was to do, waits for ever.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cached_property


def after_fork(function: Callable[[], object]) -> None:
    """Have a function called at the start of each fork, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


class ForkSafeLock:
    """A lock that its owner may take again, and that is free in a fork.

    What it protects may be half done there, so it is to be left complete at each step.

    Attributes
    ----------
    lock : RLock
        Of this process.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _free_locks() -> None:
    for lock in _locks:
        lock.lock = threading.RLock()


after_fork(_free_locks)


def _free_cached_properties() -> None:
    """Renew the lock that Python 3.11 has for each cached property of a class."""
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in {"dask", "lpe_dask"} and module is not None
    ]
    values = [value for module in modules for value in vars(module).values()]
    classes = {value for value in values if isinstance(value, type)}
    for found in [value for kind in classes for value in vars(kind).values()]:
        if isinstance(found, cached_property):
            vars(found)["lock"] = threading.RLock()


if sys.version_info < (3, 12):
    after_fork(_free_cached_properties)

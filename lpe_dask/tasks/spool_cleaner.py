"""Remove the spools of this process, and their entries, when nothing needs them any more.

The garbage collector runs finalizers at any moment in any thread, even while that thread
holds a lock or changes a `ContextVar`, which before Python 3.12 ends the process if the
finalizer sets one, too (CPython issue 148891). So finalizers only put what is unneeded into
a queue, and a thread asks the schedulers and removes files.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from contextlib import suppress
from typing import NamedTuple

from lpe_dask.forks import ForkSafeLock
from lpe_dask.storage import LockHolder, filesystem_of
from lpe_dask.tasks.spool_references import open_clients, references_on

#: How often a removal is tried: tasks that outlive their run may still write.
_REMOVALS = 5

#: Seconds for which a graph may be on its way to a scheduler that does not know it yet.
TRAVEL_SECONDS = 10.0

#: Seconds between two questions to a scheduler.
_QUESTION_SECONDS = 1.0

#: Seconds for which the end of Python waits for a removal that has begun.
_END_SECONDS = 10.0


class Discarded(NamedTuple):
    """A file or folder that this process needs no more.

    Attributes
    ----------
    url : str
    sent : threading.Event, optional
        Set if tasks of a scheduler may need it.
    spool : object, optional
        What stays until the file is removed.
    """

    url: str
    sent: threading.Event | None = None
    spool: object = None

    @property
    def is_sent(self) -> bool:
        """Whether tasks of a scheduler may need it."""
        return self.sent is not None and self.sent.is_set()


class Cleaner:
    """Removes files and folders of this process, the latter at its end at the latest."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Discarded] = queue.SimpleQueue()
        self._locks: dict[str, LockHolder] = {}
        self._removing = threading.Lock()
        self._pid = os.getpid()
        threading.Thread(target=self._clean, name="lpe-cleaner", daemon=True).start()
        # Unlike handlers of atexit, those of weakref run when distributed has closed its
        # clients and clusters: their tasks would still write. No class is collected before.
        weakref.finalize(Cleaner, self.remove_folders)

    def put(self, unneeded: Discarded) -> None:
        """Have a file or folder removed; all that a finalizer may do."""
        # The queue takes no lock: the collector may interrupt one `put` for another.
        self._queue.put(unneeded)

    def add_folder(self, url: str, lock: LockHolder) -> None:
        """Remove a folder, and release its lock, at the end of Python at the latest."""
        self._locks[url] = lock

    def has_folder(self, url: str) -> bool:
        """Return whether an added folder is there, and its lock as well."""
        lock = self._locks.get(url)
        return lock is not None and not lock.is_lost

    def remove_folders(self) -> None:
        """Remove all folders that were added; what is in them goes, too. Raises nothing."""
        if os.getpid() != self._pid:  # a fork leaves them to the process that has them
            return
        is_alone = self._removing.acquire(timeout=_END_SECONDS)
        try:
            for url in list(self._locks):
                self._remove(url)
        finally:
            if is_alone:
                self._removing.release()

    def remove(self, url: str) -> None:
        """Remove a file or folder; raises nothing."""
        with self._removing:  # the end of Python waits for it
            self._remove(url)

    def _remove(self, url: str) -> None:
        with suppress(Exception):
            if lock := self._locks.pop(url, None):
                lock.release()
        remove(url)

    def _clean(self) -> None:
        waiting: list[tuple[Discarded, float]] = []  # and when they came
        asked = 0.0
        while True:
            waiting += self._next(_QUESTION_SECONDS if waiting else None)
            if time.monotonic() - asked >= _QUESTION_SECONDS:
                asked = time.monotonic()
                with suppress(Exception):  # ask again
                    waiting = self._in_use(waiting)

    def _next(self, timeout: float | None) -> list[tuple[Discarded, float]]:
        """Remove the next file or folder, or return it if tasks may need it."""
        with suppress(queue.Empty):
            unneeded = self._queue.get(timeout=timeout)
            if unneeded.is_sent:
                return [(unneeded, time.monotonic())]
            self.remove(unneeded.url)
        return []

    def _in_use(
        self, waiting: list[tuple[Discarded, float]]
    ) -> list[tuple[Discarded, float]]:
        """Remove those of some files that no scheduler names, and return the others."""
        clients, now = open_clients(), time.monotonic()
        # Graphs that were sent before a file became unneeded have arrived.
        unneeded = {
            file.url
            for file, since in waiting
            if not clients or now - since >= TRAVEL_SECONDS
        }
        for client in clients if unneeded else ():
            unneeded -= references_on(client, unneeded)
        for url in unneeded:
            self.remove(url)
        return [(file, since) for file, since in waiting if file.url not in unneeded]


_making = ForkSafeLock()
_cleaners: dict[int, Cleaner] = {}


def cleaner_of_process() -> Cleaner:
    """Return the cleaner of this process, which is not that of its forks."""
    with _making:
        return _cleaners.get(os.getpid()) or _cleaners.setdefault(os.getpid(), Cleaner())


def remove_spools() -> None:
    """Remove all spools of this process, which ends without the rest of its exit."""
    if cleaner := _cleaners.get(os.getpid()):
        cleaner.remove_folders()


def remove(url: str) -> None:
    """Remove a file or folder; raises nothing."""
    with suppress(Exception):  # filesystems have errors of their own
        filesystem, root = filesystem_of(url)
        for _ in range(_REMOVALS):
            with suppress(OSError):  # it may be gone, or be written to
                filesystem.rm(root, recursive=True)
            filesystem.invalidate_cache()
            if not filesystem.exists(root):
                return

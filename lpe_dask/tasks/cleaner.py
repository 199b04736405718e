"""Remove the spools of this process, and their entries, when nothing needs them any more.

The garbage collector runs finalizers at any moment in any thread, even while that thread
holds a lock or changes a `ContextVar`, which before Python 3.12 ends the process if the
finalizer sets one, too (CPython issue 148891). So finalizers only put what is unneeded into
a queue. A thread, one in each process, asks the schedulers and removes files.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import fsspec

from lpe_dask.storage import Lock
from lpe_dask.tasks.entry_names import named_by, open_clients

#: How often a removal is tried: tasks that outlive their run may still write.
_REMOVALS = 5

#: Seconds for which a graph may be on its way to a scheduler that does not know it yet.
TRAVEL_SECONDS = 10.0

#: Seconds between two questions to a scheduler.
_QUESTION_SECONDS = 1.0


class Unneeded(NamedTuple):
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
    """Removes files and folders of this process; `cleaner_of_process` gives it.

    Attributes
    ----------
    put : callable
        Takes an `Unneeded`; the only part that a finalizer may use.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Unneeded] = queue.SimpleQueue()
        self.put = self._queue.put  # may interrupt itself, unlike that of Queue
        self._locks: dict[str, Lock] = {}
        self._removing = threading.Lock()
        self._pid = os.getpid()
        atexit.register(self.remove_folders)
        threading.Thread(target=self._run, name="lpe-cleaner", daemon=True).start()

    def add_folder(self, url: str, lock: Lock) -> None:
        """Remove a folder, and release its lock, at the end of Python at the latest."""
        self._locks[url] = lock

    def has_folder(self, url: str) -> bool:
        """Return whether an added folder is there, and its lock as well."""
        lock = self._locks.get(url)
        return lock is not None and not lock.is_lost

    def remove_folders(self) -> None:
        """Remove all folders that were added; what is in them goes, too."""
        if os.getpid() == self._pid:  # a fork leaves them to the process that has them
            for url in list(self._locks):
                self.remove(url)

    def remove(self, url: str) -> None:
        """Remove a file or folder; raises nothing."""
        with self._removing:  # at the end of Python, wait for the thread
            if lock := self._locks.pop(url, None):
                lock.release()
            remove(url)

    def _run(self) -> None:
        waiting: list[tuple[Unneeded, float]] = []  # and when they came
        while True:
            if waiting:
                time.sleep(_QUESTION_SECONDS)
            else:
                waiting.append((self._queue.get(), time.monotonic()))
            while not self._queue.empty():
                waiting.append((self._queue.get(), time.monotonic()))
            waiting = self._still_needed(waiting)

    def _still_needed(
        self, waiting: list[tuple[Unneeded, float]]
    ) -> list[tuple[Unneeded, float]]:
        """Remove those of some files that no scheduler names, and return the others."""
        for file, _ in waiting:
            if not file.is_sent:
                self.remove(file.url)
        sent = [(file, since) for file, since in waiting if file.is_sent]
        clients, now = open_clients(), time.monotonic()
        # Graphs that were sent before a file became unneeded have arrived.
        unneeded = {
            file.url for file, since in sent if not clients or now - since >= TRAVEL_SECONDS
        }
        for client in clients if unneeded else ():
            unneeded -= named_by(client, unneeded)
        for url in unneeded:
            self.remove(url)
        return [(file, since) for file, since in sent if file.url not in unneeded]


@cache
def _cleaner_of(pid: int) -> Cleaner:
    return Cleaner()


def cleaner_of_process() -> Cleaner:
    """Return the cleaner of this process, which is not that of its forks."""
    return _cleaner_of(os.getpid())


def remove(url: str) -> None:
    """Remove a file or folder; raises nothing."""
    with suppress(Exception):  # filesystems have errors of their own
        filesystem, root = fsspec.core.url_to_fs(url)
        for _ in range(_REMOVALS):
            with suppress(OSError):  # it may be gone, or be written to
                filesystem.rm(root, recursive=True)
            filesystem.invalidate_cache()
            if not filesystem.exists(root):
                return

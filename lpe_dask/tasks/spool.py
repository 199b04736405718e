r"""Keep data of this process on storage that its workers see, for as long as tasks need it.

    Spool      PLACE/lpe-spool-<hex>/     one a process and place, with a lease; mode 0700
    Entry        value-<hex>, blocks-<hex>  what is kept, removed when nothing needs it

An entry is needed by the objects of this process that hold it, and by every task that a
scheduler knows and that names it: results that were persisted, or are being computed, have
no graph here any more. Tasks name entries by `EntryName`, and a scheduler is asked which of
those it holds before an entry goes. The folder goes with its last entry, at the end of
Python at the latest; that of a process that died is removed by the next one that makes a
spool in the same place.
"""

from __future__ import annotations

import logging
import os
import queue
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import fsspec
from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage import Folder, Lock, brief, is_dead, lease
from lpe_dask.tasks.private_uses import (
    clients_of_process,
    is_reading_graph,
    remembered_messages,
)

logger = logging.getLogger(__name__)

#: Start of the name of a spool's folder.
_PREFIX = "lpe-spool-"

#: Name of the file by which workers are asked whether they see a spool.
MARK_NAME = "spool"

#: How often a removal is tried: tasks that outlive their run may still write.
_REMOVALS = 5

#: Seconds for which a graph may be on its way to a scheduler that does not know it yet.
TRAVEL_SECONDS = 10.0

#: Seconds between two questions to a scheduler.
_QUESTION_SECONDS = 1.0

#: Seconds in which a running scheduler answers, however busy.
_ANSWER_SECONDS = 60.0


def spool_place() -> str:
    """Return where spools are made: as configured, else in Dask's temporary directory."""
    configured = dask.config.get("lpe-dask.spool", None)
    temporary = dask.config.get("temporary-directory", None) or tempfile.gettempdir()
    return str(temporary if configured is None else configured)


class Spool:
    """The folder of this process in one place; `spool_at` gives the one there is.

    Parameters
    ----------
    place : str
        Folder or fsspec URL.

    Raises
    ------
    OSError
        If nothing can be written there.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        around = Folder(place)
        folder = Folder(around.full_url(f"{_PREFIX}{uuid4().hex}"))
        self.url = folder.url
        self._held: list[Lock] = []
        self._remove = remove = weakref.finalize(
            self, _remove_folder, self.url, self._held, os.getpid()
        )
        try:
            _make_private(folder)
            self._held.append(lease(self.url, "keep the data of a process"))
            folder.write(MARK_NAME, b"\n")
        except BaseException:
            remove()
            raise
        _collect(around, self.url)

    @property
    def is_lost(self) -> bool:
        """Whether the folder was removed, by `remove_spools` or as cleaners of /tmp do."""
        return not self._remove.alive or any(lock.is_lost for lock in self._held)

    def entry(self, kind: str) -> Entry:
        """Return a new entry; its first word says what it is, for people."""
        return Entry(self, f"{self.url}/{kind}-{uuid4().hex}")

    def folder(self, kind: str) -> Entry:
        """Return a new entry that is a folder: writers of files do not make it."""
        entry = self.entry(kind)
        Folder(entry.url).make()
        return entry


_lock = threading.Lock()
_spools: weakref.WeakValueDictionary[tuple[int, str], Spool] = weakref.WeakValueDictionary()


def spool_at(place: str) -> Spool:
    """Return the spool of this process at a place; make it if there is none.

    Raises
    ------
    OSError
        If nothing can be written there.
    """
    key = os.getpid(), place  # the spools of a process are not those of its forks
    with _lock:
        spool = _spools.get(key)
        if spool is None or spool.is_lost:
            spool = _spools[key] = Spool(place)
        return spool


def remove_spools() -> None:
    """Remove all spools of this process, which ends without the rest of its exit."""
    for spool in list(_spools.values()):
        spool._remove()


def open_clients() -> list[Any]:
    """Return the clients of `distributed` in this process that are connected."""
    while True:
        with suppress(RuntimeError):  # another thread has just made or lost one
            clients = clients_of_process()
            return [client for client in clients if client.status == "running"]


# Entries


class Entry:
    """A file or folder in a spool, removed when neither this process nor a task needs it.

    Attributes
    ----------
    url : str
    """

    def __init__(self, spool: Spool, url: str) -> None:
        self.url = url
        self.spool = spool
        self._sent = threading.Event()
        finalizer = weakref.finalize(self, _release, spool, url, self._sent, os.getpid())
        finalizer.atexit = False  # the whole folder goes then

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name: only this process removes the entry."""
        self._sent.set()
        with _starting:
            _start_cleaner(os.getpid())
        return EntryName, (self.url,)


class EntryName:
    """Names an entry in the tasks of a scheduler, of workers, or of a file.

    Attributes
    ----------
    url : str
    """

    def __init__(self, url: str) -> None:
        self.url = url
        _named.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return EntryName, (self.url,)


_named: weakref.WeakSet[EntryName] = weakref.WeakSet()


class _ReleasedEntry(NamedTuple):
    """An entry that this process needs no more, and the spool that stays until then."""

    released_at: float
    spool: Spool
    url: str


#: The one queue that a finalizer may use although it interrupts another use.
_released: queue.SimpleQueue[_ReleasedEntry] = queue.SimpleQueue()


def _release(spool: Spool, url: str, sent: threading.Event, pid: int) -> None:
    """Remove an entry that this process needs no more, now or when no scheduler does.

    A finalizer: it may run at any moment in any thread, so it takes no lock.
    """
    if os.getpid() != pid:
        return
    if sent.is_set() and open_clients():
        _released.put(_ReleasedEntry(time.monotonic(), spool, url))
    else:
        _remove(url)


_starting = threading.Lock()


@cache
def _start_cleaner(pid: int) -> None:
    """Start the thread that removes released entries, once in each process."""
    threading.Thread(target=_clean, name="lpe-spool", daemon=True).start()


def _clean() -> None:
    entries: list[_ReleasedEntry] = []
    while True:
        if entries:
            time.sleep(_QUESTION_SECONDS)
        else:
            entries.append(_released.get())
        while not _released.empty():
            entries.append(_released.get())
        entries = _still_needed(entries)


def _still_needed(entries: list[_ReleasedEntry]) -> list[_ReleasedEntry]:
    """Remove those of some entries that no scheduler names, and return the others."""
    clients, now = open_clients(), time.monotonic()
    # Graphs that were sent before an entry was released have arrived.
    unneeded = {
        entry.url
        for entry in entries
        if not clients or now - entry.released_at >= TRAVEL_SECONDS
    }
    for client in clients if unneeded else ():
        unneeded -= _named_by(client, unneeded)
    for url in unneeded:
        _remove(url)
    return [entry for entry in entries if entry.url not in unneeded]


def _named_by(client: Any, urls: set[str]) -> set[str]:
    """Return those of some entries that the scheduler of a client may still need."""
    try:
        return set(
            client.run_on_scheduler(
                _names_among, list(urls), callback_timeout=_ANSWER_SECONDS
            )
        )
    except Exception as error:  # a scheduler that is busy, or without this package
        if client.status != "running":
            return set()
        logger.debug("the scheduler did not answer: %s", brief(error))
        return set(urls)


# The folder


def _make_private(folder: Folder) -> None:
    """Make a folder that only its owner may look into, where there are such things."""
    if isinstance(folder.filesystem, LocalFileSystem):
        path = folder.path()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, 0o700)
    else:
        folder.make()


def _collect(place: Folder, own: str) -> None:
    """Remove the spools in a place whose processes have died."""
    with suppress(Exception):  # others collect there, too, and not all may be looked into
        for name in place.names(_PREFIX):
            url = place.full_url(name)
            if url != own:
                with suppress(Exception):
                    if is_dead(url):
                        _remove(url)
                        logger.info("removed %s, left by a process that died", url)


def _remove_folder(url: str, held: list[Lock], pid: int) -> None:
    if os.getpid() != pid:  # a fork of the process that owns it
        return
    for lock in held:
        lock.release()
    _remove(url)


def _remove(url: str) -> None:
    with suppress(Exception):  # in a finalizer, of filesystems with errors of their own
        filesystem, root = fsspec.core.url_to_fs(url)
        for _ in range(_REMOVALS):
            with suppress(OSError):  # it may be gone, or be written to
                filesystem.rm(root, recursive=True)
            filesystem.invalidate_cache()
            if not filesystem.exists(root):
                return


# The functions below run on schedulers.


def _names_among(urls: Iterable[str], dask_scheduler: Any) -> list[str]:
    """Return those of some entries that tasks of this scheduler name, or are about to."""
    if is_reading_graph(dask_scheduler):
        return list(urls)
    try:
        named = {name.url for name in list(_named)}
        if not named.isdisjoint(urls):
            _forget_messages(dask_scheduler)
            named = {name.url for name in list(_named)}
    except RuntimeError:  # another thread has just added one: ask again later
        return list(urls)
    return [url for url in urls if url in named]


def _forget_messages(scheduler: Any) -> None:
    """Let a scheduler forget its messages to workers about tasks that it has forgotten.

    Its log, for people who look for faults in it, would keep those tasks for 1000 messages
    more, and with them the names of entries.
    """
    for messages in remembered_messages(scheduler):
        messages[:] = [
            message
            for message in messages
            if message.get("op") != "compute-task" or message["key"] in scheduler.tasks
        ]

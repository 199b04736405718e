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
from dataclasses import dataclass, field
from typing import Any
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

#: Seconds between two questions to a scheduler, at first and at most.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0

#: Seconds in which a scheduler that lives answers, however busy.
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
        """Whether somebody else has removed the folder, as cleaners of /tmp do."""
        return any(lock.is_lost for lock in self._held)

    def entry(self, kind: str) -> Entry:
        """Return a new entry; its first word tells people what it is."""
        return Entry(self, f"{self.url}/{kind}-{uuid4().hex}")

    def folder(self, kind: str) -> Entry:
        """Return a new entry that is a folder: writers of files do not make it."""
        entry = self.entry(kind)
        Folder(entry.url).make()
        return entry


_lock = threading.Lock()
_spools: weakref.WeakValueDictionary[tuple[int, str], Spool] = weakref.WeakValueDictionary()


def spool_at(place: str) -> Spool:
    """Return the spool of this process at a place, made if there is none.

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
        finalizer = weakref.finalize(self, _let_go, spool, url, self._sent, os.getpid())
        finalizer.atexit = False  # the whole folder goes then

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name: only this process removes the entry."""
        self._sent.set()
        _janitor.start()
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


def _let_go(spool: Spool, url: str, sent: threading.Event, pid: int) -> None:
    """Remove an entry that this process needs no more, now or when no scheduler does.

    A finalizer: it may run at any moment in any thread, so it takes no lock.
    """
    if os.getpid() != pid:
        return
    if sent.is_set() and open_clients():
        _janitor.incoming.put(_LetGo(spool, url))
    else:
        _remove(url)


@dataclass(frozen=True, slots=True)
class _LetGo:
    """An entry that this process needs no more.

    Attributes
    ----------
    spool : Spool
        Stays as long as its entries.
    url : str
    since : float
        When it was let go; no graph was sent after that.
    """

    spool: Spool
    url: str
    since: float = field(default_factory=time.monotonic)


class _Janitor:
    """Removes entries that this process has let go, once no scheduler names them.

    Attributes
    ----------
    incoming : SimpleQueue of _LetGo
        The one queue that a finalizer may use although it interrupts another use.
    """

    def __init__(self) -> None:
        self.incoming: queue.SimpleQueue[_LetGo] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, if that has not been done in this process."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._tidy, name="lpe-spool", daemon=True
                )
                self._thread.start()

    def _tidy(self) -> None:
        wait = _FIRST_WAIT
        left: list[_LetGo] = []
        while True:
            try:
                left.append(self.incoming.get(timeout=wait if left else None))
                wait = _FIRST_WAIT
            except queue.Empty:
                wait = min(2 * wait, _LONGEST_WAIT)
            with suppress(queue.Empty):
                while True:
                    left.append(self.incoming.get_nowait())
            left = _still_needed(left)


_janitor = _Janitor()


def _still_needed(entries: list[_LetGo]) -> list[_LetGo]:
    """Remove those of some entries that no scheduler names, and return the others."""
    needed = _needed(entries)
    for entry in entries:
        if entry.url not in needed:
            _remove(entry.url)
    return [entry for entry in entries if entry.url in needed]


def _needed(entries: list[_LetGo]) -> set[str]:
    clients, now = open_clients(), time.monotonic()
    if not clients:
        return set()
    arrived = [entry.url for entry in entries if now - entry.since >= TRAVEL_SECONDS]
    needed = {entry.url for entry in entries} - set(arrived)
    for client in clients if arrived else ():
        try:
            needed |= set(
                client.run_on_scheduler(
                    _names_among, arrived, callback_timeout=_ANSWER_SECONDS
                )
            )
        except Exception as error:  # a scheduler that is busy, or without this package
            if client.status == "running":
                logger.debug("asked a scheduler in vain: %s", brief(error))
                needed |= set(arrived)
    return needed


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
                        logger.info("removed %s, left behind by a process that died", url)


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
    """Let a scheduler forget what it told workers about tasks that it has forgotten.

    Its log, for people who look for faults in it, would keep those tasks for 1000 messages
    more, and with them the names of entries.
    """
    for messages in remembered_messages(scheduler):
        messages[:] = [
            message
            for message in messages
            if message.get("op") != "compute-task" or message["key"] in scheduler.tasks
        ]

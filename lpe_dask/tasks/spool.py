r"""Keep data of this process on storage that its workers see, for as long as tasks need it.

    Spool      PLACE/lpe-spool-<hex>/     one a process and place, with a lease; mode 0700
    Entry        value-<hex>, blocks-<hex>  what is kept, removed when nothing needs it

An entry is needed by the objects of this process that hold it, and by every task that a
scheduler knows and that names it: results that were persisted, or are being computed, have
no graph here any more. Tasks name entries by `EntryReference`, and a scheduler is asked
which of those it holds before an entry goes. The folder goes with its last entry, at the
end of Python at the latest; that of a process that died is removed by the next one that
makes a spool in the same place.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from typing import Any
from uuid import uuid4

import dask
from fsspec.implementations.local import LocalFileSystem

from lpe_dask.forks import ForkSafeLock
from lpe_dask.storage import (
    Folder,
    Lock,
    Url,
    checked_options,
    child_url,
    opening_key,
    options_for,
    with_options,
)
from lpe_dask.tasks.spool_cleaner import Discarded, cleaner_of_process
from lpe_dask.tasks.spool_cleanup import MARKER_NAME, PREFIX, remove_dead_spools
from lpe_dask.tasks.spool_references import EntryReference

#: Options of the spool of this process, if it is at a URL.
_options: dict[str, Any] = {}


def call_options(storage_options: Any) -> dict[str, Any]:
    """Return the options of a call, checked; the spool opens with them from now on.

    Unless it is at a place that they are not for. The spool is of the process, as its place
    is, and lazy results need it after the call.

    Raises
    ------
    TypeError, ValueError
        As `checked_options`.
    """
    global _options
    options = checked_options(storage_options)
    place = dask.config.get("lpe-dask.spool", None)
    if options and (place is None or options_for(Url(str(place), options))):
        _options = options
    return options


def spool_location() -> str:
    """Return where spools are made: as configured, else in Dask's temporary directory."""
    configured = dask.config.get("lpe-dask.spool", None)
    if configured is None:
        return _temporary_location()
    return with_options(str(configured), _options)


def _temporary_location() -> str:
    """Return Dask's temporary directory, which is on this machine."""
    return str(dask.config.get("temporary-directory", None) or tempfile.gettempdir())


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
        folder = Folder(around.full_url(f"{PREFIX}{uuid4().hex}"))
        self.url = folder.url
        self._cleaner = cleaner_of_process()
        try:
            _make_private(folder)
            lock = Lock(self.url).create("keep the data of a process")
            self._cleaner.add_folder(self.url, lock)
            folder.write(MARKER_NAME, b"\n")
        except FileExistsError:  # it is not ours
            raise
        except BaseException:
            self._cleaner.remove(self.url)
            raise
        self.remove_when_collected(self, Discarded(self.url))
        remove_dead_spools(around, self.url)

    @property
    def is_lost(self) -> bool:
        """Whether the folder was removed, by `remove_spools` or as cleaners of /tmp do."""
        return not self._cleaner.has_folder(self.url)

    def entry(self, kind: str) -> SpoolEntry:
        """Return a new entry; its first word says what it is, for people."""
        return SpoolEntry(self, child_url(self.url, f"{kind}-{uuid4().hex}"))

    def folder(self, kind: str) -> SpoolEntry:
        """Return a new entry that is a folder: writers of files do not make it."""
        entry = self.entry(kind)
        Folder(entry.url).make()
        return entry

    def remove_when_collected(self, owner: Spool | SpoolEntry, unneeded: Discarded) -> None:
        """Have a thread remove what goes with an object."""
        finalizer = weakref.finalize(owner, self._cleaner.put, unneeded)
        finalizer.atexit = False  # all folders go then


_lock = ForkSafeLock()
_spools: weakref.WeakValueDictionary[Any, Spool] = weakref.WeakValueDictionary()


def spool_at(place: str) -> Spool:
    """Return the spool of this process at a place; make it if there is none.

    Raises
    ------
    OSError
        If nothing can be written there.
    """
    # The spools of a process are not those of its forks.
    key = os.getpid(), opening_key(place)
    with _lock:
        spool = _spools.get(key)
        if spool is None or spool.is_lost:
            spool = _spools[key] = Spool(place)
        return spool


# Entries


class SpoolEntry:
    """A file or folder in a spool, removed when neither this process nor a task needs it.

    Attributes
    ----------
    url : str
    """

    def __init__(self, spool: Spool, url: str) -> None:
        self.url = url
        self.spool = spool
        self._sent = threading.Event()
        spool.remove_when_collected(self, Discarded(url, self._sent, spool))

    @staticmethod
    def local_folder(kind: str) -> SpoolEntry:
        """Return a new folder on this machine, wherever other spools are; see `Spool`."""
        return spool_at(_temporary_location()).folder(kind)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name: only this process removes the entry."""
        self._sent.set()
        return EntryReference, (self.url,)


# The folder


def _make_private(folder: Folder) -> None:
    """Make a folder that only its owner may look into, where there are such things."""
    if isinstance(folder.filesystem, LocalFileSystem):
        path = folder.path()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, 0o700)
    else:
        folder.make()

"""Lock a folder, so that only one run at a time works on it, on any machine.

    OUT/_lock.json      the owner of the lock, rewritten every 10 s by its heartbeat
    OUT/._lock*.tmp     a lock before it gets its name, or a probe; readers ignore both

A run removes its lock when it ends. The lock of a run that died is taken over 60 s after
its last heartbeat, where the storage knows the age of files, or at once if its process is
known to be gone:

    held --create--> own lock                                 (there was no lock)
      |                                                       lock of another run:
      +--> alive: LockedError
      +--> dead --claim--> unchanged? --replace--> own lock

Ages are differences of two times of the filesystem, so the clocks of the machines need not
agree. Of several runs that find the same dead lock only one can create the file that is
named after its content, the claim. An owner that was stalled for 60 s and wakes up is not
excluded: its next heartbeat notices, and `Lock.verify` keeps its tasks from writing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import ClassVar, Self

from lpe_dask.storage.folder import Folder
from lpe_dask.storage.messages import short_message
from lpe_dask.storage.owner import Owner
from lpe_dask.storage.redaction import redact
from lpe_dask.storage.retries import no_retries, retried_without_inner_retries

logger = logging.getLogger(__name__)

#: Most bytes of a lock; it has about 400.
_MAX_BYTES = 2**14

#: Seconds between two heartbeats of a run.
HEARTBEAT_SECONDS = 10

#: Seconds without a heartbeat after which a run counts as dead.
STALE_SECONDS = 60

#: Seconds to wait before each attempt, while other runs take and release the lock.
_ATTEMPTS = (0.0, 0.2, 0.5, 1.0, 2.0)

#: Seconds to wait before each check of a worker: where a move is a copy, a heartbeat may
#: hide the lock for a moment.
_LOOKS = (0.0, 0.1, 0.5)


class LockedError(OSError):
    """Another run works on the folder.

    Attributes
    ----------
    who : str
        That run and its last heartbeat, as part of a sentence.
    """

    who = "another run"
    was_retried = True  # it was waited for


# The lock


@dataclass(frozen=True)
class Lock:
    """The lock of a folder, whoever holds it; tasks have that of their run.

    Attributes
    ----------
    url : str
        Folder or fsspec URL.
    token : str
        Of the run that is to hold it; "" if it does not matter.
    """

    #: Name of the lock file in the locked folder.
    NAME: ClassVar[str] = "_lock.json"

    url: str
    token: str = ""

    def owner(self) -> str | None:
        """Return who works on the folder, or may do so, and its last heartbeat.

        None: nobody.
        """
        try:
            with suppress(FileNotFoundError):
                _stale_content(Folder(self.url), Lock.NAME)
        except LockedError as error:
            return error.who
        return None

    def is_stale(self) -> bool:
        """Return whether the owner is known to be gone.

        A folder without a lock, which may be about to get one, counts as dead 10 times
        `STALE_SECONDS` after its last change.
        """
        folder = Folder(self.url)
        try:
            _stale_content(folder, Lock.NAME)
        except FileNotFoundError:
            return folder.seconds_unchanged() >= 10 * STALE_SECONDS
        except LockedError:
            return False
        return True

    def verify(self) -> None:
        """Raise if the folder is no longer locked by the run that has the token.

        For a task, just before it publishes a file: tasks may outlive their run.

        Raises
        ------
        RuntimeError
            If the lock is gone, or belongs to another run.
        """
        folder = Folder(self.url)
        for wait in _LOOKS:
            time.sleep(wait)
            if (owner := _owner_of(folder)) is not None:
                break
        if owner is None or owner.token != self.token:
            raise RuntimeError(
                f"the run of this task no longer holds the lock {self.NAME} in {self.url}: "
                f"another run has taken over this folder, or it was removed, or this "
                f"worker does not see it. Only the run that holds the lock may write "
                f"there. Let the other run end, or give a folder that all workers share."
            )

    def create(self, purpose: str) -> LockHolder:
        """Lock a folder that this process has just created, with a new name.

        No other process knows the folder, so the lock is written without a check; the
        caller releases it. `is_stale` shows others whether its owner is still running.

        Raises
        ------
        OSError
            If nothing can be written there.
        """
        folder, owner = Folder(self.url), Owner.of_this_process(purpose)
        folder.write(Lock.NAME, owner.as_json())
        return LockHolder(folder, owner).start()

    @contextmanager
    def hold(
        self,
        purpose: str,
        refusal: str = "the folder {url} cannot be locked",
        *,
        is_ours: bool = False,
    ) -> Iterator[LockHolder]:
        """Create the folder and hold its lock, until the context ends.

        Another run may take it before; then `LockHolder.is_lost`.

        Parameters
        ----------
        purpose : str
            What the run does, for the error message of a second run.
        refusal : str
            Start of the message if nothing can be written; ``{url}`` stands for the folder.
        is_ours : bool, default=False
            Whether the folder is removed, if it is empty, when the context fails: it did
            not exist, or belonged to a run that died.

        Raises
        ------
        LockedError
            If another run works on the folder, or may do so.
        FileNotFoundError
            If the folder was removed while it was locked.
        OSError
            If nothing can be written there.
        """
        folder, owner = Folder(self.url), Owner.of_this_process(purpose)
        lock = LockHolder(folder, owner)
        try:
            try:
                _acquire_or_refuse(folder, owner, refusal)
            except (KeyboardInterrupt, SystemExit):
                lock.release()  # a signal came, perhaps just after the creation
                raise
            try:
                yield lock.start()
            finally:
                lock.release()
        except BaseException:
            if is_ours:
                folder.remove_if_empty()
            raise


class LockHolder(Lock):
    """The lock of a folder for the process that acquires it, with a heartbeat in a thread.

    Attributes
    ----------
    is_lost : bool
        Whether another run has taken the lock, or somebody removed it.
    """

    def __init__(self, folder: Folder, owner: Owner) -> None:
        super().__init__(folder.url, owner.token)
        self._folder = folder
        self._owner = owner
        self.is_lost = self._is_removing = False
        self._is_ending = threading.Event()
        self._thread = threading.Thread(
            target=self._heartbeat, name="lpe-lock", daemon=True
        )

    def start(self) -> Self:
        """Start the heartbeat, once the lock is acquired; returns the lock itself."""
        self._thread.start()
        return self

    def release(self) -> None:
        """Remove the lock if this run still holds it; raises nothing."""
        if os.getpid() != self._owner.pid:  # a fork leaves it to the process that has it
            return
        self._is_ending.set()
        if self._thread.is_alive():
            self._thread.join(HEARTBEAT_SECONDS)
        try:
            if self._thread.is_alive():
                raise TimeoutError("a heartbeat is still being written")
            self._remove_if_own()
        except Exception as error:
            logger.warning(
                "could not remove the lock of %s: %s It counts as dead in %d s.",
                redact(self.url), short_message(error), STALE_SECONDS,
            )  # fmt: skip

    @retried_without_inner_retries  # it may be another's by the second attempt
    def _remove_if_own(self) -> None:
        if self._is_removing and _owner_of(self._folder) is None:
            return  # only the answer to the first attempt was lost
        if self._is_own():
            self._is_removing = True
            self._folder.remove_file(Lock.NAME)

    def _heartbeat(self) -> None:
        no_retries.set(True)  # `release` waits for this thread
        while not (self._is_ending.wait(HEARTBEAT_SECONDS) or self.is_lost):
            try:
                self._beat()
            except Exception as error:  # the next one may succeed
                logger.warning(
                    "could not renew the lock of %s: %s",
                    redact(self.url),
                    short_message(error),
                )

    def _beat(self) -> None:
        if self._is_own():
            self._owner = replace(self._owner, beat=self._owner.beat + 1)
            self._folder.write(Lock.NAME, self._owner.as_json())

    def _is_own(self) -> bool:
        """Return whether this run still holds the lock; if not, it is lost for good."""
        owner = _owner_of(self._folder)
        is_own = owner is not None and owner.token == self.token
        if self._thread.ident and not is_own and not self.is_lost:  # it was held
            self.is_lost = True
            if owner is not None:
                logger.warning(
                    "the lock of %s belongs to another run now", redact(self.url)
                )
            elif not self._is_ending.is_set():  # else the run says what has stopped it
                logger.warning("the lock of %s is gone or not readable", redact(self.url))
        return is_own


# Taking it


def _acquire_or_refuse(folder: Folder, owner: Owner, refusal: str) -> None:
    try:
        folder.make()
        _acquire(folder, owner.as_json())
    except LockedError:
        raise
    except (OSError, NotImplementedError) as error:
        # Of a folder that another run has removed meanwhile, as it was empty: try again.
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
        raise kind(
            f"{refusal.format(url=folder.url)}: {short_message(error)} Give a folder that "
            f"may be written to."
        ) from error


@retried_without_inner_retries
def _acquire(folder: Folder, content: bytes) -> None:
    """Create the lock; raise if another run holds it and is alive."""
    for wait in _ATTEMPTS:
        time.sleep(wait)
        if folder.create(Lock.NAME, content):
            return
        with suppress(FileNotFoundError):  # the lock has just been released
            dead = _stale_content(folder, Lock.NAME)
            if _replace_stale_lock(folder, dead, content):
                return
    raise LockedError(
        f"another run is taking over the lock of {folder.url} now. Only one run at a time "
        f"may work on a folder. Wait until the others have ended."
    )


def _replace_stale_lock(folder: Folder, dead: bytes, content: bytes) -> bool:
    """Replace a dead lock; return False if it has changed meanwhile.

    Claims the right to do so, and raises if a live process holds the claim. The claim of a
    run that died is not removed, as two runs might do so, but followed by one with the next
    number. All are removed once the lock has changed: they are void then.
    """
    stem = f"._lock.{sha256(dead).hexdigest()[:16]}"
    claims = [f"{stem}-0.tmp"]
    while not folder.create(claims[-1], content):
        _stale_content(folder, claims[-1])
        claims.append(f"{stem}-{len(claims)}.tmp")
    try:
        if _read(folder, Lock.NAME) != dead:
            return False
        folder.write(Lock.NAME, content)
    finally:
        for name in claims:
            with suppress(Exception):
                folder.remove_file(name)
    logger.warning("took over the lock of %s from a run that died", redact(folder.url))
    return True


def _stale_content(folder: Folder, name: str) -> bytes:
    """Return the content of a lock or claim whose owner is dead; raise if it is alive.

    Where the filesystem does not say when a file was written, and a process of this
    machine is not known to be gone, the owner counts as alive.
    """
    content = _read(folder, name)
    if content is None:
        raise FileNotFoundError(f"{name} is gone")
    owner = Owner.from_json(content)
    is_running = None if owner is None else owner.is_running()
    if is_running is False:
        return content
    silence = 0.0 if is_running else max(folder.age(name) or 0.0, 0.0)
    if silence >= STALE_SECONDS:
        return content
    who = "an unknown run, as the lock is not readable" if owner is None else str(owner)
    who = f"{who}; its last heartbeat was {silence:.0f} s ago"
    error = LockedError(
        f"the folder {folder.url} is locked ({name}) by {who}. Only one run at a time may "
        f"work on a folder. Wait until that run ends; if it died, its lock is taken over "
        f"{STALE_SECONDS} s after its last heartbeat, where the storage knows the age of "
        f"files; else remove the file."
    )
    error.who = who
    raise error


def _owner_of(folder: Folder) -> Owner | None:
    return Owner.from_json(_read(folder, Lock.NAME))


def _read(folder: Folder, name: str) -> bytes | None:
    return folder.read(name, _MAX_BYTES, follow_links=False)  # we make no links

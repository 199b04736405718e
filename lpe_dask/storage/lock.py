"""Lock a folder, so that one run at a time works on it, whichever machine each is on.

    OUT/_lock.json      who works on this folder, rewritten every 10 s while that lasts
    OUT/._lock*.tmp     what is about to become the lock, or a probe; readers pass over both

A run that ends removes the lock. That of a run which died is taken over 60 s after its last
sign of life, or at once where its process is known to be gone:

    hold --create--> mine                                     (the file was not there)
      |                                                       another run's:
      +--> lives: LockedError
      +--> dead --claim--> same as before? --replace--> mine

Ages are differences of two times of the filesystem, so that the clocks of machines need not
agree. Only one of those who find the same dead lock can make the file that is named after
its content, the claim. What none of this excludes is an owner that was stalled for 60 s and
wakes up: its next beat finds out, and `check_token` keeps its tasks from writing.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from typing import Self
from uuid import uuid4

import fsspec
import psutil

from lpe_dask.storage.messages import brief
from lpe_dask.storage.retries import is_passing, retried
from lpe_dask.storage.whole_files import whole_file

logger = logging.getLogger(__name__)

#: Name of the lock in the folder that it locks.
LOCK_NAME = "_lock.json"

#: Seconds between two signs of life of a run.
BEAT_SECONDS = 10

#: Seconds without a sign of life after which a run counts as dead.
DEAD_SECONDS = 60

#: Seconds until a file that was written is looked at again, where the filesystem does not
#: exclude that another run writes it, too: whoever wrote last has it.
SETTLE_SECONDS = 3

#: Seconds to wait before each attempt, where the lock comes and goes at the same moment.
_ATTEMPTS = (0.0, 0.2, 0.5, 1.0, 2.0)

#: Seconds to wait before a worker looks again: where a move is a copy, a beat may hide the
#: lock for a moment.
_SECOND_LOOKS = (0.1, 0.5)

#: Where Linux names the time since which it is up, and the space that process ids count in.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")

# The filesystem in memory looks whether a file exists and makes it in two steps.
_one_creates = threading.Lock()


class LockedError(OSError):
    """Another run works on the folder."""


# The lock


@contextmanager
def hold(url: str | PathLike[str], purpose: str) -> Iterator[Lock]:
    """Give a lock on a folder, held until the context ends or another run displaces it.

    Parameters
    ----------
    url : str or path
        Folder or fsspec URL; it exists.
    purpose : str
        What the run does, for the message that a second run gets.

    Raises
    ------
    LockedError
        If another run works on the folder, or seems to.
    OSError
        If nothing can be written there.
    """
    folder, owner = _Folder(url), _Owner.of_this_process(purpose)
    try:
        _acquire(folder, owner.as_json())
    except LockedError:
        raise
    except (OSError, NotImplementedError) as error:
        raise OSError(
            f"the folder {url} cannot be locked: {brief(error)} Give a folder that may be "
            f"written to."
        ) from error
    lock = Lock(folder, owner)
    try:
        yield lock
    finally:
        lock.release()


@retried
def lease(url: str | PathLike[str], purpose: str) -> Lock:
    """Return the lock on a folder that this process has just made, with a new name.

    Nobody else can want it, so it is taken without a contest; whoever makes the folder
    releases the lock. `is_dead` tells others whether its owner still lives.

    Raises
    ------
    OSError
        If nothing can be written there.
    """
    folder, owner = _Folder(url), _Owner.of_this_process(purpose)
    folder.replace(LOCK_NAME, owner.as_json())
    return Lock(folder, owner)


def is_dead(url: str | PathLike[str]) -> bool:
    """Return whether the owner of a folder's lock is known to be gone; never waits.

    A folder without a lock, which may be about to get one, counts as dead ten times
    `DEAD_SECONDS` after its last change.
    """
    folder = _Folder(url)
    content = folder.read(LOCK_NAME)
    owner = _Owner.from_json(content)
    is_running = None if owner is None else owner.is_running()
    if is_running is not None:
        return not is_running
    if content is None:
        return folder.seconds_unchanged() >= 10 * DEAD_SECONDS
    age = folder.age(LOCK_NAME)
    return age is not None and age >= DEAD_SECONDS


@retried
def is_held(url: str | PathLike[str]) -> bool:
    """Return whether a run that lives, or seems to, is at work on a folder."""
    try:
        _content_if_dead(_Folder(url), LOCK_NAME)
    except LockedError:
        return True
    except FileNotFoundError:
        return False
    return False


@retried
def check_token(url: str | PathLike[str], token: str) -> None:
    """Raise if a folder is no longer locked by the run that has this token.

    For a task, just before it publishes a file: tasks may outlive the run that made them.

    Raises
    ------
    RuntimeError
        If the lock is gone, or that of another run.
    """
    folder = _Folder(url)
    owner = _Owner.from_json(folder.read(LOCK_NAME))
    for wait in _SECOND_LOOKS:
        if owner is not None:
            break
        time.sleep(wait)
        owner = _Owner.from_json(folder.read(LOCK_NAME))
    if owner is None or owner.token != token:
        raise RuntimeError(
            f"the lock {LOCK_NAME} of the run of this task is not in {url}: another run "
            f"has taken over this folder, or this worker does not see it. Only the run "
            f"that holds it may write there. Let the other run end, or give a folder that "
            f"all workers share."
        )


class Lock:
    """A lock that this process has on a folder, and the thread that keeps it alive.

    Attributes
    ----------
    url : str
        The folder.
    token : str
        What tells this lock from all others; for `check_token`.
    """

    def __init__(self, folder: _Folder, owner: _Owner) -> None:
        self.url = folder.url
        self.token = owner.token
        self._folder = folder
        self._owner = owner
        self._is_lost = threading.Event()
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lpe-lock", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether another run has displaced this one, or somebody removed the lock."""
        return self._is_lost.is_set()

    def release(self) -> None:
        """Remove the lock if it is still this one; raises nothing."""
        self._is_ending.set()
        is_own_thread = self._thread is threading.current_thread()  # a finalizer ran in it
        if not is_own_thread:
            self._thread.join(BEAT_SECONDS)
        try:
            if self._thread.is_alive() and not is_own_thread:
                raise TimeoutError("it is still being written")
            self._remove_if_own()
        except Exception as error:
            logger.warning(
                "The lock on %s was not removed: %s It counts as dead in %d s.",
                self.url,
                brief(error),
                DEAD_SECONDS,
            )

    @retried
    def _remove_if_own(self) -> None:
        with suppress(FileNotFoundError):
            if self._is_own():
                self._folder.remove(LOCK_NAME)

    def _beat(self) -> None:
        while not (self._is_ending.wait(BEAT_SECONDS) or self.is_lost):
            try:
                self._give_sign_of_life()
            except Exception as error:  # perhaps the next one succeeds
                logger.warning("The lock on %s was not renewed: %s", self.url, brief(error))

    def _give_sign_of_life(self) -> None:
        if self._is_own():
            self._owner = replace(self._owner, beat=self._owner.beat + 1)
            self._folder.replace(LOCK_NAME, self._owner.as_json())

    def _is_own(self) -> bool:
        """Return whether the lock is still this one; if not, it is lost for good."""
        owner = _Owner.from_json(self._folder.read(LOCK_NAME))
        is_own = owner is not None and owner.token == self.token
        if not is_own and not self.is_lost:
            self._is_lost.set()
            logger.warning("The lock on %s is gone, or that of another run.", self.url)
        return is_own


# Taking it


@retried
def _acquire(folder: _Folder, content: bytes) -> None:
    """Make the lock, or raise if it is another's that lives."""
    for wait in _ATTEMPTS:
        time.sleep(wait)
        if folder.create(LOCK_NAME, content):
            return
        with suppress(FileNotFoundError):  # it has just been released
            dead = _content_if_dead(folder, LOCK_NAME)
            if _take_over(folder, dead, content):
                return
    raise LockedError(
        f"the folder {folder.url} goes from one run to another at this moment. Only one "
        f"run at a time may work on a folder. Wait until the others have ended."
    )


def _take_over(folder: _Folder, dead: bytes, content: bytes) -> bool:
    """Put a lock in the place of a dead one, and return whether that was still there."""
    with _claim(folder, dead, content):
        if folder.read(LOCK_NAME) != dead:
            return False
        folder.replace(LOCK_NAME, content)
    logger.warning("Took over the folder %s from a run that died.", folder.url)
    return True


@contextmanager
def _claim(folder: _Folder, dead: bytes, content: bytes) -> Iterator[None]:
    """Be the only one who may replace a dead lock; raise if that is another who lives.

    A claim of a run that died is not removed, which two might do, but followed by the next
    number. All are removed when the lock has changed: they are worth nothing then.
    """
    stem = f"._lock.{sha256(dead).hexdigest()[:16]}"
    names = [f"{stem}-0.tmp"]
    while not folder.create(names[-1], content):
        _content_if_dead(folder, names[-1])
        names.append(f"{stem}-{len(names)}.tmp")
    try:
        yield
    finally:
        for name in names:
            with suppress(Exception):
                folder.remove(name)


def _content_if_dead(folder: _Folder, name: str) -> bytes:
    """Return the content of a lock or a claim whose owner is dead; raise if it lives."""
    content = folder.read(name)
    if content is None:
        raise FileNotFoundError(f"{name} is gone")
    owner = _Owner.from_json(content)
    is_running = None if owner is None else owner.is_running()
    if is_running is False:
        return content
    silence = 0.0 if is_running else _seconds_of_silence(folder, name, content)
    if silence >= DEAD_SECONDS:
        return content
    who = "a run that cannot be told from it" if owner is None else str(owner)
    raise LockedError(
        f"the folder {folder.url} is locked ({name}) by {who}; its last sign of life was "
        f"{silence:.0f} s ago. Only one run at a time may work on a folder. Wait until "
        f"that run ends; if it died, its lock is taken over {DEAD_SECONDS} s after its "
        f"last sign of life."
    )


def _seconds_of_silence(folder: _Folder, name: str, content: bytes) -> float:
    """Return how long ago a file was written, as far as that matters.

    Where the filesystem does not know, or puts it far into the future, the file is watched
    for as long as it takes: no time that another machine wrote is believed.
    """
    age = folder.age(name)
    if age is not None and age > -DEAD_SECONDS:
        return max(age, 0.0)
    logger.info("Watching for %d s whether %s lives.", DEAD_SECONDS, folder.path(name))
    began = time.monotonic()
    while (watched := time.monotonic() - began) < DEAD_SECONDS:
        time.sleep(min(BEAT_SECONDS, DEAD_SECONDS) / 5)
        if folder.read(name) != content:
            return 0.0
    return watched


# What the file says


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who has a lock.

    Attributes
    ----------
    token : str
        Random, one for each time that a lock is taken.
    host, boot, pid_namespace : str
        Where process ids are those that are meant: many machines may have one name.
    pid : int
    started : float
        When the process began, by the clock of its machine.
    purpose : str
    since : str
        When the lock was taken, for people: nothing is decided by it.
    beat : int
        Grows with each sign of life.
    """

    token: str
    host: str
    boot: str
    pid_namespace: str
    pid: int
    started: float
    purpose: str
    since: str
    beat: int

    @classmethod
    def of_this_process(cls, purpose: str) -> Self:
        """Return an owner with a new token."""
        started, since = psutil.Process().create_time(), datetime.now(UTC)
        machine, token = _this_machine(), uuid4().hex
        return cls(
            token, *machine, os.getpid(), started, purpose, since.isoformat(), beat=0
        )

    @classmethod
    def from_json(cls, content: bytes | None) -> Self | None:
        """Return the owner that a file names, None if it names none."""
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            values = json.loads(content or b"")
            kinds = (str, str, str, str, int, float, str, str, int)
            names = cls.__dataclass_fields__
            typed = (kind(values[name]) for name, kind in zip(names, kinds, strict=True))
            owner = cls(*typed)
            return owner if 0 < owner.pid < 2**31 else None
        return None

    def as_json(self) -> bytes:
        """Return what the file holds."""
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    def __str__(self) -> str:
        text = f"process {self.pid} on {self.host} ({self.purpose})"
        return "".join(sign if sign.isprintable() else "?" for sign in text)

    def is_here(self) -> bool:
        """Return whether the process was one of this machine, since it was started."""
        return (self.host, self.boot, self.pid_namespace) == _this_machine()

    def is_running(self) -> bool | None:
        """Return whether the process lives, None where that cannot be told from here.

        A process that runs without a sign of life has been stopped, or the machine slept. A
        process id with another start may be another process, or the same one after the
        clock was set: that cannot be told.
        """
        if not self.is_here() or self.pid == os.getpid():
            return None
        if not psutil.pid_exists(1):  # the processes of other users are hidden
            return None
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return True if process.create_time() == self.started else None
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:
            return None


def _this_machine() -> tuple[str, str, str]:
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = str(psutil.boot_time())
    try:
        namespace = os.readlink(_PID_NAMESPACE)
    except OSError:
        namespace = ""
    return platform.node(), boot, namespace


# The folder


class _Folder:
    """The files of a folder, read and written past what fsspec remembers of it."""

    def __init__(self, url: str | PathLike[str]) -> None:
        self.url = fspath(url)
        self._filesystem, root = fsspec.core.url_to_fs(self.url)
        self._root = root.rstrip("/")

    def path(self, name: str) -> str:
        """Return the path of a file in this folder."""
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if there is none."""
        self._filesystem.invalidate_cache(self._root)
        try:
            content: bytes = self._filesystem.cat_file(self.path(name))
        except FileNotFoundError:
            return None
        return content

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that was not there, and return whether it is this one that is now.

        What is there afterwards decides, not the error: filesystems report a file that
        exists in several ways, and an answer may be lost.
        """
        failure = None
        with _one_creates:
            try:
                self._write_if_absent(name, content)
            except OSError as error:
                failure = error
        if not (failure or self._is_exclusive):
            time.sleep(SETTLE_SECONDS)
        found = self.read(name)
        if found is None and not isinstance(failure, FileExistsError | None):
            raise failure
        return found == content

    def replace(self, name: str, content: bytes) -> None:
        """Write a file in the place of another."""
        with whole_file(self._filesystem, self._root, name) as file:
            file.write(content)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._filesystem.rm_file(self.path(name))

    def age(self, name: str) -> float | None:
        """Return the seconds since a file was written, by the clock of the filesystem.

        None where the filesystem does not tell.
        """
        with self._probe() as probe:
            self._filesystem.pipe_file(self.path(probe), b"\n")
            self._filesystem.invalidate_cache(self._root)
            try:
                now = self._filesystem.modified(self.path(probe))
                written = self._filesystem.modified(self.path(name))
            except NotImplementedError:
                return None
        seconds: float = (now - written).total_seconds()
        return seconds

    def seconds_unchanged(self) -> float:
        """Return how long ago the folder itself was changed, about; 0 if unknown."""
        try:
            changed = self._filesystem.modified(self._root)
        except (OSError, NotImplementedError):
            return 0.0
        seconds: float = (datetime.now(UTC) - changed).total_seconds()
        return seconds

    @cached_property
    def _is_exclusive(self) -> bool:
        """Whether the filesystem refuses to make a file that is there.

        Tried, not looked up: it depends on the version of a library, and on the server.
        """
        with self._probe() as probe:
            try:
                self._write_new(probe, b"\n")
            except (OSError, ValueError, NotImplementedError) as error:
                if is_passing(error):  # which tells nothing
                    raise
                return False  # it knows no such mode
            try:
                self._write_new(probe, b"\n")
            except OSError as error:
                if is_passing(error):
                    raise
                return True
        return False

    def _write_if_absent(self, name: str, content: bytes) -> None:
        if self._is_exclusive:
            self._write_new(name, content)
        elif self.read(name) is None:
            self.replace(name, content)

    def _write_new(self, name: str, content: bytes) -> None:
        with self._filesystem.open(self.path(name), "xb") as file:
            try:
                file.write(content)
                file.flush()
            except BaseException:  # a full disk leaves no lock that nobody has
                with suppress(Exception):
                    self.remove(name)
                raise

    @contextmanager
    def _probe(self) -> Iterator[str]:
        """Give the name of a file to try things on, which is removed afterwards."""
        name = f"._lock.{uuid4().hex}.tmp"
        try:
            yield name
        finally:
            with suppress(Exception):
                self.remove(name)

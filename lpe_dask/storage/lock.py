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

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from os import PathLike

from lpe_dask.storage.folder import Folder
from lpe_dask.storage.messages import brief
from lpe_dask.storage.owner import Owner
from lpe_dask.storage.retries import retried_as_a_whole, tries_once

logger = logging.getLogger(__name__)

#: Name of the lock in the folder that it locks.
LOCK_NAME = "_lock.json"

#: Seconds between two signs of life of a run.
BEAT_SECONDS = 10

#: Seconds without a sign of life after which a run counts as dead.
DEAD_SECONDS = 60

#: Seconds to wait before each attempt, where the lock comes and goes at the same moment.
_ATTEMPTS = (0.0, 0.2, 0.5, 1.0, 2.0)

#: Seconds to wait before each look of a worker: where a move is a copy, a beat may hide
#: the lock for a moment.
_LOOKS = (0.0, 0.1, 0.5)


class LockedError(OSError):
    """Another run works on the folder."""


# The lock


@contextmanager
def hold(
    url: str | PathLike[str],
    purpose: str,
    refusal: str = "the folder {url} cannot be locked",
    *,
    is_ours: bool = False,
) -> Iterator[Lock]:
    """Make a folder and give its lock, until the context ends or another run displaces it.

    Parameters
    ----------
    url : str or path
        Folder or fsspec URL.
    purpose : str
        What the run does, for the message that a second run gets.
    refusal : str
        Begins the message where nothing can be written; ``{url}`` stands for the folder.
    is_ours : bool, default=False
        Whether the folder is removed, if it is empty, when the context fails: it was not
        there, or of a run that died.

    Raises
    ------
    LockedError
        If another run works on the folder, or seems to.
    OSError
        If nothing can be written there.
    """
    folder = Folder(url)
    try:
        lock = _locked(folder, purpose, refusal)
        try:
            yield lock
        finally:
            lock.release()
    except BaseException:
        if is_ours:
            folder.remove_if_empty()
        raise


def _locked(folder: Folder, purpose: str, refusal: str) -> Lock:
    owner = Owner.of_this_process(purpose)
    try:
        folder.make()
        _acquire(folder, owner.as_json())
    except LockedError:
        raise
    except (OSError, NotImplementedError) as error:
        raise OSError(
            f"{refusal.format(url=folder.url)}: {brief(error)} Give a folder that may be "
            f"written to."
        ) from error
    return Lock(folder, owner)


def lease(url: str | PathLike[str], purpose: str) -> Lock:
    """Return the lock on a folder that this process has just made, with a new name.

    Nobody else can want it, so it is taken without a contest; whoever makes the folder
    releases the lock. `is_dead` tells others whether its owner still lives.

    Raises
    ------
    OSError
        If nothing can be written there.
    """
    folder, owner = Folder(url), Owner.of_this_process(purpose)
    folder.write(LOCK_NAME, owner.as_json())
    return Lock(folder, owner)


def is_dead(url: str | PathLike[str]) -> bool:
    """Return whether the owner of a folder's lock is known to be gone; never waits.

    A folder without a lock, which may be about to get one, counts as dead ten times
    `DEAD_SECONDS` after its last change.
    """
    folder = Folder(url)
    try:
        _content_if_dead(folder, LOCK_NAME, is_watched=False)
    except FileNotFoundError:
        return folder.seconds_unchanged() >= 10 * DEAD_SECONDS
    except LockedError:
        return False
    return True


def is_held(url: str | PathLike[str]) -> bool:
    """Return whether a run that lives, or seems to, is at work on a folder."""
    try:
        _content_if_dead(Folder(url), LOCK_NAME)
    except LockedError:
        return True
    except FileNotFoundError:
        return False
    return False


def check_token(url: str | PathLike[str], token: str) -> None:
    """Raise if a folder is no longer locked by the run that has this token.

    For a task, just before it publishes a file: tasks may outlive the run that made them.

    Raises
    ------
    RuntimeError
        If the lock is gone, or that of another run.
    """
    folder = Folder(url)
    for wait in _LOOKS:
        time.sleep(wait)
        if (owner := _owner_of(folder)) is not None:
            break
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

    def __init__(self, folder: Folder, owner: Owner) -> None:
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
                self.url, brief(error), DEAD_SECONDS,
            )  # fmt: skip

    @retried_as_a_whole  # it may be another's by the second attempt
    def _remove_if_own(self) -> None:
        if self._is_own():
            self._folder.remove_file(LOCK_NAME)

    def _beat(self) -> None:
        tries_once.set(True)  # whoever releases the lock waits for this thread
        while not (self._is_ending.wait(BEAT_SECONDS) or self.is_lost):
            try:
                self._give_sign_of_life()
            except Exception as error:  # perhaps the next one succeeds
                logger.warning("The lock on %s was not renewed: %s", self.url, brief(error))

    def _give_sign_of_life(self) -> None:
        if self._is_own():
            self._owner = self._owner.model_copy(update={"beat": self._owner.beat + 1})
            self._folder.write(LOCK_NAME, self._owner.as_json())

    def _is_own(self) -> bool:
        """Return whether the lock is still this one; if not, it is lost for good."""
        owner = _owner_of(self._folder)
        is_own = owner is not None and owner.token == self.token
        if not is_own and not self.is_lost:
            self._is_lost.set()
            logger.warning("The lock on %s is gone, or that of another run.", self.url)
        return is_own


# Taking it


@retried_as_a_whole
def _acquire(folder: Folder, content: bytes) -> None:
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


def _take_over(folder: Folder, dead: bytes, content: bytes) -> bool:
    """Put a lock in the place of a dead one, and return whether that was still there."""
    with _claim(folder, dead, content):
        if folder.read(LOCK_NAME) != dead:
            return False
        folder.write(LOCK_NAME, content)
    logger.warning("Took over the folder %s from a run that died.", folder.url)
    return True


@contextmanager
def _claim(folder: Folder, dead: bytes, content: bytes) -> Iterator[None]:
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
                folder.remove_file(name)


def _content_if_dead(folder: Folder, name: str, *, is_watched: bool = True) -> bytes:
    """Return the content of a lock or a claim whose owner is dead; raise if it lives.

    A file of no age is watched for as long as it takes, or taken for that of a run that
    lives.
    """
    content = folder.read(name)
    if content is None:
        raise FileNotFoundError(f"{name} is gone")
    owner = Owner.from_json(content)
    is_running = None if owner is None else owner.is_running()
    if is_running is False:
        return content
    silence = 0.0
    if not is_running:
        age = folder.age(name)
        if age is not None and age > -DEAD_SECONDS:
            silence = max(age, 0.0)
        elif is_watched:
            silence = _seconds_watched(folder, name, content)
    if silence >= DEAD_SECONDS:
        return content
    who = "a run that cannot be told from it" if owner is None else str(owner)
    raise LockedError(
        f"the folder {folder.url} is locked ({name}) by {who}; its last sign of life was "
        f"{silence:.0f} s ago. Only one run at a time may work on a folder. Wait until "
        f"that run ends; if it died, its lock is taken over {DEAD_SECONDS} s after its "
        f"last sign of life."
    )


def _seconds_watched(folder: Folder, name: str, content: bytes) -> float:
    """Return for how long a file stayed as it is, as far as that matters.

    Where the filesystem does not know when it was written, or puts that far into the
    future: no time that another machine wrote is believed.
    """
    logger.info("Watching for %d s whether %s lives.", DEAD_SECONDS, folder.path(name))
    began = time.monotonic()
    while (watched := time.monotonic() - began) < DEAD_SECONDS:
        time.sleep(min(BEAT_SECONDS, DEAD_SECONDS) / 5)
        if folder.read(name) != content:
            return 0.0
    return watched


def _owner_of(folder: Folder) -> Owner | None:
    return Owner.from_json(folder.read(LOCK_NAME))

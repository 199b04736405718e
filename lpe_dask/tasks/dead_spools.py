"""Remove the spools that processes have left which died, from a place of all users.

Others may put there what they like, under any name, and in a place without a sticky bit
exchange it at any moment. So what is removed is looked at first, opened without following
links, and emptied by what was opened: never by its name.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
from contextlib import suppress

from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage import LOCK_NAME, Folder, brief, is_dead
from lpe_dask.tasks.cleaner import remove

logger = logging.getLogger(__name__)

#: Start of the name of a spool's folder.
PREFIX = "lpe-spool-"

#: Name of the file by which workers are asked whether they see a spool.
MARK_NAME = "spool"

#: What there may be in a spool.
_OWN_NAME = re.compile(
    rf"{re.escape(LOCK_NAME)}|{MARK_NAME}|[a-z]+-[0-9a-f]{{32}}|\..+\.tmp"
)


def remove_dead_spools(place: Folder, own: str) -> None:
    """Remove the spools in a place whose processes have died; raises nothing.

    Parameters
    ----------
    place : Folder
    own : str
        URL of the spool that this process has made there: others belong to the same user,
        and nobody else may look into them, either.
    """
    with suppress(Exception):  # others collect there, too
        for name in place.names(PREFIX):
            url = place.full_url(name)
            if url == own:
                continue
            try:
                is_gone = _remove_if_dead(place, name, own)
            except Exception as error:  # others may collect it, too
                logger.debug("left %s alone: %s", url, brief(error))
                continue
            if is_gone:
                logger.info("removed %s, left by a process that died", url)


def _remove_if_dead(place: Folder, name: str, own: str) -> bool:
    url = place.full_url(name)
    is_local = isinstance(place.filesystem, LocalFileSystem)
    if not (is_local and hasattr(os, "O_NOFOLLOW")):  # there are no owners
        if is_gone := is_dead(url):
            remove(url)
        return is_gone
    path = place.path(name)
    found = os.lstat(path)
    if not _is_alike(found, os.lstat(Folder(own).path())):
        raise PermissionError("it is no folder of this user that others cannot look into")
    if not is_dead(url):
        return False
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not os.path.samestat(found, os.fstat(number)):
            raise PermissionError("it was exchanged for another folder")
        _empty(number)
    finally:
        os.close(number)
    os.rmdir(path)  # whatever it is now: nothing but an empty folder
    return True


def _is_alike(found: os.stat_result, own: os.stat_result) -> bool:
    """Return whether something is a folder as private as another one, of the same user."""
    permissions = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == own.st_uid
        and (found.st_mode ^ own.st_mode) & permissions == 0
    )


def _empty(folder: int) -> None:
    """Remove what is in an open folder, the lock last, if all of it is of a spool."""
    names = os.listdir(folder)
    if foreign := [name for name in names if not _OWN_NAME.fullmatch(name)]:
        raise FileExistsError(f"it has files that no spool has: {foreign[:3]}")
    for name in sorted(names, key=lambda name: name == LOCK_NAME):
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):  # macOS says the latter
            shutil.rmtree(name, dir_fd=folder)

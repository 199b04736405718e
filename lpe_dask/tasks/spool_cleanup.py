"""Remove the spools that processes have left which died, from a place of all users.

Others may put there what they like, under any name, and in a place without a sticky bit
exchange it at any moment. So what is removed is opened first, without following links, then
looked at, and emptied by what was opened: never by its name.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress

from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage import Folder, Lock, short_message
from lpe_dask.tasks.spool_cleaner import remove

logger = logging.getLogger(__name__)

#: Start of the name of a spool's folder.
PREFIX = "lpe-spool-"

#: Name of the file by which workers are asked whether they see a spool.
MARKER_NAME = "spool"

#: What there may be in a spool.
_OWN_NAME = re.compile(
    rf"{re.escape(Lock.NAME)}|{MARKER_NAME}|[a-z]+-[0-9a-f]{{32}}|\..+\.tmp"
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
            try:
                if url != own and _remove_if_dead(place, name, own):
                    logger.info("removed %s, left by a process that died", url)
            except Exception as error:  # others may collect it, too
                logger.debug("left %s alone: %s", url, short_message(error))


def _remove_if_dead(place: Folder, name: str, own: str) -> bool:
    url, path = place.full_url(name), place.path(name)
    is_local = isinstance(place.filesystem, LocalFileSystem)
    if not (is_local and hasattr(os, "O_NOFOLLOW")):  # there are no owners
        if is_gone := Lock(url).is_stale():
            remove(url)
        return is_gone
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        names = _names_in(folder, os.lstat(Folder(own).path()))
        if not Lock(url).is_stale():
            return False
        if not os.path.samestat(os.fstat(folder), os.lstat(path)):
            raise PermissionError("it was exchanged for another folder")
        for inner in sorted(names, key=Lock.NAME.__eq__):  # the lock last
            try:
                os.unlink(inner, dir_fd=folder)
            except (IsADirectoryError, PermissionError):  # macOS says the latter
                shutil.rmtree(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(path)  # whatever it is now: nothing but an empty folder
    return True


def _names_in(folder: int, own: os.stat_result) -> list[str]:
    """Return the names in an open folder; raise if it is no spool as private as ours."""
    found = os.fstat(folder)
    if (found.st_uid, found.st_mode & 0o777) != (own.st_uid, own.st_mode & 0o777):
        raise PermissionError("it is no folder of this user that others cannot look into")
    names = os.listdir(folder)
    if foreign := [name for name in names if not _OWN_NAME.fullmatch(name)]:
        raise FileExistsError(f"it has files that no spool has: {foreign[:3]}")
    return names

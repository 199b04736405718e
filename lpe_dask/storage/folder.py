"""The files of a folder on any storage: complete, with retries, without fsspec's cache.

A file is written under another name and then moved: all visible files are complete. What is
read or listed is what the storage says now, not what fsspec has cached.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from os import PathLike, fspath
from typing import Any
from uuid import uuid4

from fsspec.implementations.local import LocalFileSystem

from lpe_dask.forks import ForkSafeLock
from lpe_dask.storage.filesystems import filesystem_of
from lpe_dask.storage.messages import disk_full_context
from lpe_dask.storage.regular_files import MAX_BYTES, open_regular, read_regular
from lpe_dask.storage.retries import is_transient, retried
from lpe_dask.storage.urls import like

#: Seconds until a new file is read again, where the filesystem does not prevent another run
#: from writing it, too: it belongs to whoever wrote last.
SETTLE_SECONDS = 3

#: Protocols of storages with buckets.
_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}

#: Errors for which `Folder.read` and `Folder.names` return nothing.
_NOT_THERE = (FileNotFoundError, NotADirectoryError)

#: Errors of `os.fsync` where a filesystem, or a special file, does not have it.
_NOT_SYNCED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS)

# The filesystem in memory checks whether a file exists and creates it in two steps.
_create_mutex = ForkSafeLock()


class Folder:
    """A folder, which need not exist; its methods retry after temporary errors.

    Parameters
    ----------
    url : str or path
        Folder or fsspec URL.

    Attributes
    ----------
    url : str
        As it was given.
    filesystem : fsspec filesystem
    """

    def __init__(self, url: str | PathLike[str]) -> None:
        self.url = fspath(url)
        self.filesystem, root = filesystem_of(self.url)
        self._root = root.rstrip("/")

    def full_url(self, name: str = "") -> str:
        """Return the absolute URL of the folder, or of a file in it."""
        return like(self.url, self.filesystem.unstrip_protocol(self.path(name)))

    def path(self, name: str = "") -> str:
        """Return the path of a file in this folder, or of the folder."""
        return f"{self._root}/{name}" if name or not self._root else self._root

    # Look

    @retried
    def exists(self, name: str = "") -> bool:
        """Return whether a file, or the folder, exists."""
        self._invalidate_cache()
        try:
            self.filesystem.info(self.path(name))  # `exists` is False after any error
        except _NOT_THERE:
            return False
        return True

    @retried
    def is_file(self) -> bool:
        """Return whether there is a file instead of a folder."""
        self._invalidate_cache()
        return bool(self.filesystem.isfile(self.path()))

    @retried
    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all that is in the folder; none if it does not exist."""
        self._invalidate_cache()
        try:
            paths = self.filesystem.ls(self.path(), detail=False)
        except _NOT_THERE:
            return []
        names = sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)
        # Some object stores list the folder itself, without a name.
        return [name for name in names if name and name.startswith(prefix)]

    @retried
    def read(
        self, name: str, at_most: int = MAX_BYTES, *, follow_links: bool = True
    ) -> bytes | None:
        """Return the content of a regular file, None if there is none.

        Parameters
        ----------
        name : str
        at_most : int
            A file of more bytes is not read.
        follow_links : bool, default=True
            Whether a link on this machine may lead to it.

        Raises
        ------
        UnsafeFileError
            If it is something else, or larger.
        """
        self._invalidate_cache()
        path = self.path(name)
        try:
            return read_regular(self.filesystem, path, at_most, follow_links=follow_links)
        except _NOT_THERE:
            return None

    def open(self, name: str) -> Any:
        """Return a regular file, to read from; no retries."""
        self._invalidate_cache()
        return open_regular(self.filesystem, self.path(name))

    @retried
    def age(self, name: str) -> float | None:
        """Return the seconds since a file was written, by the clock of the filesystem.

        None where the filesystem does not say.
        """
        with self._probe() as probe:
            self.filesystem.pipe_file(self.path(probe), b"\n")
            self._invalidate_cache()
            try:
                now = self.filesystem.modified(self.path(probe))
                written = self.filesystem.modified(self.path(name))
            except NotImplementedError:
                return None
        return float((now - written).total_seconds())

    def seconds_unchanged(self) -> float:
        """Return about how long ago the folder itself was changed; 0 if unknown."""
        try:
            changed = self.filesystem.modified(self.path())
        except (OSError, NotImplementedError):
            return 0.0
        return float((datetime.now(UTC) - changed).total_seconds())

    # Write

    @retried
    def make(self) -> None:
        """Create the folder and its parents, where they do not exist.

        Not in a bucket, which has no folders: it would create a bucket for a slip in its
        name.
        """
        protocol = self.filesystem.protocol
        if not _BUCKETS.isdisjoint([protocol] if isinstance(protocol, str) else protocol):
            return
        with disk_full_context(self.url):
            self.filesystem.makedirs(self.path(), exist_ok=True)

    @retried
    def write(self, name: str, content: bytes | memoryview) -> None:
        """Write a file; replaces an existing one."""
        with self.atomic_write(name) as file:
            file.write(content)

    @contextmanager
    def atomic_write(self, name: str) -> Iterator[Any]:
        """Give a file to write, which gets its name when it is complete; no retries."""
        temporary = self.path(f".{name}.{uuid4().hex}.tmp")
        try:
            with disk_full_context(self.url):
                with self.filesystem.open(temporary, "wb") as file:
                    yield file
                    fsync_file(file)
                self._rename(temporary, self.path(name))
        except BaseException:
            with suppress(Exception):
                self.filesystem.rm_file(temporary)
            raise

    @retried
    def create(self, name: str, content: bytes) -> bool:
        """Write a file if none exists, and return whether the file is this one afterwards.

        Its content afterwards decides, not the error: filesystems report an existing file
        in several ways, and a response may be lost.
        """
        failure = None
        with _create_mutex:
            try:
                self._write_if_absent(name, content)
            except OSError as error:
                failure = error
        if not (failure or self._is_exclusive):
            time.sleep(SETTLE_SECONDS)
        found = self.read(name, follow_links=False)
        if found is None and not isinstance(failure, FileExistsError | None):
            raise failure
        return found == content

    @retried
    def remove_file(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.rm_file(self.path(name))

    @retried
    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.rm(self.path(name), recursive=True)

    def remove_if_empty(self) -> None:
        """Remove the folder itself if nothing is in it; raises nothing."""
        with suppress(Exception):
            self.filesystem.rmdir(self.path())

    # Whether files can be created exclusively

    @cached_property
    def _is_exclusive(self) -> bool:
        """Whether the filesystem refuses to create a file that exists.

        Tested, not looked up: it depends on the version of a library, and on the server.
        """
        with self._probe() as probe:
            for is_there in (False, True):
                try:
                    self._write_new(probe, b"\n")
                except FileExistsError:  # also if a library below has sent it twice
                    return True
                except (OSError, ValueError, NotImplementedError) as error:
                    if is_transient(error):  # which proves nothing
                        raise
                    return is_there  # if not, it knows no such mode
        return False

    def _write_if_absent(self, name: str, content: bytes) -> None:
        if self._is_exclusive:
            self._write_new(name, content)
        elif not self.exists(name):
            self.write(name, content)

    def _write_new(self, name: str, content: bytes) -> None:
        with (
            disk_full_context(self.url),
            self.filesystem.open(self.path(name), "xb") as file,
        ):
            try:
                file.write(content)
                fsync_file(file)
            except BaseException:  # a full disk must not leave an empty file
                with suppress(Exception):
                    self.filesystem.rm_file(self.path(name))
                raise

    def _rename(self, path: str, new: str) -> None:
        # Where a move fails, fsspec copies, and half a file has its name meanwhile.
        if type(self.filesystem) is LocalFileSystem:
            os.replace(path, new)
        else:
            self.filesystem.mv(path, new)

    @contextmanager
    def _probe(self) -> Iterator[str]:
        """Give the name of a temporary file, which is removed afterwards."""
        name = f"._lock.{uuid4().hex}.tmp"
        try:
            yield name
        finally:
            with suppress(Exception):
                self.filesystem.rm_file(self.path(name))

    def _invalidate_cache(self) -> None:
        self.filesystem.invalidate_cache(self._root)


def fsync_file(file: Any) -> None:
    """Flush a file to disk, so that its content survives a loss of power.

    Some filesystems, such as NFS, say only here that the disk is full.
    """
    file.flush()
    try:
        number = file.fileno()
    except (AttributeError, OSError):  # not a local file
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _NOT_SYNCED:
            raise

"""Read files where others may have put something else, or too much, under a known name.

    stat      a pipe, a device or a folder is not even opened: opening may wait for ever
    open      without waiting, and what was opened is looked at again
    read      no more than a file of its kind can have, and no longer than it can take

A name in a folder that others may write to may be that of a pipe, of a link to a device
that never ends, or of a file that fills the memory. A server may be silent, or never stop.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage.retries import attempt_seconds

#: Most bytes of a file of ours that is read as a whole, if nothing less is known.
MAX_BYTES = 2**28

#: Bytes in a second below which a server counts as silent.
MIN_BYTES_PER_SECOND = 2**14

#: Not every operating system has all of these.
_READ = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))
_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)

#: What there may be instead of a file.
_OTHERS = {
    stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link",
}  # fmt: skip


class UnsafeFileError(OSError):
    """Something is not read, as it is no regular file, or larger than any of its kind."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; remove it if it is not yours")


def open_regular(filesystem: Any, path: str, *, follow_links: bool = True) -> Any:
    """Return a file to read from, which is a regular one.

    Parameters
    ----------
    filesystem : fsspec filesystem
    path : str
    follow_links : bool, default=True
        Whether a link on this machine may lead to it.

    Raises
    ------
    UnsafeFileError
        If it is something else.
    OSError
        If there is nothing, or a folder.
    """
    if type(filesystem) is LocalFileSystem:
        check_regular(filesystem, path, follow_links=follow_links)
        number = os.open(path, os.O_RDONLY | _READ | (0 if follow_links else _NO_LINKS))
        try:
            _check_mode(path, os.fstat(number).st_mode)  # it may be another one by now
            return os.fdopen(number, "rb")
        except BaseException:
            os.close(number)
            raise
    if not _is_http(filesystem):  # which has nothing else, and would be asked twice
        size_of(filesystem, path)
    return filesystem.open(path, "rb")


def read_regular(
    filesystem: Any, path: str, at_most: int = MAX_BYTES, *, follow_links: bool = True
) -> bytes:
    """Return the content of a regular file; parameters and errors as of `open_regular`.

    Parameters
    ----------
    at_most : int
        A file of more bytes is not read.

    Raises
    ------
    TimeoutError
        If a server is silent for ``lpe-dask.retries.attempt-timeout``, or slow all along.
    """
    if type(filesystem) is LocalFileSystem:
        with open_regular(filesystem, path, follow_links=follow_links) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            _check_size(path, n_bytes, at_most)
            content: bytes = file.read(n_bytes + 1)
        at_most = n_bytes  # not all files say how long they are
    elif _is_http(filesystem):
        with _timeout_context(path):
            content = sync(filesystem.loop, _first_bytes, filesystem, path, at_most + 1)
    else:
        size = size_of(filesystem, path)
        n_bytes = at_most if size is None else size
        _check_size(path, n_bytes, at_most)
        if n_bytes == 0:
            return b""  # some servers know no range of an empty file
        with _timeout_context(path):
            options = _limit(filesystem, n_bytes)
            content = filesystem.cat_file(path, end=n_bytes + 1, **options)
    _check_size(path, len(content), at_most)
    return bytes(content)


def check_regular(filesystem: Any, path: str, *, follow_links: bool = True) -> None:
    """Raise as `open_regular`, for a path on this machine; opens nothing."""
    if type(filesystem) is LocalFileSystem:
        _check_mode(path, os.stat(path, follow_symlinks=follow_links).st_mode)


def size_of(filesystem: Any, path: str) -> int | None:
    """Return the bytes of a regular file; None if a server does not say."""
    with _timeout_context(path):
        info = filesystem.info(path, **_limit(filesystem))
    mode = info.get("mode")
    if not (isinstance(mode, int) and stat.S_IFMT(mode)):  # as in archives
        modes = {"directory": stat.S_IFDIR, "file": stat.S_IFREG}
        mode = modes.get(info["type"], 0)
    _check_mode(path, mode)
    n_bytes: int | None = info.get("size")
    return n_bytes


def _check_mode(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        what = _OTHERS.get(stat.S_IFMT(mode), "something else")
        raise UnsafeFileError(f"{path} is {what}, and only a regular file is read")


def _check_size(path: str, n_bytes: int, at_most: int) -> None:
    if n_bytes > at_most:
        raise UnsafeFileError(
            f"{path} is not read, as it has {n_bytes} bytes or more, and at most {at_most} "
            f"are expected"
        )


# Servers


def _is_http(filesystem: Any) -> bool:
    return isinstance(filesystem, AsyncFileSystem) and "http" in filesystem.protocol


def _limit(filesystem: Any, n_bytes: int = 0) -> dict[str, float]:
    """Return the limit of the time that a server may take for so many bytes."""
    seconds = attempt_seconds() + n_bytes / MIN_BYTES_PER_SECOND
    return {"timeout": seconds} if isinstance(filesystem, AsyncFileSystem) else {}


@contextmanager
def _timeout_context(path: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:  # the text of most is empty
        raise TimeoutError(f"the server of {path} has not answered in time") from error


async def _first_bytes(filesystem: Any, path: str, n_bytes: int) -> bytearray:
    """Return the first bytes of a file, as a stream: what a server says of it may be wrong.

    It may be silent no longer than the patience, and has to send `MIN_BYTES_PER_SECOND` on
    average.
    """
    content, started = bytearray(), asyncio.get_running_loop().time()
    async with asyncio.timeout(attempt_seconds()) as waiting:
        file = await filesystem.open_async(path, "rb", size=0, **filesystem.kwargs)
        try:
            while more := await file.read(n_bytes - len(content)):
                content += more
                taken = attempt_seconds() + len(content) / MIN_BYTES_PER_SECOND
                waiting.reschedule(started + taken)
        finally:
            await file.close()
    return content

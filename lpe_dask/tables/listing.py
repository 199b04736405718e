"""List the files at a place: a file, a folder, or a pattern; local or at any fsspec URL.

    place --fixed part--> folder --pattern of the rest--> files

A folder stands for all files of tables below it, and so does one that a pattern finds.
What is hidden (``_x``, ``.x``) below the fixed part of a place is skipped, unless the
pattern itself says ``_`` or ``.`` there; a path that is named outright is read as it is.
Links are followed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fsspec.core import strip_protocol
from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage import filesystem_of, is_refusal, is_transient, redact, retried

#: Beginnings of names that are whole URLs.
_WEB = ("http://", "https://")


def path_of(name: str) -> str:
    """Return the name of a file without the query of a URL, such as a signature.

    Examples
    --------
    >>> path_of("https://host/p.parquet?sig=a/b.csv"), path_of("p?.parquet")
    ('https://host/p.parquet', 'p?.parquet')
    """
    return re.split("[?#]", name, maxsplit=1)[0] if name.startswith(_WEB) else name


def resolve_path(path: str) -> tuple[Any, str]:
    """Return the filesystem of a path or URL, and the name there.

    To fsspec ``::`` in a name makes a chain, such as ``zip://a.csv::b.zip``; in the name of
    a local file it is no chain.
    """
    first = path.partition("://")[0]  # the whole path, without a protocol
    if "::" in path and (first in ("file", "local", path) or os.path.lexists(path)):
        return LocalFileSystem(), str(strip_protocol(path))
    return filesystem_of(path)


def is_local(filesystem: Any) -> bool:
    """Return whether names of a filesystem are those of local files."""
    return isinstance(filesystem, LocalFileSystem)


@retried
def list_files(path: str, is_of_table: Callable[[str], bool]) -> tuple[Any, list[str]]:
    """Return the filesystem of a place and the names of its files, in no certain order.

    Parameters
    ----------
    path : str
    is_of_table : callable
        Returns whether a file in a folder belongs to a table, by its name.

    Raises
    ------
    FileNotFoundError
        If there are none.
    ValueError
        For a link that leads nowhere, or to a folder that it is in.
    """
    filesystem, root = resolve_path(path)
    filesystem.invalidate_cache()  # the files may have changed since the last listing
    is_there = os.path.lexists(root) if is_local(filesystem) else filesystem.exists(root)
    matches = [root] if is_there else _matches(filesystem, root)
    names = {
        name
        for match in matches
        for name in _below(filesystem, match)
        if is_of_table(name) or (name == match and not root.endswith("**"))
    }
    if not names:
        _check_access(path)
        raise FileNotFoundError(
            f"there is no table at {redact(path)}. Give a Parquet or CSV file, a folder of "
            f"them, or a glob; relative paths start from the current folder."
        )
    return filesystem, list(names)


@retried
def _check_access(path: str) -> None:
    """Raise if a storage refuses: to some filesystems of fsspec nothing is there then."""
    filesystem, root = resolve_path(path)
    if is_local(filesystem):
        return
    try:
        filesystem.info(root)
    except Exception as error:  # of any kind, where there is nothing
        if is_refusal(error) or is_transient(error):
            raise


def _matches(filesystem: Any, root: str) -> list[str]:
    """Return the files of a pattern, without those hidden below its fixed part."""
    parts = root.split("/")
    if odd := [part for part in parts if "**" in part and part != "**"]:
        raise ValueError(
            f"the pattern {odd[0]!r} has '**' beside other characters. It stands for any "
            f"number of folders, and only alone: for example data/**/*.parquet."
        )
    n_fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if is_local(filesystem):
        while os.path.lexists("/".join(parts[: n_fixed + 1])):
            n_fixed += 1  # a name with such characters
        fixed = "/".join(parts[:n_fixed])
        if "**" in parts:
            list(_below(filesystem, fixed))  # glob would follow links without end
        matches = glob.glob(
            "/".join([glob.escape(fixed), *parts[n_fixed:]]), recursive=True
        )
    else:
        matches = filesystem.glob(root)
    named = [part for part in parts[n_fixed:] if part.startswith(("_", "."))]
    return [
        name
        for name in matches
        if not any(
            is_hidden(one) and not any(fnmatchcase(one, part) for part in named)
            for one in name.rstrip("/").split("/")[n_fixed:]
        )
    ]


def _below(filesystem: Any, root: str) -> Iterator[str]:
    """Yield a file, or the files in a folder that are not hidden; links are followed."""
    if not is_local(filesystem):
        for name in filesystem.find(root):
            if not any(map(is_hidden, name[len(root) :].strip("/").split("/"))):
                yield name
        return
    if not os.path.isdir(root):
        yield _checked(root)
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in folders:
            _checked(os.path.join(folder, name))
        yield from (_checked(os.path.join(folder, n)) for n in files if not is_hidden(n))


def _checked(path: str) -> str:
    """Return a path, unless it is a link that leads nowhere or to where it is itself."""
    if not os.path.islink(path):
        return path
    end = os.path.realpath(path)
    if not os.path.exists(path):
        raise ValueError(
            f"the link {path} leads to {os.readlink(path)}, which does not exist. Fix or "
            f"remove it, or name the other files."
        )
    if end in map(os.path.realpath, Path(path).parents):
        raise ValueError(
            f"the link {path} leads to {end}, a folder that it is in itself: there is no "
            f"end of files. Remove it, or name the files, for example as a glob."
        )
    return path


def is_hidden(name: str) -> bool:
    """Return whether a name is passed over; names such as ``_key=1`` are those of keys."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)

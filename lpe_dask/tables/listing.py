"""List the files at a place: a file, a folder, or a pattern; local or at any fsspec URL.

    place --fixed part--> folder --pattern of the rest--> files

A folder stands for all files of tables below it, and so does one that a pattern finds.
What is hidden (``_x``, ``.x``) below the fixed part of a place is skipped, unless the
pattern itself says ``_`` or ``.`` there; a path that is named outright is read as it is.
Links are followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any

import fsspec
from fsspec.core import strip_protocol
from fsspec.implementations.local import LocalFileSystem

from lpe_dask.storage import filesystem_of, redact, retried

#: Protocols whose names are those of local files.
_LOCAL = ("file", "local")

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


def locate(path: str) -> tuple[Any, str]:
    """Return the filesystem of a path or URL, and the name there.

    To fsspec ``::`` in a name makes a chain, such as ``zip://a.csv::b.zip``; in the name of
    a local file it is no chain.
    """
    first, *others = path.split("::")
    protocol, sign, _ = first.partition("://")
    is_chain = protocol not in _LOCAL and (bool(sign) or first in _protocols())
    if others and (not is_chain or os.path.lexists(path)):
        return LocalFileSystem(), str(strip_protocol(path))
    return filesystem_of(path)


def _protocols() -> list[str]:
    return list(fsspec.available_protocols())


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
    filesystem, root = locate(path)
    filesystem.invalidate_cache()  # the files may have changed since the last listing
    if is_local(filesystem):
        found = _local_files(root)
    elif filesystem.isdir(root):
        found = _remote_files(filesystem, root)
    elif filesystem.exists(root):
        return filesystem, [root]
    else:
        found = _remote_matches(filesystem, root)
    names = {name for name, is_named in found if is_named or is_of_table(name)}
    if not names:
        raise FileNotFoundError(
            f"there is no table at {redact(path)}. Give a Parquet or CSV file, a folder of "
            f"them, or a glob; relative paths start from the current folder."
        )
    return filesystem, list(names)


# Each yields names of files, and whether a pattern is about the file itself, and not only
# about a folder that it is in.


def _local_files(root: str) -> Iterator[tuple[str, bool]]:
    if os.path.lexists(root):
        yield from _below(root, [], ())
        return
    fixed, parts = "/", [part for part in root.split("/") if part]
    while parts and not _is_pattern(fixed, parts[0]):
        fixed = os.path.join(fixed, parts.pop(0))
    if parts and os.path.isdir(fixed):
        yield from _below(fixed, parts, ())


def _is_pattern(folder: str, part: str) -> bool:
    """Return whether a part of a path stands for others, rather than for itself."""
    if "**" in part and part != "**":
        raise ValueError(
            f"the pattern {part!r} has '**' beside other characters. It stands for any "
            f"number of folders, and only alone: for example data/**/*.parquet."
        )
    return _has_wildcard(part) and not os.path.lexists(os.path.join(folder, part))


def _has_wildcard(part: str) -> bool:
    return any(sign in part for sign in "*?[")


def _below(
    path: str, parts: list[str], above: tuple[str, ...]
) -> Iterator[tuple[str, bool]]:
    """Yield the files at a pattern below a path that exists.

    Parameters
    ----------
    path : str
    parts : list of str
        Of the pattern; without any, the path itself, or all that is in it.
    above : tuple of str
        The folders on the way, without links.
    """
    if not os.path.isdir(path):
        _check_link(path)
        if not parts:
            yield path, True
        return
    real = os.path.realpath(path)
    if real in above:
        raise ValueError(
            f"the link {path} leads to {real}, a folder that it is in itself: there is no "
            f"end of files. Remove it, or name the files, for example as a glob."
        )
    above = (*above, real)
    is_named = bool(parts) and parts != ["**"]
    for name, rest in _entries(path, parts or ["**"]):
        for file, of_pattern in _below(name, rest, above):
            yield file, is_named and of_pattern


def _entries(folder: str, parts: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is in a folder and matches, and what of the pattern remains for it."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        if rest:
            yield from _entries(folder, rest)
        for name in _matching(folder, "*"):
            if os.path.isdir(name):
                yield name, parts
            elif not rest:
                yield name, []
        return
    wildcard = _is_pattern(folder, part)
    for name in _matching(folder, part) if wildcard else [os.path.join(folder, part)]:
        if os.path.isdir(name) if rest else os.path.lexists(name):
            yield name, rest
        elif os.path.islink(name):
            _check_link(name)


def _matching(folder: str, part: str) -> list[str]:
    names = [name for name in os.listdir(folder) if fnmatchcase(name, part)]
    shown = [os.path.join(folder, name) for name in names if not is_hidden(name, part)]
    for name in shown:
        _check_link(name)
    return shown


def _check_link(path: str) -> None:
    if os.path.islink(path) and not os.path.exists(path):
        raise ValueError(
            f"the link {path} leads to {os.readlink(path)}, which does not exist. Fix or "
            f"remove it, or name the other files."
        )


def is_hidden(name: str, part: str = "*") -> bool:
    """Return whether a name is passed over, unless a part of a pattern begins like it.

    Names such as ``_key=1`` are those of keys.
    """
    is_key = name.startswith("_") and "=" in name
    return name.startswith(("_", ".")) and not is_key and name[0] != part[:1]


def _remote_files(filesystem: Any, root: str) -> Iterator[tuple[str, bool]]:
    for name in filesystem.find(root):
        below = name[len(root) :].strip("/").split("/")
        if not any(map(is_hidden, below)):
            yield name, False


def _remote_matches(filesystem: Any, root: str) -> Iterator[tuple[str, bool]]:
    parts = root.split("/")
    fixed = len(list(takewhile(lambda part: not _has_wildcard(part), parts)))
    said = [part for part in parts[fixed:] if part.startswith(("_", "."))]
    for name, about in filesystem.glob(root, detail=True).items():
        below = name.rstrip("/").split("/")[fixed:]
        if any(
            is_hidden(one) and not any(fnmatchcase(one, part) for part in said)
            for one in below
        ):
            continue
        if about.get("type") == "directory":
            yield from _remote_files(filesystem, name)
        else:
            yield name, True

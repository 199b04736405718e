"""URLs that carry the options to open them, such as keys, and show their text alone.

    text, options --with_options--> Url --child_url, like--> Url, of the same options

To all that prints, compares, hashes, tokenizes or writes it, such a URL is its text.
Pickled, it takes its options along: so tasks on workers open what this process names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any, ClassVar, Self

from fsspec import get_filesystem_class
from fsspec.registry import known_implementations, registry

from lpe_dask.storage.options import secrets_of
from lpe_dask.storage.redaction import register_secrets

#: Protocols of what is on this machine, or packed in another file: none of them has keys.
_WITHOUT_OPTIONS = {
    "blockcache", "cached", "data", "dir", "file", "filecache", "generic", "libarchive",
    "local", "memory", "reference", "simplecache", "tar", "zip",
}  # fmt: skip


#: Protocols whose URLs name a bucket, and no server: their options say which one it is.
_WITHOUT_SERVER = {"s3", "s3a", "gs", "gcs"}

#: Protocols that are names of one filesystem of fsspec, but not one way to send keys.
_APART = {"http", "https"}


class Url(str):
    """A path or URL with the options of a filesystem of fsspec.

    Parameters
    ----------
    text : str
    options : mapping
        As `checked_options` returns them. Their secrets are masked from then on in the
        messages of this process.
    """

    __slots__ = ("options",)

    options: Mapping[str, Any]

    #: Those of the last URL: thousands of others share them.
    _last_options: ClassVar[Mapping[str, Any] | None] = None

    def __new__(cls, text: str, options: Mapping[str, Any]) -> Self:
        """Return the text as it is, with these options."""
        url = super().__new__(cls, text)
        url.options = options
        if options is not Url._last_options:
            register_secrets(secrets_of(options))
            Url._last_options = options
        return url

    def __reduce__(self) -> tuple[Any, ...]:
        return Url, (str(self), self.options)


def with_options(path: str | PathLike[str], options: Mapping[str, Any]) -> str:
    """Return a path that a user gives; one with a protocol opens with these options."""
    text = fspath(path)
    return Url(text, options) if options and "://" in text else text


def like(url: str, text: str) -> str:
    """Return ``text`` as a URL that opens as another one does."""
    return Url(text, url.options) if isinstance(url, Url) else text


def sibling_url(folder: str, text: str) -> str:
    """Return a URL that a file in a folder names; it opens as the folder on its storage.

    Only there: a stranger may have written the file, and would be sent the keys elsewhere.
    A folder on this machine is of the user: if it has options, they are for what it names.

    Examples
    --------
    >>> output = Url("https://host/out", {"headers": {"Authorization": "word"}})
    >>> model, other = "https://host/model", "https://other/model"
    >>> sibling_url(output, model).options == output.options
    True
    >>> isinstance(sibling_url(output, other), Url)
    False
    """
    if not isinstance(folder, Url):
        return text
    if _is_local(folder):
        return with_options(text, folder.options)
    return like(folder, text) if _servers(folder) == _servers(text) else text


def _is_local(url: str) -> bool:
    return "://" not in url or url.startswith(("file://", "local://"))


def _servers(url: str) -> list[tuple[str, str]]:
    """Return the protocols of a URL, which may be a chain, each with its server."""
    servers = []
    for part in url.split("::"):
        protocol, _, place = part.partition("://")
        server = "" if protocol in _WITHOUT_SERVER else place.partition("/")[0]
        servers.append((protocol, server))
    return servers


def child_url(folder: str, name: str) -> str:
    """Return the URL of a file or folder in a folder.

    Examples
    --------
    >>> child_url("s3://bucket/out", "part-00000.parquet")
    's3://bucket/out/part-00000.parquet'
    """
    return like(folder, f"{folder}/{name}")


def opening_key(url: str) -> tuple[str, str]:
    """Return an identifier of a URL and its options, not to be shown."""
    options = url.options if isinstance(url, Url) else {}
    return str(url), json.dumps(options, sort_keys=True)


def options_for(url: str) -> dict[str, dict[str, Any]]:
    """Return the options of a URL by its protocols, as fsspec takes them for chains.

    Those under the name of a protocol are for this one alone, whichever of its names they
    have: s3 or s3a. But http is not https. All others are for each protocol that can have
    keys.

    Examples
    --------
    >>> given = {"s3": {"key": "k"}, "https": {"headers": {}}}
    >>> options_for(Url("simplecache::s3://bucket/rows.csv", given))
    {'s3': {'key': 'k'}}
    """
    if not isinstance(url, Url):
        return {}
    of_all = {name: of for name, of in url.options.items() if not is_protocol(name)}
    chosen = {}
    for protocol in _protocols(url):
        given = dict(of_all)
        names = _names(protocol) & url.options.keys()
        for name in sorted(names, key=lambda of: (of == protocol, of)):  # its own at last
            given |= url.options[name]
        if given:
            chosen[protocol] = given
    return chosen


def is_protocol(name: str) -> bool:
    """Return whether fsspec knows a protocol of this name."""
    return name in registry or name in known_implementations


def _protocols(url: str) -> Iterator[str]:
    """Yield the protocols of a URL, which may be a chain, that can have keys."""
    if "://" not in url:  # a path
        return
    for part in url.split("::"):
        protocol = part.partition("://")[0]
        if is_protocol(protocol) and protocol not in _WITHOUT_OPTIONS:
            yield protocol


def _names(protocol: str) -> set[str]:
    """Return all names of a protocol, such as gs and gcs."""
    if protocol in _APART:
        return {protocol}
    names = get_filesystem_class(protocol).protocol
    return {protocol, *([names] if isinstance(names, str) else names)}

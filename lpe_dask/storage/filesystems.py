"""Find the filesystem of a URL; some connect to their server when they are made."""

from __future__ import annotations

from typing import Any

from fsspec.core import url_to_fs

from lpe_dask.storage.masking import masked
from lpe_dask.storage.messages import brief
from lpe_dask.storage.retries import is_passing, retried

#: Errors that say by themselves what is wrong: with the URL, or with this installation.
_CLEAR = (ValueError, ImportError, FileNotFoundError)


@retried
def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the filesystem of a path or URL, and the name there.

    Raises
    ------
    ConnectionError, OSError
        If its server does not answer, or refuses; names the URL.
    ValueError, ImportError
        If there is no such filesystem, or its package is not installed.
    """
    try:
        filesystem, name = url_to_fs(url)
    except _CLEAR:
        raise
    except Exception as error:
        kind = ConnectionError if is_passing(error) else OSError
        raise kind(f"{masked(url)} cannot be opened: {brief(error)}") from error
    return filesystem, name

"""Find the filesystem of a URL, and open files, with the options that the URL carries.

Some filesystems connect to their server when they are made.
"""

from __future__ import annotations

import re
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from lpe_dask.storage.messages import short_message
from lpe_dask.storage.redaction import redact
from lpe_dask.storage.retries import is_transient, retried
from lpe_dask.storage.urls import options_for

#: Errors that say by themselves what is wrong: with the URL, or with this installation.
_CLEAR = (ValueError, ImportError, FileNotFoundError)


#: A user and a password, with a slash perhaps, where the name of a bucket belongs. That of
#: an access point (arn:) has colons, too.
_KEYS = re.compile(r"(?:^|::)(?:s3a?|gcs|gs)://(?!arn:)[^/@]*:[^@]*@")


@retried
def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the filesystem of a path or URL, and the name there.

    Raises
    ------
    ConnectionError, OSError
        If its server does not answer, or refuses; names the URL.
    ValueError, ImportError
        If there is no such filesystem, or its package is not installed, or for a key of a
        bucket: a part of it would be taken for the name of the bucket, and said as such.
    """
    if _KEYS.search(url):
        raise ValueError(
            f"{redact(url)} has a key where the name of the bucket belongs. Leave it out, "
            f"and give it in storage_options= or the section [storage] of a job, or where "
            f"the library of the storage looks: in environment variables "
            f"(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), its own files, or the "
            f"configuration of fsspec."
        )
    try:
        filesystem, name = url_to_fs(url, **options_for(url))
    except _CLEAR:
        raise
    except Exception as error:
        kind = ConnectionError if is_transient(error) else OSError
        raise kind(f"{redact(url)} cannot be opened: {short_message(error)}") from error
    return filesystem, name


def open_url(url: str, mode: str, *, makes_folder: bool = False) -> Any:
    """Return a file to read or write, to be entered as a context; no retries."""
    return fsspec.open(url, mode, auto_mkdir=makes_folder, **options_for(url))

"""Write files that are whole whenever they can be seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4


@contextmanager
def whole_file(filesystem: Any, folder: str, name: str) -> Iterator[Any]:
    """Give a file to write, which gets its name in ``folder`` only when it is complete."""
    temporary = f"{folder}/.{name}.{uuid4().hex}.tmp"
    try:
        with filesystem.open(temporary, "wb") as file:
            yield file
            bring_to_disk(file)
        filesystem.mv(temporary, f"{folder}/{name}")
    except BaseException:
        with suppress(Exception):
            filesystem.rm_file(temporary)
        raise


def bring_to_disk(file: Any) -> None:
    """See that a loss of power leaves no name without its content, on a local disk."""
    file.flush()
    with suppress(AttributeError, OSError):  # what is no file of this machine has no number
        os.fsync(file.fileno())

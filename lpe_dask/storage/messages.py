"""Say what stopped a run, for the message that a user reads."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from lpe_dask.storage.redaction import redact

#: What to do about errors of `distributed`, which is not imported here, by their names.
_REMEDIES = {
    "KilledWorker": [
        "Workers that die have most often used up their memory: give each more "
        "(--memory-limit), or fewer threads. Or they live shorter than a task takes: "
        "start again to resume."
    ]
}

#: Errors of a full disk, and of a user who may not have more of it.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def short_message(error: Exception) -> str:
    """Return the message of an error as a sentence or two, on one line."""
    name, text = type(error).__name__, single_line(error) or "no more is known"
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{name}: {text}.", *notes, *_REMEDIES.get(name, [])])


def single_line(error: Exception) -> str:
    """Return the message of an error on one line, without secrets and full stop."""
    return redact(" ".join(str(error).split()).rstrip("."))


@contextmanager
def disk_full_context(url: str, or_else: str = "") -> Iterator[None]:
    """Add to the error of a full disk which folder it has, for `short_message`.

    Parameters
    ----------
    url : str
        The folder that is written to.
    or_else : str
        What else can be done than to make room there, as part of a sentence.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            error.add_note(
                f"Make room on the disk of {redact(url)}{or_else}, and start again."
            )
        raise

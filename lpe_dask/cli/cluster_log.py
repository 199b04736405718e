"""Remove from the log of `distributed` what a command reports itself.

Loaded by the commands, and by the workers that they start (`preload`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Beginnings of records whose cause reaches the command as an error, which it prints once:
#: a task that raised, others that were cancelled for it, a lost scheduler. A heartbeat also
#: fails when it meets the end of the command; at any other time the next one follows.
REPEATED = (
    "Compute Failed",
    "Async instruction for",
    "Failed to reconnect to scheduler",
    "Failed to communicate with scheduler during heartbeat",
)


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a record is not reported otherwise; a filter for handlers."""
    return not record.getMessage().startswith(REPEATED)


@contextmanager
def only_news() -> Iterator[None]:
    """Filter what is printed of the log of `distributed` while the context is open."""
    handlers = _filtered_handlers()
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_news)


def dask_setup(worker: Any) -> None:
    """Do the same in the process of a worker that is about to start, to its end."""
    _filtered_handlers()


def _filtered_handlers() -> list[logging.Handler]:
    handlers = logging.getLogger("distributed").handlers[:]
    for handler in handlers:
        handler.addFilter(is_news)
    return handlers

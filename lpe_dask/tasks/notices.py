"""Tell users what takes long, who may be at a client of the cluster that works for them."""

from __future__ import annotations

import logging
import sys

from lpe_dask.tasks.dask_internals import is_in_task

logger = logging.getLogger(__name__)

#: What workers log as events of this topic is printed by all clients.
TOPIC = "print"

#: Says that clients print to standard error.
_TO_STDERR = {"sep": " ", "end": "\n", "flush": True, "file": 2}


def notify(text: str) -> None:
    """Print a line where the user is, or log it as a warning if that is here."""
    if is_in_task():
        # As `distributed.print` does, but not here as well: workers of this machine print
        # to the terminal of their client.
        worker = sys.modules["distributed"].get_worker()
        worker.log_event(TOPIC, {"args": (text,), **_TO_STDERR})
    else:
        logger.warning(text)

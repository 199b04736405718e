"""A plugin that ends a worker with another version of this package before its first task.

It is sent to workers as they join, by value: the package there may be another, or none.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any

import cloudpickle
from distributed.diagnostics.plugin import WorkerPlugin


class VersionGuard(WorkerPlugin):
    """Compares the package of a worker while it registers.

    Parameters
    ----------
    version : str
        That the worker has to have.
    handler : str
        Of the scheduler, which is told of a worker that is turned away.
    """

    def __init__(self, version: str, handler: str) -> None:
        self.name = handler
        self._version = version
        self._handler = handler

    async def setup(self, worker: Any) -> None:
        """End the worker and its nanny, if its version is not that one."""
        try:
            from lpe_dask import __version__ as found
        except Exception as error:  # whatever the package there is
            found = f"{type(error).__name__}: {error}"
        if found == self._version:
            return
        logging.getLogger("distributed.worker").error(
            "lpe_dask %s is needed here, but there is: %s", self._version, found
        )
        with suppress(Exception):
            await getattr(worker.scheduler, self._handler)(
                worker=worker.address, found=found
            )
        # It has no task yet, and cannot be closed before it is registered. A nanny that is
        # waiting for it to start ends as well.
        os._exit(1)


def guard(version: str, handler: str) -> bytes:
    """Return the plugin as a scheduler keeps it."""
    import lpe_dask.tasks.version_guard as here

    cloudpickle.register_pickle_by_value(here)
    try:
        return cloudpickle.dumps(VersionGuard(version, handler))
    finally:
        cloudpickle.unregister_pickle_by_value(here)

"""A cluster on this machine that no other user of it can use, read from or write to.

    scheduler <--TLS--> workers, client    one certificate, known to their processes only
    HTTP servers                           none; with a dashboard, that of the scheduler
    FOLDER/dask-scratch-space              what workers spill, in a folder of this run

A port on the loopback address is open to every user of the machine. Worker processes import
this module: it has to stay small.
"""

from __future__ import annotations

import logging
from typing import Any

import distributed
from distributed import Nanny, SpecCluster
from distributed.security import Security

from lpe_dask.cli.json_lines import WORKER_PRELOAD, JsonFormatter, writes_json

#: Users see what `distributed` logs from this level on.
LOG_LEVEL = logging.WARNING

#: Where all parts listen: nothing from other machines arrives here.
_HOST = "127.0.0.1"

#: Run by workers: the command prints the errors of their tasks itself.
_QUIET_WORKER = """
import logging
logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
logging.getLogger("distributed.worker.memory").setLevel(logging.WARNING)
"""


class _NoHTTP:
    """A part of a cluster without an HTTP server.

    Without a dashboard it would still have one, that tells everybody of tasks and logs.
    """

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start none."""


# Dask's configuration names the classes: their names have to stay.


class Scheduler(_NoHTTP, distributed.Scheduler):
    """A scheduler without an HTTP server."""


class Worker(_NoHTTP, distributed.Worker):
    """A worker without an HTTP server."""


def start_cluster(
    n_workers: int,
    threads: int,
    memory_limit: int,
    security: Security,
    folder: str,
    *,
    dashboard: bool,
    debug: bool,
) -> SpecCluster:
    """Return a new cluster of processes on this machine, whose workers have started.

    Parameters
    ----------
    n_workers, threads, memory_limit : int
        Threads and bytes of each worker.
    security : Security
    folder : str
        A folder of this user only. Scratch folders are made there; Python also imports from
        them, so nobody else may write to them. The temporary files of workers go there as
        well, such as keys while OpenSSL reads them: what a killed worker leaves behind goes
        with the folder.
    dashboard : bool
        Whether the scheduler has one, readable by all users of this machine.
    debug : bool
        Whether workers log the errors of their tasks, too.
    """
    place = {
        "host": _HOST,
        "protocol": "tls://",
        "security": security,
        "local_directory": folder,
    }
    scheduler = {
        "cls": distributed.Scheduler if dashboard else Scheduler,
        "options": {**place, "dashboard": dashboard, "dashboard_address": f"{_HOST}:0"},
    }
    preloads = []
    if writes_json():  # before what others write
        preloads.append(WORKER_PRELOAD.format(run=JsonFormatter.run))
    if not debug:
        preloads.append(_QUIET_WORKER)
    worker = {
        "cls": Nanny,
        "options": {
            **place,
            "worker_class": Worker,
            "nthreads": threads,
            "memory_limit": memory_limit,
            "silence_logs": LOG_LEVEL,
            "preload": preloads,
            "env": {"TMPDIR": folder},
        },
    }
    return SpecCluster(
        dict.fromkeys(range(n_workers), worker), scheduler, worker,
        security=security, silence_logs=LOG_LEVEL,
    )  # fmt: skip

"""What the active workers have and use, as whole numbers: threads and memory.

Asks the client that would compute, else the machine. The library looks at a cluster, and
may wait for its first worker; it never starts, finds or configures one.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes

from lpe_dask.tasks import dask_internals
from lpe_dask.tasks.computing import Computation, announced
from lpe_dask.tasks.memory import memory_of_machine, peak_process_bytes
from lpe_dask.tasks.notices import TOPIC
from lpe_dask.tasks.timeouts import timeout
from lpe_dask.tasks.versions import check_versions, is_checked

logger = logging.getLogger(__name__)

#: Bytes of a worker of which nothing is known. A search is cut to suit it, and not refused.
ASSUMED_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers that tasks will run on.

    Attributes
    ----------
    n_threads : int
        Threads of all workers together.
    threads : int
        Threads of the worker that has the most.
    memory_limit : int
        Bytes of the worker that has the least.
    is_known : bool
        Whether these are there; else they are assumed, and nothing is to be refused
        for their sake.
    is_cluster : bool
        Whether they are those of a scheduler of `distributed`.
    start_seconds : float
        Until they are ready, where a run is only planned.
    """

    #: Bytes of a worker process before any data: interpreter, Dask, pandas, PyArrow, numba,
    #: and what else its tasks import (208 MiB measured).
    PROCESS_BYTES: ClassVar[int] = 215 * 2**20

    #: What compiled kernels take in a process that runs them: the types of numba, LLVM, and
    #: machine code (95 MiB measured). One that finds none in numba's cache takes 275 MiB
    #: more to compile them.
    KERNEL_BYTES: ClassVar[int] = 95 * 2**20

    #: Share of a worker's memory that a plan may use; Dask spills above 0.6.
    USABLE_SHARE: ClassVar[float] = 0.6

    #: Least memory of one: below, a plan has nothing left for the data of small tables.
    MIN_BYTES: ClassVar[int] = 540 * 2**20

    n_threads: int
    threads: int
    memory_limit: int
    is_known: bool = True
    is_cluster: bool = False
    start_seconds: float = 0.0

    @classmethod
    def active(cls, *, wait: bool = False) -> Workers:
        """Return the workers that a compute would use now.

        The configuration key ``lpe-dask.memory-limit`` lowers, never raises, what is found.

        Parameters
        ----------
        wait : bool, default=False
            What to do about a cluster that has no worker yet, such as an adaptive one.
            True, for what is computed at once: ask it for one, and wait as long as a
            compute would. False, for what is lazy: nothing is computed, and the workers are
            assumed.

        Raises
        ------
        ImportError
            If one of them has another version of this package, or none.
        """
        client = active_client()
        if client is None:
            in_task = dask_internals.is_in_task()
            return _apply_memory_limit(_task_workers() if in_task else _local_workers())
        found = _cluster_workers(client, wait)
        if not is_checked(client):
            check_versions(client)
        return _apply_memory_limit(found)

    @classmethod
    def of_machine(
        cls, n_workers: int, threads: int, memory_limit: int, start_seconds: float
    ) -> Workers:
        """Return worker processes of this machine that are yet to be started.

        Parameters
        ----------
        n_workers, threads, memory_limit : int
            As `processes_of_machine` gives them; the machine and the configuration lower
            the memory.
        start_seconds : float
            Until they are ready.
        """
        return _apply_memory_limit(
            Workers(
                n_workers * threads, threads, min(memory_limit, memory_of_machine()),
                is_cluster=True, start_seconds=start_seconds,
            )
        )  # fmt: skip

    @staticmethod
    def disable_gc_diagnosis() -> None:
        """Stop `distributed` from measuring the garbage collector, once a cluster runs."""
        dask_internals.disable_gc_diagnosis()

    @staticmethod
    def processes_of_machine(
        n_workers: int | None, threads: int | None, memory_limit: int | None
    ) -> tuple[int, int, int]:
        """Return how many workers to start on this machine, and threads and bytes of each.

        Each is as given, or suits this machine: by default as `LocalCluster` chooses them.
        """
        if n_workers is None and threads is None:
            n_workers, threads = dask_internals.processes_and_threads()
        n_workers = n_workers or max(1, CPU_COUNT // (threads or 1))
        threads = threads or max(1, CPU_COUNT // n_workers)
        return n_workers, threads, memory_limit or memory_of_machine() // n_workers

    @staticmethod
    def check_versions() -> None:
        """Ask the active workers of a cluster, and its scheduler, for their version.

        Raises
        ------
        ImportError
            If one of them has another version of this package, or none.
        """
        if (client := active_client()) is not None:
            check_versions(client)

    @staticmethod
    def await_first(client: Any, seconds: float | None = None) -> None:
        """Wait until some worker has run a task; the cluster may start one for it.

        Raises
        ------
        TimeoutError
            If there is none for so many seconds.
        """
        if not _known_workers(client):
            logger.info("waiting for the first worker of %s", client.scheduler.address)
        task = client.submit(int, key=f"lpe-first-worker-{uuid4().hex}")
        with announced(Computation(1)):
            task.result(timeout=seconds)

    @staticmethod
    def at_work(client: Any) -> tuple[dict[str, list[Any]], int]:
        """Return what a scheduler knows of the work of its workers.

        Returns
        -------
        tasks : dict
            The tasks that each worker is at, by its address.
        n_notices : int
            How many notices workers have sent to users (`notify`).
        """
        call = partial(client.sync, callback_timeout=timeout("look"))
        tasks = call(client.scheduler.processing, workers=None)
        return tasks, len(call(client.scheduler.events, topic=TOPIC))

    @staticmethod
    def peak_bytes() -> int | None:
        """Return the most memory that an active worker has had in use; None if unknown.

        Without a client, that is this process.
        """
        client = active_client()
        try:
            if client is None:
                return peak_process_bytes()
            peaks = client.run(peak_process_bytes, callback_timeout=timeout("look"))
            return max(peaks.values(), default=None)
        except Exception as error:  # not worth a run that is complete
            logger.info("the peak memory of the workers is unknown: %r", error)
            return None


def active_client() -> Any | None:
    """Return the distributed client that a compute would use now, or None.

    None as well where the configuration sends computes elsewhere although a client exists,
    within a task (`compute`), and for an asynchronous client: nothing is computed with it
    but what its user awaits. `distributed` is not imported for this.
    """
    return None if dask_internals.is_in_task() else dask_internals.computing_client()


def _apply_memory_limit(found: Workers) -> Workers:
    """Return workers with the memory that the configuration leaves them."""
    configured = dask.config.get("lpe-dask.memory-limit", None)
    if configured is None:
        return found
    limit = min(found.memory_limit, parse_bytes(configured))
    return replace(found, memory_limit=limit)


def _cluster_workers(client: Any, wait: bool) -> Workers:
    known = _known_workers(client)
    while wait and not known:
        Workers.await_first(client)
        known = _known_workers(client)
    if not known:
        return Workers(CPU_COUNT, 1, ASSUMED_BYTES, is_known=False, is_cluster=True)
    threads = [worker["nthreads"] for worker in known]
    machine = memory_of_machine()
    limits = [worker["memory_limit"] or machine for worker in known]  # 0: not limited
    return Workers(sum(threads), max(threads), min(limits), is_cluster=True)


def _known_workers(client: Any) -> list[dict[str, Any]]:
    return list(client.scheduler_info(n_workers=-1)["workers"].values())


def _task_workers() -> Workers:
    """Return the thread of the task that this is, and its share of the worker."""
    worker = sys.modules["distributed"].get_worker()
    limit = worker.memory_manager.memory_limit or memory_of_machine()
    return Workers(1, 1, limit // worker.state.nthreads)


def _local_workers() -> Workers:
    threads = dask.config.get("num_workers", None) or CPU_COUNT
    return Workers(threads, threads, memory_of_machine())

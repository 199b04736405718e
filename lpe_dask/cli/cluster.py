"""Start or join the workers of a command, and end those that it started."""

from __future__ import annotations

import errno
import json
import logging
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
from dask import threaded
from dask.system import CPU_COUNT

from lpe_dask.cli.interrupts import deferred_signals
from lpe_dask.cli.json_lines import as_json, stream_handlers
from lpe_dask.cli.messages import at_level, log_level
from lpe_dask.cli.outcome import UnavailableError
from lpe_dask.storage import Folder
from lpe_dask.tasks import (
    SpoolEntry,
    Workers,
    timeout,
)

if TYPE_CHECKING:
    from lpe_dask.batch import ClusterSection
    from lpe_dask.forecast import Workload

logger = logging.getLogger(__name__)

#: How long a worker that a command started may be silent before its nanny restarts it: Dask
#: finds that out within twice the time. Its own patience is five minutes.
WORKER_TTL = "60s"

#: Where Dask has variables of the environment of workers; those of this process come first.
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"

#: Bytes of free memory that a thread of a worker keeps, and of arrays that have pages of
#: their own. A new page takes longer than to fill it.
KEPT_BYTES = {"MALLOC_TRIM_THRESHOLD_": 2**25, "MALLOC_MMAP_THRESHOLD_": 2**24}

#: What Dask sets the first of them to: all free memory goes back to the system at once.
_BYTES_OF_DASK = 65536

#: How many times as many workers as a cluster has are tried for a run that takes too long.
_MORE_WORKERS = (2, 4, 8, 16, 32)

#: Seconds of a command until the workers of a cluster on this machine have started and
#: loaded the kernels, and until its own process has (measured, without compilation). What
#: threads of this process do sooner than workers start is done by them.
START_SECONDS, LOAD_SECONDS = 10.0, 2.5


@dataclass(frozen=True, slots=True)
class WorkerChoice:
    """Which workers to use: those of a scheduler, or of a cluster to start.

    Attributes
    ----------
    section : ClusterSection
        What options, a job and Dask's configuration say about them.
    spool : str, optional
        Folder or URL for arrays that tasks read; None: as configured.
    debug : bool
        Whether to show all warnings of `distributed`, at any time.
    reason : str, optional
        What a line says about the choice when the work begins.
    """

    section: ClusterSection
    spool: str | None = None
    debug: bool = False
    reason: str | None = None

    @property
    def joins_cluster(self) -> bool:
        """Whether no worker is started: a scheduler has some, or this process works."""
        return bool(self.section.scheduler or self.section.scheduler_file)

    @property
    def is_in_process(self) -> bool:
        """Whether threads of this process work, which need no start."""
        return self.section.scheduler == "threads"

    @property
    def is_explicit(self) -> bool:
        """Whether options choose the workers; otherwise that depends on the work."""
        exclude = set(self.section.RUN_KEYS)
        return any(self.section.model_dump(exclude=exclude).values())

    @property
    def give_up_after(self) -> float:
        """Seconds without a finished task after which the run ends; inf: never."""
        return self.section.give_up_after or math.inf

    @property
    def finish_within(self) -> float:
        """Seconds from its start in which a run is to be done; inf: it may take any."""
        return self.section.finish_within or math.inf

    def resolve(self, sizes_of: Callable[[], Workload]) -> WorkerChoice:
        """Return the workers for some work: this process, where others would not pay.

        Parameters
        ----------
        sizes_of : callable
            Returns how much work it is. The work itself will raise what this raises.
        """
        if self.is_explicit:
            return self
        try:
            with _in_this_process():
                workers, sizes = Workers.active(), sizes_of()
                seconds = sizes.seconds(workers.n_threads)
                if seconds > START_SECONDS or not sizes.fit_into(workers):
                    return self
        except Exception as error:
            logger.debug("the work cannot be forecast: %r", error)
            return self
        reason = (
            f"running in this process: its {workers.n_threads} threads take "
            f"{max(seconds, 0.1):.1f} s at most, and workers take {START_SECONDS:.0f} s to "
            f"start (--workers N starts some anyway)"
        )
        section = self.section.model_copy(update={"scheduler": "threads"})
        return replace(self, section=section, reason=reason)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Return a context in which Dask computes on these workers."""
        if self.reason is not None:
            logger.info(self.reason)
        spool = {"lpe-dask.spool": self.spool} if self.spool else {}
        scheduler = _in_this_process() if self.is_in_process else self._distributed()
        with dask.config.set(spool), scheduler:
            yield

    @contextmanager
    def for_plan(self) -> Iterator[Callable[[Workload], Workers]]:
        """Return a context that gives who would do so much work, but starts no workers.

        Within it Dask computes in this process, or on the workers of a running scheduler.
        """
        if self.joins_cluster:
            # What is opened here is for the plan alone.
            with log_level(logging.WARNING, __name__), self.open():
                workers = replace(Workers.active(wait=True), start_seconds=LOAD_SECONDS)
                yield lambda sizes: workers
            return
        with _in_this_process():
            yield self._planned

    def larger(self, than: Workers) -> Iterator[tuple[str, Workers]]:
        """Yield workers with more threads than some, and how to get them, in words."""
        if self.joins_cluster and not self.is_in_process:
            for factor in _MORE_WORKERS:
                n_threads = factor * than.n_threads
                yield f"{factor} times the workers", replace(than, n_threads=n_threads)
        elif than.n_threads < CPU_COUNT:
            processes = Workers.processes_of_machine(CPU_COUNT, None, None)
            workers = Workers.of_machine(*processes, START_SECONDS)
            yield f"--workers {CPU_COUNT}", workers

    def _planned(self, sizes: Workload) -> Workers:
        if self.resolve(lambda: sizes).joins_cluster:
            return replace(Workers.active(), start_seconds=LOAD_SECONDS)
        return Workers.of_machine(*self._processes(), START_SECONDS)

    def _processes(self) -> tuple[int, int, int]:
        """Return how many workers to start here, and threads and bytes of each."""
        section = self.section
        return Workers.processes_of_machine(
            section.workers, section.threads, section.memory_limit
        )

    @contextmanager
    def _distributed(self) -> Iterator[None]:
        with _distributed_log_level(self.debug) as silence, ExitStack() as stack:
            client = self._join(stack) if self.joins_cluster else self._start(stack)
            stack.callback(silence)
            if client.scheduler_info(n_workers=0)["services"].get("dashboard") is not None:
                logger.info("dashboard: %s", client.dashboard_link)
            yield

    def _start(self, stack: ExitStack) -> Any:
        """Return a client of a new cluster on this machine."""
        from distributed import Client

        from lpe_dask.cli.local_cluster import start_cluster
        from lpe_dask.cli.security import of_local_cluster

        n_workers, threads, limit = self._processes()
        # Held also while the client connects: keys are in a file while OpenSSL reads them.
        with (
            deferred_signals(),
            dask.config.set({"distributed.scheduler.worker-ttl": WORKER_TTL}),
            dask.config.set(kept_memory()),
        ):
            _check_semaphores(n_workers)
            folder = SpoolEntry.local_folder("workers")
            cluster = start_cluster(
                n_workers, threads, limit, of_local_cluster(), Folder(folder.url).path(),
                dashboard=self.section.dashboard, debug=self.debug,
            )  # fmt: skip
            stack.push(partial(_end_cluster, cluster, folder))
            Workers.disable_gc_diagnosis()
            return stack.enter_context(Client(cluster))

    def _join(self, stack: ExitStack) -> Any:
        """Return a client of a running cluster, which has a worker."""
        from distributed import Client

        from lpe_dask.cli.security import check_address, is_of_certificates

        address = self.section.scheduler or _address_in(str(self.section.scheduler_file))
        check_address(address)
        try:
            # Not the default client yet: it would remain so even if it failed.
            client = Client(address, timeout=timeout("scheduler"), set_as_default=False)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"{address} is not the address of a scheduler to join ({error}). Give the "
                f"one that it printed at its start, for example tcp://10.0.0.1:8786 "
                f"(tls:// if it asks for certificates)."
            ) from error
        except OSError as error:
            if is_of_certificates(error):
                raise ValueError(
                    f"the scheduler at {address} and this process do not accept each "
                    f"other's certificate, or it has none ({error}). Give both "
                    f"certificates of the same authority (distributed.comm.tls in Dask's "
                    f"configuration)."
                ) from error
            raise UnavailableError(
                f"no scheduler answers at {address} ({error}). Give the address that it "
                f"printed at its start, or leave --scheduler out to work on this machine."
            ) from error
        stack.enter_context(client)
        stack.enter_context(client.as_current())
        stack.enter_context(dask.config.set(scheduler=client))  # takes effect when made
        seconds = timeout("first-worker")
        try:
            Workers.await_first(client, seconds)
        except TimeoutError as error:
            raise UnavailableError(
                f"the scheduler at {address} has had no worker for {seconds:g} seconds. "
                f"Start workers, for example with `dask worker {address}`."
            ) from error
        return client


def kept_memory() -> dict[str, int]:
    """Return the configuration of Dask by which workers keep some free memory.

    It is empty where the user has changed what Dask does, or the environment.
    """
    name = "MALLOC_TRIM_THRESHOLD_"
    if name in os.environ or dask.config.get(_ENVIRONMENT).get(name) != _BYTES_OF_DASK:
        return {}
    return {f"{_ENVIRONMENT}.{name}": n for name, n in KEPT_BYTES.items()}


def _in_this_process() -> Any:
    """Return a context in which Dask computes by threads of this process.

    By its name Dask would import `distributed` to find that scheduler.
    """
    return dask.config.set(scheduler=threaded.get)


def _address_in(file: str) -> str:
    """Return the address in the file of a scheduler, which may be about to write it."""
    folder, name = Folder(os.path.dirname(file) or "."), os.path.basename(file)
    seconds = timeout("scheduler-file")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError, ValueError, KeyError):  # absent, or half written
            return str(json.loads(folder.read(name, 2**20) or b"")["address"])
        time.sleep(0.1)
    raise UnavailableError(
        f"no scheduler has written its address to {file} for {seconds:g} seconds. Start "
        f"one with `dask scheduler --scheduler-file {file}`, in a folder that both "
        f"machines share."
    )


def _check_semaphores(n_workers: int) -> None:
    """Raise if no processes can be started: nannies would wait, and not say for what."""
    context = multiprocessing.get_context("spawn")
    try:
        _ = [context.Queue() for _ in range(2 * n_workers)]  # two for each nanny
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # a queue has a pipe, too
            raise
        raise OSError(
            f"no worker processes can be started: they need semaphores, on Linux in "
            f"/dev/shm ({error}). Make that a tmpfs that can be written to and is not "
            f"full, or work in this process with --scheduler threads."
        ) from error


def _end_cluster(
    cluster: Any, folder: SpoolEntry, kind: type[BaseException] | None, *rest: Any
) -> None:
    """End the workers; if the run was interrupted, in the middle of their tasks.

    Their folder is removed when nothing refers to it any more.
    """
    if kind is not None and issubclass(kind, KeyboardInterrupt):
        nannies = cluster.workers.values()
        for nanny in nannies:
            nanny.close_gracefully()  # so that it does not restart its process
        for pid in filter(None, [nanny.pid for nanny in nannies]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    cluster.close()


@contextmanager
def _distributed_log_level(debug: bool) -> Iterator[Callable[[], object]]:
    """Show only warnings of `distributed`, and only until the work has ended.

    The command itself prints the error of a task, once. Gives a function to call when the
    work has ended: connections that break after that are closed on purpose.
    """
    from lpe_dask.cli.local_cluster import LOG_LEVEL

    # `distributed` sets the levels of its loggers at import: all records pass its handlers.
    streams = stream_handlers("distributed")
    with ExitStack() as stack:
        stack.enter_context(as_json(*streams))
        stack.enter_context(at_level(LOG_LEVEL, *streams))
        if debug:
            yield lambda: None
            return
        mute = partial(log_level, logging.CRITICAL)
        stack.enter_context(mute("distributed.client"))  # of a lost scheduler
        stack.enter_context(mute("asyncio"))  # logs requests that nobody waits for

        def silence() -> None:
            stack.enter_context(at_level(logging.CRITICAL, *streams))
            # The event loop of distributed.
            stack.enter_context(mute("tornado.application"))

        yield silence

"""Start or join the workers of a command, and end those that it started."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
from dask.system import CPU_COUNT

from lpe_dask.cli.cluster_log import only_news
from lpe_dask.cli.interrupts import signals_held
from lpe_dask.storage import brief
from lpe_dask.tasks import (
    Workers,
    active_workers,
    let_garbage_be,
    logging_from,
    memory_of_machine,
    processes_and_threads,
    workers_of_machine,
)

logger = logging.getLogger(__name__)

#: What `distributed` logs from this level on is for the user.
LOG_LEVEL = logging.WARNING

#: Seconds to wait for a scheduler to answer, and then for it to have a worker.
CONNECT_SECONDS = 10
WORKER_SECONDS = 60

#: Seconds of a command until the workers of a cluster on this machine have started and
#: loaded the kernels, and until its own process has (measured, without compilation).
START_SECONDS, LOAD_SECONDS = 10.0, 3.5


@dataclass(frozen=True, slots=True)
class ChosenWorkers:
    """Which workers to use: those of a scheduler, or of a cluster to start.

    Attributes
    ----------
    scheduler : str, optional
        An address, or "threads"; None: a cluster is started.
    n_workers, memory_limit : int, optional
        Of the cluster to start; bytes of each worker.
    debug : bool
        Whether to let all warnings of `distributed` through, at any time.
    threads : int, optional
        Of each worker to start; None: they share the processor cores.
    profile : str, optional
        File for Dask's report on what the workers did.
    spool : str, optional
        Folder or URL for arrays that tasks read; None: as configured.
    """

    scheduler: str | None
    n_workers: int | None
    memory_limit: int | None
    debug: bool
    threads: int | None = None
    profile: str | None = None
    spool: str | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Return a context in which Dask computes on these workers."""
        spool = {"lpe-dask.spool": self.spool} if self.spool else {}
        with dask.config.set(spool), self._scheduler():
            yield

    def _scheduler(self) -> AbstractContextManager[None]:
        if self.scheduler == "threads":
            return dask.config.set(scheduler="threads")
        return self._start() if self.scheduler is None else self._join()

    @contextmanager
    def foreseen(self) -> Iterator[Workers]:
        """Return a context that tells which workers there would be, and starts none.

        Dask computes in this process meanwhile, or on the workers of a running scheduler.
        """
        if self.scheduler is not None:
            with self.open():
                yield replace(active_workers(wait=True), start_seconds=LOAD_SECONDS)
            return
        n_workers, threads = self._processes()
        limit = self.memory_limit
        if limit is None:
            limit = memory_of_machine() // n_workers
        with dask.config.set(scheduler="threads"):
            yield workers_of_machine(n_workers, threads, limit, START_SECONDS)

    def _processes(self) -> tuple[int, int]:
        """Return how many workers a cluster on this machine has, and threads of each."""
        if self.n_workers is None:
            return processes_and_threads()
        return self.n_workers, self.threads or max(1, CPU_COUNT // self.n_workers)

    @contextmanager
    def _start(self) -> Iterator[None]:
        from distributed import Client, LocalCluster

        limit = self.memory_limit
        options: dict[str, Any] = {} if limit is None else {"memory_limit": limit}
        if self.n_workers is not None:
            n_workers, threads = self._processes()
            options |= {"n_workers": n_workers, "threads_per_worker": threads}
        elif self.threads is not None:
            options["threads_per_worker"] = self.threads
        if not self.debug:
            options["preload"] = ["lpe_dask.cli.cluster_log"]
        with _quiet_distributed(self.debug) as silence, ExitStack() as stack:
            with signals_held():
                cluster = LocalCluster(
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=LOG_LEVEL,
                    **options,
                )
                stack.push(partial(_end_cluster, cluster))
                let_garbage_be()
            stack.enter_context(Client(cluster))
            stack.callback(silence)
            logger.info("dashboard: %s", cluster.dashboard_link)
            with self._profiled():
                yield

    @contextmanager
    def _join(self) -> Iterator[None]:
        from distributed import Client

        with _quiet_distributed(self.debug) as silence:
            try:
                # Not the default client yet: one that fails would stay the default.
                client = Client(
                    self.scheduler, timeout=CONNECT_SECONDS, set_as_default=False
                )
            except (OSError, ValueError) as error:
                raise OSError(
                    f"no scheduler answers at {self.scheduler} ({error}). Give the address "
                    f"that the scheduler printed at its start, for example "
                    f"tcp://10.0.0.1:8786, or leave --scheduler out to work on this "
                    f"machine."
                ) from error
            with (
                client,
                client.as_current(),
                dask.config.set(scheduler=client),
                ExitStack() as stack,
            ):
                stack.callback(silence)
                _wait_for_worker(client, self.scheduler)
                logger.info("dashboard: %s", client.dashboard_link)
                with self._profiled():
                    yield

    @contextmanager
    def _profiled(self) -> Iterator[None]:
        """Write the report at the end, if one was asked for and the work was done."""
        if self.profile is None:
            yield
            return
        from distributed import performance_report

        report = performance_report(filename=self.profile)
        report.__enter__()
        yield
        try:
            report.__exit__(None, None, None)  # not after an error: who would answer?
        except Exception as error:
            logger.warning("no profile was written to %s: %s", self.profile, brief(error))
        else:
            logger.info("profile: %s", self.profile)


def _wait_for_worker(client: Any, address: str | None) -> None:
    """Return when the cluster can run tasks; asks for it, so that an adaptive one grows."""
    if not client.scheduler_info(n_workers=-1)["workers"]:
        logger.info("waiting for the first worker of %s", address)
    try:
        client.submit(os.getpid, pure=False).result(timeout=WORKER_SECONDS)
    except TimeoutError as error:
        raise OSError(
            f"the scheduler at {address} has had no worker for {WORKER_SECONDS} seconds. "
            f"Start workers, for example with `dask worker {address}`."
        ) from error


def _end_cluster(cluster: Any, kind: type[BaseException] | None, *rest: Any) -> None:
    """End the workers; in the middle of their tasks, if the run was interrupted."""
    if kind is not None and issubclass(kind, KeyboardInterrupt):
        nannies = cluster.workers.values()
        for nanny in nannies:
            nanny.close_gracefully()  # it is not to start its process again
        for pid in filter(None, [nanny.pid for nanny in nannies]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    cluster.close()


@contextmanager
def _quiet_distributed(debug: bool) -> Iterator[Callable[[], object]]:
    """Let the log of `distributed` tell of faults only: warnings, while there is work.

    What fails reaches the command as an error, and is said there once. Gives a function to
    call when the work has ended: what is cut off then is cut off on purpose.
    """
    with ExitStack() as stack:
        stack.enter_context(logging_from(LOG_LEVEL))
        if debug:
            yield lambda: None
            return
        stack.enter_context(only_news())
        stack.enter_context(_muted("asyncio"))  # tells of requests nobody waits for

        def silence() -> None:
            stack.enter_context(logging_from(logging.CRITICAL))
            stack.enter_context(_muted("tornado.application"))  # the loop of distributed

        yield silence


@contextmanager
def _muted(name: str) -> Iterator[None]:
    """Let a logger say nothing while the context is open."""
    muted = logging.getLogger(name)
    level = muted.level
    muted.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        muted.setLevel(level)

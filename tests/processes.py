"""Clusters of processes on this machine that start in a tenth of a second."""

import multiprocessing
import time
from contextlib import contextmanager

import dask
from distributed import LocalCluster
from distributed.utils import get_mp_context

#: What every worker imports at its first tasks, which takes two seconds.
IMPORTED = ["distributed", "dask.dataframe", "pyarrow.parquet", "lpe_dask.model.detector"]


#: Seconds without a second worker after which another one is started: now and then nobody
#: brings back one that was killed (distributed).
PATIENCE = 10


@contextmanager
def cluster_of_its_own():
    """Give the address of a scheduler in another process, with two workers that come back.

    What a scheduler remembers of all that it did is not in the memory of this process.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("end")
        process.join()


def _serve(pipe):
    with local_cluster() as cluster:
        pipe.send(cluster.scheduler_address)
        since = time.monotonic()
        while not pipe.poll(1):
            if len(cluster.scheduler.workers) >= 2:
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                cluster.scale(len(cluster.worker_spec) + 1)
                since = time.monotonic()


def are_up(cluster):
    """Return whether the processes of all workers have started, or are gone for good.

    `Client.restart` waits in vain for workers that are about to start (distributed).
    """
    return all(map(_is_up, cluster.workers.values()))


def _is_up(nanny):
    process = nanny.process
    is_running = process is not None and process.status.name == "running"
    return nanny.status.name == "closed" or (nanny.status.name == "running" and is_running)


@contextmanager
def local_cluster(n_workers=2, **options):
    """Give a `LocalCluster` whose workers are forks of a process that has imported all.

    Those that take the place of lost ones as well.
    """
    options_of_dask = {
        "distributed.worker.multiprocessing-method": "forkserver",
        # A cluster that sees a worker go closes its nanny for good 15 s later, unless the
        # worker is there at that very moment; tests restart the cluster that they share.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with dask.config.set(options_of_dask):
        get_mp_context()  # the first call sets what is imported
        multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)
        with LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0",
            **options,
        ) as cluster:  # fmt: skip
            yield cluster

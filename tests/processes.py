"""Clusters of processes on this machine that start in a tenth of a second."""

import multiprocessing
from contextlib import contextmanager

import dask
from distributed import LocalCluster
from distributed.utils import get_mp_context

#: What every worker imports at its first tasks, which takes two seconds.
IMPORTED = ["distributed", "dask.dataframe", "pyarrow.parquet", "lpe_dask.detector"]


@contextmanager
def local_cluster(n_workers=2, **options):
    """Give a `LocalCluster` whose workers are forks of a process that has imported all.

    Those that take the place of lost ones as well.
    """
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context()  # the first call sets what is imported
        multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)
        with LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0",
            **options,
        ) as cluster:  # fmt: skip
            yield cluster

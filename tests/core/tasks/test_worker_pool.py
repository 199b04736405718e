"""The workers of a cluster that has none yet, or no longer."""

import os
import signal
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from lpe_dask import LPE, __version__
from lpe_dask.tasks.worker_pool import Workers, active_workers, peak_worker_bytes

ROWS = np.random.default_rng(0).random((500, 2))


class Cluster:
    """A client of a cluster that starts its first worker once there is a task for it."""

    scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786")

    def __init__(self):
        self.workers = {}

    def get(self, *args, **kwargs):
        raise AssertionError("nothing is to be computed")

    def scheduler_info(self, n_workers):
        return {"workers": self.workers}

    def get_versions(self, packages):
        found = {"packages": dict.fromkeys(packages, __version__)}
        workers = dict.fromkeys(self.workers, found)
        return {"client": found, "scheduler": found, "workers": workers}

    def sync(self, function, callback_timeout, **options):
        return function(**options)

    def submit(self, function, key):
        return self

    def result(self, timeout=None):
        self.workers = {"first": {"nthreads": 3, "memory_limit": 2**33}}


def test_workers__of_a_cluster_without_any_are_waited_for(caplog):
    caplog.set_level("INFO", logger="lpe_dask")

    with dask.config.set(scheduler=Cluster().get):
        assert active_workers(wait=True) == Workers(3, 3, 2**33, is_cluster=True)
        assert active_workers(wait=True) == Workers(3, 3, 2**33, is_cluster=True)

    assert caplog.messages == ["waiting for the first worker of tcp://10.0.0.1:8786"]


def test_workers__that_nobody_knows_are_assumed_and_not_claimed():
    with dask.config.set(scheduler=Cluster().get):
        assert not active_workers().is_known


def test_lazy_scores__are_not_refused_for_workers_that_nobody_knows():
    model = LPE(3).fit(ROWS)

    with dask.config.set({"scheduler": Cluster().get, "lpe-dask.memory-limit": 2**20}):
        scores = model.score_samples(da.from_array(ROWS, chunks=100))
    with dask.config.set({"lpe-dask.memory-limit": 2**20}), pytest.raises(MemoryError):
        model.score_samples(ROWS)

    np.testing.assert_array_equal(scores.compute(), model.score_samples(ROWS))


@pytest.mark.cluster
def test_fit__asks_an_adaptive_cluster_for_its_first_worker():
    X = da.from_array(ROWS, chunks=100)
    with (
        LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            memory_limit="16GiB",  # of this process
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=1, interval="50ms")
        assert not active_workers().is_known

        model = LPE(3).fit(X)

        assert active_workers() == Workers(1, 1, 2**34, is_cluster=True)
        p_values = model.score_samples(X).compute()
        assert not [key for key in client.futures if "first-worker" in key]

    np.testing.assert_array_equal(p_values, LPE(3).fit(ROWS).score_samples(ROWS))


@pytest.mark.cluster
def test_peak_worker_bytes__is_not_waited_for_long(client):
    """A run that is complete is not held up by a worker that hangs."""
    stopped = next(iter(client.run(os.getpid).values()))
    os.kill(stopped, signal.SIGSTOP)
    try:
        with dask.config.set({"lpe-dask.timeouts.look": 1}):
            assert peak_worker_bytes() is None
    finally:
        os.kill(stopped, signal.SIGCONT)

    assert peak_worker_bytes() > 2**26

"""Every machine of a cluster must have this version of the package."""

from types import SimpleNamespace

import pytest

from lpe_dask import __version__
from lpe_dask.tasks import check_versions, versions

WORKERS = ["tcp://10.0.0.2:40001", "tcp://10.0.0.2:40002", "tls://[::1]:40003"]


class Cluster:
    """A client of a cluster whose scheduler and workers have some versions."""

    scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786")

    def __init__(self, on_scheduler, *on_workers):
        self.on_scheduler = on_scheduler
        self.on_workers = dict(zip(WORKERS, on_workers, strict=True))
        self.asked = []

    def scheduler_info(self, n_workers):
        return {"workers": dict.fromkeys(self.on_workers)}

    def run(self, function, name, workers, on_error, callback_timeout):
        self.asked += workers
        if "silent" in self.on_workers.values():
            raise TimeoutError
        return {address: self.on_workers[address] for address in workers}

    def run_on_scheduler(self, function, name, callback_timeout):
        if isinstance(self.on_scheduler, Exception):
            raise self.on_scheduler
        return self.on_scheduler


HERE = __version__
BROKEN = ModuleNotFoundError("No module named 'lazy_loader'")
BLOCKED = ValueError("The 'run_function' handler has been explicitly disallowed")


def test_check_versions__asks_each_worker_once():
    client = Cluster(HERE, HERE, HERE, HERE)

    check_versions(client)
    check_versions(client)

    assert sorted(client.asked) == sorted(WORKERS)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ((HERE, None, None, HERE), "10.0.0.2: it is not installed. Install"),
        ((HERE, None, "0.0.1", HERE), "10.0.0.2: it is not installed; 10.0.0.2: has 0.0.1"),
        ((HERE, HERE, HERE, BROKEN), "::1: it cannot be imported (ModuleNotFoundError: No"),
        (
            (None, HERE, HERE, HERE),
            "scheduler tcp://10.0.0.1:8786: it is not installed",
        ),
        ((BROKEN, HERE, HERE, HERE), "scheduler tcp://10.0.0.1:8786: it cannot be imp"),
    ],
)
def test_check_versions__names_the_machines(versions, told):
    client = Cluster(*versions)

    for _ in range(2):  # and does so again
        with pytest.raises(ImportError) as refusal:
            check_versions(client)
        message = str(refusal.value)
        assert told in message
        assert f"Install lpe_dask=={HERE}" in message


@pytest.mark.parametrize("on_scheduler", [HERE, TimeoutError(), OSError("lost"), BLOCKED])
@pytest.mark.parametrize("on_worker", [HERE, "silent", OSError("lost"), BLOCKED])
def test_check_versions__passes_over_who_does_not_answer(on_scheduler, on_worker):
    check_versions(Cluster(on_scheduler, HERE, on_worker, HERE))


def test_check_versions__asks_those_again_that_did_not_answer():
    client = Cluster(HERE, HERE, "silent", HERE)
    check_versions(client)
    client.on_workers = dict.fromkeys(WORKERS, None)

    with pytest.raises(ImportError, match="not installed"):
        check_versions(client)


@pytest.mark.cluster
def test_check_versions__asks_the_workers_of_a_real_cluster(client):
    check_versions(client)
    workers = list(client.scheduler_info()["workers"])

    assert versions._answers(client, workers) == dict.fromkeys(workers, HERE)

"""Every machine of a cluster must have this version of the package."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lpe_dask import __version__
from lpe_dask.tasks import check_versions, new_tasks
from lpe_dask.tasks.versions import is_checked

WORKERS = ["tcp://10.0.0.2:40001", "tcp://10.0.0.2:40002", "tls://[::1]:40003"]


class Cluster:
    """A client of a cluster whose scheduler and workers have some versions."""

    scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786")

    def __init__(self, on_scheduler, *on_workers):
        of = lambda version: {"packages": {"lpe_dask": version}}  # noqa: E731
        self.found = {
            "client": of(HERE),
            "scheduler": of(on_scheduler),
            "workers": dict(zip(WORKERS, map(of, on_workers), strict=False)),
        }

    def get_versions(self, packages):
        assert packages == ["lpe_dask"]
        return self.found

    def sync(self, function, *, callback_timeout, **options):
        return function(**options)


HERE = __version__


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ((HERE, None, None, HERE), "it: 10.0.0.2 has none. Install"),
        ((HERE, None, "0.0.1", HERE), "10.0.0.2 has 0.0.1, 10.0.0.2 has none"),
        ((None, HERE, HERE, HERE), "the scheduler tcp://10.0.0.1:8786 has none"),
        ((HERE, HERE, HERE, "0.0.1"), "::1 has 0.0.1"),
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
        assert not is_checked(client)


def test_check_versions__passes_over_who_does_not_answer(monkeypatch):
    client = Cluster(HERE, HERE)
    monkeypatch.setattr(client, "sync", lambda *args, **options: 1 / 0)

    check_versions(client)

    assert not is_checked(client)


@pytest.mark.parametrize("on_workers", [(), (HERE, HERE, HERE)])
def test_is_checked__where_a_worker_has_answered(on_workers):
    client = Cluster(HERE, *on_workers)
    check_versions(client)

    assert is_checked(client) == bool(on_workers)


@pytest.mark.cluster
def test_check_versions__asks_the_workers_of_a_real_cluster(client):
    check_versions(client)

    assert is_checked(client)


#: What a worker that joins later finds when it looks for the package.
ANOTHER = "import lpe_dask\nlpe_dask.__version__ = '0.0.1'\n"
MISSING = "import sys\nsys.modules['lpe_dask'] = None\n"


@pytest.fixture
def join(client, tmp_path):
    """Start one more worker, whose Python begins with some statements; give its address."""
    started = []

    def start(statements):
        before = set(client.scheduler_info()["workers"])
        (tmp_path / "sitecustomize.py").write_text(statements)
        command = [Path(sys.executable).with_name("dask"), "worker"]
        options = ["--no-dashboard", "--host", "127.0.0.1", "--nthreads", "1"]
        started.append(
            subprocess.Popen(
                [*command, client.scheduler.address, *options],
                env=os.environ | {"PYTHONPATH": str(tmp_path)},
                stderr=subprocess.DEVNULL,
                cwd=tmp_path,
            )
        )
        client.wait_for_workers(3)
        (address,) = set(client.scheduler_info()["workers"]) - before
        return started[-1], address

    yield start
    for process in started:
        process.terminate()
        process.wait()


@pytest.mark.cluster
def test_tasks__raise_on_a_late_worker_of_another_version(client, join):
    _, late = join(ANOTHER)
    (task,) = new_tasks("two", [(abs, -2)])

    with pytest.raises(ImportError) as refusal:
        client.compute(task, workers=[late]).result()

    assert f"has lpe_dask 0.0.1, but this computation began with {HERE}" in str(
        refusal.value
    )


@pytest.mark.full
@pytest.mark.cluster
def test_tasks__go_to_others_from_a_late_worker_without_the_package(client, join):
    """It ends at its first task."""
    process, late = join(MISSING)
    (task,) = new_tasks("two", [(abs, -2)])

    assert client.compute(task, workers=[late], allow_other_workers=True).result() == 2
    process.wait(30)
    assert len(client.scheduler_info()["workers"]) == 2

"""Results are taken as they are done, and are not computed again for a lost worker."""

import os
import signal
import threading
import time
from collections import Counter

import dask
import pytest
from distributed import Client, Future

from lpe_dask.tasks import compute, new_tasks
from processes import local_cluster
from waiting import eventually

pytestmark = pytest.mark.cluster

N_TASKS = 12


def noted(folder, number, last):
    """Write down that this task ran, and where; the last one waits for a file."""
    (folder / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    while number == last and not (folder / "go").exists():
        time.sleep(0.01)
    return number


def runs_of(folder):
    return [tuple(map(int, path.name.split("-"))) for path in folder.glob("*-*-*")]


def test_compute__runs_no_task_again_whose_worker_is_lost_later(client, tmp_path):
    last = N_TASKS - 1
    tasks = new_tasks("noted", [(noted, tmp_path, i, last) for i in range(N_TASKS)])
    results = []
    thread = threading.Thread(target=lambda: results.extend(compute(*tasks)))
    thread.start()
    # All others are done and forgotten, whichever worker they ran on.
    assert eventually(lambda: client.run_on_scheduler(n_noted) == 1)
    busy = next(pid for number, pid, _ in runs_of(tmp_path) if number == last)
    for pid in {pid for _, pid, _ in runs_of(tmp_path)} - {busy}:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    thread.join(60)

    assert results == list(range(N_TASKS))
    counts = Counter(number for number, _, _ in runs_of(tmp_path))
    assert counts == dict.fromkeys(range(N_TASKS), 1)


def n_noted(dask_scheduler):
    return sum(str(key).startswith("lpe-noted") for key in dask_scheduler.tasks)


def fails(number):
    if number == 3:
        raise ValueError("three")
    time.sleep(0.2)
    return number


def test_compute__raises_the_error_of_a_task_and_leaves_no_other(client):
    tasks = new_tasks("fails", [(fails, i) for i in range(20)])

    with pytest.raises(ValueError, match="three"):
        compute(*tasks)

    assert eventually(lambda: client.run_on_scheduler(n_tasks) == 0)


def test_compute__ends_where_its_tasks_are_cancelled(client, tmp_path):
    tasks = new_tasks("noted", [(noted, tmp_path, i, 1) for i in range(2)])
    errors = []

    def run():
        try:
            compute(*tasks)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert eventually(lambda: client.run_on_scheduler(n_noted) == 1)
    client.cancel([Future(key, client) for key in list(client.futures)], force=True)
    (tmp_path / "go").touch()
    thread.join(20)

    assert "Cancelled" in type(errors[0]).__name__


def n_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


@pytest.mark.parametrize("scheduler", ["client", "threads", "sync"])
def test_compute__gives_results_in_order_also_of_equal_tasks(scheduler, cluster):
    first, second = new_tasks("plain", [(int, 1), (int, 2)])
    with (
        Client(cluster) as client,
        dask.config.set(scheduler=client if scheduler == "client" else scheduler),
    ):
        assert compute(second, first, second) == (2, 1, 2)
        assert compute() == ()


def test_compute__uses_a_client_that_is_not_the_default(cluster):
    """Neither where there is no default, nor where it is one of another cluster."""
    tasks = new_tasks("plain", [(int, i) for i in range(9)])
    with Client(cluster, set_as_default=False) as client:
        with dask.config.set(scheduler=client):
            assert compute(*tasks) == tuple(range(9))
        with (
            local_cluster(1, processes=False) as other,
            Client(other),
            dask.config.set(scheduler=client),
        ):
            assert compute(*tasks) == tuple(range(9))

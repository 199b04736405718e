"""What the workers have and are asked: memory, threads, versions, and how long to wait."""

import asyncio
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from lpe_dask import LPE, __version__
from lpe_dask.tasks import (
    Workers,
    active_client,
    compute,
    memory,
    new_tasks,
    notify,
    seconds_of,
    timeout,
)
from lpe_dask.tasks.memory import memory_of_machine
from lpe_dask.tasks.versions import check_versions, is_checked
from waiting import eventually

ROWS = np.random.default_rng(0).random((500, 2))
ADDRESSES = ["tcp://10.0.0.2:40001", "tcp://10.0.0.2:40002", "tls://[::1]:40003"]


class Cluster:
    """A client of a cluster whose scheduler and workers have some versions.

    Without workers it starts the first one once there is a task for it.
    """

    scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786")

    def __init__(self, on_scheduler=__version__, *on_workers):
        self.on_scheduler = on_scheduler
        self.workers = dict(zip(ADDRESSES, on_workers, strict=False))

    def get(self, *args, **kwargs):
        raise AssertionError("nothing is to be computed")

    def scheduler_info(self, n_workers):
        resources = {"nthreads": 3, "memory_limit": 2**33}
        return {"workers": dict.fromkeys(self.workers, resources)}

    def get_versions(self, packages):
        assert packages == ["lpe_dask"]
        machines = {"client": __version__, "scheduler": self.on_scheduler, **self.workers}
        found = {name: {"packages": {"lpe_dask": machines[name]}} for name in machines}
        return found | {"workers": {name: found[name] for name in self.workers}}

    def sync(self, function, *, callback_timeout, **options):
        return function(**options)

    def submit(self, function, key):
        return self

    def result(self, timeout=None):
        self.workers = {"first": __version__}


# Threads and memory


def test_workers__of_a_cluster_without_any_are_waited_for(caplog):
    caplog.set_level("INFO", logger="lpe_dask")

    with dask.config.set(scheduler=Cluster().get):
        assert Workers.active(wait=True) == Workers(3, 3, 2**33, is_cluster=True)
        assert Workers.active(wait=True) == Workers(3, 3, 2**33, is_cluster=True)

    assert caplog.messages == ["waiting for the first worker of tcp://10.0.0.1:8786"]


def test_workers__that_nobody_knows_are_assumed_and_not_claimed():
    with dask.config.set(scheduler=Cluster().get):
        assert not Workers.active().is_known


def test_lazy_scores__are_not_refused_for_workers_that_nobody_knows():
    model = LPE(3).fit(ROWS)

    with dask.config.set({"scheduler": Cluster().get, "lpe-dask.memory-limit": 2**20}):
        scores = model.score_samples(da.from_array(ROWS, chunks=100))
    with dask.config.set({"lpe-dask.memory-limit": 2**20}), pytest.raises(MemoryError):
        model.score_samples(np.repeat(ROWS, 20, axis=0))  # few need no worker

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
        assert not Workers.active().is_known

        model = LPE(3).fit(X)

        assert Workers.active() == Workers(1, 1, 2**34, is_cluster=True)
        p_values = model.score_samples(X).compute()
        assert not [key for key in client.futures if "first-worker" in key]

    np.testing.assert_array_equal(p_values, LPE(3).fit(ROWS).score_samples(ROWS))


@pytest.mark.cluster
def test_peak_bytes__is_not_waited_for_long(client):
    """A run that is complete is not held up by a worker that hangs."""
    stopped = next(iter(client.run(os.getpid).values()))
    os.kill(stopped, signal.SIGSTOP)
    try:
        with dask.config.set({"lpe-dask.timeouts.look": 1}):
            assert Workers.peak_bytes() is None
    finally:
        os.kill(stopped, signal.SIGCONT)

    assert Workers.peak_bytes() > 2**26


@pytest.mark.cluster
def test_workers__of_the_client_that_would_compute(client):
    with dask.config.set(scheduler=client):
        assert active_client() is client
        assert Workers.active().is_cluster
        with dask.config.set(scheduler="threads"):
            assert active_client() is None
    with dask.config.set(scheduler=Cluster(*[__version__] * 3).get):
        assert Workers.active() == Workers(6, 3, 2**33, is_cluster=True)


def test_workers__of_this_machine():
    with dask.config.set(scheduler="threads", num_workers=5):
        found = Workers.active()

    assert found == Workers(5, 5, memory_of_machine())
    assert active_client() is None


@pytest.mark.parametrize(("configured", "expected"), [("1GiB", 2**30), ("1PiB", None)])
def test_workers__configured_memory(configured, expected):
    """It only lowers."""
    with dask.config.set({"lpe-dask.memory-limit": configured}):
        assert Workers.active().memory_limit == (expected or memory_of_machine())


@pytest.mark.cluster
def test_active_client__passes_over_an_asynchronous_one(cluster):
    """Dask computes nothing with it, but lazy results are built beside it."""

    async def active():
        async with Client(cluster.scheduler_address, asynchronous=True):
            return active_client()

    assert asyncio.run(active()) is None


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Make control groups; gives a function that sets limits and those of this process."""
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_LIMITS", tmp_path)

    def make(own, limits):
        (tmp_path / "cgroup").write_text(own)
        for path, limit in limits.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{limit}\n")

    return make


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": 2**20}, 2**20),
        ("0::/a/b\n", {"memory.max": "max", "a/b/memory.max": 2**20}, 2**20),
        ("0::/a/b\n", {"a/memory.max": 2**19, "a/b/memory.max": 2**20}, 2**19),
        ("0::/a/b\n", {"c/memory.max": 2**20}, None),
        ("0::/a\n", {"a/memory.max": "max"}, None),
        ("3:cpu:/c\n4:memory:/a/b\n", {"memory/a/memory.limit_in_bytes": 2**20}, 2**20),
        ("3:cpu:/c\n4:memory:/a/b\n", {"memory/c/memory.limit_in_bytes": 2**20}, None),
        # In a container that sees the groups of its machine, but only its own limits.
        ("4:memory:/docker/x\n", {"memory/memory.limit_in_bytes": 2**20}, 2**20),
    ],
)
def test_memory_of_machine__is_that_of_the_groups_around(groups, own, limits, expected):
    groups("0::/\n", {})
    machine = memory_of_machine()
    groups(own, limits)

    assert memory_of_machine() == (expected or machine)
    assert machine > 2**20


def test_memory_of_machine__without_control_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "missing")
    monkeypatch.setattr(memory, "_LIMITS", tmp_path / "missing")

    assert memory_of_machine() > 2**20


def test_memory_of_machine__is_limited_by_the_shell():
    def limit():
        resource.setrlimit(resource.RLIMIT_RSS, (2**30, resource.RLIM_INFINITY))

    program = (
        "from lpe_dask.tasks.memory import memory_of_machine; print(memory_of_machine())"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=limit, capture_output=True, text=True
    )

    assert int(child.stdout) == 2**30, child.stderr


# Times to wait, as users write them


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90), ("30min", 1800), (" 5 min ", 300), ("1.5 h", 5400), ("2 hours", 7200),
        ("1 day", 86400), ("4 minutes", 240), (10, 10), (0.5, 0.5), (None, math.inf),
        (math.inf, math.inf),
    ],
)  # fmt: skip
def test_timeout__is_that_of_the_configuration(value, seconds):
    with dask.config.set({"lpe-dask.timeouts.look": value}):
        assert timeout("look") == seconds


@pytest.mark.parametrize(
    "value",
    [
        "", "soon", "min", "s", "30", "0s", "1e999s", "-1s", "30 parsecs", "1 h 2",
        0, -1, [], math.nan,
    ],
)  # fmt: skip
def test_timeout__says_what_is_wrong_with_it(value):
    wrong = r"lpe-dask.timeouts.look: .*, which is not a time above 0"
    with (
        dask.config.set({"lpe-dask.timeouts.look": value}),
        pytest.raises(ValueError, match=wrong),
    ):
        timeout("look")
    if isinstance(value, str):
        with pytest.raises(ValueError, match=r"is not a time above 0. Write it as 90s"):
            seconds_of(value)


# Versions: every machine must have that of this process


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ((__version__, None, None, __version__), "it: 10.0.0.2 has none. Install"),
        (
            (__version__, None, "0.0.1", __version__),
            "10.0.0.2 has 0.0.1, 10.0.0.2 has none",
        ),
        (
            (None, __version__, __version__, __version__),
            "the scheduler tcp://10.0.0.1:8786 has none",
        ),
        ((__version__, __version__, __version__, "0.0.1"), "::1 has 0.0.1"),
    ],
)
def test_check_versions__names_the_machines(versions, words):
    client = Cluster(*versions)

    for _ in range(2):  # and does so again
        with pytest.raises(ImportError) as refusal:
            check_versions(client)
        message = str(refusal.value)
        assert words in message
        assert f"Install lpe_dask=={__version__}" in message
        assert not is_checked(client)


def test_check_versions__passes_over_who_does_not_answer(monkeypatch):
    client = Cluster(__version__, __version__)
    monkeypatch.setattr(client, "sync", lambda *args, **options: 1 / 0)

    check_versions(client)

    assert not is_checked(client)


@pytest.mark.parametrize("on_workers", [(), (__version__, __version__, __version__)])
def test_is_checked__where_a_worker_has_answered(on_workers):
    client = Cluster(__version__, *on_workers)
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

    assert f"has lpe_dask 0.0.1, but this computation began with {__version__}" in str(
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


# Lines of workers reach the user


def test_notify__logs_a_warning_where_the_user_is(caplog):
    notify("compiling, about 20 s")

    assert caplog.messages == ["compiling, about 20 s"]


@pytest.mark.cluster
def test_notify__prints_at_the_client_of_a_worker(client, capsys):
    compute(*new_tasks("notify", [(notify, "compiling, about 20 s")]))

    said = ""

    def is_said():
        nonlocal said
        said += capsys.readouterr().err
        return "compiling, about 20 s\n" in said

    assert eventually(is_said)

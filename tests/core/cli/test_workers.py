"""The workers of commands: those that they start or join, and what is told of them."""

import errno
import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import dask
import pandas as pd
import psutil
import pytest
from distributed import LocalCluster

from calling import SCORE, THREADS, invoke, write_tables
from choosing import mostly_slow
from lpe_dask.batch import ClusterSection, runs
from lpe_dask.cli import cluster as clusters
from lpe_dask.cli.security import of_local_cluster
from lpe_dask.tasks.worker_pool import Workers, active_client

#: Each row of a table of 60 rows among all others.
ALONE = ("score", "nominal.parquet", "--output", "out")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    write_tables()


@pytest.fixture
def started(monkeypatch):
    """The choices of workers that commands would have started."""
    chosen = []

    def start(workers):
        chosen.append(workers.section)
        return dask.config.set(scheduler="sync")

    monkeypatch.setattr(clusters.WorkerChoice, "_distributed", start)
    return chosen


# A cluster that is there


SOON = {
    f"lpe-dask.timeouts.{name}": 0.3
    for name in ("scheduler", "scheduler-file", "first-worker")
}


def closed_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("content", ["no scheduler", None, "", '{"address": '])
def test_scheduler__that_is_not_there_may_be_tried_later(content):
    option, said = ("--scheduler-file", "scheduler.json"), "written its address to sched"
    if content == "no scheduler":
        option, said = ("--scheduler", closed_address()), "no scheduler answers at tcp://"
    elif content is not None:
        Path("scheduler.json").write_text(content)

    with dask.config.set(SOON):
        result = invoke(*SCORE, *option)

    assert result.exit_code == 75
    assert said in result.stderr
    assert not Path("out").exists()


@pytest.mark.cluster
def test_scheduler__without_workers_may_be_tried_later():
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}

    with LocalCluster(n_workers=0, **options) as cluster, dask.config.set(SOON):
        result = invoke(*SCORE, "--scheduler", cluster.scheduler_address)

    assert result.exit_code == 75
    assert "waiting for the first worker" in result.stderr
    assert "has had no worker for 0.3 seconds" in result.stderr


CERTIFICATES = "distributed.comm.tls.ca-file"


@pytest.mark.parametrize(
    ("address", "configured", "said"),
    [
        ("tls://127.0.0.1:1", {}, f"needs a certificate, but .* {CERTIFICATES}"),
        (
            "tcp://127.0.0.1:1",
            {"distributed.comm.require-encryption": True},
            "is not the address of a scheduler to join",
        ),
        (
            "tls://127.0.0.1:1",
            {CERTIFICATES: "/none", "distributed.comm.tls.client.cert": "/none"},
            "certificates of .* cannot be read: .*No such file",
        ),
    ],
)
def test_scheduler__is_refused_without_its_certificates(address, configured, said):
    began = time.monotonic()
    with dask.config.set(configured):
        result = invoke(*SCORE, "--scheduler", address)

    assert result.exit_code == 2
    assert re.search(said, result.stderr)
    assert time.monotonic() - began < 5  # `distributed` would wait for 20 s


@pytest.mark.cluster
def test_scheduler__is_refused_where_certificates_are_of_another_authority(tmp_path):
    ours, tls = of_local_cluster(), "distributed.comm.tls"
    (tmp_path / "cert.pem").write_text(ours.tls_client_cert)
    (tmp_path / "key.pem").write_text(ours.tls_client_key)
    configured = {
        f"{tls}.ca-file": str(tmp_path / "cert.pem"),
        f"{tls}.client.cert": str(tmp_path / "cert.pem"),
        f"{tls}.client.key": str(tmp_path / "key.pem"),
    }
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}

    with (
        LocalCluster(n_workers=0, security=of_local_cluster(), **options) as cluster,
        dask.config.set(configured),
    ):
        result = invoke(*SCORE, "--scheduler", cluster.scheduler_address)

    assert result.exit_code == 2  # and not that of what may be there later
    assert "do not accept each other's certificate" in result.stderr
    assert "Give both certificates of the same authority" in result.stderr
    assert not Path("out").exists()


@pytest.mark.cluster
def test_scheduler__is_that_of_an_option_a_file_or_the_configuration(cluster):
    """It is joined, and left running."""
    address = cluster.scheduler_address
    Path("scheduler.json").write_text(json.dumps({"address": address}))
    before = psutil.Process().children()

    with dask.config.set({"scheduler-address": address}):
        threads = invoke(*SCORE, *THREADS)
        configured = invoke(*SCORE, "--output", "configured")
    by_option = invoke(*SCORE, "--output", "by option", "--scheduler", address)
    by_file = invoke(*SCORE, "--output", "by file", "--scheduler-file", "scheduler.json")

    for result in (threads, configured, by_option, by_file):
        assert result.exit_code == 0, result.stderr
        is_joined = result is not threads
        assert (cluster.dashboard_link in result.stderr) == is_joined
        said = f"scheduler: {address}, from Dask's configuration"
        assert (said in result.stderr) == (result is configured)
    assert len(cluster.scheduler.workers) == 2
    assert psutil.Process().children() == before
    for name in ("configured", "by option", "by file"):
        pd.testing.assert_frame_equal(pd.read_parquet(name), pd.read_parquet("out"))


# Workers that are started


def worker_ttl(dask_scheduler):
    return dask_scheduler.worker_ttl


def malloc_settings():
    return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}


def test_kept_memory__leaves_what_the_user_has_set(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    name = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"

    assert clusters.kept_memory()[name] == 2**25
    for value in (None, 2**30):
        with dask.config.set({name: value}):
            assert clusters.kept_memory() == {}
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    assert clusters.kept_memory() == {}


@pytest.mark.cluster
@pytest.mark.parametrize("options", [["--workers", 1, "--memory-limit", "1GiB"], []])
def test_workers__are_started_as_asked_and_ended(monkeypatch, options):
    """Also when the run is interrupted, in the middle of a task."""
    monkeypatch.setattr(clusters, "START_SECONDS", 0)
    for name in malloc_settings():  # of clusters before
        monkeypatch.delenv(name)
    found = {}

    def interrupt(run, lock):
        client = active_client()
        found.update(client.scheduler_info()["workers"])
        found["pids"] = list(client.run(os.getpid).values())
        found["ttl"] = client.run_on_scheduler(worker_ttl)
        found["kept"] = client.run(malloc_settings)
        client.submit(time.sleep, 60)
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.Run, "fit_and_score", interrupt)

    result = invoke(*ALONE, *options)

    pids, ttl, kept = found.pop("pids"), found.pop("ttl"), found.pop("kept")
    assert result.exit_code == 130
    assert "dashboard" not in result.stderr
    assert ttl == 60
    expected = {"MALLOC_TRIM_THRESHOLD_": "33554432", "MALLOC_MMAP_THRESHOLD_": "16777216"}
    assert [*kept.values()] == [expected] * len(kept)
    assert sum(worker["nthreads"] for worker in found.values()) == dask.system.CPU_COUNT
    if options:
        assert [worker["memory_limit"] for worker in found.values()] == [2**30]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_workers__are_not_started_for_what_takes_no_longer(started):
    scored = invoke(*SCORE)
    explained = invoke("explain", "out", "--top", 60)  # more than the run has explained
    fitted = invoke("fit", "nominal.parquet", "--model", "model")

    assert started == []
    assert [done.exit_code for done in (scored, explained, fitted)] == [0, 0, 0]
    for done in (scored, fitted):
        assert "running in this process: its" in done.stderr
        assert "(--workers N starts some anyway)" in done.stderr


JOB = "[score]\ndata='data.parquet'\ncolumns=['x']\noutput='out'\n[cluster]\n"
OF_RUN = {"give_up_after": 60.0, "finish_within": 36000.0}
OF_JOB = {"workers": 2, "threads": 3, **OF_RUN}


@pytest.mark.parametrize(
    ("command", "section"),
    [
        ([*ALONE, "--workers", 1], {"workers": 1}),
        ([*ALONE, "--memory-limit", "1GiB"], {"memory_limit": 2**30}),
        (["run", "job.toml"], OF_JOB),
        (["run", "job.toml", "--dashboard"], OF_JOB | {"dashboard": True}),
        (["run", "job.toml", "--workers", 1], {"workers": 1, **OF_RUN}),
        (["run", "job.toml", "--give-up-after", "2min"], OF_JOB | {"give_up_after": 120.0}),
        (["run", "job.toml", "--finish-within", "3h"], OF_JOB | {"finish_within": 10800.0}),
    ],
)
def test_workers__are_those_of_options_before_those_of_the_job(started, command, section):
    of_run = "give_up_after='1min'\nfinish_within='10h'\n"
    Path("job.toml").write_text(f"{JOB}workers=2\nthreads=3\n{of_run}")

    assert invoke(*command).exit_code == 0
    assert started == [ClusterSection(**section)]


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ({}, {"--workers 8": 8}),
        ({"workers": 1, "threads": 2}, {"--workers 8": 8}),
        ({"scheduler": "threads"}, {"--workers 8": 8}),
        (
            {"scheduler": "tcp://127.0.0.1:1"},
            {f"{n} times the workers": 2 * n for n in (2, 4, 8, 16, 32)},
        ),
    ],
)
def test_larger__are_all_cores_or_more_workers_of_a_cluster(monkeypatch, section, found):
    monkeypatch.setattr(clusters, "CPU_COUNT", 8)
    choice = clusters.WorkerChoice(ClusterSection(**section))

    def threads(n):
        larger = choice.larger(Workers(n, 1, 2**33))
        return {how: workers.n_threads for how, workers in larger}

    assert threads(2) == found
    if "tcp" not in section.get("scheduler", ""):
        assert threads(8) == {}


@pytest.mark.parametrize("command", [[*ALONE, "--dashboard"], ["run", "job.toml"]])
def test_dashboard__is_refused_without_bokeh_before_anything_is_done(monkeypatch, command):
    monkeypatch.setitem(sys.modules, "bokeh", None)  # cannot be imported
    Path("job.toml").write_text(f"{JOB}dashboard=true\n")

    result = invoke(*command)

    assert result.exit_code == 2
    assert 'pip install "lpe-dask[dashboard]"' in result.stderr
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("number", "is_said"),
    [(errno.ENOENT, True), (errno.EMFILE, False)],  # each queue has a pipe, too
)
def test_workers__need_semaphores(monkeypatch, number, is_said):
    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("multiprocessing.synchronize.Lock.__init__", fail)
    result = invoke(*ALONE, "--workers", "1")

    assert result.exit_code == 2
    assert os.strerror(number) in result.stderr
    assert ("semaphores, on Linux in /dev/shm" in result.stderr) == is_said


# The log of distributed


@pytest.fixture
def shown():
    """What the log of distributed prints in this process, as set up outside of pytest."""
    log, handler = logging.getLogger("distributed"), logging.StreamHandler(io.StringIO())
    log.addHandler(handler)
    yield handler.stream
    log.removeHandler(handler)


def test_quiet_distributed__tells_of_faults_while_there_is_work(shown):
    names = ("distributed.scheduler", "asyncio", "tornado.application")
    log, loop, callbacks = map(logging.getLogger, names)
    of_client = logging.getLogger("distributed.client")
    before = loop.level, callbacks.level

    with clusters._distributed_log_level(False) as silence:
        log.warning("Detected different `execute_task` for key 'x'")
        log.info("Register worker")
        assert not of_client.isEnabledFor(logging.ERROR)
        assert not loop.isEnabledFor(logging.ERROR)
        assert callbacks.isEnabledFor(logging.ERROR)
        silence()
        log.error("Closing comm")
        assert not callbacks.isEnabledFor(logging.ERROR)  # Exception in callback

    lines = shown.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("Detected different `execute_task` for key 'x'")
    assert (loop.level, callbacks.level) == before


#: The command, but that its task warns and fails. A process of its own, as workers write to
#: the stderr of the test that was the first to start one.
WARNS_AND_FAILS = """
import logging
from lpe_dask.batch import runs
from lpe_dask.cli.commands import main
from lpe_dask.tasks import active_client

def log_and_fail():
    logging.getLogger("distributed.worker.memory").warning("Pausing worker")
    raise OSError("no such task")

runs.Run.fit_and_score = lambda run, lock: active_client().submit(log_and_fail).result()
main()
"""


@pytest.mark.cluster
@pytest.mark.parametrize("debug", mostly_slow([False, True], [False], []))
def test_workers__tell_of_faults_and_errors_are_told_once(debug):
    result = subprocess.run(
        [
            sys.executable, "-c", WARNS_AND_FAILS, *ALONE, "--workers", "1",
            *["--debug"] * debug,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert result.returncode == 2
    assert result.stderr.count("\nError: no such task") == 1
    assert "distributed.worker.memory - WARNING - Pausing worker" in result.stderr
    assert ("Compute Failed" in result.stderr) is debug

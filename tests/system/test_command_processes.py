"""The command as a process: its workers, its signals, and what it leaves behind."""

import contextlib
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import Client

import lpe_dask
from calling import COMMAND, SCORE, THREADS, write_tables
from choosing import mostly_slow
from processes import cluster_of_its_own


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    return tmp_path


@pytest.fixture(autouse=True)
def temporary(files, monkeypatch):
    """Where processes put what is temporary."""
    folder = files / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def start():
    """A function that starts the command; what it started ends with the test."""
    started = []

    def start(*arguments, **options):
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
        process = subprocess.Popen(
            [COMMAND, *arguments],
            stdout=subprocess.PIPE,
            env=environment | options.pop("env", {}),
            text=True,
            start_new_session=True,
            # What a shell runs in the background ignores Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **{"stderr": subprocess.PIPE} | options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        for child in children_of(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.communicate()


def children_of(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def large_tables(n_nominal=300_000):
    """Write tables that take minutes; with few nominal rows, only their scoring."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((300_000, 8)), columns=list("abcdefgh"))
    table.to_parquet("data.parquet", row_group_size=20_000)
    table[:n_nominal].to_parquet("nominal.parquet", row_group_size=20_000)


@pytest.mark.cluster
def test_command__scores_on_a_cluster_of_its_own(start):
    lpe_dask.score_files("data.parquet", nominal="nominal.parquet", output="again")

    process = start(*SCORE, "--workers", "2")
    stdout, stderr = process.communicate(timeout=100)

    assert process.returncode == 0, stderr
    assert stdout == ""
    assert stderr.endswith("written to out\n")
    assert "dashboard" not in stderr
    assert "distributed" not in stderr
    summary = json.loads(Path("out/_summary.json").read_text())
    assert summary["peak_worker_bytes"] > 2**26
    pd.testing.assert_frame_equal(pd.read_parquet("again"), pd.read_parquet("out"))


# Signals. A moment is a function that starts a run, and returns it when it has come


def while_workers_start(start):
    large_tables()
    process = start(*SCORE)
    wait_for(process, lambda: children_of(process), 0.2)
    return process


def while_workers_work(start):
    large_tables()
    process = start(*SCORE, "--dashboard")
    assert process.stderr.readline().startswith("dashboard: ")
    wait_for(process, lambda: len(children_of(process)) >= 2, 2)
    return process


def while_threads_work(start):
    large_tables()
    process = start(*SCORE, *THREADS)
    wait_for(process, Path("out").exists, 1)
    return process


def while_spooling(start, workers, seconds):
    """Of rows that a worker of 860 MiB does not hold."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((200_000, 40))).rename(columns=str)
    for folder in ("table", "spool"):
        Path(folder).mkdir()
    for first in range(0, len(table), 5000):  # partitions take little
        table[first : first + 5000].to_parquet(f"table/{first:06}.parquet")
    given = ["score", "table", "--algorithm", "brute", "--output", "out"]
    limit = {"DASK_LPE_DASK__MEMORY_LIMIT": "860MiB"}
    process = start(*given, *workers, "--spool", "spool", env=limit)
    wait_for(process, lambda: list(Path("spool").glob("*/*-*")), seconds)
    return process


def wait_for(process, condition, seconds):
    """Return some seconds after something holds, while a process runs."""
    while not condition():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(seconds)


MOMENTS = {
    "workers start": while_workers_start,
    "workers work": while_workers_work,
    "threads work": while_threads_work,
} | {
    f"spool of {name} is {what}": lambda start, workers=workers, seconds=seconds: (
        while_spooling(start, workers, seconds)
    )
    for name, workers in {"threads": THREADS, "workers": ("--workers", "2")}.items()
    for what, seconds in {"written": 0, "read": 2}.items()
}
INTERRUPTED = signal.SIGINT, 130, "Interrupted"
TERMINATED = signal.SIGTERM, 143, "Terminated"


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("moment", "interrupt", "end"),
    mostly_slow(
        itertools.product(MOMENTS, (os.kill, os.killpg), (INTERRUPTED, TERMINATED)),
        [
            ("workers start", os.killpg, INTERRUPTED),
            ("threads work", os.kill, TERMINATED),
            ("spool of workers is read", os.kill, TERMINATED),
        ],
    ),
)
def test_command__ends_in_time_and_leaves_nothing(start, temporary, moment, interrupt, end):
    """Signals go to all processes of a command, or a supervisor signals one of them."""
    number, code, word = end
    process = MOMENTS[moment](start)
    children = children_of(process)

    began = time.monotonic()
    interrupt(process.pid, number)
    time.sleep(0.3)
    process.send_signal(number)  # the second one changes nothing
    _, stderr = process.communicate(timeout=60)
    seconds = time.monotonic() - began
    _, alive = psutil.wait_procs(children, timeout=5)

    assert process.returncode == code, stderr
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    assert seconds < 10 or moment == "workers start"
    assert alive == []
    with pytest.raises(ProcessLookupError):  # of the group, nobody is left
        os.killpg(process.pid, 0)
    left = [*temporary.iterdir(), *Path().glob("spool/*"), *Path().glob("out/*_lock*")]
    assert left == []


def test_command__removes_the_spool_also_when_it_has_finished(start, temporary):
    """A signal that comes while Python ends does not change how the run ended."""
    at_start(
        "import atexit, sys, time\n"
        "if sys.argv[0].endswith('lpe-dask'):\n"
        "    atexit.register(time.sleep, 60)\n"
    )
    process = start(*SCORE, "--workers", "1", env=SITE)
    assert any(line.startswith("written to") for line in process.stderr)
    time.sleep(0.5)

    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)

    assert process.returncode == 0, stderr
    assert list(temporary.iterdir()) == []


PATHS = ["site", *filter(None, [os.environ.get("PYTHONPATH")])]
SITE = {"PYTHONPATH": os.pathsep.join(PATHS)}


def at_start(program):
    """Let processes with `SITE` run a program before all else."""
    Path("site").mkdir()
    Path("site/sitecustomize.py").write_text(program)


# What is lost or stands still


@pytest.mark.cluster
def test_command__tells_of_a_worker_that_was_killed(start):
    large_tables()
    process = start(*SCORE, "--workers", "2", "--dashboard")
    dashboard = process.stderr.readline()
    worker = next(
        child for child in children_of(process) if "spawn_main" in " ".join(child.cmdline())
    )

    worker.kill()
    line = next(line for line in process.stderr if "distributed.nanny" in line)

    assert dashboard.startswith("dashboard: http://127.0.0.1:")
    assert "distributed.nanny - WARNING - Restarting worker" in line


@pytest.mark.cluster
def test_command__fails_when_the_scheduler_is_gone(start):
    large_tables(40_000)
    with contextlib.suppress(BrokenPipeError), cluster_of_its_own() as address:
        with Client(address) as client:
            scheduler = client.run_on_scheduler(os.getpid)

        process = start(*SCORE, "--scheduler", address)
        # From the beginning of the scoring on
        wait_for(process, Path("out/_run.json").exists, 0)
        os.kill(scheduler, signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 1
    last = stderr.splitlines()[-1]
    assert re.fullmatch(r"Error: the run stopped while it scored.*scheduler.*", last)
    assert stdout == ""


@pytest.mark.parametrize("chosen", [THREADS, ("--workers", "1")])
def test_command__gives_up_where_nothing_moves(start, chosen):
    """A task that never ends, in this process or in a worker: nobody waits for it."""
    at_start(
        "import sys\n"
        "from lpe_dask.batch import parts\n"
        "from time import sleep\n"
        "parts._write_part = lambda *args: sleep(1000)\n"
    )
    process = start(*SCORE, *chosen, "--give-up-after", "3s", env=SITE)
    _, stderr = process.communicate(timeout=100)

    assert process.returncode == 1
    assert "Error: the run was given up, as no task was done for 0:00:0" in stderr
    assert "start the same run again to resume" in stderr
    assert not Path("out/_lock.json").exists()


def test_command__keeps_a_line_up_to_date_on_a_terminal(start):
    terminal, end = pty.openpty()

    process = start(*SCORE, *THREADS, stderr=end)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(terminal, 2**16):
            shown += part
    os.close(terminal)
    stdout, _ = process.communicate(timeout=100)

    assert process.returncode == 0
    assert b"\r" in shown
    assert re.search(r"scored (\d+) of \1 rows", shown.decode())
    assert stdout == ""


FULL_STORAGE = "size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"


@pytest.mark.parametrize(
    ("mounted", "said"),
    [("ro tmpfs /dev/shm", "Read-only"), (FULL_STORAGE, "No space left")],
)
def test_workers__need_a_place_for_semaphores(mounted, said):
    """In a mount namespace of its own, so that nobody else misses anything."""
    within = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o {mounted}"
    if subprocess.run([*within, mount], capture_output=True).returncode != 0:
        pytest.skip("only root may mount something, and not in each container")
    command = [*within, f'{mount} && exec "$@"', "sh", COMMAND, *SCORE]

    refused, done = (
        subprocess.run([*command, *options], capture_output=True, text=True)
        for options in (("--workers", "1"), THREADS)
    )

    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: no worker processes can be started")
    assert said in refused.stderr
    assert refused.stderr.endswith("work in this process with --scheduler threads.\n")
    assert refused.stderr.count("\n") == 1
    assert done.returncode == 0, done.stderr
    assert "joblib" not in done.stderr

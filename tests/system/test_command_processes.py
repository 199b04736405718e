"""The command as a process: its workers, its signals, and what it leaves behind."""

import contextlib
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

import lpe_dask
from calling import COMMAND, write_tables
from choosing import mostly_slow


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A current folder with nominal.parquet and data.parquet."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    return tmp_path


@pytest.fixture
def start():
    """A function that starts the command; what it started ends with the test."""
    started = []

    def start(*arguments, env=None, **options):
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **(env or {})}
        process = subprocess.Popen(
            [COMMAND, *arguments],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            # What a shell runs in the background ignores Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


@pytest.fixture
def temporary(files, monkeypatch):
    """Where processes put what is temporary; nothing of it is to stay."""
    folder = files / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def large_tables(n_nominal=300_000):
    """Write tables that take minutes; with few nominal rows, only their scoring."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((300_000, 8)), columns=list("abcdefgh"))
    table.to_parquet("data.parquet", row_group_size=20_000)
    table[:n_nominal].to_parquet("nominal.parquet", row_group_size=20_000)


def read_all(terminal):
    """What a process wrote to its terminal until it closed it."""
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(terminal, 2**16):
            shown += part
    os.close(terminal)
    return shown.decode()


@pytest.mark.cluster
def test_command__scores_on_a_cluster_of_its_own(files, start):
    arguments = ["score", "data.parquet", "--nominal", "nominal.parquet"]
    lpe_dask.score_files("data.parquet", nominal="nominal.parquet", output="out")

    process = start(
        *arguments, "--output", "again", "--workers", "2", stderr=subprocess.PIPE
    )
    stdout, stderr = process.communicate(timeout=100)

    summary = json.loads(Path("again/_summary.json").read_text())
    assert process.returncode == 0, stderr
    assert stdout == ""
    assert stderr.endswith("written to again\n")
    assert "dashboard" not in stderr
    assert "distributed" not in stderr
    assert summary["peak_worker_bytes"] > 2**26
    pd.testing.assert_frame_equal(pd.read_parquet("again"), pd.read_parquet("out"))


INTERRUPTED = signal.SIGINT, 130, "Interrupted"
TERMINATED = signal.SIGTERM, 143, "Terminated"
ENDS = [
    (interrupt, *end)
    for interrupt in (os.kill, os.killpg)
    for end in (INTERRUPTED, TERMINATED)
]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("interrupt", "number", "code", "word"),
    mostly_slow(ENDS, []),
)
def test_command__ends_with_its_workers(
    files, temporary, interrupt, start, number, code, word
):
    """Signals go to all processes of a command, or a supervisor signals one of them."""
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        "--dashboard",
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    dashboard = process.stderr.readline()
    time.sleep(2)
    children = psutil.Process(process.pid).children(recursive=True)

    began = time.monotonic()
    interrupt(process.pid, number)
    _, stderr = process.communicate(timeout=30)
    seconds = time.monotonic() - began
    _, alive = psutil.wait_procs(children, timeout=5)

    assert dashboard.startswith("dashboard: ")
    assert len(children) >= 2
    assert process.returncode == code
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    assert seconds < 10
    assert alive == []
    assert not Path("out/_lock.json").exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.cluster
def test_command__tells_of_a_worker_that_was_killed(files, start):
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--workers", "2", "--dashboard"],
        stderr=subprocess.PIPE,
    )
    dashboard = process.stderr.readline()
    worker = next(
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    )

    worker.kill()
    line = next(line for line in process.stderr if "distributed.nanny" in line)

    assert dashboard.startswith("dashboard: http://127.0.0.1:")
    assert "distributed.nanny - WARNING - Restarting worker" in line


def tables_to_spool():
    """Write tables that take minutes, that a worker of 860 MiB does not hold."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((200_000, 40)))
    table.columns = [f"x{k}" for k in range(40)]
    Path("table").mkdir()
    for start in range(0, len(table), 5000):  # partitions take little
        table[start : start + 5000].to_parquet(f"table/{start:06}.parquet")
    Path("spool").mkdir()


SPOOLED = ["score", "table", "--algorithm", "brute", "--output", "out"]


THREADS, PROCESSES = ["--scheduler", "threads"], ["--workers", "2"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("workers", "wait", "number", "code", "word"),
    mostly_slow(
        [
            (workers, wait, *end)
            for workers in (THREADS, PROCESSES)
            for wait in (0.0, 2.0)  # while it is written, while it is read
            for end in (INTERRUPTED, TERMINATED)
        ],
        [(PROCESSES, 2.0, *TERMINATED)],
    ),
)
def test_command__leaves_no_spool(
    files, temporary, start, monkeypatch, workers, wait, number, code, word
):
    monkeypatch.setenv("DASK_LPE_DASK__MEMORY_LIMIT", "860MiB")
    tables_to_spool()
    process = start(*SPOOLED, *workers, "--spool", "spool", stderr=subprocess.PIPE)
    while not list(Path("spool").glob("*/*-*")):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(wait)
    children = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(number)
    time.sleep(0.3)
    process.send_signal(number)  # the second one changes nothing
    _, stderr = process.communicate(timeout=30)
    _, alive = psutil.wait_procs(children, timeout=5)

    assert process.returncode == code, stderr
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    assert list(Path("spool").iterdir()) == []
    assert list(temporary.iterdir()) == []
    assert alive == []
    assert not Path("out/_lock.json").exists()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("interrupt", "number", "code", "word"),
    mostly_slow(ENDS, [(os.killpg, *INTERRUPTED)]),
)
def test_command__ends_while_workers_start(
    files, temporary, start, interrupt, number, code, word
):
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not (children := psutil.Process(process.pid).children(recursive=True)):
        time.sleep(0.01)
    time.sleep(0.2)

    interrupt(process.pid, number)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == code, stderr
    assert stderr.endswith(f"{word}.\n")
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    with pytest.raises(ProcessLookupError):  # of the group, nobody is left
        os.killpg(process.pid, 0)
    assert not Path("out/_lock.json").exists()
    assert list(temporary.iterdir()) == []


def test_command__removes_the_spool_also_when_it_has_finished(files, temporary, start):
    """A signal that comes while Python ends does not change how the run ended."""
    Path("site").mkdir()
    Path("site/sitecustomize.py").write_text(
        "import atexit, sys, time\n"
        "if sys.argv[0].endswith('lpe-dask'):\n"
        "    atexit.register(time.sleep, 60)\n"
    )
    found = os.pathsep.join(["site", *filter(None, [os.environ.get("PYTHONPATH")])])
    given = ["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    process = start(
        *given, "--workers", "1", stderr=subprocess.PIPE, env={"PYTHONPATH": found}
    )
    for line in process.stderr:
        if line.startswith("written to"):
            break
    time.sleep(0.5)

    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)

    assert process.returncode == 0, stderr
    assert list(temporary.iterdir()) == []


@pytest.fixture
def processes():
    """A list of processes to end after the test."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.cluster
def test_command__fails_when_the_scheduler_is_gone(files, processes, start):
    large_tables(40_000)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask_command, about = COMMAND.with_name("dask"), Path("scheduler.json")
    options = ["--scheduler-file", about, "--host", "127.0.0.1", "--dashboard-address"]
    scheduler = subprocess.Popen(
        [dask_command, "scheduler", *options, "127.0.0.1:0", "--port", "0"], **quiet
    )
    processes.append(scheduler)
    worker = [dask_command, "worker", *options, "127.0.0.1:0", "--no-nanny"]
    processes.append(subprocess.Popen(worker, **quiet))
    while not about.exists() or not about.read_text().endswith("}"):
        time.sleep(0.05)
    address = json.loads(about.read_text())["address"]

    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--scheduler", address],
        stderr=subprocess.PIPE,
    )
    while not Path("out/_run.json").exists():  # from the beginning of the scoring on
        time.sleep(0.02)
    scheduler.kill()
    stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 1
    last = stderr.splitlines()[-1]
    assert re.fullmatch(r"Error: the run stopped while it scored.*scheduler.*", last)
    assert stdout == ""


def test_command__keeps_a_line_up_to_date_on_a_terminal(files, start):
    terminal, end = pty.openpty()

    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--scheduler", "threads"],
        stderr=end,
    )
    os.close(end)
    shown = read_all(terminal)
    stdout, _ = process.communicate(timeout=100)

    assert process.returncode == 0
    assert "\r" in shown
    assert re.search(r"scored (\d+) of \1 rows", shown)
    assert stdout == ""


@pytest.mark.parametrize(
    ("number", "code", "word"), mostly_slow([INTERRUPTED, TERMINATED], [TERMINATED])
)
def test_command__ends_at_once_when_threads_are_at_work(files, start, number, code, word):
    large_tables()
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *["--scheduler", "threads"],
        stderr=subprocess.PIPE,
    )
    while not Path("out").exists():
        time.sleep(0.05)
    time.sleep(1)

    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=30)

    assert process.returncode == code
    assert time.monotonic() - began < 10
    # What was measured by then is kept for the next time.
    assert {path.name[:5] for path in Path("out").glob("*")} <= {"_fit-"}


@pytest.mark.parametrize("chosen", [["--scheduler", "threads"], ["--workers", "1"]])
def test_command__gives_up_where_nothing_moves(files, start, chosen):
    """A task that never ends, in this process or in a worker: nobody waits for it."""
    Path("site").mkdir()
    Path("site/sitecustomize.py").write_text(
        "import sys\n"
        "from lpe_dask.batch import parts\n"
        "from time import sleep\n"
        "parts._write_part = lambda *args: sleep(1000)\n"
    )
    process = start(
        *["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"],
        *[*chosen, "--give-up-after", "3s"],
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": "site"},
    )
    _, stderr = process.communicate(timeout=100)

    assert process.returncode == 1
    assert "Error: the run was given up, as no task was done for 0:00:0" in stderr
    assert "start the same run again to resume" in stderr
    assert not Path("out/_lock.json").exists()


FULL_STORAGE = "size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"


@pytest.mark.parametrize(
    ("mounted", "said"),
    [("ro tmpfs /dev/shm", "Read-only"), (FULL_STORAGE, "No space left")],
)
def test_workers__need_a_place_for_semaphores(files, mounted, said):
    """In a mount namespace of its own, so that nobody else misses anything."""
    within = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o {mounted}"
    if subprocess.run([*within, mount], capture_output=True).returncode != 0:
        pytest.skip("only root may mount something, and not in each container")
    given = ["score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out"]
    command = [*within, f'{mount} && exec "$@"', "sh", COMMAND, *given]

    refused = subprocess.run([*command, "--workers", "1"], capture_output=True, text=True)
    done = subprocess.run(
        [*command, "--scheduler", "threads"], capture_output=True, text=True
    )

    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: no worker processes can be started")
    assert said in refused.stderr
    assert refused.stderr.endswith("work in this process with --scheduler threads.\n")
    assert refused.stderr.count("\n") == 1
    assert done.returncode == 0, done.stderr
    assert "joblib" not in done.stderr

"""What tests of the recipes in cluster/ share: their commands, places to run them, data.

The commands are those that the page of a recipe in docs/howto shows. A test runs them as
they stand, but for names of places: in a `Terminal`, or in namespaces that stand for a
site.
"""

import datetime
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from digests import parts_in
from waiting import eventually

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
PAGES = ROOT / "docs" / "howto"

#: The day that the page scores.
DAY = datetime.date(2026, 11, 20)

#: Seconds that a command may take.
PATIENCE = 240

#: What all machines of a site share, on the page: the folder of a test is mounted there.
SHARED = Path("/srv")

#: A preload of workers, with which a run lasts longer than its work.
SLOW_WORKER = """\
import time

import pyarrow.parquet as pq

write_table = pq.write_table


def write_slowly(*args, **kwargs):
    time.sleep({seconds})
    return write_table(*args, **kwargs)


def dask_setup(worker):
    pq.write_table = write_slowly
"""


def commands_of(recipe):
    """Return the commands of a recipe's page, in order, without comments."""
    page = (PAGES / f"{recipe}.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [
        re.sub(r"\s+#.*", "", line[2:]).strip() for line in lines if line.startswith("$ ")
    ]


# Terminals


def write_logs(folder, n_files=8):
    """Write the logs of a day, and nominal ones, on a grid where most distances tie."""
    rng = np.random.default_rng(0)

    def write(name, low, high, n_rows):
        rows = rng.integers(low, high, (n_rows, 4)) * 0.125
        table = pd.DataFrame(rows, columns=["duration", "sent", "received", "errors"])
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(path)

    write("nominal/a.parquet", 0, 30, 3000)
    for i in range(n_files):
        write(f"in/{DAY}/{i:03}.parquet", -5, 35, 400)


def parts_by_threads(job, folder, places=()):
    """Return digests of the parts that ``--scheduler threads`` writes to another folder."""
    text = placed(Path(job).read_text(), dict(places))
    elsewhere = re.sub(
        r"^output = .*$", f'output = "{folder}/out"', text, flags=re.MULTILINE
    )
    assert elsewhere != text
    folder.mkdir()
    copy = folder / "by-threads.toml"
    copy.write_text(elsewhere)
    with dask.config.set(scheduler="threads"):
        lpe_dask.run(copy, date=DAY)
    return parts_in(folder / "out")


def placed(text, places):
    """Return a text of the page with other names of places."""
    for name, other in places.items():
        text = text.replace(name, other)
    return text


def copy_recipes(folder, places):
    """Copy cluster/ into a folder, with other names of places in its files."""
    compiled = shutil.ignore_patterns("__pycache__")  # of recipes that tests import
    shutil.copytree(CLUSTER, folder / "cluster", ignore=compiled)
    for path in (folder / "cluster").rglob("*"):
        if path.is_file():
            path.write_text(placed(path.read_text(), places))


def local_places():
    """Address on this machine in place of the scheduler's of the page."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return {"10.0.0.1": "127.0.0.1", "8786": str(bound.getsockname()[1])}


class Terminal:
    """Where commands of a page are run: a folder with cluster/, and an environment.

    Attributes
    ----------
    places : dict
        What stands for something else in this test: a text of the page -> another text.
    environment : dict
    """

    def __init__(self, folder, places, environment):
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.folder, self.places = folder, places
        self.environment = os.environ | environment | {"PATH": programs}
        self._left = []
        copy_recipes(folder, places)

    def type(self, command):
        """Run a command to its end; one of Dask's goes on until the terminal is closed."""
        command = placed(command, self.places)
        program, *arguments = shlex.split(command)
        if program == "export":
            self.environment |= dict(argument.split("=", 1) for argument in arguments)
            return None
        if program == "dask":
            return self.start(command)
        return subprocess.run(
            ["bash", "-euc", command], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    def type_all(self, recipe):
        """Run all commands of a recipe's page; each has to succeed."""
        for command in commands_of(recipe):
            done = self.type(command)
            if isinstance(done, subprocess.CompletedProcess):
                assert done.returncode == 0, (command, done.stdout, done.stderr)

    def start(self, command):
        """Start a command, with its output in a file, and return its process."""
        log = self.folder / f"log-{len(self._left)}.txt"
        with open(log, "w") as file:
            process = subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=self.environment,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process.log = log
        self._left.append(process)
        if "scheduler" in shlex.split(command)[1]:
            assert eventually(lambda: "Scheduler at:" in log.read_text(), 60), (
                log.read_text()
            )
        return process

    def close(self):
        for process in self._left:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the workers of a nanny as well
            process.wait()


@contextmanager
def terminal(folder, places=(), **environment):
    """Give a `Terminal`; nothing that was started in it survives the context."""
    opened = Terminal(folder, dict(places), environment)
    try:
        yield opened
    finally:
        opened.close()


# Sites


def skip_unless(*programs):
    """Skip a test where it cannot run, and say why."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can start these daemons, in namespaces")
    for program in ("unshare", "ip", "mount", *programs):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if subprocess.run(["unshare", "-n", "-p", "-m", "-f", "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")


def make_site(folder):
    """Fill a folder as the page says, with the environment of these tests."""
    (folder / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    here = folder / "lpe"
    here.mkdir()
    (here / ".venv").symlink_to(sys.prefix)
    (here / "lpe-dask").symlink_to(ROOT)
    subprocess.run([sys.executable, CLUSTER / "example.py"], cwd=here, check=True)
    return folder


def run_at_site(folder, script, seconds, program=(), slow=0.0):
    """Run a script in a site of its own network; return what it printed.

    Nothing that it starts survives it.

    Parameters
    ----------
    folder : Path
        Of `make_site`.
    script : str
        For bash; raises AssertionError if it fails.
    seconds : float
        After which all of it is killed.
    program : sequence of str
        Runs the script, as its last arguments.
    slow : float
        Seconds that each file takes which a worker writes.
    """
    (folder / "slow.py").write_text(SLOW_WORKER.format(seconds=slow))
    (folder / "script.sh").write_text(script)
    inner = shlex.join([*program, "bash", "-eu", f"{SHARED}/script.sh"])
    mount = shlex.join(["mount", "--bind", str(folder), str(SHARED)])
    # By KILL: unshare ignores the others, and takes all of its namespaces with it.
    command = ["timeout", "-s", "KILL", str(seconds), "unshare", "-n", "-p", "-m", "-f"]
    command += ["--mount-proc", "--kill-child"]
    command += ["bash", "-euc", f"{mount}; cd {SHARED}/lpe; {inner}"]
    environment = os.environ | {
        "HOME": f"{SHARED}/home",
        "PATH": f"{SHARED}/lpe/.venv/bin{os.pathsep}{os.environ['PATH']}",
        "DASK_DISTRIBUTED__WORKER__PRELOAD": f'["{SHARED}/slow.py"]',
    }

    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def parts_of_site(folder):
    """Return digests of the parts of the finished output of a site."""
    output = folder / "lpe" / "out"
    assert (output / "_summary.json").exists()
    return parts_in(output)


def parts_of_one_process(folder):
    """Return those of the job of the page with `--scheduler threads`."""
    make_site(folder)
    program = Path(sys.executable).with_name("lpe-dask")
    command = [program, "run", "job.toml", "--scheduler", "threads"]
    subprocess.run(command, cwd=folder / "lpe", check=True, capture_output=True)
    return parts_of_site(folder)

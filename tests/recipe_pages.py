"""What tests of the recipes in cluster/ share: their commands, some logs, and hashes.

The commands are those that a section of cluster/README.md shows. A test runs them as they
stand, but for names of places.
"""

import datetime
import hashlib
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
import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import lpe_dask
from waiting import eventually

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"

#: The day that the page scores.
DAY = datetime.date(2026, 11, 20)

#: Seconds that a command may take.
PATIENCE = 240


def commands_of(recipe):
    """Return the commands of a recipe's section, in order, without comments."""
    sections = re.split(r"^## ", (CLUSTER / "README.md").read_text(), flags=re.MULTILINE)
    [section] = [text for text in sections if f"`{recipe}/`" in text.partition("\n")[0]]
    blocks = re.findall(r"^```console\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [
        re.sub(r"\s+#.*", "", line[2:]).strip() for line in lines if line.startswith("$ ")
    ]


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


def hashes_in(out):
    """Return a hash of the p-values and statistics of each part, by its name."""
    filesystem, path = fsspec.url_to_fs(str(out), use_listings_cache=False)
    found = {}
    for part in sorted(filesystem.glob(f"{path}/part-*")):
        with filesystem.open(part) as file:
            table = pq.read_table(file, columns=["p_value", "statistic"])
        content = b"".join(column.to_numpy().tobytes() for column in table.columns)
        found[part.rpartition("/")[2]] = hashlib.sha256(content).hexdigest()
    return found


def hashes_by_threads(job, folder, places=()):
    """Return the hashes of the parts that ``--scheduler threads`` writes elsewhere."""
    text = placed(Path(job).read_text(), dict(places))
    elsewhere = re.sub(
        r"^output = .*$", f'output = "{folder}/out"', text, flags=re.MULTILINE
    )
    assert elsewhere != text
    copy = folder / "by-threads.toml"
    copy.write_text(elsewhere)
    with dask.config.set(scheduler="threads"):
        lpe_dask.run(copy, date=DAY)
    return hashes_in(folder / "out")


# Commands


def placed(text, places):
    """Return a text of the page with other names of places."""
    for name, other in places.items():
        text = text.replace(name, other)
    return text


def copy_recipes(folder, places):
    """Copy cluster/ into a folder, with other names of places in its files."""
    shutil.copytree(CLUSTER, folder / "cluster")
    for path in (folder / "cluster").rglob("*"):
        if path.is_file():
            path.write_text(placed(path.read_text(), places))


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


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


def type_all(recipe, opened):
    """Run all commands of a recipe's section; each has to succeed."""
    for command in commands_of(recipe):
        done = opened.type(command)
        if isinstance(done, subprocess.CompletedProcess):
            assert done.returncode == 0, (command, done.stdout, done.stderr)

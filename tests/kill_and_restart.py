"""Kill a job again and again, start it each time, and compare what comes out.

    python tests/kill_and_restart.py --seed 7

A scheduler and two workers are processes of this script, the job is a process that joins
them. At random moments, one in each part of the job's way, a process is killed that none of
them can expect to lose: the client, and in the long run a worker and the scheduler as well.
A thread reads every part as soon as it can be seen, and compares its p-values with those of
a run that nothing disturbed.
"""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import lpe_dask

#: What is killed, in random order, and parts of the output: of a long run and of a short
#: one, which leaves the others to `test_command__fails_when_the_scheduler_is_gone` and
#: `test_fit__survives_the_loss_of_a_worker`.
LONG = ("client", "client", "worker", "worker", "scheduler"), 60
SHORT = ("client",), 12

#: Rows of each part, and nominal rows.
PART_ROWS, N_NOMINAL = 4000, 40_000

#: Seconds that a job may take, however it ends.
PATIENCE = 120

JOB = """
[nominal]
data = "nominal.parquet"

[model]
n_neighbors = 100
algorithm = "brute"

[score]
data = "rows"
keep = []
output = "{output}"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    with tempfile.TemporaryDirectory() as folder:
        for line in kill_and_restart(Path(folder), seed, *LONG):
            print(line, flush=True)


def kill_and_restart(folder, seed, victims, n_parts):
    """Do it in a new folder; yield what happens, and raise if anything is not as it was."""
    write_tables(folder, n_parts)
    write_job(folder, "undisturbed")
    with chdir(folder), dask.config.set(scheduler="threads"):
        lpe_dask.run("undisturbed.toml")
    expected = p_values_in(folder / "undisturbed")
    assert len(expected) == n_parts

    write_job(folder, "killed")
    rng = random.Random(seed)
    victims = rng.sample(victims, len(victims))
    # The first in the fit or soon after, the others spread over what there is to write.
    marks = [0, *sorted(rng.sample(range(1, n_parts - 10), len(victims) - 1))]
    with processes(folder) as running, watched(folder / "killed", expected) as watcher:
        running.start_cluster()
        running.start_job()
        for victim, mark in zip(victims, marks, strict=True):
            yield from running.wait_for(watcher, mark)
            time.sleep(rng.uniform(0, 1.5 if mark else 4))
            yield running.kill(victim, len(watcher.seen))
            running.restart(victim)
        yield from running.finish()
    assert not watcher.problems, watcher.problems

    assert (folder / "killed" / "_summary.json").exists()
    actual = p_values_in(folder / "killed")
    assert actual == expected
    left = {path.name for path in (folder / "killed").iterdir()}
    assert left == {"_summary.json", *expected}, left - set(expected)
    again = subprocess.run(
        command("killed"), cwd=folder, check=True, capture_output=True, text=True
    )
    assert again.stderr.startswith("nothing to do"), again.stderr
    yield f"{n_parts} parts with the same p-values; started again: {again.stderr.strip()}"


def write_tables(folder, n_parts):
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(8)]
    nominal = rng.integers(0, 1000, (N_NOMINAL, 8)) * 0.125
    pd.DataFrame(nominal, columns=names).to_parquet(folder / "nominal.parquet")
    (folder / "rows").mkdir()
    for i in range(n_parts):
        rows = rng.integers(-100, 1100, (PART_ROWS, 8)) * 0.125
        part = pd.DataFrame(rows, columns=names)
        part.to_parquet(folder / "rows" / f"{i:03}.parquet")


def write_job(folder, output):
    (folder / f"{output}.toml").write_text(JOB.format(output=output))


def command(output):
    return [Path(sys.executable).with_name("lpe-dask"), "run", f"{output}.toml"]


def p_values_in(out):
    """Return the bytes of the p-values of each part."""
    return {path.name: p_values_of(path) for path in sorted(out.glob("part-*"))}


def p_values_of(path):
    return pq.ParquetFile(path).read(["p_value"]).column(0).to_numpy().tobytes()


# What watches


@dataclass
class Watcher:
    """What was seen of an output, and what was wrong with it."""

    seen: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def look(self, out, expected):
        """Read each part that is new, and see that there is no summary before the last."""
        is_summed = (out / "_summary.json").exists()
        names = {path.name for path in out.glob("part-*")} if out.is_dir() else set()
        for name in names - self.seen:
            with suppress(FileNotFoundError):
                if p_values_of(out / name) != expected.get(name):
                    self.problems.append(f"{name} has other p-values")
                self.seen.add(name)
        if is_summed and len(names) < len(expected):
            self.problems.append(f"a summary beside {len(names)} parts")


@contextmanager
def watched(out, expected):
    """Look at an output all the time, from a thread."""
    watcher, is_over = Watcher(), threading.Event()

    def look():
        while not is_over.is_set():
            try:
                watcher.look(out, expected)
            except Exception as error:  # a part that can be seen, but not read
                watcher.problems.append(repr(error))
            time.sleep(0.005)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watcher
    finally:
        is_over.set()
        thread.join()


# What is killed


class Processes:
    """The scheduler, the workers and the client, each a process with its log."""

    def __init__(self, folder):
        self.folder = folder
        self.numbers = itertools.count()
        self.scheduler = self.client = self.address = None
        self.workers = []

    def start(self, *arguments):
        log = self.folder / f"log-{next(self.numbers)}.txt"
        with open(log, "w") as file:
            process = subprocess.Popen(
                [str(argument) for argument in arguments],
                cwd=self.folder, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        process.log = log
        return process

    def start_cluster(self):
        address = self.folder / f"scheduler-{next(self.numbers)}.json"
        self.scheduler = self.start(
            *[sys.executable, "-m", "distributed.cli.dask_scheduler"],
            *["--host", "127.0.0.1", "--port", "0", "--no-dashboard"],
            *["--scheduler-file", address],
        )
        wait_until(address.exists)
        self.address = address
        self.workers = [self.start_worker() for _ in range(2)]

    def start_worker(self):
        return self.start(
            *[sys.executable, "-m", "distributed.cli.dask_worker"],
            *["--scheduler-file", self.address, "--nthreads", "1", "--no-nanny"],
            *["--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "20"],
            *["--local-directory", self.folder],
        )

    def start_job(self):
        address = json.loads(self.address.read_text())["address"]
        self.client = self.start(*command("killed"), "--scheduler", address)

    def wait_for(self, watcher, n_parts):
        """Return when so many parts were seen; start a job again that failed meanwhile."""
        began = time.monotonic()
        while len(watcher.seen) < n_parts:
            assert time.monotonic() - began < PATIENCE, self.client.log.read_text()
            if self.client.poll() is not None:
                yield self.ended()
                self.start_job()
            time.sleep(0.01)

    def kill(self, victim, n_parts):
        is_worker = victim == "worker"
        process = self.workers.pop(0) if is_worker else getattr(self, victim)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return f"killed the {victim} when {n_parts} parts were there"

    def restart(self, victim):
        if victim == "worker":
            self.workers.append(self.start_worker())
            return
        if victim == "scheduler":
            self.client.wait(PATIENCE)
            # 2 if it was killed before the job had joined it.
            assert self.client.returncode in (1, 2), self.client.log.read_text()
            self.end_workers()
            self.start_cluster()
        self.start_job()

    def finish(self):
        """Return when the job is done, however often it has to be started."""
        for _ in range(5):
            self.client.wait(PATIENCE)
            yield self.ended()
            if self.client.returncode == 0:
                return
            self.start_job()
        raise AssertionError(self.client.log.read_text())

    def ended(self):
        lines = self.client.log.read_text().strip().splitlines() or ["nothing was said"]
        return f"the job ended with {self.client.returncode}: {lines[-1]}"

    def end_workers(self):
        for process in self.workers:
            process.kill()
            process.wait()
        self.workers = []

    def end(self):
        self.end_workers()
        for process in (self.client, self.scheduler):
            if process is not None:
                process.kill()
                process.wait()


@contextmanager
def processes(folder):
    running = Processes(folder)
    try:
        yield running
    finally:
        running.end()


def wait_until(condition, seconds=30):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)


if __name__ == "__main__":
    main()

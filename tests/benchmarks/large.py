"""A fit of up to ten million rows, in one process and on two workers of 2 GiB.

    PYTHONPATH=tests python -m benchmarks.large --folder FOLDER                # 1e7 x 8
    PYTHONPATH=tests python -m benchmarks.large --folder FOLDER --columns 16
    PYTHONPATH=tests python -m benchmarks.large --folder FOLDER --rows 1000000 --where one
    PYTHONPATH=tests python -m benchmarks.large --folder FOLDER --neighbors 631

20 clusters, float32, Parquet of 20 files, K = 20, each row against all others; the folder
keeps the table, and on workers the spool. Kernels are compiled and loaded before. 50 rows
are compared with brute force, bit for bit.

By hand, on a machine that does nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import dask
import dask.dataframe as dd
import numpy as np
from dask.diagnostics import Profiler
from numpy.typing import NDArray

import lpe_dask
from benchmarks.checks import knn_radii
from benchmarks.machine import describe
from benchmarks.observed_fits import write_table
from benchmarks.planned_fits import Shape

#: Rows that are compared with brute force.
JUDGED_ROWS = 50

WHERE = ("one", "two")

#: What tasks do, by their names.
STEPS = {
    "read": ("lpe-read", "lpe-survey", "read_parquet", "lpe-chunk"),
    "pack": ("lpe-split", "lpe-sizes", "lpe-merge", "lpe-pack"),
    "search": ("lpe-join",),
}

HEAD = (
    "rows", "columns", "processes", "fit, s", "p-values, s", *STEPS, "client, MiB",
    "worker, MiB", "tasks", "messages", "messages, MiB", "brute force",
)  # fmt: skip


@click.command()
@click.option("--folder", required=True, type=click.Path(path_type=Path))
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--columns", default=8, show_default=True)
@click.option("--neighbors", default=20, show_default=True, help="K.")
@click.option("--where", type=click.Choice(WHERE), multiple=True, default=WHERE)
@click.option("--in-this-process", is_flag=True, hidden=True)
def main(
    folder: Path,
    rows: int,
    columns: int,
    neighbors: int,
    where: tuple[str, ...],
    in_this_process: bool,
) -> None:
    """Fit a large table, and print a line for one process and one for two workers."""
    if in_this_process:
        cells = measure(folder, rows, columns, neighbors, where[0])
        click.echo(f"| {' | '.join(cells)} |")
        return
    for name, value in describe().items():
        click.echo(f"{name}: {value}")
    click.echo(f"\n| {' | '.join(HEAD)} |\n| {' | '.join(['---'] * len(HEAD))} |")
    write_table(_shape(rows, columns), folder)
    for one in where:  # each with memory of its own
        given = f"--folder {folder} --rows {rows} --columns {columns} --where {one}"
        given += f" --neighbors {neighbors}"
        command = [sys.executable, "-m", "benchmarks.large", *given.split()]
        subprocess.run([*command, "--in-this-process"], check=True)


def measure(
    folder: Path, n_rows: int, n_columns: int, n_neighbors: int, where: str
) -> list[str]:
    """Return the cells of a line: see `HEAD`."""
    frame = dd.read_parquet(write_table(_shape(n_rows, n_columns), folder))
    lpe_dask.compile_kernels()
    seconds: Counter[str] = Counter()
    with _workers(folder, where) as client:
        began = time.perf_counter()
        with Profiler() as profiler:
            model = lpe_dask.LPE(n_neighbors, calibration="loo")
            model.fit(frame)
            fitted = time.perf_counter() - began
            p_values = np.asarray(model.p_values_)
        took = time.perf_counter() - began
        for result in profiler.results:
            seconds[_name_of(result.key)] += result.end_time - result.start_time
        counts, peak = [f"{len(profiler.results):,}", "", ""], ""
        if client is not None:
            scheduler = client.cluster.scheduler
            prefixes = scheduler.task_prefixes
            for name, prefix in prefixes.items():
                seconds[name] += prefix.all_durations["compute"]
            streams = scheduler.stream_comms.values()
            n_bytes = sum(stream.byte_count for stream in streams)
            counts = [
                f"{sum(of.state_counts['memory'] for of in prefixes.values()):,}",
                f"{sum(stream.message_count for stream in streams):,}",
                f"{n_bytes / 2**20:.1f}",
            ]
            peak = f"{max(client.run(peak_mib).values()):.0f}"
    of_steps = [sum(seconds[name] for name in names) for names in STEPS.values()]
    mine = peak_mib()
    return [
        f"{n_rows:,}", str(n_columns), where, f"{fitted:.1f}", f"{took:.1f}",
        *(f"{of_step:.1f}" for of_step in of_steps), f"{mine:.0f}", peak, *counts,
        judged(frame, n_neighbors, np.asarray(model.calibration_), p_values),
    ]  # fmt: skip


def judged(
    frame: Any,
    n_neighbors: int,
    statistics: NDArray[np.float64],
    p_values: NDArray[np.float64],
) -> str:
    """Return whether some rows have the p-values of the definition, bit for bit."""
    rows = frame.compute().to_numpy()
    which = np.random.default_rng(2).choice(len(rows), JUDGED_ROWS, replace=False)
    radii = knn_radii(rows[which], rows, n_neighbors, which)
    first = np.searchsorted(statistics, radii)
    is_there = statistics[np.minimum(first, len(rows) - 1)] == radii
    are_equal = is_there & (p_values[which] == (len(rows) - first) / len(rows))
    return f"{are_equal.sum()} of {JUDGED_ROWS} equal"


def peak_mib() -> float:
    """Return the most memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@contextmanager
def _workers(folder: Path, where: str) -> Iterator[Any]:
    if where == "one":
        yield None
        return
    from distributed import Client, LocalCluster

    from lpe_dask.cli.cluster import kept_memory

    spool = folder / "spool"
    spool.mkdir(exist_ok=True)
    with (
        dask.config.set({"lpe-dask.spool": str(spool)} | kept_memory()),
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="2GiB",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.run(lpe_dask.compile_kernels)
        yield client


def _shape(n_rows: int, n_columns: int) -> Shape:
    return Shape(n_rows, n_columns, 2, 2**31, 20, ())


def _name_of(key: Any) -> str:
    name = key[0] if isinstance(key, tuple) else key
    return re.sub(r"-[0-9a-f]{32}.*", "", str(name))


if __name__ == "__main__":
    main()

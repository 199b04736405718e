"""Radii of new rows against a reference many times the memory of the workers, on storage.

Writes the reference as Parquet, then measures queries against it on two worker processes of
1.2 GB each, and says what the workers needed. By hand, as it takes minutes and disk space:

    PYTHONPATH=tests python -m benchmarks.spooled --folder FOLDER [--rows 6000000]

A fit of that many rows would take days, so the search is made of its parts.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import Any

import click
import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lpe_dask.search.memory import Needs, plan_for_active_workers
from lpe_dask.search.plan import SearchShape, Statistic
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.reference import prepare_reference
from lpe_dask.tables.nominal import read_nominal
from lpe_dask.tables.table import read_table
from lpe_dask.tasks.workers import peak_process_bytes

N_FEATURES, N_NEIGHBORS, FILE_ROWS = 256, 20, 10_000

#: Seconds after which a spool without a client is gone: it looks for clients every 5.
LONGEST_REMOVAL = 30.0


def _rows(number: int, n_rows: int) -> NDArray[np.float32]:
    generator = np.random.default_rng(number)
    return generator.standard_normal((n_rows, N_FEATURES), dtype=np.float32)


def write_reference(folder: Path, n_rows: int) -> None:
    """Write Gaussian rows as Parquet files of `FILE_ROWS` rows each."""
    folder.mkdir(parents=True)
    names = [f"x{k:03}" for k in range(N_FEATURES)]
    for number in range(n_rows // FILE_ROWS):
        columns = list(_rows(number, FILE_ROWS).T.copy())
        table = pa.table(dict(zip(names, columns, strict=True)))
        name = folder / f"rows-{number:05}.parquet"
        pq.write_table(table, name, compression="none", use_dictionary=False)


def measure(folder: Path, n_queries: int) -> tuple[NDArray[np.float64], Any]:
    """Return the radii of new rows, and the plan, on the cluster that is active."""
    nominal = read_nominal(read_table(str(folder)), "error")
    queries = read_table(_rows(10**9, n_queries)).rows
    shape = SearchShape(
        *nominal.rows.shape, Statistic(N_NEIGHBORS, None),
        calibration_rows=1,  # no p-values are asked for
        partition_rows=max(nominal.input_chunks),
        reads_frame=nominal.row_hashes is not None,
    )  # fmt: skip
    plan = plan_for_active_workers(shape, wait=True)
    reference = prepare_reference(
        lambda: nominal.rows, nominal.sample, Preparation(), plan, "brute"
    )
    return reference.measure_rows(queries).compute(), plan


def strict_radius(query: NDArray[np.float32], folder: Path) -> float:
    """Return the radius of one query by the float64 definition, file by file."""
    squares = []
    for path in sorted(folder.iterdir()):
        rows = pq.read_table(path).to_pandas().to_numpy(np.float64)
        total = np.zeros(len(rows))
        for k in range(N_FEATURES):
            difference = float(query[k]) - rows[:, k]
            total += difference * difference
        squares.append(np.partition(total, N_NEIGHBORS - 1)[:N_NEIGHBORS])
    return float(np.sqrt(np.sort(np.concatenate(squares))[N_NEIGHBORS - 1]))


def left_of_spool(scratch: Path) -> list[Path]:
    """Return what is still in the spool once there was time to remove it."""
    deadline = time.monotonic() + LONGEST_REMOVAL
    while (left := list(scratch.glob("lpe-spool-*"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--rows", "n_rows", default=6_000_000)
@click.option("--queries", "n_queries", default=20_000)
def main(folder: Path, n_rows: int, n_queries: int) -> None:
    """Write a reference, measure queries against it on small workers, and tell."""
    from distributed import Client, LocalCluster

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("distributed").setLevel(logging.WARNING)
    data, scratch = folder / "reference", folder / "scratch"
    write_reference(data, n_rows)
    n_bytes = sum(path.stat().st_size for path in data.iterdir())
    click.echo(f"reference: {n_rows} x {N_FEATURES}, {n_bytes / 1e9:.2f} GB of Parquet")
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 1_200_000_000}
    with (
        dask.config.set({"temporary-directory": str(scratch)}),
        LocalCluster(dashboard_address="127.0.0.1:0", **options) as cluster,
        Client(cluster) as client,
    ):
        pids = sorted(client.run(lambda: __import__("os").getpid()).values())
        began = time.perf_counter()
        radii, plan = measure(data, n_queries)
        seconds = time.perf_counter() - began
        peaks = client.run(peak_process_bytes)
        spilled = client.run(lambda dask_worker: dask_worker.data.spilled_total.disk)
        same = sorted(client.run(lambda: __import__("os").getpid()).values()) == pids
    click.echo(f"{n_queries} radii in {seconds:.0f} s, {plan.n_blocks} blocks")
    click.echo(f"planned a worker: {Needs(plan).worker / 1e6:.0f} MB")
    click.echo(f"peaks: {[round(peak / 1e6) for peak in peaks.values()]} MB")
    click.echo(f"spilled: {list(spilled.values())} bytes; no worker restarted: {same}")
    query = _rows(10**9, n_queries)[7]
    click.echo(f"bits of a radius checked: {strict_radius(query, data) == radii[7]}")
    click.echo(f"left of the spool: {left_of_spool(scratch)}")
    shutil.rmtree(data)


if __name__ == "__main__":
    main()

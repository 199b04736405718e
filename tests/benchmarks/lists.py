"""What the pynndescent that is installed lists, and what building lists takes.

To compare versions, run it in an environment of each, with nothing else running:

    PYTHONPATH=tests python -m benchmarks.lists
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import numpy as np
import psutil
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from benchmarks.data import SOURCES
from lpe_dask.kernels import nn_descent

#: What is listed: kinds of rows, and how many of how many columns.
TABLES = (
    ("embeddings", 50_000, 64),
    ("embeddings", 50_000, 256),
    ("clusters-50", 50_000, 64),
    ("clusters-50", 50_000, 256),
    ("gaussian", 50_000, 64),
    ("embeddings", 100_000, 768),
)

#: Rows that are looked up, and neighbors of each.
LOOKED_UP, N_NEIGHBORS = 500, 20

#: Seconds between two looks at the memory of this process.
INTERVAL = 0.02


def found_share(rows: NDArray[np.float64], lists: NDArray[np.int32]) -> float:
    """Return for what share of some rows the K-th nearest is known from their lists."""
    some = np.random.default_rng(1).choice(len(rows), LOOKED_UP, replace=False)
    n_found = 0
    for i in some:
        squares = cdist(rows[i : i + 1], rows, "sqeuclidean")[0]
        squares[i] = np.inf
        nearest = np.partition(squares, N_NEIGHBORS - 1)[N_NEIGHBORS - 1]
        listed = np.unique(lists[i])
        of_lists = np.sort(squares[listed[listed >= 0]])
        n_found += len(of_lists) >= N_NEIGHBORS and of_lists[N_NEIGHBORS - 1] == nearest
    return n_found / len(some)


@contextmanager
def added_bytes() -> Iterator[list[int]]:
    """Yield a list that has the bytes that this process took more, once this is left."""
    process, is_done, peaks = psutil.Process(), threading.Event(), [0]
    before = process.memory_info().rss

    def watch() -> None:
        while not is_done.wait(INTERVAL):
            peaks[0] = max(peaks[0], process.memory_info().rss - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peaks
    finally:
        is_done.set()
        watching.join()


@click.command()
def main() -> None:
    """Print a table, of the version that is installed."""
    began = time.perf_counter()
    nn_descent.neighbor_lists(np.random.default_rng(0).standard_normal((3000, 8)), 0)
    seconds = time.perf_counter() - began
    click.echo(f"pynndescent {nn_descent.version()}, compiled in {seconds:.0f} s\n")
    click.echo("| rows | found | s | bytes a row |\n| --- | --- | --- | --- |")
    for kind, n_rows, n_features in TABLES:
        rows = SOURCES[kind].rows(n_rows, n_features).astype(np.float64)
        with added_bytes() as peaks:
            began = time.perf_counter()
            lists = nn_descent.neighbor_lists(rows, 0)
            seconds = time.perf_counter() - began
        n_bytes = peaks[0] / n_rows - 4 * n_features  # but for the rows in float32
        name = f"{kind}, {n_rows:,} x {n_features}"
        found = found_share(rows, lists)
        click.echo(f"| {name} | {found:.3f} | {seconds:.1f} | {n_bytes:.0f} |")


if __name__ == "__main__":
    main()

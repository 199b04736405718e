"""What a service waits for: few rows by a loaded model, in threads and after a fork.

    PYTHONPATH=tests python -m benchmarks.service [--repeats 300]

The model is fitted on Gaussian rows, saved and loaded, kernels are compiled, and each
method is called once. Threads call at the same time, and each waits for its own answers.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import lpe_dask
from benchmarks.report import markdown

METHODS = ("score_samples", "predict", "explain")
N_ROWS, N_THREADS = (1, 10, 100), (1, 8)


def seconds_of(call: Callable[[], Any], n_calls: int) -> list[float]:
    """Return the seconds of each of some calls, one after the other."""
    seconds = []
    for _ in range(n_calls):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def by_threads(call: Callable[[], Any], n_calls: int, n_threads: int) -> list[float]:
    """Return the same for threads that call at the same time."""
    share = partial(seconds_of, call, max(1, n_calls // n_threads))
    if n_threads == 1:
        return share()
    with ThreadPoolExecutor(n_threads) as pool:
        found = [pool.submit(share) for _ in range(n_threads)]
        return [second for of in found for second in of.result()]


def after_fork(call: Callable[[], Any], n_calls: int) -> list[float]:
    """Return the same for the only thread of a fork."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=lambda: there.send(seconds_of(call, n_calls)))
    process.start()
    seconds: list[float] = here.recv()
    process.join()
    return seconds


def line(what: str, n_rows: int, where: str, seconds: list[float]) -> list[str]:
    """Return a line of the table."""
    milliseconds: NDArray[np.float64] = 1000 * np.quantile(seconds, [0.5, 0.99])
    return [what, str(n_rows), where, *(f"{of:.2f}" for of in milliseconds)]


@click.command()
@click.option("--nominal", default=100_000, show_default=True, type=click.IntRange(min=2))
@click.option("--columns", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--repeats", default=300, show_default=True, type=click.IntRange(min=1))
def main(nominal: int, columns: int, repeats: int) -> None:
    """Time calls for few rows, and print medians and 99 % quantiles as a table."""
    lpe_dask.compile_kernels()
    rng = np.random.default_rng(0)
    model = lpe_dask.LPE().fit(rng.standard_normal((nominal, columns)))
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        model = lpe_dask.load(f"{folder}/model")
        new = rng.standard_normal((max(N_ROWS), columns)) * 1.5
        lines = []
        for method in METHODS:
            for n_rows in N_ROWS:
                call = partial(getattr(model, method), new[:n_rows])
                call()
                for n_threads in N_THREADS:
                    seconds = by_threads(call, repeats, n_threads)
                    lines.append(
                        line(
                            method,
                            n_rows,
                            "1 thread" if n_threads == 1 else f"{n_threads} threads",
                            seconds,
                        )
                    )
                lines.append(line(method, n_rows, "a fork", after_fork(call, repeats)))
    click.echo(markdown(["call", "rows", "by", "median, ms", "99 %, ms"], lines))


if __name__ == "__main__":
    main()

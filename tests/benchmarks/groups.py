"""What a search in groups takes, beside a loop over groups.

    PYTHONPATH=tests python -m benchmarks.groups equal [--rows 1000000] [--groups 10000]
    PYTHONPATH=tests python -m benchmarks.groups zipf [--rows 10000000] [--groups 100000]
    PYTHONPATH=tests python -m benchmarks.groups one [--rows 200000]

``equal``: groups of one size; the kernel and ``lpe_dask.score(frame, by=...)`` beside one
compiled function that compares all pairs of each group, and `groupby(...).apply` of `LPE`,
which is extrapolated from some groups. ``zipf``: sizes by Zipf's law on two workers of
2 GiB, with their largest resident sizes. ``one``: one group beside no ``by``, in turns.

By hand, on a machine that does nothing else. Behind ratios stands what is required.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from numba import njit
from numpy.typing import NDArray

import lpe_dask
from benchmarks.data import SOURCES
from benchmarks.machine import describe
from lpe_dask.kernels import ALGORITHMS
from lpe_dask.model.lpe_parameters import neighbors_by_rule
from lpe_dask.search import Preparation, SearchGroups, Space, Statistic
from lpe_dask.search.join import JoinSpec, search_blocks

Floats = NDArray[np.float64]

#: Prepared rows that teach where pairs are filtered.
SAMPLE_ROWS = 16_384


@njit(nogil=True)
def plain_loop(
    rows: Floats, starts: NDArray[np.int64], n_neighbors: int, radii: Floats
) -> None:
    """Write the distance from each row to the K-th nearest of the others of its group.

    All pairs of a group are compared, and the K nearest are kept by insertion: what
    somebody would write in a quarter of an hour.
    """
    nearest = np.empty(n_neighbors)
    for group in range(len(starts) - 1):
        for i in range(starts[group], starts[group + 1]):
            n_kept = 0
            for j in range(starts[group], starts[group + 1]):
                if i == j:
                    continue
                square = 0.0
                for k in range(rows.shape[1]):
                    difference = rows[i, k] - rows[j, k]
                    square += difference * difference
                if n_kept < n_neighbors:
                    place = n_kept
                    n_kept += 1
                elif square < nearest[n_neighbors - 1]:
                    place = n_neighbors - 1
                else:
                    continue
                while place > 0 and nearest[place - 1] > square:
                    nearest[place] = nearest[place - 1]
                    place -= 1
                nearest[place] = square
            radii[i] = math.sqrt(nearest[n_neighbors - 1])


def in_loop(rows: Floats, codes: NDArray[np.int64], n_neighbors: int) -> Floats:
    """Return the result of `plain_loop` for rows that lie together by groups."""
    starts = np.append(0, np.cumsum(np.bincount(codes)))
    radii = np.empty(len(rows))
    plain_loop(rows, starts, n_neighbors, radii)
    return radii


class Kernel:
    """The kernel in groups, in one thread, without Dask.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    codes : ndarray of shape (n_rows,)
        Of groups.
    n_neighbors : int
        K of all groups.
    """

    def __init__(self, rows: Floats, codes: NDArray[np.int64], n_neighbors: int) -> None:
        n_features, kernel = rows.shape[1], ALGORITHMS["pruned"]
        self.rows, self.numbers = np.c_[rows, codes], np.arange(len(rows))
        sample = self.rows[np.random.default_rng(0).permutation(len(rows))[:SAMPLE_ROWS]]
        self.space = Space(
            "pruned", Preparation(categorical=(n_features,), separates=True),
            kernel.basis(sample, None, 1, separates=True),
            groups=SearchGroups(np.full(int(codes.max()) + 1, n_neighbors)),
        )  # fmt: skip
        self.search = JoinSpec(Statistic(n_neighbors, None), len(rows), work=math.inf)
        self.search.expect()

    def pack(self) -> None:
        """Make the rows a block, and tiles of queries."""
        self.block = self.space.pack(self.rows, self.numbers)
        self.tiles = self.space.tiles(self.rows, self.numbers)

    def find(self) -> Floats:
        """Return the distance from each row to the K-th nearest of the others."""
        return search_blocks(self.tiles, [self.block], self.space, self.search).finish()


def by_apply(frame: pd.DataFrame) -> pd.Series:
    """Return the p-values of rows by a model for each group, one after another."""
    with dask.config.set(scheduler="sync"):
        found = [
            pd.Series(lpe_dask.LPE().fit(of.drop(columns="group")).p_values_, of.index)
            for _, of in frame.groupby("group")
        ]
    return pd.concat(found).reindex(frame.index)


def seconds_of(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the seconds of the fastest of some runs, and the result of the last one."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - began)
    return min(taken), result


def say_machine() -> None:
    """Print what the numbers are measured on."""
    machine = describe()
    for name in ("processor", "vectors", "cores", "memory"):
        click.echo(f"{name}: {machine[name]}")


def named(rows: NDArray[Any], codes: NDArray[np.int64]) -> pd.DataFrame:
    """Return a frame of rows and their groups."""
    frame = pd.DataFrame(rows, columns=[f"x{k}" for k in range(rows.shape[1])])
    return frame.assign(group=codes)


@click.group()
def main() -> None:
    """Time searches in groups beside others."""


@main.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--columns", default=8, show_default=True)
@click.option("--groups", default=10_000, show_default=True)
@click.option("--applied", default=200, show_default=True, help="Groups of apply.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--together", is_flag=True, help="Rows of a group come together.")
def equal(
    rows: int, columns: int, groups: int, applied: int, repeats: int, together: bool
) -> None:
    """Time groups of one size: loop, kernel, score and apply."""
    say_machine()
    codes = np.repeat(np.arange(groups), rows // groups)
    numbers = np.random.default_rng(0).standard_normal((len(codes), columns))
    n_neighbors = neighbors_by_rule(rows // groups)
    few = codes < 2
    in_loop(numbers[few], codes[few], n_neighbors)  # compiles
    loop, radii = seconds_of(lambda: in_loop(numbers, codes, n_neighbors), repeats)
    click.echo(
        f"{len(codes):,} rows x {columns} in {groups:,} groups of {rows // groups}, "
        f"K = {n_neighbors}\nplain loop: {loop:.2f} s"
    )
    kernel = Kernel(numbers, codes, n_neighbors)
    packing, _ = seconds_of(kernel.pack, repeats)
    took, found = seconds_of(kernel.find, repeats + 1)  # the first one compiles
    click.echo(f"kernel: {took:.2f} s, {took / loop:.2f} of the loop (at most 1.5)")
    click.echo(
        f"  with packing: {took + packing:.2f} s, {(took + packing) / loop:.2f}; "
        f"{_sameness(found, radii)}"
    )
    del kernel, found
    frame = named(numbers, codes)
    if not together:
        frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    lpe_dask.score(frame[frame["group"] < 2], by=["group"])
    gc.collect()
    took, p_values = seconds_of(lambda: lpe_dask.score(frame, by=["group"]), repeats)
    click.echo(f"score: {took:.2f} s (at most {3 * loop + 2:.2f} s: 3 loops and 2 s)")
    some = frame[frame["group"] < applied]
    of_some, applied_p_values = seconds_of(lambda: by_apply(some), 1)
    whole = of_some * groups / min(applied, groups)
    click.echo(
        f"apply: {whole:.0f} s by {min(applied, groups)} groups, {whole / took:.0f} times "
        f"score (at least 50); {_sameness(p_values[some.index], applied_p_values)}"
    )


def _sameness(found: Any, expected: Any) -> str:
    return "the same bits" if np.array_equal(found, expected) else "NOT THE SAME"


def drawn_by_zipf(seed: int, n_rows: int, n_features: int, n_groups: int) -> pd.DataFrame:
    """Return rows whose groups are drawn by Zipf's law with exponent 1."""
    rng = np.random.default_rng(seed)
    upper = np.cumsum(1 / np.arange(1, n_groups + 1))
    codes = np.searchsorted(upper / upper[-1], rng.random(n_rows), side="right")
    codes = np.minimum(codes, n_groups - 1)
    rows = rng.standard_normal((n_rows, n_features)) + (codes % 100)[:, None]
    return named(rows, codes)


@main.command()
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--columns", default=5, show_default=True)
@click.option("--groups", default=100_000, show_default=True)
@click.option("--partitions", default=100, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--memory", default="2GiB", show_default=True, help="Of each worker.")
@click.option("--folder", help="For spilling and the spool; None: Dask's.")
def zipf(
    rows: int, columns: int, groups: int, partitions: int, workers: int, memory: str,
    folder: str | None,
) -> None:  # fmt: skip
    """Score groups of sizes by Zipf's law on small workers, and tell time and peaks."""
    from distributed import Client, LocalCluster

    say_machine()
    make = partial(
        drawn_by_zipf, n_rows=rows // partitions, n_features=columns, n_groups=groups
    )
    frame = dd.from_map(make, range(partitions), meta=drawn_by_zipf(0, 0, columns, groups))
    configured = {} if folder is None else {"temporary-directory": folder}
    with (
        dask.config.set(configured),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=memory,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        before = client.run(_peak_mib)
        began = time.perf_counter()
        p_values = lpe_dask.score(frame, by=["group"])
        fitted = time.perf_counter() - began
        flagged, missing, n_scored = dask.compute(
            (p_values <= 0.05).sum(), p_values.isna().sum(), p_values.size
        )
        took = time.perf_counter() - began
        peaks = client.run(_peak_mib)
    click.echo(
        f"{n_scored:,} rows x {columns} in {groups:,} groups: {took:.0f} s (fit "
        f"{fitted:.0f} s), {flagged:,} flagged, {missing:,} in small groups"
    )
    for address, peak in peaks.items():
        click.echo(f"worker: peak {peak:.0f} MiB, {before[address]:.0f} MiB before")
    lost = workers - len(set(before) & set(peaks))
    click.echo(f"client: peak {_peak_mib():.0f} MiB; {lost} workers lost")


def _peak_mib() -> float:
    """Return the largest resident size of this process so far."""
    status = Path("/proc/self/status").read_text()
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return float(peak.split()[1]) / 1024


@main.command()
@click.option("--rows", default=200_000, show_default=True)
@click.option("--columns", default=8, show_default=True)
@click.option("--source", "kinds", multiple=True, default=["gaussian", "clusters"])
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
def one(rows: int, columns: int, kinds: tuple[str, ...], repeats: int) -> None:
    """Time one group beside no groups, in turns."""
    say_machine()
    for kind in kinds:
        numbers = SOURCES[kind].rows(rows, columns)
        frame = named(numbers, np.zeros(len(numbers), np.int64))
        runs: dict[str, Callable[[], Any]] = {
            "no by": partial(lpe_dask.score, frame.drop(columns="group")),
            "one group": partial(lpe_dask.score, frame, by=["group"]),
        }
        taken: dict[str, list[float]] = {name: [] for name in runs}
        results = {}
        for repeat in range(repeats + 1):
            for name, run in runs.items():
                began = time.perf_counter()
                results[name] = run()
                if repeat > 0:  # the first one may compile
                    taken[name].append(time.perf_counter() - began)
        without, within = (median(taken[name]) for name in runs)
        click.echo(
            f"{SOURCES[kind].label}, {len(frame):,} rows x {numbers.shape[1]}: no by "
            f"{without:.2f} s, one group {within:.2f} s, {within / without:.3f} (at most "
            f"1.05); {_sameness(*results.values())}"
        )


if __name__ == "__main__":
    main()

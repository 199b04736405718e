"""What `lpe-dask plan` says, beside what `lpe-dask score` then takes.

Writes tables as Parquet, plans each run and starts it as a command of its own, and says how
far the forecast was off. By hand, as it takes a quarter of an hour:

    PYTHONPATH=tests python -m benchmarks.forecasts --folder FOLDER [--scheduler threads]

Seconds are those of the whole command; beside them stands what it had of the processors, as
other work on the machine makes the first longer, and not the second. That forecasts name as
many tasks as there are is tested (tests/core/forecast/test_estimate.py).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import click
import pandas as pd
from dask.system import CPU_COUNT

from benchmarks.data import SOURCES
from benchmarks.report import markdown
from lpe_dask.batch import ClusterSection
from lpe_dask.cli.cluster import WorkerChoice
from lpe_dask.forecast import make_forecast
from lpe_dask.forecast.forecast import Forecast

N_FEATURES, PARTITION_ROWS = 8, 2**17

#: Tables and how they are searched, and K of the searches; None: by the rule.
CASES = (("gaussian", "brute"), ("clusters", "pruned"))
NEIGHBORS = (20, None)

_HEAD = [
    "data", "n", "K", "algorithm", "forecast, s", "measured, s", "ratio", "processor, s",
    "ratio", "planned, MiB", "peak, MiB",
]  # fmt: skip
_COMMAND = "from lpe_dask.cli import main; main()"


def write_table(kind: str, n_rows: int, folder: Path) -> Path:
    """Write rows of a kind as one Parquet file, unless it is there."""
    path = folder / f"{kind}-{n_rows}.parquet"
    if not path.exists():
        rows = SOURCES[kind].rows(n_rows, N_FEATURES)
        names = [f"x{k}" for k in range(N_FEATURES)]
        pd.DataFrame(rows, columns=names).to_parquet(path, row_group_size=PARTITION_ROWS)
    return path


def foresee(path: Path, scheduler: str | None, **arguments: Any) -> Forecast:
    """Output of `lpe-dask plan` for a table."""
    with WorkerChoice(ClusterSection(scheduler=scheduler)).for_plan() as workers:
        return make_forecast(workers, str(path), **arguments)


def run(
    path: Path, scheduler: str | None, n_neighbors: int | None, algorithm: str
) -> tuple[float, float, int]:
    """Score a table as a command, and return what it took.

    Returns
    -------
    seconds : float
        Of the command.
    busy_seconds : float
        Of the processors, for each thread: what the command would take where nothing else
        runs, and all threads have work at all times.
    peak_bytes : int
        Of a worker.
    """
    output = path.with_suffix(".scored")
    command = [sys.executable, "-c", _COMMAND, "score", str(path), "--overwrite"]
    command += ["--output", str(output), "--algorithm", algorithm]
    options = {"--n-neighbors": n_neighbors, "--scheduler": scheduler}
    command += [f"{name}={value}" for name, value in options.items() if value is not None]
    before, began = _processor_seconds(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    busy_seconds = (_processor_seconds() - before) / CPU_COUNT
    summary = json.loads((output / "_summary.json").read_text())
    return seconds, busy_seconds, summary["peak_worker_bytes"]


def _processor_seconds() -> float:
    """Resources used by ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--rows", "sizes", multiple=True, default=[100_000, 300_000, 1_000_000])
@click.option("--scheduler", type=click.Choice(["threads"]))
def main(folder: Path, sizes: tuple[int, ...], scheduler: str | None) -> None:
    """Plan and run tables of several sizes, and tell both."""
    folder.mkdir(parents=True, exist_ok=True)
    # Line by line, as each takes its time.
    click.echo(markdown(_HEAD, []), nl=False)
    for (kind, algorithm), n_rows, k in product(CASES, sizes, NEIGHBORS):
        path = write_table(kind, n_rows, folder)
        forecast = foresee(path, scheduler, n_neighbors=k, algorithm=algorithm)
        seconds, busy_seconds, peak_bytes = run(path, scheduler, k, algorithm)
        ratios = [
            f"{took:.1f} | {forecast.seconds / took:.2f}"
            for took in (seconds, busy_seconds)
        ]
        cells = [
            SOURCES[kind].label, f"{forecast.n_rows:,}", str(forecast.n_neighbors),
            forecast.algorithm, f"{forecast.seconds:.1f}", *ratios,
            *(f"{n / 2**20:.0f}" for n in (forecast.worker_bytes, peak_bytes)),
        ]  # fmt: skip
        click.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

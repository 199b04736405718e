"""What a new user waits for: imports, commands and first scores of small tables.

    PYTHONPATH=tests python -m benchmarks.first_minute [--python .venv/bin/python]

Each run is a process of its own, and runs alternate. ``--python`` names another
environment, such as that of `make demo`, which has only what users need. Ratios are to the
time of ``import dask.dataframe``, which every program that reads tables with Dask takes.
The cache of compiled code is empty where the label says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
import numpy as np
import pandas as pd

from benchmarks.report import markdown

_MODULE = ("-m", "lpe_dask")
_SCORE = (*_MODULE, "score", "--overwrite", "--output", "scores")
_FIRST_SCORE = """
import time
import numpy as np
import lpe_dask

lpe_dask.LPE
new, nominal = np.random.default_rng(0).standard_normal((2, {rows}, {columns}))
began = time.perf_counter()
lpe_dask.score(new, nominal=nominal, scale="standard", aggregation="mean")
print(time.perf_counter() - began)
"""


class Run(NamedTuple):
    """A process to time, and its limit.

    Attributes
    ----------
    label : str
    arguments : tuple of str
        Of Python.
    is_cold : bool
        Whether the cache of compiled code is empty.
    limit : float, optional
        Ratio to ``import dask.dataframe``; seconds if the run prints its own time.
    prints : bool
        Whether the run prints its own time, in seconds.
    """

    label: str
    arguments: tuple[str, ...]
    is_cold: bool = False
    limit: float | None = None
    prints: bool = False


def _first_score(rows: int, columns: int, limit: float) -> Run:
    code = _FIRST_SCORE.format(rows=rows, columns=columns)
    label = f"first score of {rows:,} x {columns}, empty cache"
    return Run(label, ("-c", code), is_cold=True, limit=limit, prints=True)


UNIT = Run("import dask.dataframe", ("-c", "import dask.dataframe"))
PARQUET = (*_SCORE, "table.parquet", "--nominal", "table.parquet")
CSV = (*_SCORE, "table.csv", "--nominal", "table.csv")
RUNS = (
    UNIT,
    Run("import sklearn.base", ("-c", "import sklearn.base")),
    Run("lpe-dask --help", (*_MODULE, "--help"), limit=0.4),
    Run("lpe_dask.LPE", ("-c", "import lpe_dask; lpe_dask.LPE"), limit=1.3),
    Run("lpe-dask score, Parquet of 1,000 x 8", PARQUET, limit=2.5),
    Run(
        "lpe-dask score, Parquet of 1,000 x 8, empty cache",
        PARQUET,
        is_cold=True,
        limit=4.0,
    ),
    Run("lpe-dask score, CSV of 1,000 x 8, empty cache", CSV, is_cold=True, limit=4.0),
    Run("lpe-dask demo, empty cache", (*_MODULE, "demo"), is_cold=True),
    _first_score(1000, 5, limit=1.0),
    _first_score(5000, 10, limit=3.0),
)


def seconds_of(run: Run, python: str, folder: Path) -> float:
    """Return the seconds that a run takes in a folder."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with TemporaryDirectory() as temporary:
        variables["TMPDIR"] = temporary  # where the demo leaves its page
        if run.is_cold:
            variables["NUMBA_CACHE_DIR"] = temporary
        began = time.perf_counter()
        done = subprocess.run(
            [python, *run.arguments], cwd=folder, env=variables,
            capture_output=True, text=True,
        )  # fmt: skip
        passed = time.perf_counter() - began
    if done.returncode != 0:
        raise click.ClickException(f"{run.label} failed: {done.stderr}")
    return float(done.stdout) if run.prints else passed


@click.command()
@click.option("--python", default=sys.executable, help="Python of another environment.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
def main(python: str, repeats: int) -> None:
    """Time what a new user waits for, and print the medians as a table."""
    python = str(Path(python).absolute())  # not resolved: in an environment it is a link
    took: dict[str, list[float]] = {run.label: [] for run in RUNS}
    with TemporaryDirectory() as name:
        folder = Path(name)
        numbers = np.random.default_rng(0).standard_normal((1000, 8))
        table = pd.DataFrame(numbers, columns=list("abcdefgh"))
        table.to_parquet(folder / "table.parquet")
        table.to_csv(folder / "table.csv", index=False)
        for _ in range(repeats):
            for run in RUNS:
                took[run.label].append(seconds_of(run, python, folder))
    unit = median(took[UNIT.label])
    head = ["run", "s", "lowest to highest, s", "ratio", "at most"]
    click.echo(markdown(head, [_line(run, took[run.label], unit) for run in RUNS]))


def _line(run: Run, seconds: list[float], unit: float) -> list[str]:
    middle = median(seconds)
    ratio = "" if run.prints else f"{middle / unit:.2f}"
    limit = "" if run.limit is None else f"{run.limit}" + " s" * run.prints
    spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
    return [run.label, f"{middle:.2f}", spread, ratio, limit]


if __name__ == "__main__":
    main()

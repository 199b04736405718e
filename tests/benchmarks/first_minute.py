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

import click
import numpy as np
import pandas as pd

from benchmarks.report import markdown

#: What ends labels of runs that begin without compiled code.
COLD = ", empty cache"

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


def _command(text: str) -> list[str]:
    return ["-m", "lpe_dask", *text.split()]


_PARQUET, _CSV = (
    _command(f"score {table} --nominal {table} --overwrite --output scores")
    for table in ("table.parquet", "table.csv")
)

#: Label -> arguments of Python. A first score prints its own time, in seconds.
RUNS = {
    "import dask.dataframe": ["-c", "import dask.dataframe"],
    "import sklearn.base": ["-c", "import sklearn.base"],
    "lpe-dask --help": _command("--help"),
    "lpe_dask.LPE": ["-c", "import lpe_dask; lpe_dask.LPE"],
    "lpe-dask score, Parquet of 1,000 x 8": _PARQUET,
    f"lpe-dask score, Parquet of 1,000 x 8{COLD}": _PARQUET,
    f"lpe-dask score, CSV of 1,000 x 8{COLD}": _CSV,
    f"lpe-dask demo{COLD}": _command("demo"),
} | {
    f"first score of {n_rows:,} x {n_columns}{COLD}": [
        "-c", _FIRST_SCORE.format(rows=n_rows, columns=n_columns)
    ]
    for n_rows, n_columns in ((1000, 5), (5000, 10))
}  # fmt: skip


def seconds_of(label: str, python: str, folder: Path) -> float:
    """Return the seconds that a run takes in a folder."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with TemporaryDirectory() as temporary:
        variables["TMPDIR"] = temporary  # where the demo leaves its page
        if label.endswith(COLD):
            variables["NUMBA_CACHE_DIR"] = temporary
        began = time.perf_counter()
        done = subprocess.run(
            [python, *RUNS[label]], cwd=folder, env=variables,
            capture_output=True, text=True,
        )  # fmt: skip
        passed = time.perf_counter() - began
    if done.returncode != 0:
        raise click.ClickException(f"{label} failed: {done.stderr}")
    return float(done.stdout) if label.startswith("first score") else passed


@click.command()
@click.option("--python", default=sys.executable, help="Python of another environment.")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
def main(python: str, repeats: int) -> None:
    """Time what a new user waits for, and print the medians as a table."""
    python = str(Path(python).absolute())  # not resolved: in an environment it is a link
    times = pd.DataFrame(index=range(repeats), columns=[*RUNS], dtype=float)
    with TemporaryDirectory() as name:
        numbers = np.random.default_rng(0).standard_normal((1000, 8))
        table = pd.DataFrame(numbers, columns=list("abcdefgh"))
        table.to_parquet(f"{name}/table.parquet")
        table.to_csv(f"{name}/table.csv", index=False)
        for repeat in times.index:
            for label in RUNS:
                times.loc[repeat, label] = seconds_of(label, python, Path(name))
    ratios = times.median() / times.iloc[:, 0].median()
    lines = [
        [
            label, f"{median(took):.2f}", f"{min(took):.2f} to {max(took):.2f}",
            "" if label.startswith("first score") else f"{ratios[label]:.2f}",
        ]
        for label, took in times.items()
    ]  # fmt: skip
    click.echo(markdown(["run", "s", "lowest to highest, s", "ratio"], lines))


if __name__ == "__main__":
    main()

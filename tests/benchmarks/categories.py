"""What three categorical columns cost beside 38 columns of numbers: KDD Cup 1999.

    PYTHONPATH=tests python -m benchmarks.categories [--rows 100000] [--repeats 5]

Fits both tables in turns, so that they meet the same machine.
"""

from __future__ import annotations

import time
from statistics import median

import click
import pandas as pd

from benchmarks.data import table_path
from lpe_dask import LPE

CATEGORICAL = ["protocol_type", "service", "flag"]


@click.command()
@click.option("--rows", default=100_000, show_default=True)
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--algorithm", default="auto", show_default=True)
def main(rows: int, repeats: int, algorithm: str) -> None:
    """Print the median seconds of a fit without and with categories, and their ratio."""
    table = pd.read_parquet(table_path("kdd99.parquet")).drop(columns=["label", "part"])
    table = table.sample(min(rows, len(table)), random_state=0, ignore_index=True)
    cases = {"38": (table.drop(columns=CATEGORICAL), None), "38 + 3": (table, CATEGORICAL)}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        for name, (fitted, categorical) in cases.items():
            model = LPE(
                scale="minmax", categorical=categorical, calibration="loo",
                algorithm=algorithm,
            )  # fmt: skip
            began = time.perf_counter()
            model.fit(fitted)
            if repeat > 0:  # the first one may compile
                seconds[name].append(time.perf_counter() - began)
    for name, taken in seconds.items():
        ratio = median(taken) / median(seconds["38"])
        print(f"{name:6} columns, {model.algorithm_}: {median(taken):.2f} s, {ratio:.2f}")


if __name__ == "__main__":
    main()

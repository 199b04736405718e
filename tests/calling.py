"""Commands, in this process or in one of their own, and small tables that they score."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import CliRunner

from lpe_dask.cli.commands import cli

COMMAND = Path(sys.executable).with_name("lpe-dask")

#: Scores the tables of `write_tables`.
SCORE = ("score", "data.parquet", "--nominal", "nominal.parquet", "--output", "out")
THREADS = ("--scheduler", "threads")


def invoke(*arguments):
    """Return the result of a command in this process."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def write_tables():
    """Write nominal.parquet and data.parquet, on a grid, to the current folder."""
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.integers(0, 6, (60, 2)) * 1.0, columns=["x", "y"])
    data = pd.DataFrame(rng.integers(-2, 9, (20, 2)) * 1.0, columns=["x", "y"])
    nominal.to_parquet("nominal.parquet")
    data.assign(name="row").to_parquet("data.parquet")

"""The command of this environment, and small tables that it scores."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

COMMAND = Path(sys.executable).with_name("lpe-dask")


def write_tables():
    """Write nominal.parquet and data.parquet, on a grid, to the current folder."""
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.integers(0, 6, (60, 2)) * 1.0, columns=["x", "y"])
    data = pd.DataFrame(rng.integers(-2, 9, (20, 2)) * 1.0, columns=["x", "y"])
    nominal.to_parquet("nominal.parquet")
    data.assign(name="row").to_parquet("data.parquet")

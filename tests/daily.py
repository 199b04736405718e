"""A job that is run daily, with a model that is there; rows of any day, which may drift."""

import datetime
import functools
from pathlib import Path

import numpy as np
import pandas as pd

import lpe_dask

N_ROWS = 400
DAY = datetime.date(2026, 11, 1)

JOB = """
[model]
path = "model"
[score]
data = "in/{date}.parquet"
output = "out/{date}"
"""


def prepare_folder():
    """Write the job and its model to the current folder."""
    Path("in").mkdir()
    Path("job.toml").write_text(JOB)
    fit_model(0)


def rows(seed, shift=0.0, n_rows=N_ROWS):
    """Return a table of normal rows."""
    values = np.random.default_rng(seed).standard_normal((n_rows, 2)) + shift
    return pd.DataFrame(values, columns=["x", "y"])


def fit_model(seed):
    """Fit the model of the job to nominal rows of a seed, and replace the one there."""
    fitted(seed).save("model", overwrite=True)


@functools.cache
def fitted(seed):
    """Return that model; fits are shared."""
    model = lpe_dask.LPE(n_neighbors=5, alpha=0.05, calibration="conformal", random_state=0)
    return model.fit(rows([9, seed], n_rows=2000))


def day(number):
    """Return the date of a day, counted from 1."""
    return DAY + datetime.timedelta(days=number - 1)


def write_day(number, *, seed=None, shift=0.0, n_rows=N_ROWS):
    """Write the input of a day; its number is the seed of its rows, if none is given."""
    table = rows(number if seed is None else seed, shift, n_rows)
    table.to_parquet(f"in/{day(number)}.parquet")

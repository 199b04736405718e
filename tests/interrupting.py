"""Rows for runs that are interrupted, and what interrupts them."""

import contextlib
import itertools

import dask
import numpy as np
import pandas as pd
import pytest

from breaking import parts_in
from lpe_dask.batch.api import score_files

#: Files, and so parts, of the rows to score; rows in each.
N_PARTS, PART_ROWS = 6, 40

#: Nominal rows, in three files.
N_NOMINAL = 1500


def write_tables(folder):
    """Write nominal rows and rows to score, on a grid: ties are the usual case."""
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.integers(0, 40, (N_NOMINAL, 2)) * 0.5, columns=["x", "y"])
    write_files(nominal, folder / "nominal", N_NOMINAL // 3)
    rows = rng.integers(-5, 60, (N_PARTS * PART_ROWS, 2)) * 0.5
    frame = pd.DataFrame(rows, columns=["x", "y"])
    frame.iloc[3, 0] = np.nan
    write_files(frame, folder / "rows", PART_ROWS)
    return {"data": folder / "rows", "nominal": folder / "nominal"}


def write_files(frame, folder, n_rows):
    """Write a table as files with so many rows each."""
    folder.mkdir()
    for i, start in enumerate(range(0, len(frame), n_rows)):
        frame.iloc[start : start + n_rows].to_parquet(folder / f"{i}.parquet")


def copy_of(path, target):
    """Copy the files of a folder, and return the new one."""
    target.mkdir()
    for file in path.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def uninterrupted(tables, folder):
    """Return the bytes of the parts of a run that nothing interrupted."""
    with dask.config.set(scheduler="sync"):
        score_files(**tables, output=folder / "out", n_neighbors=5)
    return parts_in(folder / "out")


class Stop(Exception):
    """Stands for whatever ends a run."""


@contextlib.contextmanager
def stop_after(owner, name, n_calls):
    """Let a function of tasks fail after so many calls."""
    function, calls = getattr(owner, name), itertools.count()

    def fail_late(*arguments, **options):
        if next(calls) >= n_calls:
            raise Stop(f"after {n_calls} calls of {name}")
        return function(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail_late)
        yield

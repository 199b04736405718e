"""Rows for runs that are interrupted, and what interrupts them."""

import contextlib
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lpe_dask.batch.api import score_files
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder

#: Files, and so parts, of the rows to score, the last one empty; rows in each other.
N_PARTS, PART_ROWS = 7, 40
N_ROWS = (N_PARTS - 1) * PART_ROWS

#: Nominal rows, in three files.
N_NOMINAL = 1500


def write_tables(folder):
    """Write nominal rows and rows to score, on a grid: ties are the usual case."""
    rng = np.random.default_rng(0)
    nominal = pd.DataFrame(rng.integers(0, 40, (N_NOMINAL, 2)) * 0.5, columns=["x", "y"])
    thirds = range(0, N_NOMINAL + 1, N_NOMINAL // 3)
    write_files(nominal, folder / "nominal", thirds)
    rows = rng.integers(-5, 60, (N_ROWS, 2)) * 0.5
    frame = pd.DataFrame(rows, columns=["x", "y"])
    frame.iloc[3, 0] = np.nan
    edges = [*range(0, N_ROWS + 1, PART_ROWS), N_ROWS]
    write_files(frame, folder / "rows", edges)
    return {"data": folder / "rows", "nominal": folder / "nominal"}


def write_files(frame, folder, edges):
    """Write a table as files that are cut at some rows, and return their folder."""
    folder = Path(folder)
    folder.mkdir()
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        frame.iloc[start:stop].to_parquet(folder / f"{i}.parquet")
    return folder


def stop_run(n_parts, **given):
    """Score files, and stop when so many parts are there."""
    with stop_after(PartFolder, "publish", n_parts), pytest.raises(RunError, match="Stop"):
        score_files(**given)


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


def count_calls(monkeypatch, owner, name):
    """Return a list that grows with every call of a function of tasks."""
    function, calls = getattr(owner, name), []

    def counted(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls

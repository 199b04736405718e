"""Fixtures of runs: one thread, and tables that are scored again and again."""

import dask
import numpy as np
import pandas as pd
import pytest

import interrupting
import lpe_dask


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Paths of nominal rows and of rows to score."""
    return interrupting.write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def scored_files(tmp_path, monkeypatch):
    """A working directory with nominal rows on a grid, and rows to score in 3 partitions.

    These have their columns in another order, and one more.
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 6, (40, 2)) * 1.0, columns=["x", "y"])
    frame.to_parquet("nominal.parquet")
    frame = pd.DataFrame(rng.integers(-2, 9, (10, 2)) * 1.0, columns=["y", "x"])
    frame.insert(0, "name", list("abcdefghij"))
    frame.index = pd.Index([*range(100, 110)], name="row")
    interrupting.write_files(frame, "data", [0, 4, 8, 10])
    lpe_dask.LPE(2).fit(pd.read_parquet("nominal.parquet").to_numpy()).save("model")

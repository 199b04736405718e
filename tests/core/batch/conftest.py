"""Fixtures of runs: one thread, and tables that are scored again and again."""

import datetime

import dask
import numpy as np
import pandas as pd
import pytest

import interrupting
import lpe_dask
from lpe_dask.batch.job_file import read_job

ENVIRONMENT = {
    "DATA": "s3://logs", "DAY": "{date}", "EMPTY": "", "ODD": "a\0b",
    "BUCKET_KEY": "key", "BUCKET_SECRET": "secret",
}  # fmt: skip


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


@pytest.fixture(scope="session")
def read(tmp_path_factory):
    """Read a job from its text, on one day and in one environment."""
    path = tmp_path_factory.mktemp("jobs") / "job.toml"

    def read(text):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_job(path, datetime.date(2026, 11, 20), ENVIRONMENT)

    return read


@pytest.fixture
def refusal(read):
    """The lines of the message that refuses a job, without the path of the file."""

    def refusal(text):
        with pytest.raises(ValueError, match=r"job\.toml") as refused:
            read(text)
        return [line.partition("job.toml")[2] for line in str(refused.value).split("\n")]

    return refusal

"""Jobs whose tables, model and output are in one place, as a bucket of an S3 server."""

import datetime
from contextlib import contextmanager

import fsspec
import numpy as np
import pandas as pd

import lpe_dask

DAY = datetime.date(2026, 11, 20)
JOB = """
[nominal]
data = "{place}/nominal"
[model]
path = "{place}/model"
n_neighbors = 3
[score]
data = "{place}/in/{{date}}"
output = "{place}/out/{{date}}"
"""

#: What is in an output that is done.
DONE = [
    "_metrics.prom",
    "_reasons.pqt",
    "_report.html",
    "_summary.json",
    *(f"part-0000{i}.parquet" for i in range(3)),
]


@contextmanager
def filled(server):
    """Give the URL of a bucket with the tables of a job; it is empty afterwards."""
    server.repair()
    server.given.clear()
    write_tables("s3://bucket")
    yield "s3://bucket"
    server.repair()
    filesystem = fsspec.filesystem("s3")
    filesystem.invalidate_cache()
    filesystem.rm(filesystem.ls("bucket", detail=False), recursive=True)


def write_tables(place):
    """Write nominal rows, and those of the day in three files."""
    rng = np.random.default_rng(0)
    write(rng.standard_normal((60, 2)), f"{place}/nominal/a.parquet")
    for i in range(3):
        write(rng.standard_normal((20, 2)), f"{place}/in/{DAY}/{i}.parquet")


def write(rows, url):
    """Write rows as a Parquet file, on any storage."""
    with fsspec.open(url, "wb") as file:
        pd.DataFrame(rows, columns=["x", "y"]).to_parquet(file)


def write_job(folder, place):
    """Write the job of a place to a local folder, and return its path."""
    path = folder / "job.toml"
    path.write_text(JOB.format(place=place))
    return str(path)


def read(url):
    """Return the rows of the Parquet files in a folder, on any storage."""
    filesystem, root = fsspec.core.url_to_fs(url)
    paths = sorted(filesystem.glob(f"{root}/*.parquet"))
    return pd.concat([pd.read_parquet(filesystem.open(path)) for path in paths])


def scored(place):
    """Return the rows that the run of the day has written."""
    return read(f"{place}/out/{DAY}")


def expected(place):
    """Return the p-values of the rows of the day, without a run."""
    rows, nominal = read(f"{place}/in/{DAY}"), read(f"{place}/nominal")
    return lpe_dask.score(rows, nominal, n_neighbors=3)


def names_in(url):
    """Return the names in a folder, as its storage lists them now."""
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.invalidate_cache()
    return sorted(path.rsplit("/", 1)[-1] for path in filesystem.ls(root, detail=False))

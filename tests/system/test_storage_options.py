"""Keys of a storage, given for a call or in a job: they open every URL, and show nowhere."""

import dask
import fsspec
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import lpe_dask
from processes import local_cluster
from storages import s3_server_with_keys

pytestmark = pytest.mark.cluster

ROWS = 3000


@pytest.fixture(scope="module")
def options():
    with s3_server_with_keys() as options:
        filesystem = fsspec.filesystem("s3", **options)
        rng = np.random.default_rng(0)
        for name in ("nominal", "rows"):
            table = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=list("abc"))
            with filesystem.open(f"bucket/{name}.parquet", "wb") as file:
                table.to_parquet(file)
            with filesystem.open(f"bucket/{name}.csv", "wb") as file:
                table.to_csv(file, index=False)
        yield options


@pytest.fixture(scope="module")
def client(options):
    with local_cluster() as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_score_files__all_on_workers(options, client, ending):
    with dask.config.set({"lpe-dask.spool": "s3://bucket/spool"}):
        summary = lpe_dask.score_files(
            f"s3://bucket/rows.{ending}", f"s3://bucket/{ending}/out",
            nominal=f"s3://bucket/nominal.{ending}", storage_options=options, alpha=0.01,
        )
    assert summary["rows"] == ROWS

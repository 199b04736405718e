"""Runs and spools on an S3 server that fails now and then."""

import dask
import fsspec
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import lpe_dask
from buckets import DAY, DONE, expected, filled, names_in, scored, write_job
from lpe_dask.batch import parts
from lpe_dask.batch.errors import RunError
from lpe_dask.tasks import remove_spools
from processes import local_cluster
from storages import MANY_ATTEMPTS, s3_server


@pytest.fixture(autouse=True)
def many_attempts():
    with dask.config.set(MANY_ATTEMPTS):
        yield


@pytest.fixture(scope="module")
def environment():
    """What lets other processes find the server."""
    return {}


@pytest.fixture(scope="module")
def server(environment):
    with s3_server(environment) as faults:
        yield faults


@pytest.fixture
def bucket(server):
    with filled(server) as url:
        yield url


def test_run__to_s3_goes_on_where_each_request_fails_at_first(bucket, server, tmp_path):
    server.fail_first("/out/")
    job = write_job(tmp_path, bucket)

    lpe_dask.run(job, date=DAY)

    kinds = {(method, path.rsplit("/", 1)[-1][:6]) for method, path, _ in server.given}
    assert {("PUT", "part-0"), ("PUT", "_summa"), ("GET", "_lock.")} <= kinds
    server.repair()
    pd.testing.assert_series_equal(scored(bucket)["p_value"], expected(bucket))
    assert names_in(f"{bucket}/out/{DAY}") == DONE
    assert lpe_dask.run(job, date=DAY) is None


@pytest.mark.cluster
def test_spool__on_s3_serves_workers_and_is_removed(bucket, server, environment):
    nominal = np.random.default_rng(3).standard_normal((150_000, 1))
    rows = np.linspace(-3, 3, 500)[:, None]
    alone = lpe_dask.LPE(3).fit(nominal).score_samples(rows)
    server.fail_first("/value-")
    with (
        dask.config.set({"lpe-dask.spool": f"{bucket}/spool", "scheduler": None}),
        local_cluster(env=environment) as cluster,
        Client(cluster),
    ):
        model = lpe_dask.LPE(3).fit(nominal)
        there = model.score_samples(rows)
        assert [method for method, _, _ in server.given].count("PUT") > 0
        assert names_in(f"{bucket}/spool")
        del model
        remove_spools()

    np.testing.assert_array_equal(there, alone)
    filesystem = fsspec.filesystem("s3")
    filesystem.invalidate_cache()
    assert not filesystem.exists("bucket/spool")


@pytest.mark.slow
def test_run__to_s3_is_resumed(bucket, server, tmp_path, monkeypatch):
    def publish_one(folder, number, *arguments):
        if done:
            raise RuntimeError("the end of it")
        publish(folder, number, *arguments)
        done.append(f"bucket/out/{DAY}/{folder.name(number)}")

    done, publish = [], parts.PartFolder.publish
    job = write_job(tmp_path, bucket)
    monkeypatch.setattr(parts.PartFolder, "publish", publish_one)
    with pytest.raises(RunError, match="the end of it"):
        lpe_dask.run(job, date=DAY)
    monkeypatch.undo()
    filesystem = fsspec.filesystem("s3")
    first = filesystem.modified(done[0])

    lpe_dask.run(job, date=DAY)

    assert names_in(f"{bucket}/out/{DAY}") == DONE
    assert filesystem.modified(done[0], refresh=True) == first
    pd.testing.assert_series_equal(scored(bucket)["p_value"], expected(bucket))

"""Runs on an S3 server that does what it is asked, and whose answer is lost."""

import itertools
import json
import re
from contextlib import suppress

import dask
import fsspec
import pytest

import lpe_dask
from breaking import DAY, DECIDED, OF_THE_RUN, write_job, write_tables
from choosing import mostly_slow
from lpe_dask.batch.errors import RunError
from storages import MANY_ATTEMPTS, s3_server

#: What comes instead of an answer.
INSTEAD = ["connection", 503]

#: Methods of requests that change what is there.
CHANGES = {"PUT", "POST", "DELETE"}


@pytest.fixture(autouse=True)
def many_attempts():
    with dask.config.set(MANY_ATTEMPTS):
        yield


class Bucket:
    """A job whose model and output are on an S3 server."""

    def __init__(self, folder, server):
        self.server, self._job = server, folder / "job.toml"
        write_tables(folder)
        write_job(self._job, DECIDED, folder, "s3://bucket")
        self.requests = []
        server.answer = lambda *request: self.requests.append(request)
        self.run()
        self.expected = self.results()

    def run(self):
        return lpe_dask.run(self._job, date=DAY)

    def renew(self):
        """Remove all that is there."""
        self.server.repair()
        filesystem = fsspec.filesystem("s3")
        filesystem.invalidate_cache()
        for path in filesystem.ls("bucket", detail=False):
            filesystem.rm(path, recursive=True)

    def results(self):
        """Return the parts, what the summary says, and the names of all else."""
        self.server.repair()
        filesystem = fsspec.filesystem("s3")
        filesystem.invalidate_cache()
        results = {}
        for path in filesystem.find("bucket"):
            name = re.sub("[0-9a-f]{12}", "<hex>", path)
            of_the_run = path.endswith(".prom")  # how long it took, of the summary
            is_result = "/out/" in path and not of_the_run
            content = filesystem.cat_file(path) if is_result else None
            if name.endswith("_summary.json"):
                said = json.loads(content).items()
                content = {key: value for key, value in said if key not in OF_THE_RUN}
            results[name] = content
        return results


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """What a run that nothing disturbs has written is expected, and there."""
    with (
        dask.config.set(scheduler="sync"),
        s3_server({}) as server,
    ):
        yield Bucket(tmp_path_factory.mktemp("tables"), server)


@pytest.mark.parametrize(
    ("instead", "step"),
    mostly_slow(itertools.product(INSTEAD, [1, 15]), itertools.product(INSTEAD, [15])),
)
def test_run__gives_the_same_where_any_answer_to_a_change_is_lost(
    bucket, caplog, instead, step
):
    """Or ends with a clear error, and gives the same when it is started again."""

    def loses(method, path):
        asked.append(method)
        return instead if method in CHANGES and n_changes() == point + 1 else None

    def n_changes():
        return sum(method in CHANGES for method in asked)

    n_points = sum(method in CHANGES for method, _ in bucket.requests)
    for point in range(0, n_points, step):
        asked = []
        bucket.renew()
        bucket.server.given.clear()
        bucket.server.loses = loses
        with suppress(RunError, OSError):
            bucket.run()
        assert bucket.server.given, point
        bucket.server.repair()
        bucket.run()
        assert bucket.results() == bucket.expected, point
        assert bucket.run() is None
    assert n_points > 40
    assert "belongs to another run" not in caplog.text

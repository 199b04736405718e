"""Storages that fail now and then, list late, or refuse: what is tried again."""

import errno
import logging
import platform
import re

import botocore.exceptions
import dask
import fsspec
import numpy as np
import pandas as pd
import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from click.testing import CliRunner
from distributed import Client
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

import lpe_dask
from buckets import DAY, DONE, expected, filled, names_in, scored, write_job, write_tables
from lpe_dask.batch import parts
from lpe_dask.batch.errors import RunError
from lpe_dask.cli.commands import cli
from lpe_dask.storage import (
    Folder,
    Lock,
    RefusedError,
    Url,
    is_transient,
    retried,
    retried_until_visible,
    short_message,
)
from lpe_dask.tables.parquet_files import open_files
from lpe_dask.tasks import remove_spools
from processes import local_cluster
from storages import MANY_ATTEMPTS, REPLACED, StaleFileSystem, s3_server

KEYS = {"key": "marked-key", "secret": "marked-word"}
PLACE = "s3://bucket/folder"


@pytest.fixture(autouse=True)
def many_attempts():
    with dask.config.set(MANY_ATTEMPTS):
        yield


# Which errors


def caused(error, cause):
    error.__cause__ = cause
    return error


def answered(status):
    """An error as botocore makes it."""
    error = Exception("of a server")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": status}}
    return error


class ServerDisconnectedError(Exception):
    status = None


class HttpError(Exception):
    def __init__(self, code):
        self.code = code


class HTTPClientError(Exception):
    pass


class ReadTimeoutError(HTTPClientError):
    pass


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ESTALE, "stale"),
        OSError(errno.EIO, "input/output error"),
        OSError(errno.EBUSY, "slow down"),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError("no answer"),
        caused(TimeoutError("too slow to send"), answered(400)),
        caused(OSError(errno.EIO, "unknown code"), answered(502)),
        HttpError(408),
        HttpError(429),
        HttpError("503"),
        ReadTimeoutError(),
    ],
    ids=repr,
)
def test_is_passing__of_busy_servers_and_lost_connections(error):
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "denied"),
        caused(PermissionError("Access Denied"), answered(403)),
        FileNotFoundError(errno.ENOENT, "not there"),
        FileExistsError("there"),
        OSError(errno.ENOSPC, "no space left"),
        OSError(errno.EDQUOT, "quota"),
        OSError(errno.EROFS, "read only"),
        caused(OSError(errno.EIO, "unknown code"), answered(400)),
        OSError("without a number"),
        ValueError("503"),
        HttpError(404),
        MemoryError(),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_is_passing__of_nothing_that_stays(error):
    assert not is_transient(error)


def failing(errors):
    """A function that raises some errors, one a call, and then returns the calls."""
    calls = []

    def function():
        calls.append(None)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return len(calls)

    return function


def test_retried__tries_again_and_says_so(caplog):
    stale = OSError(errno.ESTALE, "Stale file handle")

    assert retried(failing([stale, stale]))() == 3

    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("temporary storage failure: OSError: [Errno")
    assert re.search(r"Retrying in 0\.0 s \(attempt 3\)", lines[1])


def test_retried__fails_at_once_where_that_is_certain(caplog):
    full = OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        retried(failing([full]))()

    assert not caplog.records


def test_retried__gives_up_after_so_many_attempts_in_all():
    """Also where what is tried again calls what is tried again."""
    function = failing([TimeoutError("no answer")] * 99)

    with (
        dask.config.set({"lpe-dask.retries.attempts": 4}),
        pytest.raises(TimeoutError) as raised,
    ):
        retried(retried(function))()

    assert raised.value.__notes__ == ["Tried 4 times."]
    with dask.config.set({"lpe-dask.retries.attempts": 1}), pytest.raises(TimeoutError):
        retried(failing([TimeoutError("no answer")]))()


class EndpointConnectionError(Exception):
    """As botocore has it, which is no OSError."""


class ClientConnectionError(OSError):
    """As that of aiohttp for a server that is not there, which is one."""


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError("no s3://b"),
        ClientConnectionError(errno.ECONNREFUSED, "b"),
        ConnectionRefusedError(errno.ECONNREFUSED, "b"),
    ],
    ids=repr,
)
def test_retried__says_what_to_check_where_no_server_is_reached(error):
    with (
        dask.config.set({"lpe-dask.retries.attempts": 2}),
        pytest.raises(ConnectionError, match=r"not available: .*2 attempts in") as raised,
    ):
        retried(retried(failing([error] * 99)))()

    assert raised.value.__cause__ is error
    assert "Check its address" in str(raised.value)
    assert not is_transient(raised.value)


def test_command__may_be_tried_later_if_a_storage_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    command = ["run", write_job(tmp_path, "s3://bucket"), "--scheduler", "threads"]

    with dask.config.set({"lpe-dask.retries.attempts": 3}):
        result = CliRunner().invoke(cli, command)
    fsspec.get_filesystem_class("s3").clear_instance_cache()

    assert result.exit_code == 75
    assert "Error: the storage is not available: EndpointConnectionError" in result.stderr
    assert "3 attempts in" in result.stderr
    assert "(attempt 4)" not in result.stderr
    assert result.stderr.count("(attempt 2)") == 1  # not for the notes and again


class Moody(LocalFileSystem):
    """A folder that fails when it is asked for some files, now and then."""

    protocol = ("moody",)
    failures = []  # noqa: RUF012
    isfile = AbstractFileSystem.isfile  # as of object stores: False at any error

    def info(self, path, **options):
        if path.endswith("b.parquet") and self.failures:
            raise self.failures.pop()
        return super().info(path, **options)


def test_read__of_a_file_that_arrow_takes_for_absent(tmp_path):
    """Arrow hides the error of a storage that it asks for a file."""
    pd.DataFrame({"x": [1.0, 2.0]}).to_parquet(tmp_path / "b.parquet")
    (part,), *_ = open_files(Moody(), [str(tmp_path / "b.parquet")])
    expected = part.read(["x"])

    Moody.failures += [ConnectionResetError("reset by peer")] * 2

    assert part.read(["x"]).equals(expected)
    assert Moody.failures == []

    (tmp_path / "b.parquet").unlink()
    with (
        dask.config.set({"lpe-dask.retries.attempts": 4}),
        pytest.raises(FileNotFoundError) as unseen,
    ):
        part.read(["x"])
    assert f"{platform.node()} does not see it" in short_message(unseen.value)


def test_retried_until_seen__waits_for_a_file():
    unseen = FileNotFoundError(errno.ENOENT, "No such file")

    assert retried_until_visible(failing([unseen, unseen]))() == 3
    with pytest.raises(FileNotFoundError):
        retried(failing([unseen]))()


# An S3 server


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


def test_save_and_load__on_s3_go_on_where_each_request_fails_at_first(bucket, server):
    model = lpe_dask.LPE(3).fit(np.random.default_rng(1).standard_normal((50, 2)))
    rows = np.random.default_rng(2).standard_normal((20, 2))
    server.fail_first("/model/")

    model.save(f"{bucket}/model")
    server.fail_first("/model/")
    loaded = lpe_dask.load(f"{bucket}/model")

    np.testing.assert_array_equal(loaded.score_samples(rows), model.score_samples(rows))


def test_run__to_s3_fails_at_once_where_it_may_not_write(bucket, server, tmp_path):
    def forbid(method, path):
        return 403 if method == "PUT" and "/part-00001" in path else None

    server.answer = forbid
    refusal = (
        r"the run stopped while it scored: RefusedError: access to s3://bucket/out/\S+ is "
        r"refused: PermissionError: Access Denied\. Check the keys .*out/2026"
    )

    with pytest.raises(RunError, match=refusal):
        lpe_dask.run(write_job(tmp_path, bucket), date=DAY)

    assert len(server.given) == 1


@pytest.mark.full
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


@pytest.mark.full
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


# A folder of NFS


@pytest.fixture
def stale(tmp_path):
    """The URL of a folder whose listings lag."""
    fsspec.register_implementation("stale", StaleFileSystem, clobber=True)
    write_tables(str(tmp_path))
    return f"stale://{tmp_path}"


def test_run__finishes_where_listings_lag(stale, tmp_path, monkeypatch, caplog):
    """The summary comes when all parts are listed, though they are written at once."""
    monkeypatch.setattr(StaleFileSystem, "lag", 0.0)
    job = write_job(tmp_path, stale)
    written = parts.PartFolder.publish

    def publish(*arguments):
        written(*arguments)
        monkeypatch.setattr(StaleFileSystem, "lag", 0.5)

    monkeypatch.setattr(parts.PartFolder, "publish", publish)
    caplog.set_level(logging.WARNING)

    lpe_dask.run(job, date=DAY)

    assert "parts, but" in caplog.text
    assert "(attempt 2)" in caplog.text
    pd.testing.assert_series_equal(scored(str(tmp_path))["p_value"], expected(tmp_path))


def test_verify__reads_a_lock_that_was_just_replaced(stale, tmp_path):
    with Lock(stale).hold("score a table") as lock:
        lock._beat()
        assert REPLACED

        lock.verify()


# Storages that refuse


def answer(status, code):
    response = {
        "Error": {"Code": code, "Message": "Not marked-key."},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "GetObject")


@pytest.mark.parametrize(
    "cause",
    [answer(403, "403"), answer(401, "?"), answer(400, "ExpiredToken"), answer(400, "400")],
)
def test_retried__a_storage_that_refuses(cause, caplog):
    @retried
    def read(url):
        calls.append(url)
        raise OSError("Not marked-key.") from cause

    calls, outer = [], retried(lambda url: read(url))
    with pytest.raises(RefusedError) as raised:
        outer(Url(PLACE, KEYS))

    message = str(raised.value)
    assert message.startswith(f"access to {PLACE} is refused: OSError: Not")
    assert "Check the keys (storage_options=, or the section [storage] of a job;" in message
    assert "marked" not in message
    assert (calls, caplog.messages) == ([PLACE], [])


def test_retried__no_keys():
    @retried
    def exists(folder):
        raise NoCredentialsError

    with pytest.raises(RefusedError, match=f"to {PLACE} .*: Unable to locate credentials"):
        exists(Folder(PLACE))


def test_folder__an_option_that_the_filesystem_does_not_know():
    message = f"^{PLACE} cannot be opened with these options: .*'secrte'.* Correct their"
    with pytest.raises(TypeError, match=message) as raised:
        Folder(Url(PLACE, {"secrte": "marked-word"})).exists()
    assert "marked" not in str(raised.value)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [(ValueError("a line break"), False), (TypeError("x"), False), (OSError("x"), True)],
)
def test_is_transient__a_request_that_cannot_be_sent(cause, expected):
    assert is_transient(botocore.exceptions.HTTPClientError(error=cause)) == expected

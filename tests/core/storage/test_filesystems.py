"""The filesystem of a URL, or what is wrong with it."""

import gc
import logging
import socket

import dask
import fsspec
import pytest
from fsspec.implementations.ftp import FTPFileSystem

from lpe_dask.storage import Folder, filesystem_of, filesystems
from lpe_dask.tables import resolve_path

# That of fsspec takes for granted that it is connected.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*FTPFileSystem.__del__:pytest.PytestUnraisableExceptionWarning"
)

USES = [filesystem_of, Folder, resolve_path]


@pytest.fixture(autouse=True)
def short_pauses():
    FTPFileSystem.clear_instance_cache()
    pauses = {"attempts": 2, "first-pause": 0.01, "longest-pause": 0.1}
    with dask.config.set({f"lpe-dask.retries.{name}": of for name, of in pauses.items()}):
        yield
    gc.collect()


@pytest.mark.parametrize("use", USES)
def test_filesystem_of__a_server_that_is_down(use, caplog):
    with socket.socket() as closed, caplog.at_level(logging.WARNING):
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(ConnectionError) as raised:
            use(f"ftp://me:secret@127.0.0.1:{port}/p.parquet")

    said = str(raised.value)
    assert f"ftp://***@127.0.0.1:{port}/p.parquet cannot be opened" in said
    assert "2 attempts" in said
    assert "Check its address, the network" in said
    assert "secret" not in said + caplog.text
    assert f"127.0.0.1:{port}" in caplog.text


@pytest.mark.parametrize("use", USES)
def test_filesystem_of__a_server_that_refuses(use, monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("530 Login incorrect")  # ftplib's is no OSError either

    monkeypatch.setattr(FTPFileSystem, "_connect", refuse)

    with pytest.raises(
        OSError, match=r"ftp://\*\*\*@there/p cannot be opened: .*530 Login"
    ):
        use("ftp://me:secret@there/p")


def test_filesystem_of__what_is_no_filesystem():
    with pytest.raises(ValueError, match="Protocol not known: nonsense"):
        filesystem_of("nonsense://p.parquet")


def test_filesystem_of__a_path_is_what_fsspec_finds(tmp_path):
    assert filesystem_of(str(tmp_path)) == fsspec.core.url_to_fs(str(tmp_path))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("key", ["id:secret", "id:secr/secret", ":secret"])
def test_filesystem_of__a_bucket_with_a_key_is_refused(use, key):
    with pytest.raises(
        ValueError, match=r"has a key where the name of the bucket"
    ) as raised:
        use(f"s3://{key}@bucket/p.parquet")

    assert "secret" not in str(raised.value)


def test_filesystem_of__other_buckets_are_not():
    pattern = filesystems._KEYS
    arn = "s3://arn:aws:s3:eu-west-1:1:accesspoint/mine/a@b.csv"
    for url in ("s3://bucket/a:b@c.csv", arn, "data/s3://a", "s3://bucket/p.csv"):
        assert not pattern.search(url)

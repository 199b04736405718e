"""The filesystem of a URL, or what is wrong with it."""

import gc
import logging
import socket

import dask
import fsspec
import pytest
from fsspec.implementations.ftp import FTPFileSystem

from lpe_dask.storage import Folder, filesystem_of
from lpe_dask.tables.listing import locate

# That of fsspec takes for granted that it is connected.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*FTPFileSystem.__del__:pytest.PytestUnraisableExceptionWarning"
)

USES = [filesystem_of, Folder, locate]


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

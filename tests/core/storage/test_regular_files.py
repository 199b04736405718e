"""Files where others have put something else: no reading waits, or fills the memory."""

import http.server
import os
import re
import threading
import time
from contextlib import contextmanager
from uuid import uuid4

import dask
import fsspec
import pytest

from choosing import mostly_dealt, mostly_full
from hostile import ATTACKS, limited
from lpe_dask.storage.folder import Folder
from lpe_dask.storage.regular_files import UnsafeFileError, read_regular

READ = """
import sys
from lpe_dask.storage.folder import Folder
try:
    print(Folder(sys.argv[1]).read("a", follow_links=sys.argv[2] == "True"))
except OSError as error:
    print(type(error).__name__, error)
"""

SAID = {
    "pipe": "UnsafeFileError .*/a is a named pipe, and only a regular file is read; remove",
    "zeros": "UnsafeFileError .*/a is a device, and only a regular file is read; remove",
    "nothing": "None",
    "folder": "IsADirectoryError .*/a'",
    "huge": "UnsafeFileError .*/a is not read, as it has 1099511627776 bytes or more, and "
    "at most 268435456 are expected; remove it if it is not yours",
    "listener": "UnsafeFileError .*/a is a socket, and only a regular file is read; remove",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_read__neither_waits_nor_grows(tmp_path, attack):
    ATTACKS[attack](tmp_path / "a")

    said = limited(READ, tmp_path, True)

    assert re.match(SAID[attack], said), said


@pytest.mark.parametrize("attack", mostly_full(["zeros", "nothing"], ["zeros"]))
def test_read__follows_no_link_where_that_is_asked(tmp_path, attack):
    ATTACKS[attack](tmp_path / "a")

    assert "a is a link, and only a regular file" in limited(READ, tmp_path, False)


def test_read__follows_a_link_to_a_file(tmp_path):
    (tmp_path / "b").write_bytes(b"1")
    (tmp_path / "a").symlink_to("b")

    assert Folder(tmp_path).read("a") == b"1"
    with pytest.raises(UnsafeFileError, match="a is a link"):
        Folder(tmp_path).read("a", follow_links=False)


SWAPPED = """
import os, sys
def stat_before(path, **options):
    if not str(path).endswith("/a"):
        return stat(path, **options)
    looked = stat(path, **options)
    os.remove(path)
    (os.mkfifo if sys.argv[3] == "pipe" else lambda to: os.symlink("/dev/zero", to))(path)
    return looked
stat, os.stat = os.stat, stat_before
"""


@pytest.mark.parametrize(
    ("attack", "follow_links"),
    mostly_dealt(["pipe", "zeros"], [True, False]),
)
def test_read__of_what_was_swapped_after_a_look(tmp_path, attack, follow_links):
    (tmp_path / "a").write_bytes(b"1")

    said = limited(SWAPPED + READ, tmp_path, follow_links, attack)

    assert said.startswith(("UnsafeFileError", "OSError")), said


def test_read__of_a_file_that_hides_how_long_it_is():
    with pytest.raises(UnsafeFileError, match="at most 0 are expected"):
        Folder("/proc/self").read("status")


@pytest.mark.parametrize("place", ["local", "memory"])
def test_read__takes_no_more_than_it_may(tmp_path, place):
    folder = Folder(tmp_path if place == "local" else f"memory://{uuid4().hex}")
    folder.write("a", b"123")
    folder.write("empty", b"")

    assert folder.read("a", 3) == b"123"
    assert folder.read("empty", 0) == b""
    with pytest.raises(UnsafeFileError, match="3 bytes or more, and at most 2 are"):
        folder.read("a", 2)


@pytest.mark.parametrize("place", ["local", "memory"])
def test_open__gives_a_file_and_no_folder(tmp_path, place):
    folder = Folder(tmp_path if place == "local" else f"memory://{uuid4().hex}")
    folder.write("a", b"123")
    Folder(folder.full_url("inner")).make()

    with folder.open("a") as file:
        assert file.read() == b"123"
    with pytest.raises(IsADirectoryError):
        folder.open("inner")
    with pytest.raises(IsADirectoryError):
        folder.read("inner")


def test_open__looks_at_what_was_opened(tmp_path, monkeypatch):
    looked = os.stat(__file__)
    monkeypatch.setattr(os, "stat", lambda path, **options: looked)
    n_open = len(os.listdir("/proc/self/fd"))

    with pytest.raises(IsADirectoryError):
        Folder(tmp_path).open("")

    assert len(os.listdir("/proc/self/fd")) == n_open


def test_read__of_what_a_server_calls_something_else(monkeypatch):
    folder = Folder("memory://somewhere")
    info = {"type": "other", "size": 0}
    monkeypatch.setattr(folder.filesystem, "info", lambda path: info)

    with pytest.raises(
        UnsafeFileError, match="a is something else, and only a regular file"
    ):
        folder.read("a")


# Servers


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers as `Server.way` says, for some seconds at most."""

    def do_GET(self):
        self.server.n_requests += 1
        getattr(self, self.server.way)()

    do_HEAD = do_GET

    def honest(self):
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"123")

    def silent(self):
        self.server.is_over.wait(20)

    def dripping(self):
        self.send_response(200)
        self.end_headers()
        while not self.server.is_over.wait(0.05) and self._send(b"1"):
            pass

    def endless(self):
        self.send_response(200)
        self.end_headers()
        while self.server.n_sent < 2**28 and self._send(bytes(2**16)):
            pass

    def lying(self):
        self.send_response(206)
        self.send_header("Content-Range", "bytes 0-2/3")
        self.end_headers()
        while self.server.n_sent < 2**28 and self._send(bytes(2**16)):
            pass

    def absent(self):
        self.send_error(404)

    def _send(self, content):
        try:
            self.wfile.write(content)
            self.wfile.flush()
        except OSError:  # nobody reads any more
            return False
        self.server.n_sent += len(content)
        return True

    def log_message(self, *arguments):
        pass


@contextmanager
def server(way):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as of_stranger:
        of_stranger.daemon_threads, of_stranger.way = True, way
        of_stranger.is_over, of_stranger.n_sent = threading.Event(), 0
        of_stranger.n_requests = 0
        thread = threading.Thread(target=of_stranger.serve_forever)
        thread.start()
        patience = {"lpe-dask.retries.attempt-timeout": 0.5, "lpe-dask.retries.attempts": 2}
        try:
            with dask.config.set(patience):
                yield of_stranger
        finally:
            of_stranger.is_over.set()
            of_stranger.shutdown()
            thread.join()


def folder_of(of_stranger):
    return Folder(f"http://127.0.0.1:{of_stranger.server_address[1]}/model")


def test_read__from_a_server():
    with server("honest") as of_stranger:
        assert folder_of(of_stranger).read("a", 3) == b"123"
        with pytest.raises(UnsafeFileError, match="at most 2 are expected"):
            folder_of(of_stranger).read("a", 2)
    with server("absent") as of_stranger:
        assert folder_of(of_stranger).read("a") is None


@pytest.mark.parametrize("way", mostly_full(["silent", "dripping"], ["dripping"]))
def test_read__ends_where_a_server_does_not_answer(way):
    start = time.monotonic()

    with (
        server(way) as of_stranger,
        pytest.raises(OSError, match="/a has not answered in time"),
    ):
        folder_of(of_stranger).read("a")

    assert of_stranger.n_requests == 2
    assert time.monotonic() - start < 10  # of which two attempts take half a second each


@pytest.mark.parametrize("way", ["endless", "lying"])
def test_read__takes_no_more_than_it_may_of_what_a_server_sends(way):
    with server(way) as of_stranger, pytest.raises(UnsafeFileError, match="at most 1000 "):
        folder_of(of_stranger).read("a", 1000)

    assert of_stranger.n_sent < 2**25  # what is on its way


def test_read__asks_no_server_longer_than_it_may(monkeypatch):
    """As for storages that say how large a file is before they give it."""
    given = []
    filesystem = fsspec.filesystem("http")
    info = {"type": "file", "size": 2**14}
    monkeypatch.setattr(type(filesystem), "protocol", ("another",))
    monkeypatch.setattr(
        filesystem, "info", lambda path, timeout: given.append(timeout) or info
    )

    def cat_file(path, end, timeout):
        given.append(timeout)
        return bytes(end - 1)

    monkeypatch.setattr(filesystem, "cat_file", cat_file)
    with dask.config.set({"lpe-dask.retries.attempt-timeout": 7}):
        assert read_regular(filesystem, "a", 2**20) == bytes(2**14)

    assert given == [7, 8]

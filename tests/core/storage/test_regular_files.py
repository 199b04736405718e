"""Files where others have put something else: no reading waits, or fills the memory."""

import http.server
import os
import re
import threading
import time
from contextlib import contextmanager, suppress

import dask
import fsspec
import pytest

from choosing import mostly_dealt, mostly_full
from hostile import ATTACKS, limited
from lpe_dask.storage import Folder, UnsafeFileError, regular_files
from lpe_dask.storage.regular_files import read_regular

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


def test_folder__gives_files_that_are_no_larger_than_expected(folder):
    folder = Folder(folder)
    folder.write("a", b"123")
    folder.write("empty", b"")
    Folder(folder.full_url("inner")).make()

    assert folder.read("a", 3) == b"123"
    assert folder.read("empty", 0) == b""
    with folder.open("a") as file:
        assert file.read() == b"123"
    with pytest.raises(UnsafeFileError, match="3 bytes or more, and at most 2 are"):
        folder.read("a", 2)
    for use in (folder.read, folder.open):
        with pytest.raises(IsADirectoryError):
            use("inner")


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


#: By name: a status, a header, what is sent, how often, and after how many seconds each.
WAYS = {
    "honest": (200, ("Content-Length", "3"), b"123", 1, 0),
    "absent": (404, ("Content-Length", "0"), b"", 0, 0),
    "silent": (None, (), b"", 1, 20),
    "dripping": (200, ("X", "x"), b"1", 1000, 0.05),
    "endless": (200, ("X", "x"), bytes(2**16), 2**12, 0),
    "lying": (206, ("Content-Range", "bytes 0-2/3"), bytes(2**16), 2**12, 0),
}


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers as `WAYS` says of that of its server, for some seconds at most."""

    def do_GET(self):
        server = self.server
        server.n_requests += 1
        status, header, content, n_times, pause = WAYS[server.way]
        if status is not None:
            self.send_response(status)
            self.send_header(*header)
            self.end_headers()
        with suppress(OSError):  # nobody reads any more
            for _ in range(n_times):
                if server.is_over.wait(pause):
                    break
                self.wfile.write(content)
                self.wfile.flush()
                server.n_sent += len(content)

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


@contextmanager
def server(way):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as of_stranger:
        of_stranger.daemon_threads, of_stranger.way = True, way
        of_stranger.is_over = threading.Event()
        of_stranger.n_sent = of_stranger.n_requests = 0
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


def test_open__asks_a_server_for_nothing_but_the_file(monkeypatch):
    monkeypatch.setattr(regular_files, "size_of", lambda *_: pytest.fail("asks twice"))

    with server("honest") as of_stranger, folder_of(of_stranger).open("a") as file:
        assert file.read() == b"123"


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
    timeouts = []

    def info(path, timeout):
        timeouts.append(timeout)
        return {"type": "file", "size": 2**14}

    def cat_file(path, end, timeout):
        timeouts.append(timeout)
        return bytes(end - 1)

    filesystem = fsspec.filesystem("http")
    monkeypatch.setattr(type(filesystem), "protocol", ("another",))
    monkeypatch.setattr(filesystem, "info", info)
    monkeypatch.setattr(filesystem, "cat_file", cat_file)
    with dask.config.set({"lpe-dask.retries.attempt-timeout": 7}):
        assert read_regular(filesystem, "a", 2**20) == bytes(2**14)

    assert timeouts == [7, 8]

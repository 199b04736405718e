"""The files of a folder, on a local disk and in memory."""

import errno
import os
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from lpe_dask.storage import Folder, retried
from lpe_dask.storage import folder as folders
from lpe_dask.storage.retries import retried_without_inner_retries


@pytest.fixture
def folder(folder):
    """A folder that is not there yet."""
    return Folder(f"{folder}/out")


def test_folder__that_is_not_there_holds_nothing(folder):
    assert not folder.exists()
    assert not folder.is_file()
    assert folder.names() == []
    assert folder.read("a") is None
    folder.remove("a")
    folder.remove_file("a")
    folder.remove_if_empty()


def test_folder__that_is_a_file_holds_nothing(folder):
    around = Folder(folder.url.removesuffix("/out"))
    around.write("out", b"1")

    assert folder.is_file()
    assert folder.read("a") is None


@pytest.mark.parametrize("error", [PermissionError, KeyboardInterrupt])
def test_exists__says_no_only_where_nothing_is(folder, monkeypatch, error):
    """fsspec's own answer is no after any error, and it loses a signal."""

    monkeypatch.setattr(type(folder.filesystem), "info", Mock(side_effect=error))
    with pytest.raises(error):
        folder.exists()
    monkeypatch.undo()
    folder.make()
    folder.write("a", b"1")

    assert folder.exists()
    assert folder.exists("a")
    assert not folder.exists("b")


def test_write__replaces_a_file_and_leaves_no_other(folder):
    folder.make()
    folder.write("b", b"1")
    folder.write("b", b"22")
    folder.write("a", b"")
    with pytest.raises(KeyError), folder.atomic_write("c"):
        raise KeyError

    assert folder.names() == ["a", "b"]
    assert folder.names("b") == ["b"]
    assert folder.read("b") == b"22"
    assert folder.read("c") is None


def fail_with(number):
    return Mock(side_effect=OSError(number, os.strerror(number)))


@pytest.mark.parametrize(
    ("use", "name", "failing"),
    [("write", "a", "fsync"), ("write", "a", "replace"), ("create", "b", "fsync")],
)
def test_folder__is_as_before_where_a_file_does_not_get_whole(
    tmp_path, monkeypatch, use, name, failing
):
    """NFS tells at fsync that a disk is full; a name, too, may need space."""
    folder = Folder(tmp_path)
    assert folder.create("a", b"1")
    monkeypatch.setattr(os, failing, fail_with(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        getattr(folder, use)(name, b"22")

    assert folder.names() == ["a"]
    assert folder.read("a") == b"1"


def test_write__does_without_fsync_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail_with(errno.EINVAL))

    Folder(tmp_path).write("a", b"1")

    assert Folder(tmp_path).read("a") == b"1"


def test_create__is_for_the_first(folder):
    folder.make()

    assert folder.create("a", b"1")
    assert folder.create("a", b"1")  # the answer may have been lost
    assert not folder.create("a", b"2")
    assert folder.names() == ["a"]


def test_create__is_exclusive_though_a_library_sent_its_probe_twice(tmp_path, monkeypatch):
    """The answer to the first was lost, and so the second is refused."""

    def open_twice(filesystem, path, mode="rb", **options):
        if mode == "xb" and ".tmp" in path:
            opened(filesystem, path, mode, **options).close()
        return opened(filesystem, path, mode, **options)

    opened = LocalFileSystem.open
    monkeypatch.setattr(LocalFileSystem, "open", open_twice)
    monkeypatch.setattr(folders, "SETTLE_SECONDS", 300)

    assert Folder(tmp_path).create("a", b"1")
    assert not Folder(tmp_path).create("a", b"2")


def test_remove__takes_what_is_in_a_folder_along(folder):
    Folder(f"{folder.url}/inner").make()
    Folder(f"{folder.url}/inner").write("a", b"1")
    folder.remove_if_empty()
    assert folder.names() == ["inner"]

    folder.remove("inner")
    folder.remove_if_empty()

    assert not folder.exists()


@pytest.mark.parametrize("error", [NotImplementedError, PermissionError])
def test_seconds_unchanged__is_0_where_nobody_knows(folder, monkeypatch, error):
    assert folder.seconds_unchanged() == 0  # it is not there
    folder.make()
    monkeypatch.setattr(type(folder.filesystem), "modified", Mock(side_effect=error))

    assert folder.seconds_unchanged() == 0


def test_full_url__is_the_same_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert Folder("out/").full_url() == Folder(tmp_path / "out").full_url()
    assert Folder("out").full_url("a") == f"file://{tmp_path}/out/a"
    assert Folder("/").path() == "/"
    assert Folder("/").names() == sorted(os.listdir("/"))


def test_folder__is_asked_again_after_what_passes(monkeypatch):
    def busy(filesystem, *arguments, **options):
        calls.append(arguments)
        if len(calls) % 2:
            raise OSError(errno.EBUSY, "slow down")
        return ls(filesystem, *arguments, **options)

    calls, ls = [], MemoryFileSystem.ls
    fsspec.filesystem("memory").pipe_file("/busy-folder/a", b"1")
    monkeypatch.setattr(MemoryFileSystem, "ls", busy)

    assert Folder("memory://busy-folder").names() == ["a"]
    assert len(calls) == 2


def test_retried_as_a_whole__begins_anew():
    def step():
        steps.append(None)
        if len(steps) == 2:
            raise TimeoutError

    @retried_without_inner_retries
    def two_steps():
        retried(step)()
        retried(step)()

    steps = []

    two_steps()

    assert len(steps) == 4


def test_make__makes_no_bucket(monkeypatch):
    """A slip in the name of a bucket would make it, and all would seem to be well."""

    class Buckets(MemoryFileSystem):
        protocol = ("s3", "s3a")

    buckets = Buckets()
    monkeypatch.setattr(folders, "filesystem_of", lambda url: (buckets, "/slip/out"))

    Folder("s3://slip/out").make()

    assert not buckets.exists("/slip")

"""The heartbeat of a lock that is held, how a lock is lost, and what its tasks may do."""

import errno
import shutil
import sys
import threading
from unittest.mock import Mock

import pytest
from fsspec.implementations.local import LocalFileSystem

from forking import in_fork
from lock_files import content, foreign, names, once, values, write
from lpe_dask.storage import Folder, Lock
from lpe_dask.storage import lock as locks
from lpe_dask.tasks import remove_spools
from waiting import eventually


@pytest.fixture(autouse=True, scope="module")
def no_other_locks():
    """Spools of models that other tests keep have a heartbeat, too."""
    remove_spools()


@pytest.fixture
def fast(monkeypatch):
    """Beats in hundredths of a second."""
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.02)


def test_lock__has_a_heartbeat(folder, fast):
    with Lock(folder).hold("score") as lock:
        assert eventually(lambda: values(folder)["beat"] >= 3)
        assert values(folder)["token"] == lock.token
        assert not lock.is_lost

    assert names(folder) == []


@pytest.mark.parametrize("left", [b"", b"theirs"], ids=["unreadable", "another's"])
def test_lock__is_lost_to_another_run(folder, fast, left, caplog):
    left = left and foreign(folder)
    with Lock(folder).hold("score") as lock:
        lock._folder.write = lambda name, content: None  # no beat is under way
        write(folder, left)
        assert eventually(lambda: lock.is_lost)

    assert content(folder) == left
    said = "belongs to another run now" if left else "is gone or not readable"
    assert f"the lock of {folder} {said}" in caplog.text


def test_lock__is_lost_with_its_folder(tmp_path, fast):
    (tmp_path / "out").mkdir()
    with Lock(tmp_path / "out").hold("score") as lock:
        shutil.move(tmp_path / "out", tmp_path / "moved")
        assert eventually(lambda: lock.is_lost)

    assert names(tmp_path) == ["moved"]


def test_lock__knows_after_its_end_that_it_was_lost(folder):
    with Lock(folder).hold("score") as lock:
        write(folder, b"")

    assert lock.is_lost
    assert content(folder) == b""


def test_lock__outlives_a_beat_that_failed(folder, fast, monkeypatch, caplog):
    fail = Mock(side_effect=OSError(errno.EIO, "the connection was lost"))
    with Lock(folder).hold("score") as lock:
        monkeypatch.setattr(Folder, "atomic_write", once(fail, Folder.atomic_write))
        assert eventually(lambda: values(folder)["beat"] >= 3)
        assert not lock.is_lost

    assert (
        f"could not renew the lock of {folder}: OSError: [Errno 5] the connection was lost."
        in caplog.text
    )


def test_lock__that_cannot_be_removed_does_not_hide_an_error(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(LocalFileSystem, "rm_file", Mock(side_effect=PermissionError("x")))

    with pytest.raises(KeyError, match="body"), Lock(tmp_path).hold("score"):
        raise KeyError("body")

    assert f"could not remove the lock of {tmp_path}: PermissionError" in caplog.text


def test_lock__is_not_lost_where_the_answer_to_its_removal_is(
    tmp_path, monkeypatch, caplog
):
    def remove(filesystem, path):
        removed.append(path)
        remove_file(filesystem, path)
        if len(removed) == 1:
            raise TimeoutError("no answer")

    removed, remove_file = [], LocalFileSystem.rm_file
    with Lock(tmp_path).hold("score") as lock:
        monkeypatch.setattr(LocalFileSystem, "rm_file", remove)

    assert len(removed) == 1
    assert not lock.is_lost
    assert "belongs to another run" not in caplog.text
    assert names(tmp_path) == []


def test_lock__does_not_wait_for_a_beat_that_hangs(folder, fast, monkeypatch, caplog):
    is_hanging, end = threading.Event(), threading.Event()

    def hang(place, name, content):
        is_hanging.set()
        end.wait(60)

    with Lock(folder).hold("score"):
        monkeypatch.setattr(Folder, "write", hang)
        assert is_hanging.wait(30)
    end.set()

    assert "TimeoutError: a heartbeat is still being written." in caplog.text


# Tasks


def test_verify__waits_for_a_beat_that_hides_the_lock(folder, monkeypatch):
    with Lock(folder).hold("score") as lock:
        read = Folder.read
        monkeypatch.setattr(Folder, "read", once(lambda *_, **__: None, read))
        lock.verify()


def test_verify__stops_the_tasks_of_a_run_that_ended(folder):
    with Lock(folder).hold("score") as first:
        pass
    with pytest.raises(RuntimeError, match=r"another run has taken over"):
        first.verify()

    with (
        Lock(folder).hold("score"),
        pytest.raises(RuntimeError, match="Let the other run end"),
    ):
        first.verify()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no forks")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_hold__in_a_fork_leaves_the_lock_to_the_process_that_has_it(tmp_path):
    with Lock(tmp_path).hold("score") as lock:
        in_fork(lock.release)

        lock.verify()
    assert list(tmp_path.iterdir()) == []

"""Locks on folders, of runs that live, died, were displaced, or are on another machine."""

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from uuid import uuid4

import fsspec
import pandas as pd
import psutil
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from choosing import mostly_full
from forking import in_fork
from lpe_dask.storage import folder as folders
from lpe_dask.storage import lock as locks
from lpe_dask.storage import owner as owners
from lpe_dask.storage.folder import Folder
from lpe_dask.storage.lock import (
    LOCK_NAME,
    STALE_SECONDS,
    LockedError,
    is_stale,
    locked,
    verify_lock,
)
from lpe_dask.tasks import remove_spools

#: Waits for a line, takes the lock, and says whether it did; keeps it until the next line.
CONTENDER = """
import sys
from lpe_dask.storage.lock import LockedError, hold

print("ready", flush=True)
sys.stdin.readline()
try:
    with hold(sys.argv[1], "score"):
        print("held", flush=True)
        sys.stdin.readline()
except LockedError:
    print("refused", flush=True)
"""


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    """The URL of an empty folder."""
    url = str(tmp_path) if request.param == "local" else f"memory://{uuid4().hex}"
    filesystem, root = fsspec.core.url_to_fs(url)
    filesystem.makedirs(root, exist_ok=True)
    yield url
    if request.param == "memory":
        filesystem.rm(root, recursive=True)


@pytest.fixture(autouse=True, scope="module")
def no_other_locks():
    """Spools of models that other tests keep have a heartbeat, too."""
    remove_spools()


@pytest.fixture
def fast(monkeypatch):
    """Beats in hundredths of a second."""
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.02)


def content(folder, name=LOCK_NAME):
    filesystem, root = fsspec.core.url_to_fs(folder)
    return filesystem.cat_file(f"{root}/{name}")


def values(folder):
    return json.loads(content(folder))


def names(folder):
    filesystem, root = fsspec.core.url_to_fs(folder)
    return sorted(name.rsplit("/", 1)[-1] for name in filesystem.ls(root, detail=False))


def write(folder, content, *, age=0, name=LOCK_NAME):
    """Write a lock as if that had been ``age`` seconds ago."""
    filesystem, root = fsspec.core.url_to_fs(folder)
    path = f"{root}/{name}"
    filesystem.pipe_file(path, content)
    if isinstance(filesystem, LocalFileSystem):
        os.utime(path, (time.time() - age,) * 2)
    else:
        filesystem.store[path].modified -= timedelta(seconds=age)


def lock_of(folder, **changes):
    """Return the content of a lock of this process, but for the changes."""
    with locked(folder, "score data.parquet"):
        return json.dumps(values(folder) | changes).encode()


def foreign(folder, **changes):
    """Return the content of a lock of another machine."""
    return lock_of(folder, **{"token": "theirs", "host": "elsewhere", "pid": 7} | changes)


def check_that_age_decides(folder, left, message="locked"):
    """A lock of a recent heartbeat is respected, and an old one is taken over."""
    write(folder, left)
    with pytest.raises(LockedError, match=message), locked(folder, "score"):
        pass

    write(folder, left, age=STALE_SECONDS + 1)
    with locked(folder, "score") as lock:
        assert values(folder)["token"] == lock.token
        assert names(folder) == [LOCK_NAME]
    assert names(folder) == []


def is_soon(condition):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


@contextmanager
def contender(folder):
    """A process that takes the lock when it is told to."""
    command = [sys.executable, "-c", CONTENDER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def tell(process):
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process):
    return process.stdout.readline().strip()


# One at a time


def test_hold__refuses_a_second_run_and_lets_the_next_one_in(folder):
    message = (
        rf"the folder {folder} is locked \(_lock.json\) by process {os.getpid()} on \S+ "
        r"\(score data.parquet\); its last heartbeat was 0 s ago\. Only one run .*"
        r"Wait until .* 60 s after its last heartbeat, .* else remove the file\."
    )
    with locked(folder, "score data.parquet") as first:
        with pytest.raises(OSError, match=message) as refusal, locked(folder, "fit"):
            pass
        assert refusal.type is LockedError
        assert names(folder) == [LOCK_NAME]
        assert values(folder)["token"] == first.token

    assert names(folder) == []
    with locked(folder, "fit") as second:
        assert second.token != first.token
    assert not first.is_lost
    assert not second.is_lost


@pytest.mark.parametrize("age", [None, 2 * STALE_SECONDS], ids=["free", "dead"])
def test_hold__lets_one_of_many_threads_in(folder, age):
    if age is not None:
        write(folder, foreign(folder), age=age)

    assert race(folder, 8) == ["held", *["refused"] * 7]


def race(folder, n_threads):
    """Return what became of threads that want the lock at the same moment."""
    start, finish = threading.Barrier(n_threads), threading.Event()

    def contend():
        start.wait()
        with suppress(LockedError), locked(folder, "score"):
            finish.wait(60)
            return "held"
        return "refused"

    with ThreadPoolExecutor(n_threads) as pool:
        futures = [pool.submit(contend) for _ in range(n_threads)]
        try:
            list(itertools.islice(as_completed(futures, timeout=30), n_threads - 1))
        finally:
            finish.set()
    return sorted(future.result() for future in futures)


@pytest.mark.parametrize(
    "age", mostly_full([None, 2 * STALE_SECONDS], [2 * STALE_SECONDS]), ids=["free", "dead"]
)
def test_hold__lets_one_of_several_processes_in(tmp_path, age):
    if age is not None:
        write(tmp_path, foreign(tmp_path), age=age)
    with ExitStack() as stack:
        processes = [stack.enter_context(contender(tmp_path)) for _ in range(4)]
        for process in processes:
            tell(process)

        answers = [answer(process) for process in processes]

    assert sorted(answers) == ["held", "refused", "refused", "refused"]


def test_hold__is_not_seen_by_those_who_read_the_folder(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "part-00000.parquet")

    with locked(tmp_path, "score"):
        (tmp_path / "._lock.0123.tmp").touch()
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path), frame)


def test_hold__says_that_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()

    for name in ("file", "file/out"):
        with (
            pytest.raises(OSError, match=rf"{name} cannot be locked: .* Give a folder"),
            locked(tmp_path / name, "score"),
        ):
            pass


def test_hold__leaves_no_lock_on_a_full_disk(tmp_path, monkeypatch):
    def open_full(filesystem, path, mode="rb", **options):
        file = opened(filesystem, path, mode, **options)
        if path.endswith(LOCK_NAME):
            file.flush = fail
        return file

    def fail():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened = LocalFileSystem.open
    monkeypatch.setattr(LocalFileSystem, "open", open_full)

    with (
        pytest.raises(OSError, match=r"cannot be locked.*No space"),
        locked(tmp_path, "score"),
    ):
        pass

    assert names(tmp_path) == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("was_created", [False, True])
def test_hold__leaves_no_lock_where_a_signal_comes_while_it_is_acquired(
    tmp_path, monkeypatch, caplog, was_created, raised
):
    """As at a SIGTERM in the moment after the file is there."""

    def interrupted(folder, name, content):
        if was_created:
            create(folder, name, content)
        raise raised

    create = Folder.create
    monkeypatch.setattr(Folder, "create", interrupted)
    url = tmp_path / "out"
    with pytest.raises(raised), locked(url, "test", is_ours=True):
        pass

    assert not url.exists()
    assert not caplog.text


def test_hold__gives_up_where_the_lock_comes_and_goes(folder, monkeypatch):
    monkeypatch.setattr(locks, "_ATTEMPTS", (0.0, 0.01))
    monkeypatch.setattr(Folder, "create", lambda *arguments: False)

    with (
        pytest.raises(LockedError, match="another run is taking over"),
        locked(folder, "score"),
    ):
        pass


# Owners that may be dead


@pytest.mark.parametrize("age", [0, STALE_SECONDS - 10])
def test_hold__respects_another_machine_with_a_recent_heartbeat(folder, age):
    write(folder, foreign(folder), age=age)

    with (
        pytest.raises(LockedError, match=rf"process 7 on elsewhere.* {age} s ago"),
        locked(folder, "score"),
    ):
        pass

    assert values(folder)["token"] == "theirs"
    assert names(folder) == [LOCK_NAME]


def test_hold__takes_over_from_another_machine_without_one(folder):
    """Whatever time that machine wrote."""
    check_that_age_decides(folder, foreign(folder, since="2999-01-01T00:00:00", started=0))


def test_hold__takes_over_at_once_from_a_process_that_was_killed(tmp_path):
    with contender(tmp_path) as process:
        tell(process)
        assert answer(process) == "held"
        with pytest.raises(LockedError, match=f"process {process.pid}"):
            locked(tmp_path, "score").__enter__()

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        left = content(tmp_path)
        with locked(tmp_path, "score"):
            pass

    write(tmp_path, left)
    with locked(tmp_path, "score"):  # nobody remembers the process
        assert names(tmp_path) == [LOCK_NAME]


def test_hold__respects_a_process_that_was_stopped(tmp_path):
    """As when a machine slept: its processes wake up at the same time."""
    with contender(tmp_path) as process:
        tell(process)
        assert answer(process) == "held"
        process.send_signal(signal.SIGSTOP)
        write(tmp_path, content(tmp_path), age=3600)

        with pytest.raises(LockedError, match=f"{process.pid}"), locked(tmp_path, "score"):
            pass


@pytest.mark.parametrize("changes", [{"boot": "another"}, {"pid_namespace": "another"}])
def test_hold__does_not_look_for_a_process_of_another_machine_here(folder, changes):
    """Many machines are called localhost."""
    write(folder, lock_of(folder, pid=2**22 + 1, **changes))

    with pytest.raises(LockedError), locked(folder, "score"):
        pass


this_process = psutil.Process()


def is_another(pid=None):
    return this_process


def is_hidden(pid=None):
    if pid:
        raise psutil.AccessDenied
    return this_process


@pytest.mark.parametrize("found", [is_hidden, is_another])
def test_hold__lets_the_age_decide_where_a_process_cannot_be_told(
    folder, monkeypatch, found
):
    """It is hidden, is another process, or the clock was set."""
    monkeypatch.setattr(psutil, "Process", found)

    check_that_age_decides(folder, lock_of(folder, pid=1, started=0.5), "process 1 on")


@pytest.mark.parametrize("folder", ["memory"], indirect=True)
def test_hold__respects_a_lock_that_has_no_age(folder, monkeypatch):
    def modified(filesystem, path):
        raise NotImplementedError

    monkeypatch.setattr(MemoryFileSystem, "modified", modified)
    write(folder, foreign(folder), age=2 * STALE_SECONDS)

    with pytest.raises(LockedError, match="remove the file"), locked(folder, "score"):
        pass


def test_hold__knows_machines_without_linux(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(owners, "_BOOT_ID", tmp_path / "missing")
    monkeypatch.setattr(owners, "_PID_NAMESPACE", tmp_path / "missing")

    with locked(folder, "score"):
        assert values(folder)["boot"] == str(psutil.boot_time())
        assert values(folder)["pid_namespace"] == ""


# Locks that say nothing

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
field_names = st.sampled_from(sorted(owners.Owner.__dataclass_fields__))
contents = st.one_of(
    st.binary(),
    json_values.map(json.dumps).map(str.encode),
    st.dictionaries(field_names, json_values, min_size=1),
    st.just(b"[" * 10_000),
    st.just(b"PAR1"),
)


@given(content=contents)
def test_hold__takes_over_what_it_cannot_read_when_that_is_old(content):
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(content, dict):
            content = foreign(folder, **content)

        check_that_age_decides(folder, content, r"locked \(_lock.json\) by")


@given(purpose=st.text())
def test_hold__reads_its_own_lock_whatever_the_purpose(purpose):
    with tempfile.TemporaryDirectory() as folder, locked(folder, purpose) as lock:
        verify_lock(folder, lock.token)
        with pytest.raises(LockedError) as refusal:
            locked(folder, "score").__enter__()
        assert str(refusal.value).isprintable()


# Taking over


def claim_name(left, number):
    return f"._lock.{sha256(left).hexdigest()[:16]}-{number}.tmp"


def test_hold__leaves_a_dead_lock_to_who_has_claimed_it(folder):
    left, claim = foreign(folder), foreign(folder, host="third")
    write(folder, left, age=STALE_SECONDS + 1)
    write(folder, claim, name=claim_name(left, 0))

    with pytest.raises(LockedError, match="on third"), locked(folder, "score"):
        pass

    assert content(folder) == left
    assert names(folder) == [claim_name(left, 0), LOCK_NAME]


def test_hold__follows_a_claim_of_a_run_that_died(tmp_path):
    left = foreign(tmp_path)
    write(tmp_path, left, age=STALE_SECONDS + 9)
    for number in range(2):
        write(tmp_path, b"", age=STALE_SECONDS + 1, name=claim_name(left, number))

    with locked(tmp_path, "score") as lock:
        assert values(tmp_path)["token"] == lock.token
        assert names(tmp_path) == [LOCK_NAME]


@pytest.mark.parametrize("beat", [1, None], ids=["woke up", "released"])
def test_hold__looks_again_before_it_replaces(folder, monkeypatch, beat):
    def find_dead(place, name):
        left = judge(place, name)
        if beat is None:
            place.remove_file(name)
        else:
            write(folder, later)
        return left

    left, later = foreign(folder), foreign(folder, beat=beat)
    judge = locks._stale_content
    write(folder, left, age=STALE_SECONDS + 1)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "_stale_content", once(find_dead, judge))
        if beat is None:
            with locked(folder, "score") as lock:
                assert values(folder)["token"] == lock.token
        else:
            with pytest.raises(LockedError), locked(folder, "score"):
                pass
            assert content(folder) == later
    assert claim_name(left, 0) not in names(folder)


def once(first, then):
    """Return a function that is ``first`` when it is called first, and later ``then``."""
    functions = itertools.chain([first], itertools.repeat(then))
    return lambda *arguments, **options: next(functions)(*arguments, **options)


def test_hold__tries_again_where_the_lock_was_just_released(folder, monkeypatch):
    def released(place, name, content):
        return False

    monkeypatch.setattr(Folder, "create", once(released, Folder.create))

    with locked(folder, "score") as lock:
        verify_lock(folder, lock.token)


# Filesystems that can do less


def overwrite(filesystem, path, mode="rb", **options):
    return opened(filesystem, path, mode.replace("x", "w"), **options)


def know_no_mode(filesystem, path, mode="rb", **options):
    if "x" in mode:
        raise ValueError(mode)
    return opened(filesystem, path, mode, **options)


opened = MemoryFileSystem.open


@pytest.mark.parametrize("open_file", mostly_full([overwrite, know_no_mode], [overwrite]))
@pytest.mark.parametrize("folder", ["memory"], indirect=True)
def test_hold__settles_who_wrote_last_where_files_are_not_exclusive(
    folder, monkeypatch, open_file
):
    monkeypatch.setattr(folders, "SETTLE_SECONDS", 0.5)
    monkeypatch.setattr(MemoryFileSystem, "open", open_file)

    assert race(folder, 4) == ["held", "refused", "refused", "refused"]
    write(folder, foreign(folder), age=2 * STALE_SECONDS)
    assert race(folder, 4) == ["held", "refused", "refused", "refused"]


@pytest.mark.parametrize("folder", ["memory"], indirect=True)
def test_hold__reports_a_failure_that_left_nothing(folder, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.EIO, "the connection was lost")

    monkeypatch.setattr(Folder, "_write_if_absent", fail)

    with (
        pytest.raises(OSError, match=r"cannot be locked.*connection"),
        locked(folder, "score"),
    ):
        pass


@pytest.mark.parametrize("folder", ["memory"], indirect=True)
def test_hold__has_the_lock_though_the_answer_was_lost(folder, monkeypatch):
    def answer_nothing(place, name, content):
        write_if_absent(place, name, content)
        raise OSError(errno.EINVAL, "At least one of the pre-conditions did not hold")

    write_if_absent = Folder._write_if_absent
    monkeypatch.setattr(Folder, "_write_if_absent", answer_nothing)

    with locked(folder, "score") as lock:
        verify_lock(folder, lock.token)


# While it is held


def test_lock__has_a_heartbeat(folder, fast):
    with locked(folder, "score") as lock:
        assert is_soon(lambda: values(folder)["beat"] >= 3)
        assert values(folder)["token"] == lock.token
        assert not lock.is_lost

    assert names(folder) == []


@pytest.mark.parametrize("left", [b"", b"theirs"], ids=["unreadable", "another's"])
def test_lock__is_lost_to_another_run(folder, fast, left, caplog):
    left = left and foreign(folder)
    with locked(folder, "score") as lock:
        lock._folder.write = lambda name, content: None  # no beat is under way
        write(folder, left)
        assert is_soon(lambda: lock.is_lost)

    assert content(folder) == left
    said = "belongs to another run now" if left else "is gone or not readable"
    assert f"the lock of {folder} {said}" in caplog.text


def test_lock__is_lost_with_its_folder(tmp_path, fast):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out", "score") as lock:
        shutil.move(tmp_path / "out", tmp_path / "moved")
        assert is_soon(lambda: lock.is_lost)

    assert names(tmp_path) == ["moved"]


def test_lock__knows_after_its_end_that_it_was_lost(folder):
    with locked(folder, "score") as lock:
        write(folder, b"")

    assert lock.is_lost
    assert content(folder) == b""


def test_lock__outlives_a_beat_that_failed(folder, fast, monkeypatch, caplog):
    def fail(*arguments):
        raise OSError(errno.EIO, "the connection was lost")

    with locked(folder, "score") as lock:
        monkeypatch.setattr(Folder, "atomic_write", once(fail, Folder.atomic_write))
        assert is_soon(lambda: values(folder)["beat"] >= 3)
        assert not lock.is_lost

    assert (
        f"could not renew the lock of {folder}: OSError: [Errno 5] the connection was lost."
        in caplog.text
    )


def test_lock__that_cannot_be_removed_does_not_hide_an_error(tmp_path, monkeypatch, caplog):
    def fail(filesystem, path):
        raise PermissionError(path)

    monkeypatch.setattr(LocalFileSystem, "rm_file", fail)

    with pytest.raises(KeyError, match="body"), locked(tmp_path, "score"):
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
    with locked(tmp_path, "score") as lock:
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

    with locked(folder, "score"):
        monkeypatch.setattr(Folder, "write", hang)
        assert is_hanging.wait(30)
    end.set()

    assert "TimeoutError: a heartbeat is still being written." in caplog.text


# Tasks


def test_check_token__waits_for_a_beat_that_hides_the_lock(folder, monkeypatch):
    with locked(folder, "score") as lock:
        read = Folder.read
        monkeypatch.setattr(Folder, "read", once(lambda *_, **__: None, read))
        verify_lock(folder, lock.token)


def test_check_token__stops_the_tasks_of_a_run_that_ended(folder):
    with locked(folder, "score") as first:
        pass
    with pytest.raises(RuntimeError, match=r"another run has taken over"):
        verify_lock(folder, first.token)

    with (
        locked(folder, "score"),
        pytest.raises(RuntimeError, match="Let the other run end"),
    ):
        verify_lock(folder, first.token)


# Whether anyone still uses a folder


@pytest.mark.parametrize(("beats", "expected"), [(9, False), (11, True)])
def test_is_dead__of_a_folder_without_a_lock_waits_for_one(tmp_path, beats, expected):
    """Ten times as long as for a heartbeat: it may be about to get one."""
    then = time.time() - beats * STALE_SECONDS
    os.utime(tmp_path, (then, then))

    assert is_stale(tmp_path) is expected


def test_is_dead__of_a_lock_that_lives_and_of_one_that_does_not(folder):
    theirs = foreign(folder)
    write(folder, theirs, age=STALE_SECONDS / 2)
    assert not is_stale(folder)

    write(folder, theirs, age=2 * STALE_SECONDS)
    assert is_stale(folder)


def test_hold__tells_where_the_folder_was_removed_meanwhile(tmp_path, monkeypatch):
    """By another run, which had left it empty: who can, tries again."""
    monkeypatch.setattr(Folder, "make", lambda folder: None)

    missing = pytest.raises(FileNotFoundError, match="cannot be locked")
    with missing, locked(tmp_path / "gone", "score"):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="it has no forks")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_hold__in_a_fork_leaves_the_lock_to_the_process_that_has_it(tmp_path):
    with locked(tmp_path, "score") as lock:
        in_fork(lock.release)

        verify_lock(tmp_path, lock.token)
    assert list(tmp_path.iterdir()) == []

"""Taking the lock of a folder, of runs that live, died, or are on another machine."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from unittest.mock import Mock

import pandas as pd
import psutil
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from choosing import mostly_full
from lock_files import (
    check_refused,
    check_that_age_decides,
    content,
    foreign,
    lock_of,
    names,
    once,
    values,
    write,
)
from lpe_dask.storage import Folder, Lock
from lpe_dask.storage import folder as folders
from lpe_dask.storage import lock as locks
from lpe_dask.storage import owner as owners
from lpe_dask.storage.lock import STALE_SECONDS, LockedError

#: Waits for a line, takes the lock, and says whether it did; keeps it until the next line.
CONTENDER = """
import sys
from lpe_dask.storage.lock import Lock, LockedError

print("ready", flush=True)
sys.stdin.readline()
try:
    with Lock(sys.argv[1]).hold("score"):
        print("held", flush=True)
        sys.stdin.readline()
except LockedError:
    print("refused", flush=True)
"""


@contextmanager
def contender(folder):
    """A process that takes the lock when it is asked to."""
    command = [sys.executable, "-c", CONTENDER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def ask(process):
    process.stdin.write("\n")
    process.stdin.flush()


def answer(process):
    return process.stdout.readline().strip()


@pytest.fixture
def lock_owner(tmp_path):
    """A process that has the lock of a folder."""
    with contender(tmp_path) as process:
        ask(process)
        assert answer(process) == "held"
        yield process


# One at a time


def test_hold__refuses_a_second_run_and_lets_the_next_one_in(folder):
    message = (
        rf"the folder {folder} is locked \(_lock.json\) by process {os.getpid()} on \S+ "
        r"\(score data.parquet\); its last heartbeat was 0 s ago\. Only one run .*"
        r"Wait until .* 60 s after its last heartbeat, .* else remove the file\."
    )
    with Lock(folder).hold("score data.parquet") as first:
        assert isinstance(check_refused(folder, message), OSError)
        assert names(folder) == [Lock.NAME]
        assert values(folder)["token"] == first.token

    assert names(folder) == []
    with Lock(folder).hold("fit") as second:
        assert second.token != first.token
    assert not first.is_lost
    assert not second.is_lost


def race(folder, n_threads):
    """Outcomes of threads that want the lock at the same moment."""
    start, finish = threading.Barrier(n_threads), threading.Event()

    def contend():
        start.wait()
        with suppress(LockedError), Lock(folder).hold("score"):
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


@pytest.mark.parametrize("age", [None, 2 * STALE_SECONDS], ids=["free", "dead"])
def test_hold__lets_one_of_many_threads_in(folder, age):
    if age is not None:
        write(folder, foreign(folder), age=age)

    assert race(folder, 8) == ["held", *["refused"] * 7]


@pytest.mark.parametrize(
    "age", mostly_full([None, 2 * STALE_SECONDS], [2 * STALE_SECONDS]), ids=["free", "dead"]
)
def test_hold__lets_one_of_several_processes_in(tmp_path, age):
    if age is not None:
        write(tmp_path, foreign(tmp_path), age=age)
    with ExitStack() as stack:
        processes = [stack.enter_context(contender(tmp_path)) for _ in range(4)]
        for process in processes:
            ask(process)

        answers = [answer(process) for process in processes]

    assert sorted(answers) == ["held", "refused", "refused", "refused"]


def test_hold__is_not_seen_by_those_who_read_the_folder(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "part-00000.parquet")

    with Lock(tmp_path).hold("score"):
        (tmp_path / "._lock.0123.tmp").touch()
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path), frame)


# Where it cannot be taken


def test_hold__says_that_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()

    for name in ("file", "file/out"):
        check_refused(
            tmp_path / name, rf"{name} cannot be locked: .* Give a folder", OSError
        )


def test_hold__says_where_the_folder_was_removed_meanwhile(tmp_path, monkeypatch):
    """By another run, which had left it empty: who can, tries again."""
    monkeypatch.setattr(Folder, "make", lambda folder: None)

    check_refused(tmp_path / "gone", "cannot be locked", FileNotFoundError)


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
    with pytest.raises(raised), Lock(url).hold("test", is_ours=True):
        pass

    assert not url.exists()
    assert not caplog.text


def test_hold__gives_up_where_the_lock_comes_and_goes(folder, monkeypatch):
    monkeypatch.setattr(locks, "_ATTEMPTS", (0.0, 0.01))
    monkeypatch.setattr(Folder, "create", lambda *arguments: False)

    check_refused(folder, "another run is taking over")


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("folder", ["memory"], indirect=True)
def test_hold__has_the_lock_if_it_is_there_though_the_answer_was_lost(
    folder, monkeypatch, is_written
):
    def answer_nothing(place, name, content):
        if is_written:
            write_if_absent(place, name, content)
        raise OSError(errno.EINVAL, "At least one of the pre-conditions did not hold")

    write_if_absent = Folder._write_if_absent
    monkeypatch.setattr(Folder, "_write_if_absent", answer_nothing)

    if is_written:
        with Lock(folder).hold("score") as lock:
            lock.verify()
    else:
        check_refused(folder, r"cannot be locked.*pre-conditions", OSError)


# Owners that may be dead


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "theirs", "host": "elsewhere", "pid": 7},
        # Whatever time that machine wrote.
        {"host": "elsewhere", "pid": 7, "since": "2999-01-01T00:00:00", "started": 0},
        # Many machines are called localhost.
        {"pid": 2**22 + 1, "boot": "another"},
        {"pid": 2**22 + 1, "pid_namespace": "another"},
    ],
)
def test_hold__lets_the_age_decide_of_another_machine(folder, changes):
    message = rf"process {changes['pid']} on .*\(score data.parquet\)"

    check_that_age_decides(folder, lock_of(folder, **changes), message)


this_process = psutil.Process()


def is_another(pid=None):
    return this_process


def is_hidden(pid=None):
    if pid:
        raise psutil.AccessDenied
    return this_process


@pytest.mark.parametrize("process", [is_hidden, is_another])
def test_hold__lets_the_age_decide_of_a_process_that_may_be_another(
    folder, monkeypatch, process
):
    """It is hidden, is another process, or the clock was set."""
    monkeypatch.setattr(psutil, "Process", process)

    check_that_age_decides(folder, lock_of(folder, pid=1, started=0.5), "process 1 on")


def test_hold__lets_the_age_decide_where_processes_of_other_users_are_hidden(
    folder, monkeypatch
):
    """One that is not found may be one of theirs."""
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: pid != 1)
    pid = 2**22 + 1  # of no process

    check_that_age_decides(folder, lock_of(folder, pid=pid), f"process {pid} on")


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
def test_hold__lets_the_age_decide_of_what_it_cannot_read(content):
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(content, dict):
            content = foreign(folder, **content)

        check_that_age_decides(folder, content, r"locked \(_lock.json\) by")


@given(purpose=st.text())
def test_hold__reads_its_own_lock_whatever_the_purpose(purpose):
    with tempfile.TemporaryDirectory() as folder, Lock(folder).hold(purpose) as lock:
        lock.verify()
        assert str(check_refused(folder, "locked")).isprintable()


@pytest.mark.parametrize("folder", ["memory"], indirect=True)
def test_hold__respects_a_lock_that_has_no_age(folder, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "modified", Mock(side_effect=NotImplementedError))
    write(folder, foreign(folder), age=2 * STALE_SECONDS)

    check_refused(folder, "remove the file")


def test_hold__takes_over_at_once_from_a_process_that_was_killed(tmp_path, lock_owner):
    check_refused(tmp_path, f"process {lock_owner.pid}")

    lock_owner.kill()
    os.waitid(os.P_PID, lock_owner.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(lock_owner.pid).status() == psutil.STATUS_ZOMBIE
    left = content(tmp_path)
    with Lock(tmp_path).hold("score"):
        pass

    lock_owner.wait()
    write(tmp_path, left)
    with Lock(tmp_path).hold("score"):  # nobody remembers the process
        assert names(tmp_path) == [Lock.NAME]


def test_hold__respects_a_process_that_was_stopped(tmp_path, lock_owner):
    """As when a machine slept: its processes wake up at the same time."""
    lock_owner.send_signal(signal.SIGSTOP)
    write(tmp_path, content(tmp_path), age=3600)

    check_refused(tmp_path, f"{lock_owner.pid}")


def test_hold__knows_machines_without_linux(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(owners, "_BOOT_ID", tmp_path / "missing")
    monkeypatch.setattr(owners, "_PID_NAMESPACE", tmp_path / "missing")

    with Lock(folder).hold("score"):
        assert values(folder)["boot"] == str(psutil.boot_time())
        assert values(folder)["pid_namespace"] == ""


@pytest.mark.parametrize(("beats", "expected"), [(9, False), (11, True)])
def test_is_stale__of_a_folder_without_a_lock_waits_for_one(tmp_path, beats, expected):
    """Ten times as long as for a heartbeat: it may be about to get one."""
    then = time.time() - beats * STALE_SECONDS
    os.utime(tmp_path, (then, then))

    assert Lock(tmp_path).is_stale() is expected


# Taking over


def claim_name(left, number):
    return f"._lock.{sha256(left).hexdigest()[:16]}-{number}.tmp"


def test_hold__leaves_a_dead_lock_to_who_has_claimed_it(folder):
    left, claim = foreign(folder), foreign(folder, host="third")
    write(folder, left, age=STALE_SECONDS + 1)
    write(folder, claim, name=claim_name(left, 0))

    check_refused(folder, "on third")

    assert content(folder) == left
    assert names(folder) == [claim_name(left, 0), Lock.NAME]


def test_hold__follows_a_claim_of_a_run_that_died(tmp_path):
    left = foreign(tmp_path)
    write(tmp_path, left, age=STALE_SECONDS + 9)
    for number in range(2):
        write(tmp_path, b"", age=STALE_SECONDS + 1, name=claim_name(left, number))

    with Lock(tmp_path).hold("score") as lock:
        assert values(tmp_path)["token"] == lock.token
        assert names(tmp_path) == [Lock.NAME]


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
    monkeypatch.setattr(locks, "_stale_content", once(find_dead, judge))
    if beat is None:
        with Lock(folder).hold("score") as lock:
            assert values(folder)["token"] == lock.token
    else:
        check_refused(folder, "locked")
        assert content(folder) == later
    assert claim_name(left, 0) not in names(folder)


def test_hold__tries_again_where_the_lock_was_just_released(folder, monkeypatch):
    released = Mock(return_value=False)
    monkeypatch.setattr(Folder, "create", once(released, Folder.create))

    with Lock(folder).hold("score") as lock:
        lock.verify()


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

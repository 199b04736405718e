"""Blocks in memory, and what is kept in a spool as long as somebody needs it."""

import gc
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from unittest.mock import MagicMock, Mock

import dask
import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client
from fsspec.implementations.local import LocalFileSystem

import lpe_dask
from choosing import mostly_full
from lpe_dask.search.blocks.in_memory import RowsByRegion
from lpe_dask.search.blocks.persisted import Blocks
from lpe_dask.search.blocks.spool_blocks import SpoolFolder
from lpe_dask.tasks import remove_spools, spool, spool_cleaner, spool_references, to_task
from lpe_dask.tasks.dask_internals import clients_of_process
from lpe_dask.tasks.spool import Spool, call_options, spool_at, spool_location
from lpe_dask.tasks.spool_references import (
    EntryReference,
    _references_among,
    references_on,
)
from lpe_dask.tasks.transfer import LITERAL_BYTES
from waiting import eventually

SMALL = np.arange(10.0)
ROOT = Path(__file__).parents[3]


@pytest.mark.cluster
@pytest.mark.parametrize("fitted_on", ["here", "cluster"])
@pytest.mark.parametrize("used_on", ["here", "cluster"])
def test_results__are_found_where_they_are_kept(client, fitted_on, used_on, tmp_path):
    def make():
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return SMALL

    places = {"here": {"scheduler": "sync"}, "cluster": {"scheduler": client}}
    tasks = [delayed(make, pure=False)()]
    with dask.config.set(places[fitted_on]):
        results = Blocks.of(lambda: tasks)
        dask.compute(*results.tasks())
    with dask.config.set(places[used_on]):
        results.keep()
        for _ in range(2):
            (block,) = dask.compute(*results.tasks())
            np.testing.assert_array_equal(block, SMALL)
        copy = pickle.loads(pickle.dumps(results))
        np.testing.assert_array_equal(dask.compute(*copy.tasks()), [SMALL])

    with dask.config.set(scheduler="sync"):
        np.testing.assert_array_equal(dask.compute(*copy.tasks()), [SMALL])
    # Made on the cluster, they are made again where that is not asked.
    n_places = len({fitted_on, used_on}) if fitted_on == "cluster" else 1
    assert (tmp_path / "calls").read_text() == n_places * "x"


# An entry stays as long as a task of some scheduler needs it


def kill_holder(client, future):
    (address,) = client.who_has(future).values()
    os.kill(client.run(os.getpid)[address[0]], signal.SIGKILL)


def twice(value):
    return 2 * value


@pytest.mark.cluster
def test_entry__stays_while_a_result_on_a_cluster_needs_it(client, tmp_path, monkeypatch):
    value = np.arange(LITERAL_BYTES / 4)
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 0.1)
    monkeypatch.setattr(spool_cleaner, "_QUESTION_SECONDS", 0.1)
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        doubled = delayed(twice)(to_task(value, "lpe-test")).persist()
        (future,) = doubled.dask.values()
        np.testing.assert_array_equal(future.result(), 2 * value)

        gc.collect()
        time.sleep(0.5)  # the scheduler is asked meanwhile
        assert len(list(tmp_path.glob("*/value-*"))) == 1
        kill_holder(client, future)
        np.testing.assert_array_equal(doubled.compute(), 2 * value)  # read again

        del doubled, future
        gc.collect()
        assert eventually(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.cluster
def test_entry__of_a_graph_on_its_way_stays(client, tmp_path, monkeypatch):
    """A scheduler that does not know it yet may know it soon."""
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 1.2)
    monkeypatch.setattr(spool_cleaner, "_QUESTION_SECONDS", 0.1)
    entry = spool_at(str(tmp_path)).folder("blocks")
    pickle.dumps(entry)
    del entry

    time.sleep(0.5)  # the scheduler would be asked meanwhile
    assert len(list(tmp_path.glob("*/blocks-*"))) == 1
    assert eventually(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.cluster
def test_entries__that_are_pending_go_when_the_client_does(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 1000)
    with Client(cluster):
        entry = spool_at(str(tmp_path)).folder("blocks")
        pickle.dumps(entry)
        del entry
        assert len(list(tmp_path.iterdir())) == 1

    assert eventually(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.full
@pytest.mark.cluster
def test_entries__let_go_by_many_threads_all_go(client, tmp_path, monkeypatch):
    monkeypatch.setattr(spool_cleaner, "TRAVEL_SECONDS", 0.1)

    def make_and_let_go():
        for _ in range(100):
            pickle.dumps(spool_at(str(tmp_path)).folder("blocks"))

    threads = [threading.Thread(target=make_and_let_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert eventually(lambda: list(tmp_path.iterdir()) == [])


@pytest.mark.parametrize(("status", "n_needed"), [("running", 2), ("closed", 0)])
def test_references_on__a_scheduler_that_does_not_answer(status, n_needed):
    """All may be needed, as long as it is there."""
    client = Mock(status=status)
    client.run_on_scheduler.side_effect = TimeoutError

    assert len(references_on(client, {"a", "b"})) == n_needed


def test_references_among__tasks_that_change_meanwhile(monkeypatch):
    """All may be needed; as an error it would be in the log of the scheduler."""
    named = MagicMock()
    named.__iter__.side_effect = RuntimeError("Set changed size during iteration")
    monkeypatch.setattr(spool_references, "_named", named)

    assert _references_among(["a", "b"], Mock(_active_graph_updates=0)) == ["a", "b"]


def test_references_among__forgets_messages_about_tasks_that_are_gone():
    """Of a large message, the log has a text."""
    reference = EntryReference("a")
    gone, known = ({"op": "compute-task", "key": key} for key in ("gone", "known"))
    other = {"op": "free-keys", "keys": ["gone"]}
    log = ["<large message>", [gone, known, other]]
    workers = {"worker": Mock(recent_message_log=log)}
    scheduler = Mock(stream_comms=workers, tasks={"known"}, _active_graph_updates=0)

    assert _references_among(["a", "b"], scheduler) == ["a"]

    assert log == ["<large message>", [known, other]]
    del reference


# A spool goes with its process

PIECES = RowsByRegion(np.zeros((2, 3)), np.arange(2), np.array([0, 2]))


def test_remove_spools__removes_them_for_good(tmp_path):
    entry = spool_at(str(tmp_path)).folder("blocks")
    SpoolFolder(entry.url).write_pieces(PIECES)

    remove_spools()

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):  # of a task that outlives its run
        SpoolFolder(entry.url).write_pieces(PIECES)
    assert list(tmp_path.iterdir()) == []
    entry = spool_at(str(tmp_path)).folder("blocks")  # of another one
    SpoolFolder(entry.url).write_pieces(PIECES)


@pytest.mark.parametrize(("n_failures", "n_left"), [(2, 0), (99, 1)])
def test_remove_spools__although_tasks_write(tmp_path, monkeypatch, n_failures, n_left):
    """They make a file while the folder is being emptied; but not for ever."""
    spool = Spool(str(tmp_path))
    calls = []

    def rm(filesystem, path, recursive):
        if path.startswith(str(tmp_path)):  # not what other tests have left
            calls.append(path)
            if len(calls) <= n_failures:
                raise OSError("Directory not empty")
        shutil.rmtree(path)

    monkeypatch.setattr(LocalFileSystem, "rm", rm)

    del spool

    assert eventually(lambda: len(calls) == (5 if n_left else n_failures + 1))
    assert eventually(lambda: len(list(tmp_path.iterdir())) == n_left)


def test_spool__is_for_its_owner_and_goes_with_its_last_entry(tmp_path):
    first = spool_at(str(tmp_path)).entry("value")
    second = spool_at(str(tmp_path)).folder("blocks")

    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    del first
    assert folder.is_dir()
    del second
    assert eventually(lambda: not folder.exists())


def run(program, *arguments):
    """Return the words that a new process prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.check_output(command, text=True, cwd=ROOT).split()


COLLECTED = """
import gc, pickle, sys
from lpe_dask.tasks.spool import spool_at

def profile(frame, event, argument):
    if event in ("call", "c_call"):
        print(getattr(argument, "__qualname__", frame.f_code.co_name))

gc.collect()
gc.disable()
cycle = [spool_at(sys.argv[1]).folder("blocks"), spool_at(sys.argv[1]).entry("value")]
pickle.dumps(cycle)
cycle.append(cycle)
del cycle
sys.setprofile(profile)
gc.collect()
sys.setprofile(None)
"""


def test_spool__is_removed_by_a_thread_not_within_the_garbage_collector(tmp_path):
    """A finalizer that sets a ContextVar or takes a lock may end or hang the process."""
    calls = run(COLLECTED, tmp_path)

    assert calls.count("SimpleQueue.put") == 2
    calls = set(calls) - {"collect", "__call__", "dict.pop", "setprofile"}
    assert calls == {"put", "SimpleQueue.put"}
    assert list(tmp_path.iterdir()) == []


def test_package__has_no_other_finalizers():
    pattern = re.compile(r"__del__|\bfinalize\(|gc\.callbacks|weakref\.ref\(.*,")
    files = Path(lpe_dask.__file__).parent.rglob("*.py")

    found = sorted(f.name for f in files if pattern.search(f.read_text()))
    assert found == [
        "spool.py",
        "spool_cleaner.py",
    ]  # that of the cleaner runs at exit only


LEFT_TO_THE_END = """
import sys, threading, time
from fsspec.implementations.local import LocalFileSystem
from lpe_dask.tasks import remove_spools
from lpe_dask.tasks.spool import spool_at

def rm(filesystem, path, **options):
    removing.set()
    time.sleep(0.5)
    remove(filesystem, path, **options)

removing, remove = threading.Event(), LocalFileSystem.rm
LocalFileSystem.rm = rm
spool = spool_at(sys.argv[1])
del spool
removing.wait()
if sys.argv[2] == "at once":
    remove_spools()
    import os
    os._exit(0)
"""


@pytest.mark.parametrize("end", mostly_full(["as usual", "at once"], ["at once"]))
def test_spool__that_a_thread_is_removing_goes_before_the_process(tmp_path, end):
    run(LEFT_TO_THE_END, tmp_path, end)

    assert list(tmp_path.iterdir()) == []


def test_cleaner__goes_on_after_an_error(tmp_path, monkeypatch):
    """As while another thread imports distributed."""
    failures = [AttributeError("Client"), RuntimeError("at exit")]

    def fail():
        if failures:
            raise failures.pop()
        return []

    monkeypatch.setattr(spool_cleaner, "open_clients", fail)
    entry = spool_at(str(tmp_path)).folder("blocks")
    pickle.dumps(entry)

    del entry

    assert eventually(lambda: list(tmp_path.iterdir()) == [])
    assert not failures


def test_clients_of_process__while_distributed_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", types.ModuleType("distributed"))

    assert clients_of_process() == []


OWNER = """
import os, sys, time
from lpe_dask.tasks.spool import spool_at

entry = spool_at(sys.argv[1]).folder("blocks")
if sys.argv[2] == "wait":
    print("made", flush=True)
    time.sleep(100)
if os.fork() == 0:
    other = spool_at(sys.argv[1]).folder("blocks")
    print(other.spool is entry.spool, flush=True)
    del entry
    sys.exit()
os.wait()
print(os.path.isdir(entry.url.removeprefix("file://")), len(os.listdir(sys.argv[1])))
"""


def test_spool__of_a_process_stays_when_its_fork_ends(tmp_path):
    is_same, is_there, n_spools = run(OWNER, tmp_path, "fork")

    assert (is_same, is_there, n_spools) == ("False", "True", "1")
    assert list(tmp_path.iterdir()) == []


def test_spool__of_a_process_that_died_is_removed_by_the_next(tmp_path):
    command = [sys.executable, "-c", OWNER, str(tmp_path), "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout.readline() == b"made\n"
        (left,) = tmp_path.iterdir()
        while_it_lives = Spool(str(tmp_path))
        assert left.is_dir()
        process.kill()
        process.wait()
    assert left.is_dir()

    after = Spool(str(tmp_path))

    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 2
    del while_it_lives, after


WRITTEN_TO_THE_END = """
import os, sys, time
from pathlib import Path
import dask
from distributed import Client, LocalCluster
from lpe_dask.tasks.spool import spool_at

def write(path):
    Path(path, "begun").touch()
    for i in range(10_000):
        Path(path, str(i)).touch()
        time.sleep(0.001)

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0")
    client = Client(cluster)
    entry = spool_at(os.path.abspath(sys.argv[1])).folder("blocks")
    path = entry.url.removeprefix("file://")
    future = client.submit(write, path)
    while not Path(path, "begun").exists():
        time.sleep(0.01)
"""


@pytest.mark.full
@pytest.mark.cluster
def test_spool__goes_after_the_cluster_that_writes_to_it(tmp_path):
    (tmp_path / "script.py").write_text(WRITTEN_TO_THE_END)
    (tmp_path / "spools").mkdir()
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "spools")]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert list((tmp_path / "spools").iterdir()) == []
    assert "FileNotFoundError" not in ended.stderr


# A spool at a URL has options


def test_call_options__of_another_storage_are_not_for_the_spool(monkeypatch):
    monkeypatch.setattr(spool, "_options", {})
    own, others = {"s3": {"key": "a"}}, {"https": {"headers": {"b": "c"}}}
    with dask.config.set({"lpe-dask.spool": "s3://bucket/spool"}):
        for given in (own, others, None):
            call_options(given)
            assert spool_location().options == own


def test_call_options__before_there_is_a_place(monkeypatch):
    """A command reads the job first."""
    monkeypatch.setattr(spool, "_options", {})
    call_options({"key": "a"})
    with dask.config.set({"lpe-dask.spool": "s3://bucket/spool"}):
        assert spool_location().options == {"key": "a"}

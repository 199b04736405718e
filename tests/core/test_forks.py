"""A fork of a process computes as its parent does, whatever the parent's threads hold."""

import ast
import importlib
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numba
import numpy as np
import pandas as pd
import pytest
from dask import threaded
from dask._expr import Expr
from dask.tokenize import tokenize, tokenize_lock
from distributed import Client
from numba.core.compiler_lock import global_compiler_lock

import lpe_dask
from choosing import mostly_dealt, mostly_full
from forking import in_fork
from lpe_dask import LPE
from lpe_dask.forks import ForkSafeLock
from lpe_dask.kernels import nn_descent

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="it has no forks"),
    # Python 3.12 and later warn of forks while threads run.
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

ROWS = np.random.default_rng(0).integers(-9, 9, (300, 3)).astype(float)

KINDS = {
    "ndarray": lambda rows: rows,
    "DataFrame": lambda rows: pd.DataFrame(rows, columns=["a", "b", "c"]),
    "dask array": lambda rows: da.from_array(rows, chunks=(50, -1)),
    "dask DataFrame": lambda rows: dd.from_pandas(
        pd.DataFrame(rows, columns=["a", "b", "c"]), npartitions=3
    ),
}


@pytest.fixture(autouse=True)
def threads():
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture
def model():
    return LPE(5).fit(ROWS)


def scores(model, rows=ROWS[:50]):
    return np.asarray(model.score_samples(rows))


@contextmanager
def held_by_a_thread(lock):
    is_held, end = threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


CASES = KINDS, [False, True]


@pytest.mark.parametrize(("kind", "has_scored"), mostly_dealt(*CASES))
def test_score__in_a_fork(kind, has_scored):
    rows = KINDS[kind](ROWS)
    model = LPE(5).fit(rows)
    expected = scores(LPE(5).fit(ROWS))
    if has_scored:
        scores(model)

    actual = in_fork(lambda: scores(model, rows)[:50])

    np.testing.assert_array_equal(actual, expected)


def fit(model, folder):
    return scores(LPE(5).fit(ROWS))


def save_and_load(model, folder):
    model.save(folder)
    return scores(lpe_dask.load(folder))


def explain(model, folder):
    return model.explain(ROWS[:50] + 0.5).to_csv()


def fork_again(model, folder):
    return in_fork(lambda: scores(model))


@pytest.mark.parametrize("use", [fit, save_and_load, explain, fork_again])
def test_model__in_a_fork(use, model, tmp_path):
    expected = use(model, tmp_path / "here")

    actual = in_fork(lambda: use(model, tmp_path / "there"))

    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("n_forks", mostly_full([4, 10], [4]))
def test_score__in_forks_while_other_threads_fit_and_score(model, n_forks):
    expected, end = scores(model), threading.Event()

    def work():
        while not end.is_set():
            scores(LPE(5).fit(ROWS))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(n_forks):
            np.testing.assert_array_equal(in_fork(lambda: scores(model)), expected)
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_fork_safe_lock__is_free_in_a_fork():
    lock = ForkSafeLock()

    with held_by_a_thread(lock):
        assert not lock.lock.acquire(blocking=False)
        assert in_fork(lambda: lock.lock.acquire(timeout=10))


LOCKS = [tokenize_lock, dask.config.config_lock, threaded.pools_lock]
if sys.version_info < (3, 12):  # later, a cached property has no lock any more
    LOCKS.append(vars(Expr)["_name"].lock)


@pytest.mark.parametrize("lock", LOCKS)
def test_score__in_a_fork_while_a_thread_holds_a_lock(lock, model):
    def change_and_score():
        with dask.config.set(num_workers=2):
            return tokenize(model), scores(model)

    expected = tokenize(model), scores(model)
    with held_by_a_thread(lock):
        name, actual = in_fork(change_and_score)

    assert name == expected[0]
    np.testing.assert_array_equal(actual, expected[1])


def test_fork__waits_until_no_other_thread_compiles():
    importlib.import_module("lpe_dask.kernels.compiled")  # before that, none of ours does
    forks = []
    fork = threading.Thread(target=lambda: forks.append(in_fork(lambda: "forked")))

    with held_by_a_thread(global_compiler_lock):
        fork.start()
        fork.join(0.5)
        assert forks == []
    fork.join()

    assert forks == ["forked"]


def called(function):
    """Return the name of a function without that of its module."""
    return getattr(function, "attr", None) or getattr(function, "id", None)


def test_package__has_no_other_lock_that_a_fork_might_wait_for():
    """Where a process has an object of its own, or nobody waits, Python's locks will do."""
    folder = Path(lpe_dask.__file__).parent
    found = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and called(node.func) in {"Lock", "RLock", "Condition"}
        and ast.unparse(node.func) != "Lock"  # that of a folder
    }

    # That of numba_internals.py is a new one for a fork.
    assert found == {"forks.py", "spool_cleaner.py", "compiled.py", "numba_internals.py"}


@pytest.mark.cluster
@pytest.mark.parametrize("fitted_on", ["threads", "cluster"])
def test_score__in_a_fork_of_a_process_with_a_client(fitted_on, cluster):
    """The fork computes by itself; the cluster stays that of its parent."""

    def refusal():
        with pytest.raises(RuntimeError) as refused, dask.config.set(scheduler=client):
            LPE(5).fit(ROWS)
        return str(refused.value)

    with dask.config.set(scheduler=None), Client(cluster) as client:
        with dask.config.set({"scheduler": "threads"} if fitted_on == "threads" else {}):
            model = LPE(5).fit(ROWS)
        expected = scores(model)

        actual, said = in_fork(lambda: (scores(model), refusal()))

        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(scores(model), expected)
        assert "this process is a fork" in said


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_neighbor_lists__of_a_process_whose_parent_has_built_some(layer, monkeypatch):
    """After a fork OpenMP would end the process without a word."""
    monkeypatch.setattr(numba, "threading_layer", lambda: layer)
    monkeypatch.setattr(nn_descent, "_builders", {1})  # a parent
    monkeypatch.setattr(nn_descent, "_prepare", lambda n_features: False)
    monkeypatch.setattr(nn_descent, "_listed", lambda points, seed: points)

    if layer == "omp":
        with pytest.raises(RuntimeError, match="NUMBA_THREADING_LAYER=workqueue"):
            nn_descent.neighbor_lists(ROWS, 0)
    else:
        assert len(nn_descent.neighbor_lists(ROWS, 0)) == len(ROWS)


USE_OF_A_PARENT = """
import multiprocessing
import dask.array
import lpe_dask

def score():
    rows = dask.array.arange(60.0, chunks=20).reshape(-1, 2)
    print(float(lpe_dask.score(rows, n_neighbors=2).sum().compute()), flush=True)

if __name__ == "__main__":
    dask.array.ones(30, chunks=10).sum().compute()
    fork = multiprocessing.get_context("fork").Process(target=score)
    fork.start()
    score()
    fork.join(60)
    fork.kill()
"""


@pytest.mark.full
def test_score__in_a_fork_of_a_process_that_has_used_dask_alone():
    """It has imported hardly anything of the package.

    Both import and score at the same time, which takes half as long: each has its own
    memory, and what the parent does after the fork does not reach it.
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE_OF_A_PARENT],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    of_one, of_other = run.stdout.split()

    assert of_one == of_other

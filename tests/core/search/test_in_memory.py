"""Fits that are interrupted, and models that several threads use."""

import itertools
import pickle
import signal
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.tokenize import tokenize

from choosing import mostly_dealt, mostly_slow
from lpe_dask import LPE
from waiting import eventually

ROWS = np.random.default_rng(0).integers(0, 300, (20_000, 2)) * 0.1
QUERIES = ROWS[:300] + 0.05
# No kernel is compiled for them in the workers; for ROWS they are.
FEWER = ROWS[:5000]  # where no fit has to take long enough to be interrupted


def right(rows):
    with dask.config.set(scheduler="threads"):
        return LPE(5, algorithm="brute").fit(rows).score_samples(QUERIES)


@pytest.fixture(scope="module")
def expected():
    return right(FEWER)


def states_of(dask_scheduler, prefix):
    return [
        ts.state for key, ts in dask_scheduler.tasks.items() if str(key).startswith(prefix)
    ]


def interrupt_while_tasks_run(client):
    """Do what Ctrl-C does, as soon as some tasks of a join run; return the thread."""

    def interrupt():
        asked = {"prefix": "lpe-join"}
        if eventually(lambda: "processing" in client.run_on_scheduler(states_of, **asked)):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "place"),
    mostly_slow(
        itertools.product(["numpy", "array", "frame"], ["shared", "unshared"]),
        [("numpy", "unshared"), ("array", "shared"), ("frame", "unshared")],
        [("numpy", "unshared"), ("array", "shared")],
    ),
)
def test_fit__that_is_interrupted_leaves_nothing_behind(client, kind, place, tmp_path):
    X = {
        "numpy": ROWS,
        "array": da.from_array(ROWS, chunks=(5000, 2)),
        "frame": dd.from_pandas(pd.DataFrame(ROWS, columns=["x", "y"]), npartitions=4),
    }[kind]
    model = LPE(5, algorithm="brute")
    spool = str(tmp_path) if place == "shared" else "memory://lpe-held"
    with dask.config.set({"lpe-dask.block-rows": 500, "lpe-dask.spool": spool}):
        thread = interrupt_while_tasks_run(client)
        with pytest.raises(KeyboardInterrupt) as kept:
            model.fit(X)
        thread.join()

        assert eventually(lambda: not client.run_on_scheduler(states_of, prefix="lpe-"))
        assert kept.tb is not None  # and with it all that the fit had in hand
    np.testing.assert_array_equal(model.fit(X).score_samples(QUERIES), right(ROWS))


def score_in_threads(model, queries):
    """Return p-values that several threads found at the same time."""
    barrier = threading.Barrier(4)

    def score(number):
        barrier.wait()
        scored = model.score_samples(queries)
        return np.asarray(scored.compute() if dask.is_dask_collection(scored) else scored)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(score, range(4)))


USES = ["numpy", "array", "frame"], ["threads", "cluster"]


@pytest.mark.cluster
@pytest.mark.parametrize(("kind", "place"), mostly_dealt(*USES))
def test_score_samples__in_several_threads(request, expected, kind, place):
    queries = {
        "numpy": QUERIES,
        "array": da.from_array(QUERIES, chunks=(100, 2)),
        "frame": dd.from_pandas(pd.DataFrame(QUERIES, columns=["x", "y"]), npartitions=3),
    }[kind]
    scheduler = {"scheduler": "threads"}
    if place == "cluster":
        scheduler = {"scheduler": request.getfixturevalue("client")}
    with dask.config.set(scheduler):
        frame = pd.DataFrame(FEWER, columns=["x", "y"])
        model = LPE(5, algorithm="brute").fit(frame if kind == "frame" else FEWER)
        for found in score_in_threads(model, queries):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.cluster
def test_score_samples__in_threads_after_the_cluster_was_restarted(client, expected):
    """All of them find that the blocks are gone, and have them made again."""
    model = LPE(5, algorithm="brute").fit(FEWER)
    client.restart()

    for found in score_in_threads(model, QUERIES):
        np.testing.assert_array_equal(found, expected)


def test_model__of_a_cluster_goes_along_with_a_task_as_a_copy(client, expected):
    """Also where dask-ml has its names for estimators, and a notebook keeps what failed."""
    import_module("dask_ml.model_selection")
    refusals = []
    model = LPE(5, algorithm="brute").fit(da.from_array(FEWER, chunks=(2000, 2)))

    def on_partition(rows):
        return pd.Series(model.score_samples(rows.to_numpy()), rows.index)

    frame = dd.from_pandas(pd.DataFrame(ROWS[:300], columns=["x", "y"]), npartitions=2)

    def in_a_task():
        return client.submit(LPE.score_samples, model, QUERIES)

    def in_a_function():
        return frame.map_partitions(on_partition, meta=("p", float)).compute()

    for use in (in_a_task, in_a_function):
        with pytest.raises(TypeError) as refused:
            use()
        refusals.append(refused.value)
        said = "".join(traceback.format_exception(refused.value))
        assert "pickle.loads(pickle.dumps(model))" in said

    copied = pickle.loads(pickle.dumps(model))
    assert tokenize(copied) != tokenize(model) == tokenize(model)
    scored = client.submit(LPE.score_samples, copied, QUERIES).result()
    np.testing.assert_array_equal(scored, expected)

"""Workers that share no storage with this process: what is sent, and what is refused."""

import os
import pickle
import signal
from unittest.mock import Mock

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed
from dask.sizeof import sizeof
from distributed import Client

import lpe_dask
from lifetimes import killed_meanwhile
from lpe_dask import LPE
from lpe_dask.storage import Folder
from lpe_dask.tasks import (
    LocalValue,
    call_scope,
    eager_scope,
    lazy_scope,
    persist,
    to_task,
    transfer,
)
from lpe_dask.tasks.shared_storage import _can_access, is_storage_shared
from lpe_dask.tasks.spool import spool_at
from lpe_dask.tasks.transfer import LITERAL_BYTES
from processes import are_up, local_cluster
from waiting import eventually

ROWS = np.random.default_rng(0).integers(0, 300, (5000, 3)) * 0.1
LARGE = np.arange(3.0 * 2**16).reshape(-1, 3)  # 1.5 MiB

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Sending large graph"),  # pieces are meant to ride
]


@pytest.fixture
def client(cluster):
    with (
        Client(cluster) as client,
        dask.config.set({"lpe-dask.spool": "memory://lpe-calls"}),
    ):
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def limits(monkeypatch):
    """Let lazy results send 100 kB, calls that compute 800 kB, in pieces of 10 kB."""
    monkeypatch.setattr(transfer, "LITERAL_BYTES", 10_000)
    monkeypatch.setattr(call_scope, "LAZY_BYTES", 100_000)
    monkeypatch.setattr(call_scope, "AT_ONCE_BYTES", 800_000)


@pytest.fixture(scope="module")
def right():
    """Return p-values of the rows: as nominal ones, and as new ones."""
    with dask.config.set(scheduler="threads"):
        model = LPE(5, algorithm="brute").fit(ROWS)
        return model.p_values_, model.score_samples(ROWS)


def restart(client, cluster):
    client.wait_for_workers(2)
    assert eventually(lambda: are_up(cluster))
    client.restart()


def total(value):
    return (value["a"] if isinstance(value, dict) else value).sum()


@pytest.mark.parametrize("value", [LARGE, {"a": LARGE}], ids=["array", "object"])
def test_to_task__sends_pieces_that_survive(client, cluster, value):
    task = to_task(value, "lpe-test")
    result = delayed(total)(task)

    assert max(sizeof(piece) for piece in dict(task.dask).values()) <= LITERAL_BYTES
    assert result.compute() == total(value)
    restart(client, cluster)
    assert result.compute() == total(value)


def test_to_task_parts__give_the_rows(client):
    edges = [0, 10, 10, len(LARGE)]

    parts, depends = LocalValue(LARGE, "lpe-test").slices(edges)

    graph = {f"part-{i}": part for i, part in enumerate(parts)}
    for task in depends:
        graph |= dict(task.dask)
    found = client.get(graph, [f"part-{i}" for i in range(3)])
    assert [len(part) for part in found] == [10, 0, len(LARGE) - 10]


def of_bytes(n_bytes):
    return LocalValue(np.zeros(n_bytes, np.uint8), "lpe-test")


@pytest.mark.parametrize(
    ("call", "most", "allowed"),
    [
        (lazy_scope, 100_000, "0.0953674 MiB for a lazy"),
        (eager_scope, 800_000, "0.762939 MiB in a"),
    ],
)
def test_to_task__all_that_one_call_sends_has_a_limit(client, limits, call, most, allowed):
    overhead = sizeof(np.zeros(0, np.uint8))
    first, second = of_bytes(most // 2), of_bytes(most // 2 - 2 * overhead)
    with call():
        for _ in range(2):  # one that is task twice is there once
            LocalValue.tasks([first, second])
        to_task(np.zeros(100), "lpe-test")  # a literal

        with pytest.raises(ValueError, match=allowed) as refused:
            to_task(of_bytes(20_000), "lpe-test")
        for words in (
            "MiB of data that only this process has",
            "lpe-dask.spool",
            "--spool",
        ):
            assert words in str(refused.value)
    with call():  # another one
        to_task(of_bytes(20_000), "lpe-test")


@pytest.mark.parametrize(
    ("call", "mebibytes", "allowed"),
    [(lazy_scope, 8, "8 MiB for a lazy"), (eager_scope, 256, "256 MiB in a")],
)
def test_to_task__has_the_limits_that_pages_name(client, call, mebibytes, allowed):
    with call(), pytest.raises(ValueError, match=f" {allowed}"):
        to_task(of_bytes(mebibytes * 2**20 + 1), "lpe-test")

    assert (call_scope.LAZY_BYTES, call_scope.AT_ONCE_BYTES) == (8 * 2**20, 256 * 2**20)


def test_to_task__sends_all_of_it_where_storage_is_shared(client, limits, tmp_path):
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        assert delayed(np.sum)(to_task(LARGE, "lpe-test")).compute() == LARGE.sum()


def test_held__of_a_graph_that_was_built_without_a_client(client):
    """Nobody was asked whether storage is shared."""
    with dask.config.set(scheduler="threads"):
        result = delayed(np.sum)(to_task(LocalValue(LARGE, "lpe-test"), "lpe-test"))

    with pytest.raises(RuntimeError, match=r"lpe-dask\.spool"):
        result.compute()


def keys_of(dask_scheduler, prefix):
    return [key for key in dask_scheduler.tasks if str(key).startswith(prefix)]


@pytest.mark.parametrize("kind", ["numpy", "pandas"])
def test_fit__of_too_many_rows_begins_nothing(
    client, limits, right, monkeypatch, tmp_path, kind
):
    monkeypatch.setattr(call_scope, "AT_ONCE_BYTES", ROWS.nbytes - 1)
    X = ROWS if kind == "numpy" else pd.DataFrame(ROWS, columns=list("xyz"))
    model = LPE(5, algorithm="brute")

    with pytest.raises(ValueError, match=r"needs 0\.1 MiB.*lpe-dask\.spool"):
        model.fit(X)
    assert client.run_on_scheduler(keys_of, prefix="lpe-") == []

    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        np.testing.assert_array_equal(model.fit(X).p_values_, right[0])


@pytest.mark.full
def test_model__of_rows_that_no_lazy_result_can_have(
    client, cluster, limits, right, tmp_path
):
    """It computes at once as any other, and refuses what is lazy."""
    model = LPE(5, algorithm="brute").fit(ROWS)
    new = da.from_array(ROWS, chunks=(2000, 3))

    for _ in range(2):
        np.testing.assert_array_equal(model.score_samples(ROWS[:500]), right[1][:500])
        for lazy in (model.score_samples, model.predict):
            with pytest.raises(
                ValueError, match=r"this lazy result needs .*lpe-dask\.spool"
            ):
                lazy(new)
        restart(client, cluster)
    np.testing.assert_array_equal(model.p_values_, right[0])
    assert len(model.explain(ROWS[:9], top=1)) == len(model.nearest_nominal(ROWS[:9], 1))
    assert len(model.check_calibration().table) == 3
    assert lpe_dask.plan(ROWS) is not None
    model.save(tmp_path / "model")
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.p_values_, right[0])
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        found = model.score_samples(new).compute()
    np.testing.assert_array_equal(found, right[1])
    assert len(model.score_samples(ROWS[:9])) == 9  # and back again


def test_score__of_too_many_rows_begins_no_search(client, limits, monkeypatch, tmp_path):
    monkeypatch.setattr(call_scope, "LAZY_BYTES", 16 * len(ROWS) - 1)
    frame = dd.from_pandas(pd.DataFrame(ROWS, columns=list("xyz")), npartitions=4)
    monkeypatch.setattr("lpe_dask.search.reference.Reference.of", None)

    for ask in (lpe_dask.score, LPE().fit_predict):
        with pytest.raises(ValueError, match=r"this lazy result needs .*lpe-dask\.spool"):
            ask(frame)


def test_fit__on_numpy_survives_a_worker(client, cluster, monkeypatch, right):
    monkeypatch.setattr(transfer, "LITERAL_BYTES", 10_000)
    with dask.config.set({"lpe-dask.block-rows": 500}):
        with killed_meanwhile(client) as seen:
            model = LPE(5, algorithm="brute").fit(ROWS)

        assert seen
        np.testing.assert_array_equal(model.p_values_, right[0])
        lazy = model.score_samples(da.from_array(ROWS, chunks=(2000, 3)))
        restart(client, cluster)
        np.testing.assert_array_equal(lazy.compute(), right[1])


def test_at_once__does_not_keep_what_nobody_wants(client):
    """Pieces of the rows are not to stay in memory until the end of a fit."""
    with eager_scope():
        (one,) = persist([delayed(len)("abc")])
        (task,) = persist([delayed(sum, pure=False)([1, 2], dask_key_name="lpe-x")])
        assert task.compute() == 3
        del task
        assert eventually(lambda: not client.run_on_scheduler(keys_of, prefix="lpe-x"))
    assert one.compute() == 3


def test_is_storage_shared__is_asked_for_once_by_each_client(client, tmp_path):
    runs = []
    run = client.run

    def counted(*args, **kwargs):
        runs.append(args)
        return run(*args, **kwargs)

    client.run = counted
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        assert [is_storage_shared(client) for _ in range(3)] == [True] * 3
    assert len(runs) == 1


@pytest.mark.parametrize("place", ["memory://lpe-spools", "unknown://", "file"])
def test_is_storage_shared__where_no_spool_can_be(client, tmp_path, place):
    (tmp_path / "file").touch()
    place = str(tmp_path / "file") if place == "file" else place

    with dask.config.set({"lpe-dask.spool": place}):
        assert not is_storage_shared(client)


def test_is_storage_shared__while_there_are_no_workers():
    """An adaptive cluster may have none; what is lazy is built at once all the same."""
    with local_cluster(n_workers=0) as cluster, Client(cluster) as client:
        assert is_storage_shared(client)
        with dask.config.set({"lpe-dask.spool": "memory://lpe-spools"}):
            assert not is_storage_shared(client)
            cluster.scale(1)
            client.wait_for_workers(1)
            assert not is_storage_shared(client)


def test_is_storage_shared__while_a_worker_hangs(client, tmp_path):
    """A guess, as while there are none; then it is asked again."""
    runs, run = [], client.run
    (pid, *_) = run(os.getpid).values()

    def counted(*args, **kwargs):
        runs.append(args)
        return run(*args, **kwargs)

    client.run = counted
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        os.kill(pid, signal.SIGSTOP)
        try:
            with dask.config.set({"lpe-dask.timeouts.spool": 0.5}):
                assert is_storage_shared(client)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [is_storage_shared(client) for _ in range(2)] == [True] * 2

    assert len(runs) == 2


def test_can_access__is_of_this_storage_and_of_one_that_works(tmp_path, monkeypatch):
    spool = spool_at(str(tmp_path))
    another = tmp_path / "another"
    another.mkdir()

    assert _can_access(spool.url)
    assert not _can_access(str(another))
    monkeypatch.setattr(Folder, "write", Mock(side_effect=PermissionError))
    assert not _can_access(spool.url)
    assert list(another.iterdir()) == []

"""Workers that see no storage of this process: what they are sent, and what may be lost."""

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
from dask.delayed import delayed
from dask.sizeof import sizeof
from distributed import Client

from choosing import mostly_slow
from lpe_dask import LPE
from lpe_dask.tasks import unshared, values
from lpe_dask.tasks.unshared import LostError, eagerly, lazily
from lpe_dask.tasks.values import LITERAL_BYTES, Held, Shared, enter, enter_parts
from processes import are_up, local_cluster
from waiting import eventually

ROWS = np.random.default_rng(0).integers(0, 300, (20_000, 2)) * 0.1
LARGE = np.arange(3.0 * 2**16).reshape(-1, 3)  # 1.5 MiB

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Sending large graph"),  # pieces are meant to ride
]


@pytest.fixture
def client(cluster):
    with (
        Client(cluster) as client,
        dask.config.set({"lpe-dask.spool": "memory://lpe-unshared"}),
    ):
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def carries_nothing(monkeypatch):
    monkeypatch.setattr(unshared, "CARRIED_BYTES", 0)


def kill(client, addresses):
    """Kill workers, and wait until others are in their place."""
    pids = client.run(os.getpid)
    for address in addresses:
        os.kill(pids[address], signal.SIGKILL)
    gone = set(addresses)
    assert eventually(lambda: gone.isdisjoint(client.scheduler_info()["workers"]))
    client.wait_for_workers(2)


def restart(client, cluster):
    client.wait_for_workers(2)
    assert eventually(lambda: are_up(cluster))
    client.restart()


def test_fit__waits_for_a_worker_to_send_data_to(caplog):
    with (
        dask.config.set({"lpe-dask.spool": "memory://lpe-unshared"}),
        local_cluster(n_workers=0) as cluster,
        Client(cluster),
        ThreadPoolExecutor(1) as thread,
    ):
        fit = thread.submit(LPE(3).fit, np.random.default_rng(0).random((70_000, 2)))
        assert eventually(lambda: "has no workers yet" in caplog.text or fit.done())
        assert not fit.done()
        cluster.scale(1)

        assert fit.result().n_samples_ == 70_000


def all_workers(client):
    return list(client.run(os.getpid))


def total(value):
    return (value["a"] if isinstance(value, dict) else value).sum()


@pytest.mark.parametrize("value", [LARGE, {"a": LARGE}], ids=["array", "object"])
def test_enter__carries_some_in_pieces_that_survive(client, cluster, caplog, value):
    entered = enter(value, "lpe-test")
    result = delayed(total)(entered)

    assert max(sizeof(piece) for piece in dict(entered.dask).values()) <= LITERAL_BYTES
    expected = total(value)
    assert result.compute() == expected
    restart(client, cluster)
    assert result.compute() == expected
    assert [r for r in caplog.records if r.name.startswith("lpe_dask")] == []


def test_enter__counts_what_one_graph_carries(client, caplog, monkeypatch):
    monkeypatch.setattr(unshared, "CARRIED_BYTES", 2 * LARGE.nbytes)

    with lazily():
        for _ in range(2):
            enter(LARGE.copy(), "lpe-test")
        assert not unshared.carries(1)

    assert unshared.carries(LARGE.nbytes)  # in the next graph


def test_enter__warns_once_for_a_graph(client, carries_nothing, caplog):
    with lazily():
        for _ in range(2):
            enter(LARGE.copy(), "lpe-test")

    (record,) = [r for r in caplog.records if r.name.startswith("lpe_dask")]
    assert record.getMessage().startswith("3 MiB are kept in the memory of workers")


def test_enter__what_is_too_large_to_carry(client, cluster, carries_nothing, caplog):
    shared = Shared(LARGE, "lpe-test")

    result = delayed(np.sum)(enter(shared, "lpe-test"))

    (record,) = [r for r in caplog.records if r.name.startswith("lpe_dask")]
    assert record.levelname == "WARNING"
    assert "lpe-dask.spool" in record.getMessage()
    gc.collect()
    for _ in range(2):
        assert result.compute() == LARGE.sum()
    with dask.config.set(scheduler="threads"):
        assert result.compute() == LARGE.sum()

    kill(client, all_workers(client))
    with pytest.raises(LostError, match=r"lpe-dask\.spool"):
        result.compute()
    again = delayed(np.sum)(enter(shared, "lpe-test"))
    assert again.compute() == LARGE.sum()
    restart(client, cluster)
    assert delayed(np.sum)(enter(shared, "lpe-test")).compute() == LARGE.sum()


def test_enter__sends_a_shared_value_once(client, carries_nothing):
    shared = Shared(LARGE, "lpe-test")

    tasks = [enter(shared, "lpe-test") for _ in range(3)]

    assert len({task.key for task in tasks}) == 1


def test_enter__what_was_scattered_is_also_for_others(
    client, cluster, carries_nothing, tmp_path
):
    """For another client, and where storage is shared."""
    shared = Shared(LARGE, "lpe-test")
    kept = enter(shared, "lpe-test")

    with Client(cluster):
        assert delayed(np.sum)(enter(shared, "lpe-test")).compute() == LARGE.sum()
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        assert delayed(np.sum)(enter(shared, "lpe-test")).compute() == LARGE.sum()
    assert delayed(np.sum)(kept).compute() == LARGE.sum()


def test_enter_parts__give_the_rows(client, carries_nothing):
    edges = [0, 10, 10, len(LARGE)]

    parts, depends = enter_parts(Held(LARGE, "lpe-test"), edges)

    graph = {f"part-{i}": part for i, part in enumerate(parts)}
    for task in depends:
        graph |= dict(task.dask)
    found = client.get(graph, [f"part-{i}" for i in range(3)])
    assert [len(part) for part in found] == [10, 0, len(LARGE) - 10]


def test_held__of_a_graph_that_was_built_without_a_client(client):
    """Nobody was asked whether storage is shared; that in memory never is."""
    with dask.config.set(scheduler="threads"):
        result = delayed(np.sum)(enter(LARGE, "lpe-test"))

    assert result.compute() == LARGE.sum()


def keys_of(dask_scheduler, prefix):
    return [key for key in dask_scheduler.tasks if str(key).startswith(prefix)]


def test_eagerly__does_not_keep_what_nobody_wants(client):
    """Pieces of the rows are not to stay in memory until the end of a fit."""
    (one,) = eagerly(lambda: unshared.persist_cancellably([delayed(len)("abc")]))
    assert one.compute() == 3

    def compute():
        (task,) = unshared.persist_cancellably(
            [delayed(sum, pure=False)([1, 2], dask_key_name="lpe-x")]
        )
        assert task.compute() == 3
        del task
        return eventually(lambda: not client.run_on_scheduler(keys_of, prefix="lpe-x"))

    assert eagerly(compute)


def test_eagerly__releases_what_it_sent(client):
    eagerly(lambda: delayed(np.sum)(enter(LARGE, "lpe-sent")).compute())

    assert eventually(lambda: not client.run_on_scheduler(keys_of, prefix="lpe-sent"))


def test_eagerly__gives_up_after_some_attempts(client, caplog):
    attempts = []

    def compute():
        attempts.append(1)
        return delayed(unshared.raise_lost)("lpe-lost").compute()

    with pytest.raises(LostError, match="lpe-lost"):
        eagerly(compute)

    assert len(attempts) == unshared.ATTEMPTS


class Killer(threading.Thread):
    """Kills a worker as soon as some tasks with a name are done and others run.

    Parameters
    ----------
    client : Client
    cluster : LocalCluster
        Its scheduler is in this process.
    """

    def __init__(self, client, cluster):
        super().__init__()
        self._pids = client.run(os.getpid)
        self._scheduler = cluster.scheduler
        self.killed = None

    def _is_time(self):
        states = [ts.state for key, ts in list(self._scheduler.tasks.items())
                  if str(key).startswith("lpe-join")]  # fmt: skip
        return "memory" in states and "processing" in states

    def run(self):
        """Wait for the moment, and kill."""

        def strike():
            try:
                if not self._is_time():
                    return False
                runs = [w.address for w in self._scheduler.workers.values() if w.processing]
            except RuntimeError:  # it has just changed
                return False
            if runs:
                os.kill(self._pids[runs[0]], signal.SIGKILL)
                self.killed = runs[0]
            return bool(runs)

        eventually(strike)


@pytest.mark.parametrize("carried", mostly_slow([0, 2**23], [2**23]))
def test_fit__on_numpy_survives_a_worker(client, cluster, monkeypatch, carried):
    monkeypatch.setattr(unshared, "CARRIED_BYTES", carried)
    monkeypatch.setattr(values, "LITERAL_BYTES", 1000)
    with dask.config.set(scheduler="threads"):
        expected = LPE(5, algorithm="brute").fit(ROWS)

    killer = Killer(client, cluster)
    killer.start()
    with dask.config.set({"lpe-dask.block-rows": 1000}):
        model = LPE(5, algorithm="brute").fit(ROWS)
        killer.join()

        assert killer.killed
        np.testing.assert_array_equal(model.p_values_, expected.p_values_)
        lazy = model.score_samples(da.from_array(ROWS, chunks=(5000, 2)))
        np.testing.assert_array_equal(lazy.compute(), expected.score_samples(ROWS))
        restart(client, cluster)
        np.testing.assert_array_equal(
            model.score_samples(ROWS[:500]), expected.score_samples(ROWS[:500])
        )

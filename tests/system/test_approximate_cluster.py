"""Approximate searches on worker processes: the same bits, whatever is lost."""

import asyncio
import os
import signal
import time
from contextlib import suppress

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed import Client, WorkerPlugin

import indexes
import searching
from indexes import RightLists, right_lists
from lpe_dask import LPE
from lpe_dask.kernels import nn_descent
from lpe_dask.search import plan
from processes import local_cluster

pytestmark = pytest.mark.cluster

# Worker processes do not see the folder of the tests.
cloudpickle.register_pickle_by_value(indexes)
cloudpickle.register_pickle_by_value(searching)


def _rows(n_rows, seed):
    turn = np.random.default_rng(0).standard_normal((6, 12))
    rng = np.random.default_rng(seed)
    noise = 0.1 * rng.standard_normal((n_rows, 12))
    return np.sin(rng.standard_normal((n_rows, 6)) @ turn) + noise


NOMINAL, NEW = _rows(6000, 1), _rows(4000, 2)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(plan, "MAX_INDEXED_ROWS", 1536)


@pytest.fixture
def expected(monkeypatch):
    """What this process finds alone."""
    monkeypatch.setattr(nn_descent, "neighbor_lists", right_lists)
    with dask.config.set(scheduler="sync"):
        model = _model().fit(NOMINAL)
        return model.p_values_, model.score_samples(NEW)


@pytest.fixture
def client():
    with local_cluster() as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


def _model():
    return LPE(8, algorithm="nn_descent", calibration_size=500, random_state=0)


def _lazy(rows, n_chunk):
    return da.from_array(rows, chunks=(n_chunk, -1))


def test_p_values__have_the_same_bits_on_worker_processes(client, expected):
    client.register_plugin(RightLists())

    for n_nominal, n_new in ((700, 3000), (6000, 333)):
        model = _model().fit(_lazy(NOMINAL, n_nominal))
        new = model.score_samples(_lazy(NEW, n_new)).compute()

        np.testing.assert_array_equal(model.p_values_.compute(), expected[0])
        np.testing.assert_array_equal(new, expected[1])
    assert 0 < model.certificate_.bound <= 0.01


@pytest.mark.parametrize("prefix", ["lpe-index", "lpe-judge"])
def test_p_values__survive_a_worker_lost_while_building_and_judging(
    client, expected, prefix, tmp_path
):
    client.register_plugin(RightLists())
    lost = tmp_path / "lost"
    client.register_plugin(LostOnce(prefix, lost))

    model = _model().fit(_lazy(NOMINAL, 700))
    new = model.score_samples(_lazy(NEW, 500)).compute()

    assert lost.exists(), f"no task {prefix} was there to be lost"
    np.testing.assert_array_equal(model.p_values_.compute(), expected[0])
    np.testing.assert_array_equal(new, expected[1])


class LostOnce(WorkerPlugin):
    """Kill the first worker that has done a task of a kind, after it has said so."""

    name = "lost-once"

    def __init__(self, prefix, lost):
        self.prefix, self.lost = prefix, lost

    def transition(self, key, start, finish, **kwargs):
        if key_split(key) == self.prefix and finish == "memory":
            with suppress(FileExistsError):
                self.lost.touch(exist_ok=False)
                loop = asyncio.get_running_loop()
                loop.call_later(0.1, os.kill, os.getpid(), signal.SIGKILL)


PART_ROWS, N_PARTS = 8000, 12  # more rows than samples have


def _read_part(i):
    return pd.DataFrame(_rows(PART_ROWS, 100 + i)).rename(columns=str)


def _read_block(block_info=None):
    return _read_part(block_info[None]["chunk-location"][0]).to_numpy()


def _n_partitions_held(dask_scheduler):
    sizes = [task.nbytes for task in dask_scheduler.tasks.values() if task.who_has]
    return sum(n_bytes >= PART_ROWS * NEW.shape[1] * 8 for n_bytes in sizes)


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_partitions__are_not_held_while_their_search_is_judged(client, kind):
    """Rows that are read before that would all stay in memory until then."""
    client.register_plugin(RightLists())
    model = _model().fit(NOMINAL)
    shape = (PART_ROWS,) * N_PARTS, NEW.shape[1]
    rows = {
        "array": da.map_blocks(_read_block, chunks=shape, meta=np.empty((0, 0))),
        "frame": dd.from_map(_read_part, range(N_PARTS), meta=_read_part(0)[:0]),
    }[kind]
    at_rest = client.run_on_scheduler(_n_partitions_held)
    held = []

    scoring = client.compute(model.score_samples(rows).sum())
    while not scoring.done():
        held.append(client.run_on_scheduler(_n_partitions_held) - at_rest)
        time.sleep(0.01)

    assert 0 < scoring.result() < N_PARTS * PART_ROWS
    assert len(held) > 10, "too fast to be seen"
    assert max(held) <= N_PARTS // 2


def _drawn_part(i):
    return pd.DataFrame(np.random.default_rng().random((500, 12))).rename(columns=str)


def test_frames__that_were_shuffled_or_persisted_are_scored(client, expected):
    client.register_plugin(RightLists())
    names = [str(k) for k in range(NEW.shape[1])]
    frame = dd.from_pandas(pd.DataFrame(NEW, columns=names), npartitions=6)
    model = _model().fit(pd.DataFrame(NOMINAL, columns=names))

    for rows in (frame, frame.persist(), frame.shuffle("3"), frame.assign(more=1.0)):
        scores = model.score_samples(rows).compute().sort_index()
        np.testing.assert_array_equal(scores, expected[1])
    flagged = frame.assign(p=model.score_samples(frame)).compute()
    np.testing.assert_array_equal(flagged.p, expected[1])
    changing = dd.from_map(_drawn_part, range(4), meta=_drawn_part(0)[:0])
    with pytest.raises(ValueError, match=r"gave other rows from row .* Persist it"):
        model.score_samples(changing).compute()


def _building_keys(dask_scheduler):
    # A frame names its own copy of what it is given: a tuple.
    keys = [key for key in dask_scheduler.tasks if isinstance(key, str)]
    return sorted(key for key in keys if key.startswith(("lpe-pack", "lpe-index")))


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_indexes__are_built_once(client, kind):
    """What is scored finds what fit has left on the cluster, by its keys."""
    client.register_plugin(RightLists())
    nominal, new = _lazy(NOMINAL, 700), _lazy(NEW, 500)
    if kind == "frame":
        nominal, new = (dd.from_dask_array(rows) for rows in (nominal, new))
    model = _model().fit(nominal)
    built = client.run_on_scheduler(_building_keys)
    assert sum("lpe-index" in key for key in built) == 4

    for result in (model.p_values_, model.score_samples(new)):
        scoring = client.compute(result)
        assert len(scoring.result()) in (len(NOMINAL), len(NEW))
        assert client.run_on_scheduler(_building_keys) == built


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pynndescent__gives_the_same_bits_in_threads_and_processes():
    rows = _lazy(NOMINAL, 700)
    with dask.config.set(scheduler="threads", num_workers=4):
        model = _model().fit(rows)
        expected = model.p_values_.compute(), model.score_samples(NEW)

    with local_cluster() as cluster, Client(cluster):
        model = _model().fit(rows)

        np.testing.assert_array_equal(model.p_values_.compute(), expected[0])
        np.testing.assert_array_equal(model.score_samples(NEW), expected[1])

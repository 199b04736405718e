"""What rides in a graph, and what leaves this process as the name of a file."""

import copy
import os
import pickle
import shutil

import cloudpickle
import dask
import numpy as np
import pytest
from dask.base import tokenize
from dask.delayed import delayed
from distributed import Client, LocalCluster

from lpe_dask import LPE
from lpe_dask.tasks import LocalValue, to_task, transfer
from lpe_dask.tasks.spool import spool_at
from lpe_dask.tasks.transfer import LocalValueTask
from waiting import eventually

SMALL = np.arange(12.0).reshape(4, 3)
LARGE = np.arange(3.0 * 2**16).reshape(-1, 3)  # 1.5 MiB
RECORDS = {"numbers": LARGE, "square": lambda number: number**2}

LARGE_VALUES = [pytest.param(LARGE, id="array"), pytest.param(RECORDS, id="object")]

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        memory_limit="16GiB",  # of this process, which has run other tests before
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


@pytest.fixture(autouse=True)
def place(tmp_path):
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        yield tmp_path


def files_of(place):
    return list(place.glob("*/value-*"))


def assert_equal(value, expected):
    if isinstance(expected, dict):
        assert value["square"](3) == expected["square"](3)
        value, expected = value["numbers"], expected["numbers"]
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("value", [SMALL, LARGE, {"a": 1}], ids=["small", "large", "dict"])
def test_to_task__is_one_task_that_is_not_hashed_with_the_graph(value):
    """Dask frames hash their graphs: for large values that takes seconds."""
    task = to_task(value, "lpe-test")

    (key,) = task.dask
    token = tokenize(dict(task.dask))
    assert key.startswith("lpe-test-")
    with dask.config.set(scheduler="sync"):
        assert task.compute() is value
    if value is LARGE:
        LARGE[0] += 1
        assert tokenize(dict(task.dask)) == token
        LARGE[0] -= 1


def test_to_task__what_is_small_rides_in_the_graph(client, place):
    task = to_task(SMALL, "lpe-test")

    np.testing.assert_array_equal(delayed(np.sum)(task).compute(), SMALL.sum())
    assert files_of(place) == []


@pytest.mark.parametrize("value", LARGE_VALUES)
def test_held__is_written_once_and_leaves_as_a_name(client, place, value):
    held = LocalValueTask(LocalValue(value, "lpe-test"))
    assert files_of(place) == []

    for _ in range(2):
        message = cloudpickle.dumps({"a": (held,), "b": (held, 1)})
        assert len(message) < 2000
        assert len(files_of(place)) == 1

    assert_equal(pickle.loads(message)["a"][0](), value)


@pytest.mark.parametrize("value", LARGE_VALUES)
def test_held__without_a_client_brings_the_value_along(monkeypatch, place, value):
    monkeypatch.setattr(transfer, "open_clients", list)

    copied = cloudpickle.loads(
        cloudpickle.dumps(LocalValueTask(LocalValue(value, "lpe-test")))
    )

    assert files_of(place) == []
    assert_equal(copied(), value)


def test_held__where_no_spool_can_be_made_says_what_to_configure(client, tmp_path):
    (tmp_path / "file").touch()

    with (
        dask.config.set({"lpe-dask.spool": str(tmp_path / "file")}),
        pytest.raises(RuntimeError, match=r"lpe-dask\.spool"),
    ):
        cloudpickle.dumps(LocalValueTask(LocalValue(LARGE, "lpe-test")))


def test_held__is_written_again_after_its_spool_was_removed(client, place, monkeypatch):
    """As cleaners of temporary folders do."""
    monkeypatch.setattr("lpe_dask.storage.lock.HEARTBEAT_SECONDS", 0.02)
    held = LocalValueTask(LocalValue(LARGE, "lpe-test"))
    pickle.dumps(held)
    lost = spool_at(str(place))
    for folder in place.iterdir():
        shutil.rmtree(folder)
    assert eventually(lambda: lost.is_lost)  # at its next heartbeat

    stored = pickle.loads(pickle.dumps(held))

    assert spool_at(str(place)) is not lost
    np.testing.assert_array_equal(stored(), LARGE)


@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["small", "large"])
def test_held__has_one_token_wherever_it_is(client, value):
    """Frames hash their graphs again on the scheduler."""
    held = LocalValueTask(LocalValue(value, "lpe-test"))

    assert tokenize(pickle.loads(pickle.dumps(held))) == tokenize(held)


def test_stored_value__reads_only_the_rows_of_a_part(client, place):
    stored = pickle.loads(pickle.dumps(LocalValueTask(LocalValue(LARGE, "lpe-test"))))
    (file,) = files_of(place)
    os.truncate(file, LARGE.nbytes // 2)  # what lies behind cannot be read

    np.testing.assert_array_equal(stored.part(5, 9), LARGE[5:9])
    with pytest.raises(RuntimeError, match="bytes early"):
        stored()


@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["small", "large"])
def test_to_task_parts__give_the_rows(client, value):
    edges = [0, 1, 1, len(value)]

    parts, depends = LocalValue(value, "lpe-test").slices(edges)

    graph = {f"part-{i}": part for i, part in enumerate(parts)}
    for task in depends:
        graph |= dict(task.dask)
    found = client.get(graph, list(graph))
    for part, start, stop in zip(found, edges, edges[1:], strict=False):
        np.testing.assert_array_equal(part, value[start:stop])


@pytest.mark.parametrize("use", ["whole", "part"])
def test_stored_value__whose_file_is_gone_says_what_to_configure(client, place, use):
    stored = pickle.loads(
        pickle.dumps(held := LocalValueTask(LocalValue(LARGE, "lpe-test")))
    )
    for file in files_of(place):
        file.unlink()

    with pytest.raises(RuntimeError, match=r"lpe-dask\.spool"):
        stored() if use == "whole" else stored.part(0, 2)
    del held


def test_held__is_the_same_for_all_graphs(client, place):
    held = LocalValue(LARGE, "lpe-test")

    first, second = to_task(held, "lpe-other"), to_task(held, "lpe-other")

    assert first.key == second.key
    dask.compute(delayed(len)(first), delayed(np.sum)(second))
    assert len(files_of(place)) == 1


def test_held__of_copies():
    held = LocalValue(SMALL, "lpe-test")

    assert pickle.loads(pickle.dumps(held)).key != held.key
    assert copy.deepcopy(held).key == held.key


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_held__of_a_model_that_goes_does_not_take_that_of_its_copy(client, copied):
    rows = np.random.default_rng(0).standard_normal((2000, 2))
    model = LPE(3).fit(rows)
    expected = model.score_samples(rows)

    other = copied(model)
    del model

    np.testing.assert_array_equal(other.score_samples(rows), expected)

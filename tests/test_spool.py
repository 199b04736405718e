"""Values in graphs, blocks in memory, and what the workers have."""

import pickle

import dask
import numpy as np
import pytest
from dask.base import tokenize
from dask.delayed import delayed
from distributed import Client, Future, LocalCluster

from lpe_dask import resources
from lpe_dask.literals import LITERAL_BYTES, enter
from lpe_dask.resources import Workers, active_client, memory_of_machine, workers
from lpe_dask.spool import HeldResults

SMALL, LARGE = np.arange(10.0), np.arange(LITERAL_BYTES / 8 + 1)


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=3,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit="16GiB",  # of this process, which has run other tests before
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("value", [SMALL, LARGE, {"a": 1}], ids=["small", "large", "dict"])
def test_enter__is_one_task(value):
    entered = enter(value, "lpe-test")

    (key,) = entered.dask
    assert key.startswith("lpe-test-")
    assert entered.compute() is value


@pytest.mark.cluster
def test_enter__scatters_what_is_large(client):
    with client.as_current(), dask.config.set(scheduler=client):
        small, large = enter(SMALL, "lpe-test"), enter(LARGE, "lpe-test")

        assert not isinstance(small.dask[small.key], Future)
        assert isinstance(large.dask[large.key], Future)
        np.testing.assert_array_equal(large.compute(), LARGE)


def test_enter__is_not_hashed_with_the_graph(monkeypatch):
    """Dask frames hash their graphs: for large values that takes seconds."""
    entered = enter(LARGE, "lpe-test")

    token = tokenize(dict(entered.dask))

    LARGE[0] += 1
    assert tokenize(dict(entered.dask)) == token
    LARGE[0] -= 1


@pytest.mark.cluster
@pytest.mark.parametrize("fitted_on", ["here", "cluster"])
@pytest.mark.parametrize("used_on", ["here", "cluster"])
def test_held_blocks__are_computed_once(client, fitted_on, used_on, tmp_path):
    def make():
        with open(tmp_path / "calls", "a") as file:
            file.write("x")
        return SMALL

    places = {"here": {"scheduler": "sync"}, "cluster": {"scheduler": client}}
    with client.as_current(), dask.config.set(places[fitted_on]):
        held = HeldResults([delayed(make, pure=False)()])
    if (fitted_on, used_on) == ("cluster", "here"):
        with (
            dask.config.set(places[used_on]),
            pytest.raises(RuntimeError, match="fit again"),
        ):
            held.tasks()
        return

    with client.as_current(), dask.config.set(places[used_on]):
        for _ in range(2):
            (block,) = dask.compute(*held.tasks())
            np.testing.assert_array_equal(block, SMALL)
        copy = pickle.loads(pickle.dumps(held))
        np.testing.assert_array_equal(dask.compute(*copy.tasks()), [SMALL])

    with dask.config.set(scheduler="sync"):
        np.testing.assert_array_equal(dask.compute(*copy.tasks()), [SMALL])
    assert (tmp_path / "calls").read_text() == "x"


@pytest.mark.cluster
def test_workers__of_the_client_that_would_compute(client):
    with client.as_current(), dask.config.set(scheduler=client):
        assert active_client() is client
        assert workers() == Workers(n_threads=6, threads=3, memory_limit=2**34)
        with dask.config.set(scheduler="threads"):
            assert active_client() is None


def test_workers__of_this_machine():
    with dask.config.set(scheduler="threads", num_workers=5):
        found = workers()

    assert found == Workers(5, 5, memory_of_machine())
    assert active_client() is None


@pytest.mark.parametrize(("configured", "expected"), [("1GiB", 2**30), (2**28, 2**28)])
def test_workers__configured_memory(configured, expected):
    with dask.config.set({"lpe-dask.memory-limit": configured}):
        assert workers().memory_limit == expected


def test_workers__configuration_only_lowers():
    with dask.config.set({"lpe-dask.memory-limit": "1PiB"}):
        assert workers().memory_limit == memory_of_machine()


def test_memory_of_machine__is_that_of_the_container(tmp_path, monkeypatch):
    limited, open_end = tmp_path / "limited", tmp_path / "open"
    limited.write_text(f"{2**20}\n")
    open_end.write_text("max\n")

    monkeypatch.setattr(resources, "_CGROUP_LIMITS", (open_end, tmp_path / "missing"))
    machine = memory_of_machine()
    monkeypatch.setattr(resources, "_CGROUP_LIMITS", (open_end, limited))

    assert machine > 2**20
    assert memory_of_machine() == 2**20


def test_workers__of_a_cluster_that_has_none_yet_are_those_of_the_machine():
    class Starting:
        def get(self, *args, **kwargs):
            raise AssertionError("nothing is to be computed")

        def scheduler_info(self, n_workers):
            return {"workers": {}}

    with dask.config.set(scheduler=Starting().get):
        assert workers().memory_limit == memory_of_machine()

"""A reference that does not fit into the memory of a worker: exact, and tidied up."""

import copy
import gc
import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client, LocalCluster

from lpe_dask import LPE
from lpe_dask.search import join as neighbors
from lpe_dask.search.blocks import spool_blocks
from lpe_dask.search.blocks.in_memory import RowsByRegion
from lpe_dask.search.blocks.persisted import Blocks
from lpe_dask.search.blocks.spool_blocks import SpooledBlock, SpoolFolder
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.tasks.spool import Spool, spool_at
from waiting import eventually

RNG = np.random.default_rng(0)
NOMINAL = RNG.integers(0, 1000, (3000, 4)) * 0.1
QUERIES = RNG.integers(0, 1000, (300, 4)) * 0.1


@pytest.fixture
def no_room(monkeypatch):
    """Workers that have no room for the rows, but for a block of them."""
    monkeypatch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
    with dask.config.set({"lpe-dask.block-rows": 512}):
        yield


@pytest.fixture
def spool_folder(no_room, tmp_path):
    """A folder that is configured as the place of spools."""
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        yield tmp_path


@pytest.fixture(scope="module")
def expected():
    with dask.config.set(scheduler="threads"):
        model = LPE(5, algorithm="brute").fit(NOMINAL)
        return model.p_values_, model.score_samples(QUERIES)


@pytest.mark.parametrize("algorithm", ["brute", "pruned"])
def test_fit__same_bits_from_a_spool(algorithm, spool_folder, expected):
    with dask.config.set(scheduler="threads"):
        model = LPE(5, algorithm=algorithm).fit(da.from_array(NOMINAL, chunks=(700, -1)))
        p_values = model.score_samples(QUERIES)

    (folder,) = spool_folder.glob("lpe-spool-*/blocks-*")
    files = [path.name for path in folder.iterdir()]
    assert sum(name.startswith("block-") for name in files) >= 6
    assert not [name for name in files if name.startswith("pieces-")]
    np.testing.assert_array_equal(model.p_values_.compute(), expected[0])
    np.testing.assert_array_equal(p_values, expected[1])


def test_spool__lives_as_long_as_the_model_and_its_lazy_results(spool_folder, expected):
    with dask.config.set(scheduler="threads"):
        model = LPE(5).fit(NOMINAL)
        lazy = model.score_samples(da.from_array(QUERIES, chunks=(100, -1)))
        later = lazy + 0
        del model, lazy
        gc.collect()
        assert len(list(spool_folder.glob("*/blocks-*"))) == 1

        np.testing.assert_array_equal(later.compute(), expected[1])

        del later
        gc.collect()
    assert eventually(lambda: list(spool_folder.iterdir()) == [])


def test_spool__that_is_gone_says_what_to_do(spool_folder):
    with dask.config.set(scheduler="threads"):
        model = LPE(5).fit(NOMINAL)
        for block in spool_folder.glob("*/blocks-*/block-*"):
            block.unlink()

        with pytest.raises(RuntimeError, match=r"lpe-dask\.spool.*lpe_dask\.load"):
            model.score_samples(QUERIES)


def test_spool__is_removed_after_an_error(spool_folder, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("the join failed")

    monkeypatch.setattr(neighbors, "search_blocks", fail)

    def fit():
        LPE(5).fit(NOMINAL)

    with dask.config.set(scheduler="sync"), pytest.raises(RuntimeError, match="the join"):
        fit()

    gc.collect()
    assert eventually(lambda: list(spool_folder.iterdir()) == [])


def test_spool__of_a_second_fit_replaces_that_of_the_first(spool_folder):
    with dask.config.set(scheduler="threads"):
        model = LPE(5).fit(NOMINAL)
        model.fit(NOMINAL)
    gc.collect()

    assert len(list(spool_folder.glob("*/blocks-*"))) == 1


def test_spool__that_cannot_be_written_says_what_to_do(no_room, tmp_path):
    occupied = tmp_path / "file"
    occupied.write_text("")

    with (
        dask.config.set({"lpe-dask.spool": str(occupied)}),
        pytest.raises(OSError, match=r"do not fit .*lpe-dask.spool, --spool"),
    ):
        LPE(5).fit(NOMINAL)


def test_model__with_a_spool_is_not_pickled(spool_folder):
    model = LPE(5).fit(NOMINAL)

    with pytest.raises(TypeError, match="in a spool"):
        pickle.dumps(model)
    assert copy.copy(model).n_samples_ == len(NOMINAL)


@pytest.mark.cluster
def test_fit__same_bits_from_a_spool_on_two_processes(spool_folder, expected, cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2)
        model = LPE(5).fit(da.from_array(NOMINAL, chunks=(700, -1)))
        lazy = model.score_samples(da.from_array(QUERIES, chunks=(100, -1)))
        np.testing.assert_array_equal(model.p_values_.compute(), expected[0])
        del model
        gc.collect()
        np.testing.assert_array_equal(lazy.compute(), expected[1])
        del lazy
        gc.collect()

    assert eventually(lambda: list(spool_folder.iterdir()) == [])


@pytest.mark.cluster
def test_spool__that_a_worker_does_not_see_is_refused(spool_folder, monkeypatch):
    monkeypatch.setattr("lpe_dask.tasks.shared_storage._can_access", lambda url: False)

    with (
        LocalCluster(
            n_workers=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster),
        pytest.raises(OSError, match=r"not all workers see it.*--spool"),
    ):
        LPE(5).fit(NOMINAL)

    gc.collect()
    assert eventually(lambda: list(spool_folder.iterdir()) == [])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_write_pieces__any_region_can_be_read(dtype, tmp_path):
    rows = RNG.random((100, 3)).astype(dtype)
    numbers = np.arange(100) + 7
    pieces = RowsByRegion(rows, numbers, np.array([0, 40, 40, 100]))

    spooled = SpoolFolder(str(tmp_path)).write_pieces(pieces)

    np.testing.assert_array_equal(spooled.sizes(), [40, 0, 60])
    for region, first, last in [(0, 0, 40), (1, 40, 40), (2, 40, 100)]:
        for start, stop in [(0, 1000), (0, 0), (10, 20), (35, 60), (70, 80)]:
            which = slice(min(first + start, last), min(first + stop, last))
            for some in (
                spooled.read(region, start, stop),
                pieces.read(region, start, stop),
            ):
                found, found_numbers, n_in_region = some
                np.testing.assert_array_equal(found, rows[which])
                np.testing.assert_array_equal(found_numbers, numbers[which])
                assert found.dtype == dtype
                assert n_in_region == last - first


def test_held_blocks__are_shared_by_copies():
    held = Blocks(list, 0)

    assert copy.deepcopy(held) is held
    assert len(held) == 0


def test_spool__that_was_not_finished_is_removed(tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("lpe_dask.storage.Lock.create", interrupt)

    with pytest.raises(KeyboardInterrupt):
        Spool(str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_blocks__are_not_removed_by_those_they_were_sent_to(tmp_path):
    """Elsewhere an entry of a spool is a name, which removes nothing."""
    entry = spool_at(str(tmp_path)).folder("blocks")
    block = delayed(SpooledBlock)("file:///block", np.zeros(1), np.zeros(1))
    blocks = Blocks.spooled([block], entry)
    (task,) = blocks.tasks()

    sent = pickle.loads(pickle.dumps(dict(task.dask)))
    del sent
    gc.collect()
    assert len(list(tmp_path.glob("*/blocks-*"))) == 1
    del blocks, task, entry
    gc.collect()
    assert eventually(lambda: list(tmp_path.iterdir()) == [])


def test_new_entry__says_once_that_a_storage_is_not_available(monkeypatch):
    def refuse(place):
        raise ConnectionError("the storage is not available. Start again.")

    monkeypatch.setattr("lpe_dask.tasks.shared_storage.spool_at", refuse)

    with pytest.raises(OSError, match=r"them: .* available\. Start again\. Name a folder"):
        spool_blocks.new_entry()

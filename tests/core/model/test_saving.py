"""Models on disk: the same bits when they are loaded, and never half a model."""

import copy
import gc
import os
import pickle
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.base import clone

import lpe_dask
from breaking import at, breaking_storage
from choosing import mostly_dealt, mostly_full
from lpe_dask import LPE
from lpe_dask.model import ModelFolder
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.persistence import loading, saving
from lpe_dask.model.persistence.manifest import MANIFEST_NAME
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.storage import lock as locks
from lpe_dask.storage.numeric_parquet import StoredFile
from problems import ESTIMATORS, lattice, log_bell
from storages import BreakingFileSystem, Death
from waiting import eventually

NAMES = ["a", "b", "c"]

pytestmark = pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")


NOMINAL = pd.DataFrame(lattice(150, 0), columns=NAMES)
QUERIES = pd.DataFrame(lattice(40, 1, -3, 13), columns=NAMES, index=np.arange(40) * 3)
QUERIES.iloc[7, 1] = np.nan


@pytest.fixture(autouse=True)
def small_blocks():
    with dask.config.set({"lpe-dask.block-rows": 64}):
        yield


@pytest.fixture(scope="module")
def model():
    with dask.config.set({"lpe-dask.block-rows": 64}):
        return LPE(4).fit(NOMINAL)


@pytest.fixture(scope="module")
def scores(model):
    return model.score_samples(QUERIES)


@pytest.fixture(scope="module")
def other():
    return LPE(2).fit(NOMINAL.iloc[:90])


def saved_and_loaded(model, folder, **arguments):
    model.save(folder)
    return lpe_dask.load(folder, **arguments)


def assert_same_scores(loaded, model, queries=QUERIES):
    np.testing.assert_array_equal(
        loaded.score_samples(queries), model.score_samples(queries)
    )


def assert_same(loaded, model):
    """Everything that users see is what it was."""
    methods = ("score_samples", "statistic", "predict", "decision_function")
    for queries in (QUERIES, da.from_array(QUERIES.to_numpy(), chunks=(13, 2))):
        found, right = (
            [getattr(some, method)(queries) for method in methods]
            for some in (loaded, model)
        )
        assert list(map(type, found)) == list(map(type, right))
        for actual, expected in zip(*dask.compute(found, right), strict=True):
            np.testing.assert_array_equal(actual, expected)
            assert actual.dtype == expected.dtype
    learned = {name: value for name, value in vars(model).items() if name[-1] == "_"}
    assert set(learned) == {name for name in vars(loaded) if name[-1] == "_"}
    for name, value in learned.items():
        np.testing.assert_array_equal(getattr(loaded, name), value)
        assert type(getattr(loaded, name)) is type(value)
    assert loaded.get_params() == model.get_params()
    assert repr(loaded) == repr(model)
    assert_same_own_values(loaded, model)


def assert_same_own_values(loaded, model):
    if model.calibration_kind_ == "loo" and model.calibration_size is None:
        for name in ("p_values_", "statistic_"):
            (expected,) = dask.compute(getattr(model, name))
            np.testing.assert_array_equal(getattr(loaded, name), expected)
        return
    assert not hasattr(loaded, "p_values_")
    with pytest.raises(AttributeError, match="only if all of them were calibration rows"):
        loaded.statistic_  # noqa: B018


# The same bits


#: Those that `make test` saves: with each kind of file, and of what is learned.
FEW = ["conformal part", "union", "covariance of both", "density radius"]


@pytest.mark.parametrize("name", FEW)
def test_load__gives_the_model_that_was_saved(name, tmp_path):
    """And once more, when what was loaded is saved."""
    model = LPE(random_state=0, **ESTIMATORS[name]).fit(NOMINAL)
    density = {"anomaly_log_density": model.anomaly_log_density}

    loaded = saved_and_loaded(model, tmp_path / "model", **density)
    assert_same(loaded, model)
    assert_same(saved_and_loaded(loaded, tmp_path / "again", **density), model)

    n_blocks = len(list((tmp_path / "model").glob("data-*/block-*")))
    assert n_blocks == len(fitted_of(model).reference.blocks) > 1


def test_load__knows_weighed_scores_of_its_nominal_rows(tmp_path):
    """A file has both what was measured and what p-values compare."""
    model = LPE(4, calibration="loo", anomaly_log_density=log_bell).fit(NOMINAL)
    density = {"anomaly_log_density": log_bell}

    assert_same(saved_and_loaded(model, tmp_path / "model", **density), model)


def test_load__of_single_precision(tmp_path):
    """Rows that float32 holds stay in it, on disk as well; an array has no names."""
    rows = NOMINAL.to_numpy(np.float32, copy=True)
    rows[[3, 77], 0] = np.nan
    model = LPE(4, algorithm="pruned", missing="drop").fit(rows)

    assert_same(saved_and_loaded(model, tmp_path / "model"), model)

    block, *_ = (tmp_path / "model").glob("data-*/block-*")
    assert set(pd.read_parquet(block).dtypes.astype(str)) == {"int64", "float32"}
    loaded = lpe_dask.load(tmp_path / "model")
    assert not hasattr(loaded, "feature_names_in_")
    assert np.flatnonzero(np.isnan(loaded.p_values_)).tolist() == [3, 77]


def test_load__gives_numbers_of_libraries_as_plain_ones(tmp_path):
    arguments = {
        "n_neighbors": np.int64(5), "alpha": np.float32(0.25), "metric": "mahalanobis",
        "metric_params": {"VI": np.eye(3)},
    }  # fmt: skip
    model = LPE(**arguments).fit(NOMINAL)

    loaded = saved_and_loaded(model, tmp_path / "model")

    assert_same_scores(loaded, model)
    assert loaded.metric_params == {"VI": np.eye(3).tolist()}
    assert (type(loaded.n_neighbors), type(loaded.alpha)) == (int, float)
    assert loaded.offset_ == model.offset_


def test_load__of_a_model_whose_parameters_were_changed(model, tmp_path):
    """It goes on as it was fitted."""
    changed = copy.copy(model).set_params(aggregation="mean")
    assert_same_scores(saved_and_loaded(changed, tmp_path / "mean"), model)
    changed.set_params(aggregation="kth", graph="radius", radius=3.0, n_neighbors=None)

    loaded = saved_and_loaded(changed, tmp_path / "model")

    assert_same_scores(loaded, model)
    np.testing.assert_array_equal(loaded.predict(QUERIES), model.predict(QUERIES))
    assert loaded.get_params() == changed.get_params()
    with pytest.raises(ValueError, match="alpha=7 must be"):
        changed.set_params(alpha=7).save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_model__that_was_loaded_is_copied(model, tmp_path):
    loaded = saved_and_loaded(model, tmp_path / "model")
    loaded.score_samples(QUERIES)  # the rows are held by now

    message = pickle.dumps(loaded)

    assert len(message) < 10_000  # they do not come along
    assert_same(pickle.loads(message), model)
    assert_same(copy.deepcopy(loaded), model)
    assert clone(loaded).get_params() == model.get_params()
    assert_same_scores(clone(loaded).fit(NOMINAL), model)
    loaded.save(tmp_path / "model", overwrite=True)
    assert_same(lpe_dask.load(tmp_path / "model"), model)


def test_load__wants_the_density_back(model, tmp_path):
    with_density = LPE(4, anomaly_log_density=log_bell).fit(NOMINAL)
    with_density.save(tmp_path / "with")
    model.save(tmp_path / "without")

    for folder, density, was in [
        ("with", None, "with anomaly_log_density. Give that same function"),
        ("without", log_bell, "without anomaly_log_density. Give none"),
    ]:
        with pytest.raises(ValueError, match=f"{folder} was fitted {was}"):
            lpe_dask.load(tmp_path / folder, anomaly_log_density=density)
    with pytest.raises(ValueError, match="must be a function"):
        lpe_dask.load(tmp_path / "with", anomaly_log_density=5)


# Where models are


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("local", "plain"),
        ("local", "with space [1] *?%20#"),
        ("file", "with space [1] *?%20#"),
        ("file", "trailing/"),
        ("memory", "with space %20#/"),
    ],
)
def test_save__to_any_place(place, name, model, other, tmp_path):
    base = {"local": tmp_path, "file": f"file://{tmp_path}", "memory": "memory:/"}[place]
    url = f"{base}/{tmp_path.name}/{name}"

    other.save(url)
    for _ in range(3):
        model.save(url, overwrite=True)

    assert_same_scores(lpe_dask.load(url), model)
    filesystem, root = fsspec.core.url_to_fs(url)
    names = [path.rpartition("/")[2] for path in filesystem.ls(root, detail=False)]
    assert sorted(name.partition("-")[0] for name in names) == [
        "_previous.json", "data", "data", MANIFEST_NAME,
    ]  # fmt: skip


def test_save__to_a_relative_path(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save("models/mine")
    loaded = lpe_dask.load(Path("models") / "mine")
    monkeypatch.chdir("/")

    assert_same(loaded, model)


def test_save__keeps_what_is_there(model, other, tmp_path):
    model.save(tmp_path / "model")
    (tmp_path / "file").write_text("")
    for name in ("mine/notes.txt", "data/data-2024/rows", "empty/_x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")

    with pytest.raises(FileExistsError, match=r"there is a model at .*overwrite=True"):
        other.save(tmp_path / "model")
    for name, found in [("mine", "notes.txt"), ("data", "data-2024"), ("file", "a file")]:
        with pytest.raises(
            FileExistsError,
            match=f"{name} contains files that are not part of a model: {found}",
        ):
            other.save(tmp_path / name, overwrite=True)
    other.save(tmp_path / "empty")  # of what is hidden, or a lock, it takes no notice

    assert_same_scores(lpe_dask.load(tmp_path / "model"), model)
    assert (tmp_path / "data" / "data-2024" / "rows").exists()
    assert (tmp_path / "empty" / "_x").exists()


def test_save__where_nothing_can_be_written(model, tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match=r"no model can be written to .*Give a folder"):
        model.save(tmp_path / "file" / "model")


# What is read, and when


def test_load__computes_nothing(model, tmp_path, at_most_computes):
    model.save(tmp_path / "model")
    frame = dd.from_pandas(QUERIES, npartitions=2)
    queries = da.from_array(QUERIES.to_numpy(), chunks=(20, -1))

    with at_most_computes(0):
        loaded = lpe_dask.load(tmp_path / "model")
        for X in (queries, frame):
            for method in ("score_samples", "statistic", "predict", "decision_function"):
                getattr(loaded, method)(X)
        repr(loaded)


def names_that_are_read(monkeypatch):
    """Return a list to which the name of each file of a model is added as it is read."""
    read, content = [], StoredFile._content

    def recording(file):
        read.append(file.url.rpartition("/")[2])
        return content(file)

    monkeypatch.setattr(StoredFile, "_content", recording)
    return read


def test_load__leaves_large_files_to_the_tasks(model, tmp_path, monkeypatch):
    """And rows that are at hand are scored with blocks that are read once."""
    model.save(tmp_path / "model")
    read = names_that_are_read(monkeypatch)
    monkeypatch.setattr(loading, "MAX_HASHED_BYTES", 1000)
    loaded = lpe_dask.load(tmp_path / "model")
    lazy = loaded.score_samples(da.from_array(QUERIES.to_numpy(), chunks=(20, -1)))
    assert read == ["calibration.parquet"]

    lazy.compute()
    assert sorted(set(read[1:])) == [f"block-0000{i}.parquet" for i in range(3)]
    read.clear()
    for _ in range(3):
        loaded.score_samples(QUERIES)
        loaded.predict(QUERIES.to_numpy())
    assert sorted(read) == [f"block-0000{i}.parquet" for i in range(3)]


# Where the rows do not fit into memory


@pytest.fixture
def no_room(monkeypatch, tmp_path):
    """Workers that have no room for the rows, and the folder of their spools."""
    (tmp_path / "spools").mkdir()
    with monkeypatch.context() as patch, dask.config.set(scheduler="threads"):
        patch.setattr(MemoryEstimate, "fits", lambda needs, limit: needs.plan.is_spooled)
        with dask.config.set({"lpe-dask.spool": str(tmp_path / "spools")}):
            yield tmp_path / "spools"


@pytest.mark.parametrize("name", mostly_full(["pruned", "many", "geodesic"], ["pruned"]))
def test_load__of_a_spooled_model(name, no_room, tmp_path):
    model = LPE(random_state=0, **ESTIMATORS[name]).fit(NOMINAL)
    loaded = saved_and_loaded(model, tmp_path / "model")
    lazy = loaded.score_samples(da.from_array(QUERIES.to_numpy(), chunks=(20, -1)))

    assert_same(loaded, model)
    assert len(list(no_room.glob("*/blocks-*"))) == 2  # one of each
    assert_same(saved_and_loaded(loaded, tmp_path / "again"), model)

    expected = model.score_samples(QUERIES)
    del loaded, model
    gc.collect()
    np.testing.assert_array_equal(lazy.compute(), expected)
    del lazy
    gc.collect()
    assert eventually(lambda: list(no_room.iterdir()) == [])


# Never half a model


@pytest.mark.parametrize(
    ("breaks", "is_there"), mostly_dealt(["dies", "fails", "fails late"], [True, False])
)
def test_save__that_breaks_leaves_the_old_model_or_the_new(
    breaks, is_there, model, other, tmp_path, monkeypatch
):
    """At each change of the storage; saved again, the new one is there alone."""
    folder = tmp_path / "model"

    def save(broken=None):
        BreakingFileSystem.repair(broken)
        with suppress(OSError, Death):
            model.save(f"breaking://{folder}", overwrite=True)
        changes = [*BreakingFileSystem.changes]
        BreakingFileSystem.repair()
        return changes

    def renew():
        shutil.rmtree(folder, ignore_errors=True)
        if is_there:
            other.save(folder)

    with breaking_storage(monkeypatch), dask.config.set(scheduler="sync"):
        renew()
        changes = save()
        for point in range(len(changes)):
            renew()
            save(at(point, breaks))

            is_new = _is_model(folder, model)
            assert is_new or not is_there or _is_model(folder, other)
            if breaks == "fails" and not is_new:
                assert len(list(folder.glob("data-*"))) == is_there
            for lock in folder.glob("_lock*"):  # let a minute pass
                os.utime(lock, (lock.stat().st_mtime - 100,) * 2)
            save()
            assert _is_model(folder, model)
            assert len(list(folder.glob("data-*"))) <= 2


def _is_model(folder, model):
    """Whether that model is in a folder, and whole, where there may be none."""
    if not (folder / MANIFEST_NAME).exists():
        return False
    return np.array_equal(lpe_dask.load(folder).calibration_, model.calibration_)


def test_save__that_is_interrupted_tidies_up(model, other, tmp_path, monkeypatch):
    def interrupt(files):
        raise KeyboardInterrupt

    other.save(tmp_path / "model")
    monkeypatch.setattr(saving, "_wait_until_visible", interrupt)

    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model", overwrite=True)

    assert len(list((tmp_path / "model").iterdir())) == 2
    assert _is_model(tmp_path / "model", other)


@pytest.mark.full
def test_load__meanwhile_gets_the_old_model_or_the_new(model, other, tmp_path):
    folder = tmp_path / "model"
    model.save(folder)
    errors = []

    def overwrite():
        try:
            for i in range(20):
                (other, model)[i % 2].save(folder, overwrite=True)
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=overwrite)
    writer.start()
    found = set()
    while writer.is_alive():
        found.add(tuple(lpe_dask.load(folder).calibration_))
    writer.join()

    assert errors == []
    assert found <= {tuple(model.calibration_), tuple(other.calibration_)}
    assert_same(lpe_dask.load(folder), model)


def test_load__of_a_model_that_is_replaced_reads_the_new_one(
    model, other, tmp_path, monkeypatch
):
    """Also where the files that the manifest named are gone by now."""
    folder = tmp_path / "model"
    model.save(folder)
    read = loading._read

    def replacing(*arguments):
        monkeypatch.setattr(loading, "_read", read)
        for _ in range(2):
            other.save(folder, overwrite=True)
        return read(*arguments)

    monkeypatch.setattr(loading, "_read", replacing)
    assert_same_scores(lpe_dask.load(folder), other)


def test_load__before_a_save_goes_on_as_it_was(model, scores, other, tmp_path):
    loaded = saved_and_loaded(model, tmp_path / "model")
    other.save(tmp_path / "model", overwrite=True)

    lazy = loaded.score_samples(da.from_array(QUERIES.to_numpy(), chunks=(20, -1)))
    np.testing.assert_array_equal(lazy.compute(), scores)

    other.save(tmp_path / "model", overwrite=True)
    with pytest.raises(FileNotFoundError, match=r"block-0000\d.parquet is missing"):
        lazy.compute(scheduler="sync")


def test_save__removes_what_killed_runs_left_of_their_locks(model, tmp_path):
    (tmp_path / "._lock.0a1b.tmp").touch()

    model.save(tmp_path)

    assert not list(tmp_path.glob(".*"))


def test_save__at_the_same_time_is_refused(model, other, tmp_path):
    model.save(tmp_path / "model")

    with (
        locks.Lock(tmp_path / "model").hold("save a model"),
        pytest.raises(locks.LockedError, match="save a model"),
    ):
        other.save(tmp_path / "model", overwrite=True)

    assert_same_scores(lpe_dask.load(tmp_path / "model"), model)


def test_save__of_a_model_that_is_broken_keeps_the_old_one(model, other, tmp_path):
    loaded = saved_and_loaded(model, tmp_path / "model")
    other.save(tmp_path / "other")
    block, *_ = (tmp_path / "model").glob("data-*/block-*")
    block.unlink()

    with (
        dask.config.set(scheduler="sync"),  # threads may still write when it tidies up
        pytest.raises(FileNotFoundError, match=block.name),
    ):
        loaded.save(tmp_path / "other", overwrite=True)

    assert_same_scores(lpe_dask.load(tmp_path / "other"), other)
    assert len(list((tmp_path / "other").iterdir())) == 2


def test_checksum__identifies_what_a_model_says(model, other, tmp_path):
    checksums = []
    for name, of in enumerate([model, model, LPE(4).fit(NOMINAL), other]):
        of.save(tmp_path / f"{name}")
        checksums.append(ModelFolder(tmp_path / f"{name}").load().checksum)

    assert len({*checksums[:3]}) == 1
    assert len({*checksums}) == 2


# On a cluster


@pytest.mark.cluster
def test_load__on_a_cluster_reads_no_rows_here(
    cluster, model, scores, tmp_path, monkeypatch
):
    model.save(tmp_path / "model")
    read = names_that_are_read(monkeypatch)
    monkeypatch.setattr(loading, "MAX_HASHED_BYTES", 0)
    with Client(cluster):
        loaded = lpe_dask.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.score_samples(QUERIES), scores)
        lazy = loaded.score_samples(dd.from_pandas(QUERIES, npartitions=2))
        np.testing.assert_array_equal(lazy.compute(), scores)

    assert read == ["calibration.parquet"]


@pytest.mark.cluster
def test_save__where_workers_write_elsewhere_is_refused(cluster, model):
    with (
        Client(cluster),
        pytest.raises(OSError, match=r"not visible from this machine.*all workers share"),
    ):
        model.save("memory://elsewhere/model")

    assert not fsspec.filesystem("memory").exists("/elsewhere/model")

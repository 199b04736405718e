"""Statistics of nominal rows that this process does not hold: the same bits, few files."""

import copy
import gc
import os
import pickle
import signal
import tracemalloc

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import lpe_dask
from lpe_dask import LPE
from lpe_dask.model import measured_vectors, sorted_vectors
from lpe_dask.model.fitting import FitPlan
from lpe_dask.model.lpe_parameters import PARAMETERS
from lpe_dask.model.measured_vectors import MeasuredFile, spread, vector_of_files
from lpe_dask.model.sorted_vectors import Run, ascending
from lpe_dask.search import MemoryEstimate, Preparation
from lpe_dask.search.memory import ORDERED_ROW_BYTES
from lpe_dask.storage import SortedVector, SpooledNumbers, StoredVector, VectorPart, vectors
from lpe_dask.tasks import Workers, shared_folder, transfer
from problems import lattice
from processes import local_cluster
from waiting import eventually

KEY = "lpe-dask.statistics-in-memory"
NAMES = ["a", "b", "c"]
NOMINAL = pd.DataFrame(lattice(400, 0), columns=NAMES)
GAPS = NOMINAL.mask(NOMINAL["a"] == 3)
NEW = pd.DataFrame(lattice(60, 1, -3, 13), columns=NAMES)

SPLITS = {
    "loo": {}, "part": {"calibration_size": 150}, "mean": {"aggregation": "mean"},
    "radius": {"graph": "radius", "radius": 2.0}, "split": {"calibration": "split"},
    "split part": {"calibration": "split", "calibration_size": 70},
    "conformal": {"calibration": "conformal"}, "confidence": {"confidence": 0.9},
    "learned": {"calibration": "loo", "scale": "standard"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Many tasks and files, of tasks in this process."""
    monkeypatch.setattr(measured_vectors, "TASK_NUMBERS", 64)
    monkeypatch.setattr(sorted_vectors, "PAGE", 8)
    monkeypatch.setattr(vectors, "FILE_NUMBERS", 20)


def results(model, rows):
    found = [
        model.score_samples(rows), model.predict(rows), model.score_samples(NEW),
        model.score_frame(rows),
    ]  # fmt: skip
    return [np.asarray(of) for of in dask.compute(*found)]


def own(model):
    return [np.asarray(of) for of in dask.compute(model.p_values_, model.statistic_)]


def assert_same(found, right):
    for values, expected in zip(found, right, strict=True):
        np.testing.assert_array_equal(values, expected)


def fitted(most, scheduler="sync", rows=NOMINAL, **arguments):
    config = {KEY: most, "lpe-dask.block-rows": 64}
    if scheduler is not None:
        config["scheduler"] = scheduler
    with dask.config.set(config):
        frame = dd.from_pandas(rows, chunksize=90)
        return LPE(**{"n_neighbors": 3, "random_state": 0, "alpha": 0.1} | arguments).fit(
            frame
        )


@pytest.mark.parametrize("rows", [NOMINAL, GAPS], ids=["all", "some dropped"])
@pytest.mark.parametrize("name", SPLITS)
def test_results__have_the_same_bits(name, rows, tmp_path):
    """Also of a model that was saved there, loaded, and saved again."""
    arguments = {"missing": "drop"} | SPLITS[name]
    if "radius" in arguments:
        arguments["n_neighbors"] = None
    right, model = (fitted(most, rows=rows, **arguments) for most in (10**6, 0))
    frame = dd.from_pandas(NEW, chunksize=25)

    assert isinstance(model.calibration_, SortedVector)
    assert isinstance(right.calibration_, np.ndarray)
    np.testing.assert_array_equal(np.asarray(model.calibration_), right.calibration_)
    with dask.config.set(scheduler="sync"):
        assert_same(results(model, frame), results(right, frame))
        assert_same(own(model), own(right))
        model.save(tmp_path / "model")
        loaded = lpe_dask.load(tmp_path / "model")
        assert isinstance(loaded.calibration_, SortedVector)
        assert_same(results(loaded, frame), results(right, frame))
        loaded.save(tmp_path / "again")
        again = lpe_dask.load(tmp_path / "again")
        assert_same(results(again, frame), results(right, frame))
        if name in ("loo", "radius", "mean", "learned"):
            assert_same(own(loaded), own(right))
            assert_same(own(again), own(right))


def test_the_configured_number__decides():
    assert isinstance(fitted(399).calibration_, SortedVector)
    assert isinstance(fitted(400).calibration_, np.ndarray)
    rows = NOMINAL.astype({"a": int})
    assert isinstance(fitted(0, rows=rows, by=["a"], alpha=0.3).calibration_, np.ndarray)


def test_bounds_and_identifiers__are_the_same():
    right, model = (fitted(most)._fitted.calibration for most in (10**6, 0))

    assert model.identifier == right.identifier
    assert model.least_p_value() == right.least_p_value()
    for alpha in (1e-9, 0.01, 0.1, 0.5, 1.0):
        assert model.bound(alpha) == right.bound(alpha)


def test_drift__is_the_same():
    right, model = fitted(10**6), fitted(0)
    p_values = model.score_samples(NEW)

    assert lpe_dask.drift(p_values, model) == lpe_dask.drift(p_values, right)


def test_copies__have_the_numbers():
    model = fitted(0)
    expected, numbers = model.score_samples(NEW), np.asarray(model.calibration_)
    shared, own_numbers = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    del model

    for copied in (shared, own_numbers):
        np.testing.assert_array_equal(copied.score_samples(NEW), expected)
        np.testing.assert_array_equal(copied.calibration_, numbers)
        assert copied.calibration_ is copied._fitted.calibration.values
    assert isinstance(own_numbers.calibration_, np.ndarray)


def test_files__go_with_the_model(tmp_path):
    with dask.config.set({"lpe-dask.spool": str(tmp_path)}):
        model = fitted(0)
        lazy = model.score_samples(dd.from_pandas(NEW, chunksize=25))
        kinds = {path.name.split("-")[0] for path in tmp_path.glob("lpe-spool-*/*-*")}
        assert kinds >= {"statistics", "calibration"}
        expected = model.score_samples(NEW)
        del model
        np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected)
        del lazy
    assert eventually(lambda: not list(tmp_path.glob("lpe-spool-*")))


def test_saved_files__are_no_more_than_needed(tmp_path):
    fitted(0).save(tmp_path / "model")
    (data,) = (tmp_path / "model").glob("data-*")
    names = sorted(path.name for path in data.iterdir())

    assert "calibration-index.parquet" in names
    assert "calibration.parquet" not in names
    assert (
        sum(name.startswith("nominal-0") for name in names) == 6 * 4 + 1
    )  # of tasks of 64


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("calibration-index.parquet", b"no Parquet", "cut short or altered"),
        ("calibration-00003.parquet", None, "is missing"),
    ],
)
def test_damaged_files__are_found_when_a_model_is_loaded(name, change, problem, tmp_path):
    fitted(0).save(tmp_path / "model")
    (path,) = (tmp_path / "model").glob(f"data-*/{name}")
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change)

    with pytest.raises((OSError, ValueError), match=problem):
        lpe_dask.load(tmp_path / "model")


# On a cluster


@pytest.mark.cluster
@pytest.mark.parametrize("literal_bytes", [2**20, 100], ids=["in graphs", "in the spool"])
def test_a_cluster__finds_the_same_bits(client, tmp_path, monkeypatch, literal_bytes):
    """Also where there are so many files that their names are sent by a file."""
    right = fitted(10**6)
    monkeypatch.setattr(transfer, "LITERAL_BYTES", literal_bytes)
    frame = dd.from_pandas(NEW, chunksize=25)
    expected = [
        np.asarray(of) for of in dask.compute(*_lazy(right, frame), scheduler="sync")
    ]

    model = fitted(0, None)

    assert isinstance(model.calibration_, SortedVector)
    assert_same([np.asarray(of) for of in dask.compute(*_lazy(model, frame))], expected)
    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")
    assert_same([np.asarray(loaded.score_samples(frame))], expected[:1])
    kept = model.score_samples(frame).persist()
    del model
    np.testing.assert_array_equal(np.asarray(kept.compute()), expected[0])


def _lazy(model, frame):
    return model.score_samples(frame), model.predict(frame), model.p_values_


@pytest.mark.cluster
def test_a_lost_worker__changes_nothing():
    expected = fitted(10**6).score_samples(NEW)
    with local_cluster() as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        pids = client.run(os.getpid)

        def kill_one(dask_worker=None):
            os.kill(next(iter(pids.values())), signal.SIGKILL)

        model = fitted(0, None)
        frame = dd.from_pandas(NEW, chunksize=10)
        kill_one()
        found = model.score_samples(frame).compute()
        np.testing.assert_array_equal(found, expected)
        again = fitted(0, None)
        np.testing.assert_array_equal(
            np.asarray(again.calibration_), np.asarray(model.calibration_)
        )


def _peak_bytes(work):
    """Return what this process held at most, beyond what it had, while it did something."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[1], kept
    finally:
        tracemalloc.stop()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("most", "row_bytes"), [(10**6, 24), (0, 1)], ids=["here", "on storage"]
)
def test_the_client__holds_few_bytes_a_row(client, most, row_bytes, tmp_path, monkeypatch):
    """Workers make the rows: what a fit, a lazy scoring and a saved model take here."""
    monkeypatch.setattr(measured_vectors, "TASK_NUMBERS", 2**15)
    monkeypatch.setattr(sorted_vectors, "PAGE", 2**10)
    n, fixed = 400_000, 5 * 2**19
    rows = da.random.default_rng(0).normal(size=(n, 1), chunks=(n // 10, 1))

    with dask.config.set({KEY: most}):
        LPE(n_neighbors=1).fit(rows[:2000]).save(tmp_path / "first")  # imports
        of_fit, model = _peak_bytes(lambda: LPE(n_neighbors=1).fit(rows))
    of_score, lazy = _peak_bytes(lambda: model.score_samples(rows))
    of_labels, _ = _peak_bytes(lambda: model.predict(rows))
    of_save, _ = _peak_bytes(lambda: model.save(tmp_path / "model"))

    assert of_fit < row_bytes * n + fixed
    for peak in (of_score, of_labels, of_save):
        assert peak < 8 * n * (most > 0) + fixed
    assert isinstance(model.calibration_, SortedVector) == (most == 0)
    assert len(lazy) == n


# The vectors themselves


def test_rows_that_were_measured_twice__and_none__are_placed():
    folder = shared_folder("measured")
    rng, expected = np.random.default_rng(0), np.full(300, np.nan)
    files = []
    for i, n in enumerate([40, 0, 90, 7, 64]):
        numbers = rng.choice(300, n, replace=False)
        values = numbers / 7
        SpooledNumbers.write(f"{folder.url}/{i}", numbers, values)
        files.append(MeasuredFile(f"{folder.url}/{i}", n))
        expected[numbers] = values
    files.append(files[0])

    with dask.config.set(scheduler="sync"):
        found = vector_of_files(files, 300, folder)

    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("n_values", [1, 3, 1000], ids=["all equal", "few", "many"])
def test_sorting__cuts_ranges_of_about_equal_size(n_values, tmp_path, monkeypatch):
    """Also where most values are equal, so that no task has to hold more than others."""
    rng, sizes = np.random.default_rng(0), []
    values = rng.integers(0, n_values, 1000).astype(float)
    values[rng.random(1000) < 0.1] = np.nan
    vector = StoredVector.of(VectorPart.write(values, str(tmp_path)))
    merge = sorted_vectors._merge

    def counted(*given):
        parts = merge(*given)
        sizes.append(sum(part.n for part in parts))
        return parts

    monkeypatch.setattr(sorted_vectors, "_merge", counted)
    with dask.config.set(scheduler="sync"):
        found = ascending(vector)

    np.testing.assert_array_equal(np.asarray(found), np.sort(values[~np.isnan(values)]))
    n_runs = -(-1000 // 64)
    assert max(sizes) <= 64 + n_runs * 8
    assert len(sizes) >= 1000 // 64 - 2


def test_tasks_and_files__of_a_billion_rows_are_few(monkeypatch):
    """And so is what the client holds, and what it sends."""
    monkeypatch.undo()
    n, n_measuring = 10**9, 40_000
    task_numbers, page = measured_vectors.TASK_NUMBERS, sorted_vectors.PAGE
    files = [MeasuredFile("u" * 100, n // n_measuring)] * n_measuring
    edges = measured_vectors.range_edges(n)
    marks = np.arange(task_numbers // page) / 7
    runs = [Run("u" * 100, task_numbers, marks + i / 5) for i in range(len(edges) - 1)]
    n_groups, cuts = len(measured_vectors._in_groups(files)), sorted_vectors._cuts(runs)
    parts = [
        VectorPart(SpooledNumbers("u" * 100 + str(i)), 2**18, 0.5) for i in range(3815)
    ]

    n_tasks = n_groups + 2 * (len(edges) - 1) + len(cuts) - 1
    n_files = n_measuring + n_groups + len(runs) + 2 * -(-n // vectors.FILE_NUMBERS)

    assert n_tasks < 1000
    assert n_files < 50_000
    assert sum(run.firsts.nbytes for run in runs) < 2 * 2**20
    assert sum(len(pickle.dumps(cut)) for cut in cuts) < 2**20
    assert len(pickle.dumps(StoredVector.of(parts))) < 2**20


def test_plan__of_a_billion_rows_fits_into_small_workers(monkeypatch):
    """No worker has all statistics, as it looks them up; with a weight each has."""
    monkeypatch.undo()
    parameters = {name: of.default for name, of in PARAMETERS.items()}

    def estimate(n_rows, **changed):
        plan = FitPlan.of(parameters | {"n_neighbors": 20} | changed, n_rows, 8, 0)
        shape = plan.shape(n_rows, 8, Preparation(), partition_rows=500_000)
        return MemoryEstimate.of(shape, Workers(2, 1, 2 * 2**30))

    estimate(10**9).check(2 * 2**30)
    assert estimate(10**9).calibration == 0
    assert estimate(10**6).calibration == 16 * 10**6
    weighed = estimate(10**9, anomaly_log_density=len)
    assert weighed.calibration == 16 * 10**9
    assert not weighed.fits(2 * 2**30)


def test_ordering__takes_what_is_planned_for_it(tmp_path, monkeypatch):
    """By the row, of the task that holds most."""
    n = 10**5
    monkeypatch.undo()
    numbers = np.random.default_rng(0).permutation(n)
    halves = numbers[: n // 2], numbers[n // 2 :]
    tasks = [measured_vectors._write_measured((of, of / 7), str(tmp_path)) for of in halves]
    edges = measured_vectors.range_edges(n)

    peak, url = _peak_bytes(lambda: measured_vectors._combine(tasks, edges, str(tmp_path)))
    of_place, (part,) = _peak_bytes(
        lambda: measured_vectors._place([url], 0, 0, n, str(tmp_path))
    )
    whole = StoredVector.of([part])
    of_sort, run = _peak_bytes(
        lambda: sorted_vectors._sort(whole, 0, n, str(tmp_path), 2**10)
    )
    ends = sorted_vectors._cuts([run])
    of_merge, _ = _peak_bytes(
        lambda: sorted_vectors._merge([run.url], ends[0], ends[-1], str(tmp_path))
    )

    shown = [round(of / n, 1) for of in (peak, of_place, of_sort, of_merge)]
    assert 0.7 * ORDERED_ROW_BYTES < max(shown) <= ORDERED_ROW_BYTES, shown


def test_numbers__are_spread_to_their_places(tmp_path):
    is_there = np.random.default_rng(0).random(500) < 0.5
    values = np.arange(is_there.sum()) * 1.5
    vector = StoredVector.of(VectorPart.write(values, str(tmp_path)))
    expected = np.full(500, np.nan)
    expected[is_there] = values

    with dask.config.set(scheduler="sync"):
        np.testing.assert_array_equal(np.asarray(spread(vector, is_there)), expected)

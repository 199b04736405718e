"""What a run is said to need, beside what it then needs."""

import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.callbacks import Callback

import lpe_dask
from approximating import small_searches
from calling import invoke
from choosing import mostly_full
from compiling import forget_work
from lpe_dask.batch import ClusterSection, findings
from lpe_dask.batch.api import score_files
from lpe_dask.cli.cluster import WorkerChoice
from lpe_dask.forecast import sample as samples
from lpe_dask.forecast.estimate import _open, make_forecast
from lpe_dask.forecast.forecast import Forecast
from lpe_dask.forecast.forecaster import COMPILED, LED
from lpe_dask.forecast.sizes import Workload
from lpe_dask.kernels import ALGORITHMS, compilation, search_work
from lpe_dask.model import checked_parameters
from lpe_dask.search import Approximation, reference, trial
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.join import JoinSpec
from lpe_dask.search.memory import MemoryEstimate
from lpe_dask.search.plan import (
    NeighborGraphParams,
    ProblemSize,
    SearchPlan,
    Statistic,
)
from lpe_dask.search.preparation import Preparation
from lpe_dask.tables.table_files import open_table
from lpe_dask.tasks import worker_pool
from lpe_dask.tasks.worker_pool import Workers, active_client

GIB = 2**30

#: Rows of the tables that most tests plan for, in three partitions and in two.
N_NOMINAL, N_ROWS = 3000, 1600

#: More than this process would do by itself.
MUCH = Workload(ProblemSize(10**7, 2, Statistic(5, None)), 10**7, 10**7)


#: First part of a key -> the kind that a forecast counts it as, and of tasks that read.
KINDS = {
    "read_parquet": "read",
    "lpe-read": "read",
    "lpe-part": "read",
    "lpe-pack": "pack",
    "lpe-index": "index",
    "lpe-load": "load",
    "lpe-join": "join",
}


@pytest.fixture(autouse=True)
def without_reasons(monkeypatch):
    """A forecast leaves out what reasons for 50 rows take, and patterns."""
    none = {"rows": [], "private_columns": []}
    monkeypatch.setattr(findings.Findings, "_reasons", lambda *given: none)
    monkeypatch.setattr(findings, "read_flagged", lambda rows, *given: (rows, "none"))


@pytest.fixture(autouse=True)
def quick_trials(monkeypatch):
    """What trials take is no result here."""
    monkeypatch.setattr(trial, "REPEAT_SECONDS", 0.0)


class TaskCounter(Callback):
    """Counts the tasks that run, by their kinds."""

    def __init__(self):
        self._keys = []  # counted later: threads that compute at once may all add to it

    def _pretask(self, key, graph, state):
        self._keys.append(key)

    @property
    def counts(self):
        names = (str(key[0] if isinstance(key, tuple) else key) for key in self._keys)
        kinds = (
            [KINDS[start] for start in KINDS if name.startswith(start)] for name in names
        )
        return Counter(kind for found in kinds for kind in found[:1])


def gaussian(n_rows, n_columns=3, seed=0):
    rows = np.random.default_rng(seed).standard_normal((n_rows, n_columns))
    return pd.DataFrame(rows, columns=[f"x{k}" for k in range(n_columns)])


def write(table, name, n_partitions=1):
    dd.from_pandas(table, npartitions=n_partitions).to_parquet(name, write_index=False)
    return name


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with nominal and data, of three and two partitions."""
    folder = tmp_path_factory.mktemp("tables")
    write(gaussian(N_NOMINAL), str(folder / "nominal"), 3)
    write(gaussian(N_ROWS, seed=1), str(folder / "data"), 2)
    return folder


@pytest.fixture
def files(tables, tmp_path, monkeypatch):
    """A current folder with nominal and data, which a test may change."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tables, tmp_path, dirs_exist_ok=True)
    with dask.config.set(scheduler="threads", num_workers=3):
        yield tmp_path


@pytest.fixture
def states(monkeypatch):
    """The states of all searches, as they are made."""
    made = []
    original = JoinSpec.state

    def state(self, *arguments):
        made.append(original(self, *arguments))
        return made[-1]

    monkeypatch.setattr(JoinSpec, "state", state)
    return made


def counted(tasks):
    """Tasks by kind; a search among nominal rows and one of new rows have the same keys."""
    tasks = Counter(tasks)
    tasks["join"] += tasks.pop("self-join", 0)
    tasks.pop("read", None)
    return +tasks


def run_counted(*arguments, **options):
    with TaskCounter() as counter:
        score_files(*arguments, "out", overwrite=True, **options)
    return counted(counter.counts)


# Tasks


#: Nominal rows, if they are not those to score, and arguments.
FITS = {
    "kth": (None, {}),
    "mean": ("nominal", {"aggregation": "mean", "scale": "standard"}),
    "radius": (None, {"graph": "radius", "radius": 0.5}),
    "split": ("nominal", {"calibration": "split"}),
    "geodesic": ("nominal", {"metric": "geodesic", "n_neighbors": 9}),
    "sample": (None, {"calibration_size": 100}),
    "conformal": (None, {"calibration": "conformal"}),
    "pruned": (None, {"algorithm": "pruned"}),
    "pruned split": (None, {"algorithm": "pruned", "calibration": "split"}),
}
#: Those for which the rows decide how many tasks there are.
DRAWN = ["conformal", "pruned", "pruned split"]


@pytest.mark.parametrize(
    ("name", "block_rows", "n_threads"),
    mostly_full(
        [*((name, 640, 3) for name in FITS), ("mean", 320, 5), ("mean", None, 1)],
        [(name, 640, 3) for name in FITS if name not in ("geodesic", "sample")],
    ),
)
def test_tasks__are_those_of_the_run(files, name, block_rows, n_threads):
    nominal, arguments = FITS[name]
    arguments = {"algorithm": "brute", "random_state": 0} | arguments
    with dask.config.set({"lpe-dask.block-rows": block_rows, "num_workers": n_threads}):
        forecast = lpe_dask.plan("data", nominal, **arguments)

        ran = run_counted("data", nominal=nominal, **arguments)
    planned = counted(forecast.tasks)
    assert forecast.n_tasks == sum(forecast.tasks.values())
    if name in DRAWN:
        assert planned.keys() == ran.keys()
        assert 0.5 * ran.total() <= planned.total() <= 2 * ran.total()
    else:
        assert planned == ran


@pytest.mark.usefixtures("compiled_kernels")
def test_tasks__of_an_approximate_search_are_one_for_the_index_of_each_block(
    files, monkeypatch
):
    arguments = {"algorithm": "nn_descent", "random_state": 0}
    small_searches(monkeypatch)

    forecast = lpe_dask.plan("data", "nominal", **arguments)

    ran = run_counted("data", nominal="nominal", **arguments)
    assert forecast.algorithm == "nn_descent"
    assert forecast.tasks["index"] == ran["index"] == forecast.plan.n_blocks > 1


@pytest.mark.full
def test_plan__of_a_spool(files, monkeypatch):
    monkeypatch.setattr(samples, "SAMPLE_ROWS", 4096)
    workers = Workers(2, 1, 520 * 2**20, is_cluster=True)
    write(gaussian(20_000, 40), "wide", 20)
    model = lpe_dask.LPE(algorithm="brute", calibration_size=100).fit("wide")
    model.save("wide-model")

    fitted = make_forecast(lambda _: workers, "wide", algorithm="pruned")
    loaded = make_forecast(lambda _: workers, "wide", model="wide-model")

    assert fitted.is_spooled
    assert loaded.is_spooled
    assert fitted.steps["read the spool"] > 0
    assert loaded.steps["read the spool"] > 0


@pytest.mark.parametrize("nominal", mostly_full([None, "nominal"], ["nominal"]))
def test_plan__of_a_column_without_a_value_in_the_sampled_partitions(
    files, nominal, monkeypatch
):
    """Categories are read in each second one, rows in others, too."""
    Path("gaps").mkdir()
    for i in range(32):
        texts = pd.Series(["a" if i % 2 else None] * 500, dtype=str)
        table = gaussian(500).assign(text=texts)
        table.to_parquet(f"gaps/{i}.parquet", index=False)
    monkeypatch.setattr(samples, "SAMPLE_ROWS", 2500)
    monkeypatch.setattr(samples, "MIN_PARTITIONS", 5)
    arguments = {"categorical": ["text"], "missing": "drop", "n_neighbors": 1}

    for X in ("gaps", dd.read_parquet("gaps")):
        forecast = lpe_dask.plan(X, nominal and X, **arguments)
        assert forecast.n_features == 4


@pytest.mark.parametrize(
    ("scale", "n_readings"), [(None, 2), ("minmax", 2), ("standard", 2), ("quantile", 3)]
)
def test_steps__count_how_often_nominal_rows_are_read(files, scale, n_readings):
    """To be surveyed, to be put into blocks, and to learn quantiles."""
    nominal = _open("nominal", None)
    model = nominal.planned(Workers.active(), checked_parameters({"scale": scale}))

    assert model.n_readings == n_readings


# With a saved model


def save_model(**arguments):
    lpe_dask.LPE(**arguments).fit(dd.read_parquet("nominal")).save("model")


MODELS = {
    "brute": {"algorithm": "brute"},
    "split": {"algorithm": "pruned", "calibration": "split", "metric": "mahalanobis"},
    "geodesic": {"algorithm": "brute", "metric": "geodesic", "n_neighbors": 9},
}


@pytest.mark.parametrize("name", mostly_full(MODELS, ["brute", "split"]))
def test_model__is_read_and_nothing_fitted(files, name, states):
    arguments = MODELS[name]
    save_model(**arguments)

    forecast = lpe_dask.plan("data", model="model")

    states.clear()
    ran = run_counted("data", model="model")
    assert forecast.tasks["join"] == ran["join"]
    assert set(forecast.tasks) == {"load", "join"}
    assert forecast.own_pairs == 0
    assert (forecast.n_rows, forecast.n_nominal) == (N_ROWS, N_NOMINAL)
    assert forecast.is_exact
    assert forecast.algorithm == arguments["algorithm"]
    if arguments["algorithm"] == "brute":
        assert forecast.row_pairs == sum(state.n_compared for state in states)
    assert forecast.walks == (N_ROWS if arguments.get("metric") == "geodesic" else 0)


def test_model__reads_few_of_its_blocks(files, monkeypatch):
    monkeypatch.setattr(samples, "MAX_PARTITIONS", 2)
    monkeypatch.setattr(samples, "MIN_PARTITIONS", 2)
    with dask.config.set({"lpe-dask.block-rows": 256}):
        save_model(algorithm="pruned")

    with TaskCounter() as counter:
        forecast = lpe_dask.plan("data", model="model")

    assert counter.counts["load"] == 2
    assert forecast.tasks["load"] == len(list(files.glob("model/data-*/block-*"))) > 9


def test_model__with_rows_in_memory(files):
    save_model()

    forecast = lpe_dask.plan(gaussian(500)[["x2", "x0", "x1"]], model="model")

    assert forecast.n_rows == 500
    assert (forecast.n_nominal, forecast.n_features) == (N_NOMINAL, 3)


# Jobs

NOMINAL = '[nominal]\ndata = "nominal"\n'
SCORE = '[score]\ndata = "data"\noutput = "out"\n'
BRUTE = "[model]\nalgorithm = 'brute'\nn_neighbors = 9\n"
SAVED = f"{BRUTE}path = 'model'\n"


def write_job(*sections):
    with open("job.toml", "w") as file:
        file.write("\n".join(sections))
    return "job.toml"


JOBS = {
    "fit": (NOMINAL, SAVED),
    "fit and score": (NOMINAL, BRUTE, SCORE, "fdr = 0.1\nkeep = []"),
    "score": (BRUTE, SCORE),
}


@pytest.mark.parametrize("name", mostly_full(JOBS, ["fit", "fit and score"]))
def test_job__is_planned_as_it_runs(files, name):
    job = write_job(*JOBS[name])

    forecast = lpe_dask.plan(job)

    with TaskCounter() as counter:
        lpe_dask.run(job)
    assert counted(forecast.tasks) == counted(counter.counts)
    assert forecast.n_neighbors == 9
    assert forecast.n_rows == (0 if name == "fit" else N_ROWS)
    assert ("3,000 nominal rows to fit, 3 columns" in str(forecast)) == (name == "fit")


def test_job__goes_on_with_the_model_that_is_there(files):
    lpe_dask.run(write_job(NOMINAL, SAVED))
    job = write_job(NOMINAL, SAVED, SCORE)

    forecast = lpe_dask.plan(job)

    assert forecast.tasks["load"] > 0
    assert not (files / "out").exists()


def test_job__that_is_finished_is_no_plan(files):
    job = write_job(NOMINAL, BRUTE, SCORE)
    lpe_dask.run(job)

    with pytest.raises(FileExistsError, match="nothing to do: out exists already"):
        lpe_dask.plan(job)


def test_job__takes_nothing_beside(files):
    job = write_job(NOMINAL, BRUTE, SCORE)

    with pytest.raises(ValueError, match=r"columns, alpha cannot be given with it"):
        lpe_dask.plan(job, columns=["x0"], alpha=0.1)
    with pytest.raises(FileNotFoundError):
        lpe_dask.plan("none.toml")


# Pairs


@pytest.mark.parametrize(("nominal", "calibration_size"), [(None, 500), ("nominal", None)])
def test_pairs__are_all_for_brute(files, states, nominal, calibration_size):
    arguments = {
        "algorithm": "brute", "calibration_size": calibration_size, "random_state": 0
    }  # fmt: skip

    forecast = lpe_dask.plan("data", nominal, **arguments)

    states.clear()
    score_files("data", "out", nominal=nominal, **arguments)
    assert forecast.pairs == sum(state.n_compared for state in states)


@pytest.mark.usefixtures("compiled_kernels")  # without compilation no pair is left out
@pytest.mark.parametrize("n_neighbors", mostly_full([5, 100], [5]))
def test_pairs__are_about_right_for_pruned(files, states, n_neighbors):
    arguments = {"algorithm": "pruned", "n_neighbors": n_neighbors}

    forecast = lpe_dask.plan("data", "nominal", **arguments)

    states.clear()
    score_files("data", "out", nominal="nominal", **arguments)
    ran = sum(state.n_compared for state in states)
    assert 0.5 * ran < forecast.pairs < 2 * ran
    assert forecast.own_pairs < N_NOMINAL**2
    assert forecast.row_pairs < N_ROWS * N_NOMINAL


@pytest.mark.parametrize(
    ("n_columns", "n_neighbors", "algorithm", "factor"),
    [(2, 20, "pruned", 3), (4, 60, "brute", 1)],
)
def test_pairs__of_many_rows_follow_from_a_part_of_them(
    monkeypatch, n_columns, n_neighbors, algorithm, factor
):
    """Uniform in two dimensions a query has as many near rows, whatever their number."""
    rows = np.random.default_rng(0).random((60_000, n_columns))
    arguments = {"algorithm": algorithm, "n_neighbors": n_neighbors}
    whole = lpe_dask.plan(rows, **arguments)
    monkeypatch.setattr(samples, "SAMPLE_ROWS", 8192)

    forecast = lpe_dask.plan(rows, **arguments)

    assert whole.pairs / factor <= forecast.pairs <= whole.pairs * factor
    assert 0.1 * whole.seconds < forecast.seconds < 10 * whole.seconds


@pytest.mark.parametrize(
    ("recheck", "n_audited", "share"),
    [(None, 160, 0.15), (0.5, 160, 0.6), (0.95, 160, 1.0), (None, 3000, 1.0)],
)
def test_pairs__of_an_approximate_search_are_those_of_rows_measured_exactly(
    files, monkeypatch, recheck, n_audited, share
):
    """All of p-values up to a level, alpha if none is given, and a sample."""
    monkeypatch.setattr(Approximation, "AUDITED_ROWS", n_audited)

    forecast = lpe_dask.plan(
        "data", "nominal", algorithm="nn_descent", alpha=0.05, recheck=recheck
    )

    assert forecast.row_pairs == round(share * N_ROWS * N_NOMINAL)


def test_seconds__of_an_approximate_search_grow_with_the_blocks_that_it_goes_along(
    files, monkeypatch
):
    """Each has a graph of its own."""
    small_searches(monkeypatch)
    monkeypatch.setattr(Approximation, "AUDITED_ROWS", 1)

    forecast = lpe_dask.plan("data", "nominal", algorithm="nn_descent", alpha=0.01)

    row, column = LED
    seconds = N_ROWS * (row + 3 * column) / forecast.n_threads
    assert forecast.plan.n_blocks == 3
    assert 3 * seconds < forecast.steps["search"] < 4 * seconds


@pytest.mark.usefixtures("compiled_kernels")
def test_index_seconds__are_those_of_a_model_that_has_none_yet(files, monkeypatch):
    """Measured elsewhere: to build one here would take as long as the run."""
    replace_lists = small_searches(monkeypatch)
    save_model(algorithm="nn_descent")

    def fail(*arguments):
        raise AssertionError("an index is built")

    replace_lists(fail)
    few, all_rows = (
        lpe_dask.plan(gaussian(n), algorithm="nn_descent").steps["index"] - COMPILED
        for n in (N_NOMINAL // 2, N_NOMINAL)
    )
    saved = lpe_dask.plan("data", model="model")

    assert 0 < few < all_rows
    assert saved.algorithm == "nn_descent"
    assert saved.steps["index"] == 0
    assert "index" not in saved.tasks


@pytest.mark.parametrize(("n_rows", "is_compiled"), [(300, False), (5000, True)])
def test_seconds__are_those_of_the_kernels_that_a_run_will_use(
    n_rows, is_compiled, monkeypatch, tmp_path
):
    """Many rows are searched for by compiled kernels, however few the nominal ones are."""
    rows = np.random.default_rng(0).random((n_rows, 4))
    nominal = rows[:300]
    lpe_dask.LPE(5).fit(nominal).save(tmp_path / "model")
    limit = search_work(1000 * len(nominal), 4)  # a fit is less

    for given in ({"nominal": nominal}, {"model": tmp_path / "model"}):
        forget_work()
        monkeypatch.setattr(compilation, "COMPILED_WORK", limit)
        monkeypatch.setattr(compilation, "LOADED_WORK", limit)
        lpe_dask.plan(rows, **given)

        assert ("fold_nearest" in compilation.compiler.ready) == is_compiled
    forget_work()


def test_walks__are_one_a_row_that_is_measured(files):
    forecast = lpe_dask.plan(
        "data", "nominal", metric="geodesic", n_neighbors=9, calibration_size=100
    )

    assert forecast.walks == 100 + N_ROWS
    assert forecast.steps["walk"] > 0
    assert "1.7e+03 walks" in str(forecast)


def test_walk_seconds__of_too_few_rows_are_not_known():
    """Where K' is as large as the sample there is no graph to walk along."""
    rows = np.zeros((5, 2))
    space = Space("brute", Preparation(), ALGORITHMS["brute"].basis(rows))
    sampled = trial.SampledRows(rows, space, JoinSpec(Statistic(2, None), 1, 5))

    assert sampled.walk_seconds(NeighborGraphParams(5, "directed")) == 0.0


# Memory


EUCLIDEAN = [(kind, "euclidean") for kind in ("loo", "split", "conformal")]


@pytest.mark.parametrize(
    ("calibration", "metric"), mostly_full([*EUCLIDEAN, ("loo", "geodesic")], EUCLIDEAN)
)
def test_worker_bytes__are_those_that_a_fit_checks(files, monkeypatch, calibration, metric):
    arguments = {"calibration": calibration, "metric": metric, "n_neighbors": 9}
    arguments["calibration_size"] = 200
    plans = []
    original = reference.plan_for_active_workers
    monkeypatch.setattr(
        reference,
        "plan_for_active_workers",
        lambda *given, **more: plans.append(original(*given, **more)) or plans[-1],
    )

    forecast = lpe_dask.plan("nominal", **arguments)

    lpe_dask.LPE(**arguments).fit("nominal")
    assert forecast.worker_bytes == max(MemoryEstimate(plan).worker for plan in plans)
    assert forecast.plan.shape.calibration_rows == 200
    assert forecast.plan.shape.reads_frame
    assert forecast.memory_limit == Workers.active().memory_limit
    forecast.check()


def test_fits__is_false_where_a_run_is_refused(files):
    with dask.config.set({"lpe-dask.memory-limit": 10**8}):
        forecast = lpe_dask.plan("data", "nominal")

        with pytest.raises(MemoryError) as refused:
            lpe_dask.LPE().fit("nominal")
        with pytest.raises(MemoryError, match="3000 nominal rows") as foreseen:
            forecast.check()
    assert not forecast.fits
    assert str(foreseen.value) == str(refused.value)
    assert "this does not fit; nominal rows in a spool" in str(forecast)


def test_worker_bytes__count_the_larger_partitions_of_the_rows_to_score(files):
    forecast = lpe_dask.plan("data", "nominal")

    assert forecast.plan.shape.partition_rows == 1000
    assert lpe_dask.plan("nominal", "data").plan.shape.partition_rows == 1000


# What is read


def test_plan__reads_a_few_partitions_of_files(files):
    write(gaussian(8000), "many", 80)

    with TaskCounter() as counter:
        forecast = lpe_dask.plan("many")

    assert counter.counts["read"] == samples.MAX_PARTITIONS
    assert forecast.is_exact
    assert forecast.n_rows == forecast.n_nominal == 8000


def test_plan__reads_a_few_partitions_of_a_dask_frame(at_most_computes):
    read = []

    def partition(i):
        read.append(i)
        return gaussian(100, seed=i)

    frame = dd.from_map(partition, range(50), meta=gaussian(0))
    nominal = dd.from_map(partition, range(3), meta=gaussian(0))
    read.clear()

    with at_most_computes(2):
        forecast = lpe_dask.plan(frame, nominal)

    assert sorted(read) == [0, 0, 1, 2, 12, 25, 37]
    assert (forecast.n_rows, forecast.n_nominal) == (5000, 300)
    assert not forecast.is_exact
    assert "about 5,000 to score" in str(forecast)


def test_plan__finds_columns_by_name(files):
    frame = gaussian(60)[["x2", "x0"]].assign(name="row")

    forecast = lpe_dask.plan(frame, gaussian(90), columns=["x0", "x2"])

    assert forecast.n_features == 2
    assert lpe_dask.plan(["data", "nominal"], "nominal").n_rows == N_ROWS + N_NOMINAL


@pytest.mark.parametrize("name", mostly_full(["rows.csv", "rows.csv.gz"], ["rows.csv"]))
def test_plan__of_csv_counts_about(files, name):
    gaussian(20_000).round(3).to_csv(name, index=False)

    forecast = lpe_dask.plan(name)

    assert forecast.n_rows == pytest.approx(20_000, rel=0.2 if "gz" in name else 0.02)
    assert not forecast.is_exact


def test_rows_of_parts__of_small_csv_files_takes_their_lines(files):
    gaussian(5).to_csv("one.csv", index=False)
    gaussian(5).to_csv("two.csv", index=False)

    assert open_table("one.csv").rows_of_parts() == ([5], False)
    both, _ = open_table(["one.csv", "two.csv"]).rows_of_parts()
    assert sum(both) == pytest.approx(10, abs=2)


def test_rows_of_parts__are_those_of_the_partitions(files):
    gaussian(1000).to_parquet("nominal/part.8.parquet", row_group_size=70)
    table = open_table("nominal")

    rows, is_exact = table.rows_of_parts()

    assert is_exact
    assert rows == [len(partition) for partition in table.frame().partitions]


# What there may be


ZEROS = np.zeros((2000, 2))


@pytest.mark.parametrize(
    ("data", "nominal", "n_neighbors", "own_pairs", "row_pairs"),
    [
        (np.empty((0, 2)), ZEROS, 3, 2000**2, 0),
        (np.ones((1, 2)), np.ones((3, 2)), 1, 9, 3),
        (ZEROS, None, 1, 2000**2, 0),
        (ZEROS, None, 1999, 2000**2, 0),
    ],
)
def test_plan__of_few_and_of_equal_rows(data, nominal, n_neighbors, own_pairs, row_pairs):
    arguments = {"n_neighbors": n_neighbors, "scale": "standard", "calibration": "loo"}

    forecast = lpe_dask.plan(data, nominal, **arguments)

    assert forecast.n_rows == len(data)
    assert forecast.own_pairs <= own_pairs
    assert forecast.row_pairs == row_pairs
    assert forecast.seconds < 100


def test_plan__drops_rows_as_a_fit_does():
    table = gaussian(1000)
    table.loc[::10, "x1"] = np.nan

    forecast = lpe_dask.plan(table, missing="drop")

    assert (forecast.n_rows, forecast.n_nominal) == (1000, 900)
    assert not forecast.is_exact


def test_plan__of_a_sample_that_is_singular_where_the_rows_are_not(monkeypatch):
    monkeypatch.setattr(samples, "SAMPLE_ROWS", 50)
    table = gaussian(1000)
    table["x1"] = (np.arange(1000) == 1) * 1.0

    assert lpe_dask.plan(table, metric="mahalanobis").n_nominal == 1000


def bad_rows(**columns):
    return gaussian(20).assign(**columns)


MIN_ROWS_FOR_TRIAL = gaussian(20)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("none.parquet", {}),
        (MIN_ROWS_FOR_TRIAL, {"nominal": gaussian(0)}),
        (MIN_ROWS_FOR_TRIAL, {"nominal": bad_rows(x1=np.nan)}),
        (MIN_ROWS_FOR_TRIAL, {"columns": ["x7"]}),
        (MIN_ROWS_FOR_TRIAL[["x0"]], {"nominal": MIN_ROWS_FOR_TRIAL}),
        (MIN_ROWS_FOR_TRIAL, {"n_neighbors": 20}),
        (MIN_ROWS_FOR_TRIAL, {"alpha": 1}),
        (MIN_ROWS_FOR_TRIAL, {"calibration_size": 21}),
        (MIN_ROWS_FOR_TRIAL, {"metric": "mahalanobis", "metric_params": {"VI": [1.0]}}),
        (MIN_ROWS_FOR_TRIAL, {"metric": "geodesic", "metric_params": {"n_neighbors": 20}}),
        (np.zeros(5), {}),
        ("data", {"model": "none"}),
        ("data", {"model": "model", "nominal": "nominal"}),
        ("data", {"model": "model", "columns": ["x0", "x1", "z"]}),
        ("narrow", {"model": "model"}),
    ],
)
def test_plan__refuses_what_score_refuses(files, data, options):
    score, expected = lpe_dask.score, (ValueError, TypeError, OSError)
    if "model" in options:
        score = partial(score_files, output="out")
        save_model()
        write(gaussian(9)[["x0"]], "narrow")
    with pytest.raises(expected) as scored:
        score(data, **options)

    with pytest.raises(scored.type, match=f"^{re.escape(str(scored.value))}$"):
        lpe_dask.plan(data, **options)


def test_plan__refuses_other_arguments_and_numbers_of_columns():
    with pytest.raises(
        TypeError, match=r"plan\(\) got unexpected arguments \['neighbors'\]"
    ):
        lpe_dask.plan(gaussian(20), neighbors=3)
    with pytest.raises(ValueError, match="have 2 features, but the nominal rows have 3"):
        lpe_dask.plan(np.zeros((9, 2)), np.zeros((9, 3)))


# The command


@pytest.fixture
def no_cluster(monkeypatch):
    monkeypatch.setattr(WorkerChoice, "_start", lambda *_: pytest.fail("a cluster"))


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--nominal", "nominal", "--algorithm", "brute"], "pack 1, self-join "),
        (["--model", "model"], "load "),
    ],
)
def test_command__prints_all_of_it(files, given, said):
    save_model(algorithm="brute")

    result = invoke("plan", "data", *given, "--workers", 3)
    odd = invoke("plan", "data", "--model", "model", "--scale", "none", *given[:2])

    assert result.exit_code == 0, result.output
    assert [line[:8].strip() for line in result.stdout.splitlines()] == [
        "rows", "search", "tasks", "memory", "time"
    ]  # fmt: skip
    assert "1,600 to score against 3,000 nominal rows, 3 columns" in result.stdout
    assert "K = 25, brute: " in result.stdout
    assert "4.8e+06 pairs of rows to score" in result.stdout
    assert said in result.stdout
    assert re.search(r"start \d+\.\d s", result.stdout)
    assert "running in this process" not in invoke("plan", "data", *given).stderr
    assert odd.exit_code == 2
    assert "scale cannot be combined with" in odd.stderr


@pytest.mark.usefixtures("no_cluster")
def test_command__ends_with_2_where_the_run_does_not_fit(files, monkeypatch):
    monkeypatch.setattr(samples, "SAMPLE_ROWS", 1024)
    write(gaussian(20_000, 150), "wide")

    result = invoke("plan", "wide", "--memory-limit", "560MiB", "--algorithm", "brute")

    assert result.exit_code == 2
    assert "this does not fit" in result.stdout
    assert "Error: 20000 nominal rows x 150 columns need" in result.stderr
    (least,) = re.findall(
        r"at least (\w+)", invoke("plan", "data", "--memory-limit", "300MiB").stderr
    )
    assert invoke("plan", "data", "--memory-limit", least).exit_code == 0


@pytest.mark.usefixtures("no_cluster")
def test_command__tells_of_a_job(files, monkeypatch):
    seen = []
    original = WorkerChoice.for_plan
    monkeypatch.setattr(
        WorkerChoice, "for_plan", lambda self: seen.append(self) or original(self)
    )
    job = write_job(NOMINAL, BRUTE, SCORE, "[cluster]\nworkers = 3\nthreads = 2\n")

    result = invoke("plan", job)
    odd = invoke("plan", job, "--n-neighbors", 3)
    lpe_dask.run(job)
    done = invoke("plan", job)

    assert result.exit_code == done.exit_code == 0, result.output
    assert "1,600 to score against 3,000 nominal rows" in result.stdout
    assert seen[0].section == ClusterSection(workers=3, threads=2)
    assert odd.exit_code == 2
    assert "n_neighbors cannot be given with it" in odd.stderr
    assert done.stdout == ""
    assert done.stderr == "nothing to do: out exists already\n"


@pytest.mark.parametrize(
    "arguments", [["none.parquet"], ["data", "--columns", "z"], ["data", "--alpha", "2"]]
)
def test_command__refuses_what_score_refuses(files, arguments):
    planned = invoke("plan", *arguments)
    scored = invoke("score", *arguments, "--output", "out")

    assert planned.exit_code == scored.exit_code == 2
    assert planned.stderr == scored.stderr
    assert planned.stderr.startswith("Error: ")


@pytest.mark.cluster
def test_for_plan__are_the_workers_that_are_started():
    chosen = WorkerChoice(ClusterSection(workers=1, memory_limit=700 * 2**20))

    with chosen.for_plan() as choose:
        foreseen = choose(MUCH)
        assert foreseen.start_seconds > 0
        assert dask.config.get("scheduler") is dask.threaded.get
    with chosen.open():
        client = active_client()
        address, security = client.scheduler.address, client.security
        certificates = {
            "distributed.comm.tls.ca-file": security.tls_ca_file,
            "distributed.comm.tls.client.cert": security.tls_client_cert,
            "distributed.comm.tls.client.key": security.tls_client_key,
        }
        assert Workers.active() == replace(foreseen, start_seconds=0.0)
        join = WorkerChoice(ClusterSection(scheduler=address))
        with dask.config.set(certificates), join.for_plan() as choose:
            joined = choose(MUCH)
            assert joined == replace(foreseen, start_seconds=joined.start_seconds)
            assert joined.is_cluster


def test_for_plan__share_the_machine(monkeypatch):
    monkeypatch.setattr(worker_pool, "memory_of_machine", lambda: 8 * GIB)
    monkeypatch.setattr("distributed.deploy.utils.nprocesses_nthreads", lambda: (4, 2))

    with WorkerChoice(ClusterSection()).for_plan() as choose:
        foreseen = choose(MUCH)
        assert foreseen.n_threads == 8
        assert (foreseen.threads, foreseen.memory_limit) == (2, 2 * GIB)


# The text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.5, "0.5 s"), (50, "50 s"), (3000, "50.0 minutes"), (9000, "2.5 hours"),
     (200_000, "2.3 days"), (0.04, "0.04 s")],
)  # fmt: skip
def test_forecast__tells_times_in_units_that_fit(seconds, said):
    plan = SearchPlan(ProblemSize(10, 2, Statistic(5, None)), 64, 64, 64, 1)
    forecast = Forecast(
        10, 10, 2, "brute", True, {"join": 1}, 0, 0, 0, MemoryEstimate(plan), 2, GIB,
        {"search": seconds},
    )  # fmt: skip

    steps = f": search {seconds:.1f} s" if seconds > 0.05 else ""
    assert str(forecast).endswith(f"time    about {said} on 2 threads{steps}")
    assert "K = 5, brute: no pairs" in str(forecast)


def test_forecast__names_the_radius_where_rows_within_it_are_counted():
    forecast = lpe_dask.plan(gaussian(100), graph="radius", radius=0.25)

    assert "\nsearch  radius 0.25, " in str(forecast)
    assert "K = " not in str(forecast)
    assert forecast.n_neighbors is None

"""What users see of `LPE` and `score`."""

import itertools
import pickle
from dataclasses import replace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.sizeof import sizeof
from sklearn.base import clone

import definitions
import lpe_dask
from choosing import mostly_dealt, mostly_full
from estimator_checks import checks_of
from lpe_dask import LPE
from lpe_dask.kernels import accumulators
from lpe_dask.model.detector import fitted_of
from lpe_dask.tasks.transfer import LocalValue, LocalValueTask
from problems import lattice

pytestmark = pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")

ROWS = np.random.default_rng(7).integers(0, 9, (20, 2)) / 4


@checks_of(LPE())
def test_lpe__is_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "method", ["score_samples", "statistic", "predict", "decision_function"]
)
def test_results__are_of_the_kind_that_came(method):
    nominal, queries = lattice(200, 0), lattice(60, 1, -3, 13)
    queries[7, 1] = np.nan
    names = ["a", "b", "c"]
    frame = pd.DataFrame(queries, columns=names, index=np.arange(60) * 5)
    model = LPE().fit(pd.DataFrame(nominal, columns=names))

    plain = getattr(model, method)(queries)
    pandas = getattr(model, method)(frame)
    array = getattr(model, method)(da.from_array(queries, chunks=(13, 2)))
    ddf = dd.from_pandas(frame, npartitions=4)
    dask_series = getattr(model, method)(ddf)

    assert isinstance(plain, np.ndarray)
    series = {"score_samples": "p_value", "predict": "prediction"}.get(method, method)
    pd.testing.assert_series_equal(pandas, pd.Series(plain, frame.index, name=series))
    assert isinstance(array, da.Array)
    assert array.dtype == plain.dtype
    assert array.chunks == ((13, 13, 13, 13, 8),)
    np.testing.assert_array_equal(array.compute(), plain)
    assert dask_series.divisions == ddf.divisions
    pd.testing.assert_series_equal(dask_series.compute(), pandas)
    own = lpe_dask.score(ddf.dropna())
    assert own.divisions == ddf.divisions
    assert own.compute().index.equals(frame.index.delete(7))


@pytest.mark.parametrize(
    "index", mostly_full(["counting", "repeated", "text"], ["repeated"])
)
def test_results__belong_to_the_frame_row_by_row(tmp_path, index):
    """Dask reads few columns of several row groups as one: rows must still find theirs."""
    frame = pd.DataFrame(lattice(400, 0), columns=list("abc"))
    frame = frame.assign(**{f"note{i}": "some text" for i in range(20)})
    if index != "counting":
        numbers = np.arange(400) % 7 if index == "repeated" else np.arange(400)
        frame.index = pd.Index(numbers.astype(str if index == "text" else int), name="id")
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=30)
    ddf = dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=1)
    measured = ddf[["a", "b", "c"]]

    model = LPE(4).fit(measured)
    scored = ddf.assign(
        new=model.score_samples(measured), own=lpe_dask.score(measured, n_neighbors=4)
    )
    scored = scored[["b", "new", "own"]].compute()

    expected = LPE(4).fit(frame[["a", "b", "c"]])
    np.testing.assert_array_equal(scored["b"], frame["b"])
    np.testing.assert_array_equal(scored["new"], expected.score_samples(frame))
    np.testing.assert_array_equal(scored["own"], expected.p_values_)


def test_scoring__is_lazy_on_dask_input(at_most_computes):
    nominal = lattice(100, 0)
    queries = da.from_array(lattice(50, 1), chunks=(20, -1))
    frame = dd.from_pandas(pd.DataFrame(lattice(50, 1)), npartitions=2)
    model = LPE(3).fit(da.from_array(nominal, chunks=(30, -1)))

    with at_most_computes(0):
        for X in (queries, frame):
            for method in ("score_samples", "statistic", "predict", "decision_function"):
                getattr(model, method)(X)
        model.p_values_  # noqa: B018 (reading it must not compute)
        model.statistic_  # noqa: B018


def test_fit__computes_a_few_times_whatever_the_chunks(at_most_computes):
    nominal = da.from_array(lattice(100, 0), chunks=(5, -1))

    with at_most_computes(3):
        LPE(3).fit(nominal)


def test_p_values__are_read_not_computed_again():
    reads = []

    def block(i):
        reads.append(i)
        return lattice(50, i)

    nominal = da.concatenate(
        [da.from_delayed(dask.delayed(block)(i), (50, 3), np.float64) for i in range(4)]
    )
    model = LPE(3).fit(nominal)
    reads.clear()

    model.p_values_.compute()

    assert reads == []


def test_scoring__puts_nothing_large_into_tasks():
    """The reference and the radii are tasks of their own; other tasks stay small."""
    model = LPE(3).fit(lattice(1000, 0)[:, :2])
    fitted = fitted_of(model)
    many = LocalValue(np.arange(150_000.0), "lpe-calibration")  # as of many more rows
    model._adopt(replace(fitted, calibration=replace(fitted.calibration, shared=many)))

    graph = dict(model.score_samples(da.zeros((1000, 2), chunks=(100, 2))).__dask_graph__())

    assert max(sizeof(task) for task in graph.values()) < 2**20
    key = next(key for key in graph if str(key).startswith("lpe-calibration"))
    assert isinstance(graph[key][0], LocalValueTask)


def test_score_samples__uses_the_calibration_that_was_set(tmp_path):
    """As `predict` uses ``offset_``; and a saved model has it."""
    model = LPE(1).fit(np.arange(20.0)[:, None])
    queries = np.array([[3.0], [50.0], [21.5]])
    model.calibration_ = np.array([0.5, 10.0, 100.0, 200.0])

    p_values = model.score_samples(queries)

    assert p_values.tolist() == [1.0, 0.5, 0.75]
    assert model.p_values_.tolist() == [0.75] * 20
    model.save(tmp_path / "model")
    assert lpe_dask.load(tmp_path / "model").score_samples(queries).tolist() == [
        1,
        0.5,
        0.75,
    ]


#: What a label may be decided by, for rows on a coarse grid.


@pytest.mark.parametrize(
    ("n_neighbors", "algorithm"),
    mostly_full(
        itertools.product([2, 3, 7], ["brute", "pruned"]), [(2, "pruned"), (3, "brute")]
    ),
)
def test_predict__by_means_of_equal_distances(algorithm, n_neighbors):
    """Rows with K others at one distance, which is at, or next to, the bound itself.

    By rounding, the mean of equal distances may be more than each of them.
    """
    steps = np.arange(1, 25)
    queries = np.c_[steps * 1e3, np.zeros(24)]
    nominal = np.repeat(queries + np.c_[np.zeros(24), steps * 0.1], n_neighbors, axis=0)
    model = LPE(n_neighbors, aggregation="mean", algorithm=algorithm, calibration="loo")
    with dask.config.set(scheduler="sync"):
        _check_labels_at_bounds(model.fit(nominal), queries, nominal)


def _check_labels_at_bounds(model, queries, nominal):
    n_neighbors = model.n_neighbors
    means = definitions.mean_radii(queries, nominal, n_neighbors)
    distances = definitions.knn_radii(queries, nominal, n_neighbors)
    assert (means > distances).any() == (n_neighbors > 2)
    np.testing.assert_array_equal(model.statistic(queries), means)

    for bound in {*means, *distances}:
        for calibrated in (np.nextafter(bound, 0), bound, np.nextafter(bound, np.inf)):
            model.calibration_ = np.sort(np.r_[np.full(9, calibrated), 1e9])
            model.offset_ = 0.2

            labels = model.predict(queries)

            np.testing.assert_array_equal(labels, np.where(means > calibrated, -1, 1))
            p_values = model.score_samples(queries)
            np.testing.assert_array_equal(labels, np.where(p_values < 0.2, -1, 1))


@pytest.mark.parametrize(
    "calibration", [[0.0, 0.0, 0.0], [np.inf, np.inf, np.inf], [0.0, 1.0, 1.7e308]]
)
def test_predict__by_means_where_the_bound_says_little(calibration):
    """At 0, at inf, and where K distances within it may add up to more than a float64."""
    model = LPE(3, aggregation="mean").fit(lattice(100, 0))
    model.calibration_, model.offset_ = np.array(calibration), 0.5
    queries = np.r_[lattice(20, 1, -3, 13), np.full((1, 3), np.nan), [[1e308, 0, 0]]]

    labels = model.predict(queries)

    expected = np.where(model.score_samples(queries) < 0.5, -1, 1)
    np.testing.assert_array_equal(labels, expected)
    assert labels[20] == 1


@pytest.mark.parametrize("aggregation", mostly_full(["kth", "mean"], ["mean"]))
def test_predict__compares_few_pairs(aggregation, monkeypatch):
    """Most rows are seen to be nominal long before their nearest are known."""
    pairs = {}

    def counting(kind):
        fold = kind.fold

        def folded(self, block):
            before = self.n_compared
            fold(self, block)
            pairs[kind] = pairs.get(kind, 0) + self.n_compared - before

        return folded

    for kind in (accumulators.CountAccumulator, accumulators.KNearestAccumulator):
        monkeypatch.setattr(kind, "fold", counting(kind))
    rng = np.random.default_rng(0)
    nominal, queries = rng.standard_normal((20_000, 3)), rng.standard_normal((4000, 3))
    arguments = {"aggregation": aggregation, "algorithm": "brute", "alpha": 0.01}
    with dask.config.set({"lpe-dask.block-rows": 1024, "scheduler": "sync"}):
        model = LPE(20, **arguments, calibration_size=2000, random_state=0).fit(nominal)
        pairs.clear()
        labels = model.predict(queries)

    n_all = len(queries) * len(nominal)
    assert pairs[accumulators.CountAccumulator] < 0.3 * n_all
    # Those that are too far, and those of which some neighbors are and the mean is not.
    most = {"kth": 0, "mean": 0.05 * n_all}[aggregation]
    assert pairs.get(accumulators.KNearestAccumulator, 0) <= most
    p_values = model.score_samples(queries)
    np.testing.assert_array_equal(labels, np.where(p_values <= 0.01, -1, 1))
    assert (labels == -1).any()


SEARCHES = ["lattice", "integers", "continuous"], [1, 30, 60, 2999], ["mean", "kth"]


@pytest.mark.parametrize(
    ("kind", "n_neighbors", "aggregation"),
    mostly_dealt(*SEARCHES),
)
def test_p_values__same_bits_for_any_algorithm(kind, n_neighbors, aggregation):
    rng = np.random.default_rng(3)
    rows = {
        "lattice": lattice(3200, 0),
        "continuous": rng.standard_normal((3200, 4)) * [1.0, 1e4, 1e-4, 1.0] + 1e6,
        "integers": rng.integers(0, 3000, (3200, 3), dtype=np.int16),
    }[kind]
    nominal, queries = rows[:3000], rows[3000:]
    models = {
        algorithm: LPE(n_neighbors, aggregation=aggregation, algorithm=algorithm)
        for algorithm in ("brute", "pruned", "auto")
    }

    expected = models["brute"]
    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}[aggregation]
    for model in models.values():
        model.fit(nominal)
    found = expected.statistic(queries[:3])
    np.testing.assert_array_equal(found, radii(queries[:3], nominal, n_neighbors))
    for model in models.values():
        np.testing.assert_array_equal(model.calibration_, expected.calibration_)
        np.testing.assert_array_equal(model.statistic_, expected.statistic_)
        np.testing.assert_array_equal(
            model.score_samples(queries), expected.score_samples(queries)
        )
        np.testing.assert_array_equal(model.predict(queries), expected.predict(queries))


def test_fit__logs_which_algorithm_it_took_and_why(caplog):
    rng = np.random.default_rng(0)

    with caplog.at_level("INFO", logger="lpe_dask"):
        LPE(5).fit(rng.standard_normal((20_000, 13)))
        LPE(5).fit(rng.standard_normal((12_000, 40)))
        LPE(5).fit(rng.standard_normal((30, 2)))

    taken = [record.message for record in caplog.records if "algorithm=" in record.message]
    assert "by a trial, a query takes" in taken[0]
    assert "among 20000 rows of 13 features" in taken[0]
    assert taken[1].startswith("algorithm=brute: by a trial, a query takes")
    assert taken[2] == "algorithm=brute: 30 reference rows x 2 features are few"


def test_scored_rows__beyond_float64_are_anomalies_and_not_missing():
    model = LPE(2, scale="standard", calibration="loo").fit(lattice(100, 0) * 1e-5)

    assert model.score_samples([[1.7e308, 0.0, -1.7e308]]) == 0.0
    assert model.statistic([[1.7e308, 0.0, -1.7e308]]) == np.inf


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"aggregation": "mean"},
        {"calibration": "conformal"},
        {"graph": "radius", "radius": 0.4, "n_neighbors": None},
        {"anomaly_log_density": lambda rows: -(rows**2).sum(axis=1)},
    ],
)
def test_predict__says_how_many_rows_were_not_measured(arguments):
    frame = pd.DataFrame(lattice(60, 0), columns=["a", "b", "c"])
    model = LPE(**{"n_neighbors": 4} | arguments).fit(frame)
    rows = frame + 0.05
    rows.loc[[3, 5], "a"], rows.loc[7, "b"] = np.nan, np.inf

    with pytest.warns(UserWarning, match="^3 rows have NaN or inf, and no") as caught:
        labels = model.predict(rows)

    assert caught[0].filename == __file__
    assert len(caught) == 1
    assert (labels[[3, 5, 7]] == 1).all()
    with pytest.warns(UserWarning, match="^1 row has NaN or inf, and no p-value"):
        model.predict(rows.iloc[3:4])
    model.predict(dd.from_pandas(rows, npartitions=2)).compute()  # not known before


@pytest.mark.parametrize("calibration", ["loo", "conformal"])
def test_alpha__of_the_fit_decides_everywhere(calibration, tmp_path):
    rng = np.random.default_rng(4)
    nominal, new = (
        pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"]) for _ in "12"
    )
    new.to_parquet(tmp_path / "new.parquet")
    model = LPE(5, alpha=0.03, calibration=calibration, random_state=0).fit(nominal)
    expected = int((model.score_samples(new) <= 0.03).sum())
    model.alpha = 0.4

    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")
    summary = lpe_dask.score_files(
        tmp_path / "new.parquet", tmp_path / "out", model=tmp_path / "model"
    )

    flagged = [int((of.predict(new) == -1).sum()) for of in (model, loaded)]
    assert [*flagged, summary["flagged"]] == [expected] * 3
    assert summary["alpha"] == 0.03
    for of in (model, loaded):
        assert of.offset_ == np.nextafter(0.03, 1)


@pytest.mark.parametrize("function", [lpe_dask.score, lpe_dask.plan])
def test_contamination__is_told_what_stands_for_it(function):
    with pytest.raises(TypeError, match=r"contamination=0.1, but .* Give alpha=\.\.\."):
        function(lattice(60, 0), contamination=0.1)


def test_memory__that_is_not_there_is_refused(at_most_computes):
    model = LPE(5).fit(lattice(200, 0))
    queries = da.zeros((10**7, 3), chunks=(10**7, 3))

    with (
        dask.config.set({"lpe-dask.memory-limit": "310MiB"}),
        pytest.raises(MemoryError, match="2000 nominal rows x 3 columns need"),
    ):
        LPE(5).fit(lattice(2000, 0))
    with (
        dask.config.set({"lpe-dask.memory-limit": "700MiB"}),
        at_most_computes(0),
        pytest.raises(MemoryError, match="cut the input into smaller partitions"),
    ):
        model.score_samples(queries)


def test_fit__again_forgets_the_first_time():
    model = LPE(3).fit(pd.DataFrame(lattice(50, 0), columns=list("abc")))

    model.fit(lattice(80, 1)[:, :2])

    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(
        model.calibration_, LPE(3).fit(lattice(80, 1)[:, :2]).calibration_
    )


def test_model__pickles_and_clones():
    nominal, queries = lattice(100, 0), lattice(20, 1)
    model = LPE(4, scale="minmax").fit(dd.from_pandas(pd.DataFrame(nominal), npartitions=2))

    copy = pickle.loads(pickle.dumps(model))

    np.testing.assert_array_equal(copy.score_samples(queries), model.score_samples(queries))
    np.testing.assert_array_equal(copy.p_values_.compute(), model.p_values_.compute())
    assert clone(model).get_params() == model.get_params()


def test_score__is_the_estimator_in_one_call():
    nominal, queries = lattice(100, 0), lattice(30, 1, -3, 13)

    np.testing.assert_array_equal(
        lpe_dask.score(queries, nominal, n_neighbors=4),
        LPE(4).fit(nominal).score_samples(queries),
    )
    np.testing.assert_array_equal(
        lpe_dask.score(nominal, n_neighbors=4), LPE(4).fit(nominal).p_values_
    )


def test_score__selects_columns():
    frame = pd.DataFrame(lattice(50, 0), columns=list("abc")).assign(label="text")

    actual = lpe_dask.score(frame, columns=["c", "a"], n_neighbors=3)

    expected = LPE(3).fit(frame[["c", "a"]].to_numpy()).p_values_
    np.testing.assert_array_equal(actual, expected)


def test_score__measures_all_columns_but_some(files_of):
    frame = pd.DataFrame(ROWS, columns=["a", "b"]).assign(id="00", b2=0.5)[::-1]
    expected = lpe_dask.score(frame, columns=["a", "b"], n_neighbors=3)
    arguments = {"exclude": ["b2", "id"], "n_neighbors": 3}
    lazy = dd.from_pandas(frame, npartitions=2, sort=False)

    own = lpe_dask.score(frame, **arguments)
    of_dict = lpe_dask.score(dict(frame.items()), **arguments)
    against = lpe_dask.score(frame[["b", "a"]], frame, **arguments)

    pd.testing.assert_series_equal(own, expected)
    np.testing.assert_array_equal(of_dict, expected)
    np.testing.assert_array_equal(lpe_dask.score(lazy, **arguments), expected)
    pd.testing.assert_series_equal(
        against, lpe_dask.score(frame, frame, columns=["a", "b"], n_neighbors=3)
    )
    for path in files_of(frame):
        found = lpe_dask.score(path, **arguments).compute()
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def files_of(tmp_path):
    """Write a frame as Parquet and as CSV, and return the paths."""

    def write(frame):
        frame.to_parquet(tmp_path / "t.parquet")
        frame.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path / "t.parquet", tmp_path / "t.csv"

    return write


@pytest.mark.parametrize(
    ("rows", "arguments", "error", "message"),
    [
        ("frame", {"exclude": ["c"]}, ValueError, r"no columns \['c'\] to exclude"),
        ("frame", {"exclude": "a"}, TypeError, r"Give \['a'\]"),
        ("frame", {"exclude": ["a"], "columns": ["b"]}, ValueError, "two ways to say"),
        ("frame", {"exclude": ["a", "b"]}, ValueError, "0 feature"),
        ("array", {"exclude": ["a"]}, TypeError, r"exclude=\['a'\].*X\[:, \[0, 1\]\]"),
        ("paths", {"exclude": ["c"]}, ValueError, r"no columns \['c'\] to exclude"),
    ],
)
def test_score__excludes_only_what_is_there(rows, arguments, error, message, files_of):
    frame = pd.DataFrame(ROWS, columns=["a", "b"])
    for X in {"frame": [frame], "array": [ROWS], "paths": files_of(frame)}[rows]:
        with pytest.raises(error, match=message):
            lpe_dask.score(X, **arguments)
        with pytest.raises(error, match=message):
            lpe_dask.plan(X, **arguments)


KINDS = {
    "array": lambda: ROWS.copy(),
    "frame": lambda: pd.DataFrame(ROWS, columns=["a", "b"]),
    "dask array": lambda: da.from_array(ROWS, chunks=7),
    "dask frame": lambda: dd.from_pandas(pd.DataFrame(ROWS), npartitions=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_score_samples__says_that_rows_were_fitted(kind, caplog):
    rows = KINDS[kind]()
    model = LPE(3).fit(rows)

    for call in (model.score_samples, model.predict, model.statistic, model.explain):
        caplog.clear()
        call(KINDS[kind]())
        assert "some of these rows were fitted" in caplog.text
        caplog.clear()
        call(rows[:5] + 0.1 if "frame" not in kind else rows.loc[:5] + 0.1)
        assert caplog.text == ""
    model.explain(rows=[0])
    _ = model.p_values_
    assert caplog.text == ""


def test_score__unknown_argument():
    with pytest.raises(
        TypeError, match=r"score\(\) got unexpected arguments \['n_neighbours'\]"
    ):
        lpe_dask.score(np.zeros((5, 2)), n_neighbours=3)


@pytest.mark.parametrize("kind", KINDS)
def test_score__of_nothing_is_nothing(kind):
    rows = KINDS[kind]()
    data = rows[:0] if "array" in kind else rows.loc[:-1]

    (actual,) = dask.compute(lpe_dask.score(data, rows, n_neighbors=3))

    assert len(actual) == 0
    assert actual.dtype == np.float64
    with pytest.raises(ValueError, match="0 sample"):
        lpe_dask.score(data, n_neighbors=3)

"""The other estimators: split, conformal, a sample for calibration, a known density."""

import weakref

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from lpe_dask import LPE
from lpe_dask.model import calibration_warnings
from lpe_dask.model.calibration_split import split_calibration
from lpe_dask.model.detector import fitted_of
from lpe_dask.search import join as neighbors
from lpe_dask.tables.sources import open_source
from problems import log_bell


def test_divide__parts_are_disjoint_and_whole():
    split = split_calibration("split", 101, None, 3)
    sampled = split_calibration("split", 101, 20, 3)
    conformal = split_calibration("conformal", 101, 30, 3)

    whole = np.sort(np.concatenate([split.calibration_pool, split.reference]))
    np.testing.assert_array_equal(whole, np.arange(101))
    assert len(split.calibration_pool) == 51  # n = 2 m + 1: x_0 to x_m
    np.testing.assert_array_equal(split.calibration, split.calibration_pool)
    assert len(sampled.calibration) == 20
    assert set(sampled.calibration) < set(sampled.calibration_pool)
    assert set(conformal.calibration).isdisjoint(conformal.reference)
    assert len(conformal.reference) == 71


@pytest.mark.parametrize(
    ("calibration", "n_rows", "size", "message"),
    [
        ("conformal", 1, None, "divides .* n_samples = 1. Give at least 2"),
        ("split", 9, 6, "calibration_size=6 is more than the 5 rows that .* from among 9"),
        ("loo", 9, 10, "calibration_size=10 is more than the 9 rows that .* from among 9"),
    ],
)
def test_divide__refuses_too_few_rows(calibration, n_rows, size, message):
    with pytest.raises(ValueError, match=message):
        split_calibration(calibration, n_rows, size, 0)


def test_divide__follows_the_seed_alone():
    nominal = np.random.default_rng(0).standard_normal((300, 2))
    arguments = {"calibration": "conformal", "n_neighbors": 5}

    models = [LPE(random_state=7, **arguments).fit(nominal) for _ in range(2)]
    other = LPE(random_state=8, **arguments).fit(nominal)

    np.testing.assert_array_equal(models[0].calibration_, models[1].calibration_)
    assert (models[0].calibration_ != other.calibration_).any()


def test_p_values__of_frames_with_missing_rows():
    """Order and index stay; a dropped row has no p-value, whichever part it would be in."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 2))
    rows[[3, 77, 150]] = np.nan
    frame = pd.DataFrame(rows, columns=["a", "b"], index=np.arange(200) * 3)
    model = LPE(4, calibration="conformal", missing="drop", random_state=0)
    pandas = model.fit(frame).p_values_
    lazy = model.fit(dd.from_pandas(frame, npartitions=5)).p_values_

    pd.testing.assert_series_equal(lazy.compute(), pandas)
    assert pandas[pandas.isna()].index.tolist() == [9, 231, 450]


def test_p_values__of_others_are_lazy(at_most_computes):
    nominal = da.from_array(np.random.default_rng(0).random((100, 2)), chunks=(30, 2))
    model = LPE(3, calibration="split", random_state=0).fit(nominal)

    with at_most_computes(0):
        model.p_values_  # noqa: B018
        model.statistic_  # noqa: B018


def test_calibration_size__measures_only_so_many(monkeypatch):
    """The pairs that are compared shrink with m, which is what it is for."""
    from lpe_dask.kernels import accumulators

    compared = []
    fold = accumulators.KNearestAccumulator.fold

    def counting(self, block):
        before = self.n_compared
        fold(self, block)
        compared.append(self.n_compared - before)

    monkeypatch.setattr(accumulators.KNearestAccumulator, "fold", counting)
    nominal = np.random.default_rng(0).standard_normal((2000, 3))
    LPE(5, algorithm="brute", calibration_size=100, random_state=0).fit(nominal)

    assert sum(compared) == 100 * 2000


# A known density of the anomalies


def test_anomaly_log_density__gets_rows_as_they_came():
    """In the user's units, float64, and no row with NaN."""
    seen = []

    def watching(rows):
        seen.append(rows)
        return np.zeros(len(rows))

    nominal = np.arange(12, dtype=np.int16).reshape(6, 2) * 100
    with dask.config.set(scheduler="sync"):
        model = LPE(2, scale="minmax", anomaly_log_density=watching).fit(nominal)
        seen.clear()
        model.score_samples(np.array([[5.0, 7.0], [np.nan, 1.0]]))

    assert [rows.tolist() for rows in seen] == [[[5.0, 7.0]]]
    assert seen[0].dtype == np.float64


@pytest.mark.parametrize("kind", ["new rows", "own rows", "scores"])
def test_anomaly_log_density__is_in_a_graph_once(kind):
    """It may hold much, and every task that carried it would send it again."""
    known = np.zeros(10_000)

    def log_density(rows):
        return np.full(len(rows), known[0])

    nominal = da.from_array(np.random.default_rng(0).random((90, 2)), chunks=(9, 2))
    model = LPE(
        2, anomaly_log_density=log_density, calibration="conformal", random_state=0
    ).fit(nominal)

    lazy = {
        "new rows": lambda: fitted_of(model).blocks(nominal)[1],
        "own rows": lambda: model.p_values_,
        "scores": lambda: model.score_samples(nominal),
    }[kind]()

    tasks = dict(lazy.__dask_graph__()).values()
    sizes = [len(cloudpickle.dumps(task)) for task in tasks]
    assert sum(size > known.nbytes for size in sizes) == 1


def test_model__is_pickled_without_the_code_of_this_package():
    """What cloudpickle cannot find by its name it carries along, whatever it needs."""
    nominal = da.from_array(np.random.default_rng(0).random((90, 2)), chunks=(9, 2))
    model = LPE(2, calibration="split", random_state=0).fit(nominal)

    content = cloudpickle.dumps(model)

    assert b"_make_function" not in content


def test_table__does_not_keep_its_input(monkeypatch):
    """A copy in the order of the fit would stay in memory for as long as a search runs."""
    nominal = pd.DataFrame(np.random.default_rng(0).random((90, 2)), columns=["a", "b"])
    fitted = fitted_of(LPE(2).fit(nominal))
    inputs = []

    def spied(*arguments, **options):
        source = open_source(*arguments, **options)
        inputs.append(weakref.ref(source.X))
        return source

    monkeypatch.setattr("lpe_dask.tables.table.open_source", spied)
    table = fitted.table(nominal[["b", "a"]])

    assert [reference() for reference in inputs] == [None]
    np.testing.assert_array_equal(table.rows.compute(), nominal)


# What fit has settled stays


def test_parameters__changed_after_fit_change_nothing():
    rng = np.random.default_rng(0)
    nominal, queries = rng.standard_normal((40, 2)), rng.standard_normal((10, 2)) * 2
    model = LPE(3).fit(nominal)
    p_values, labels = model.score_samples(queries), model.predict(queries)
    own = model.p_values_

    for changed in (
        {"calibration": "conformal"}, {"anomaly_log_density": log_bell},
        {"graph": "radius"}, {"alpha": 0.9}, {"aggregation": "mean"},
    ):  # fmt: skip
        model.set_params(**changed)
        np.testing.assert_array_equal(model.score_samples(queries), p_values)
        np.testing.assert_array_equal(model.predict(queries), labels)
        np.testing.assert_array_equal(model.p_values_, own)


def test_fit__that_fails_leaves_no_mixture():
    """What is refused at once leaves the former model; later there is none any more."""
    rng = np.random.default_rng(0)
    nominal, queries = rng.standard_normal((60, 2)), rng.standard_normal((30, 2)) * 2
    model = LPE(1, metric="mahalanobis").fit(nominal)
    labels = model.predict(queries)

    with pytest.raises(ValueError, match="n_neighbors=70"):
        model.set_params(n_neighbors=70).fit(nominal)
    np.testing.assert_array_equal(model.predict(queries), labels)
    assert model.n_neighbors_ == 1

    with pytest.raises(ValueError, match="singular"):
        model.set_params(n_neighbors=20).fit(np.ones((60, 3)))
    with pytest.raises(NotFittedError):
        model.predict(queries)
    assert not hasattr(model, "n_neighbors_")


def test_fit__warns_of_too_few_calibration_rows(caplog, monkeypatch):
    monkeypatch.setattr(calibration_warnings, "_warned", set())
    nominal = np.random.default_rng(0).standard_normal((99, 2))

    for _ in range(3):  # once is enough
        LPE(calibration="conformal", alpha=0.01, random_state=0).fit(nominal)

    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "no row can be flagged at alpha=0.01" in warning
    assert "is 0.0196, with 50 calibration rows" in warning


def test_p_values__of_others_are_searched_for_once(monkeypatch):
    """Statistic and p-value of a run come from one search, with a density as well."""
    n_rows = []
    join = neighbors._join

    def counting(rows, *arguments):
        n_rows.append(np.isfinite(rows).all(axis=1).sum())
        return join(rows, *arguments)

    monkeypatch.setattr(neighbors, "_join", counting)
    nominal = np.random.default_rng(0).standard_normal((400, 2))
    for log_density in (None, log_bell):
        model = LPE(
            3, calibration="conformal", random_state=0, anomaly_log_density=log_density
        )
        model.fit(nominal)
        n_rows.clear()
        dask.compute(*fitted_of(model).blocks(), scheduler="sync")

        assert sum(n_rows) == 200

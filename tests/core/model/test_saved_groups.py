"""Models with groups on disk: the same bits, values of the same types, fits that resume."""

import datetime
import json

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import lpe_dask
from choosing import mostly_full
from interrupting import Stop, count_calls, stop_after
from lpe_dask import LPE
from lpe_dask.batch.api import fit_job
from lpe_dask.batch.runs import Run
from lpe_dask.model.detector import fitted_of
from lpe_dask.model.fitting import fit_model
from lpe_dask.model.persistence import checkpoint, manifest
from lpe_dask.model.persistence.group_arrays import _are_usable
from lpe_dask.model.persistence.group_columns import (
    StoredColumn,
    are_ascending,
    values_of,
    words_of,
)
from lpe_dask.model.persistence.manifest import MANIFEST_NAME
from lpe_dask.model.row_ids import input_positions
from lpe_dask.storage.numeric_parquet import StoredFile
from lpe_dask.tables import DATES
from problems import log_bell

pytestmark = pytest.mark.filterwarnings("ignore:.*, and no p-value:UserWarning")

ALL, N_ROWS = ("scale", "neighbors", "calibration"), 220


def table(n_rows, seed):
    """Rows on a grid, in groups of unequal sizes, with a column of categories."""
    rng = np.random.default_rng(seed)
    site = rng.choice(["a", "b", "c", "d"], n_rows, p=[0.5, 0.3, 0.15, 0.05])
    columns = {
        "x": rng.integers(0, 20, n_rows) * 0.5, "site": site,
        "kind": rng.choice(["p", "q"], n_rows), "y": rng.integers(0, 9, n_rows) * 0.25,
        "hour": rng.integers(0, 2, n_rows),
    }  # fmt: skip
    return pd.DataFrame(columns)


NOMINAL = table(N_ROWS, 0)
NOMINAL.loc[[3, 90], "site"] = "small"
QUERIES = table(40, 1).set_index(np.arange(40) * 3)
QUERIES.iloc[:4, 1] = ["small", "unknown", None, "a"]
QUERIES.iloc[3, 0] = np.nan

#: Arguments of models, which have all that is learned, searched and compared by groups.
MODELS = {
    "standard": {},
    "quantiles of two": {"by": ["hour", "site"], "scale": "minmax+quantile"},
    "covariance": {"metric": "mahalanobis", "calibration": "split"},
    "gaps": {"missing": "measure", "calibration": "conformal"},
    "own radius": {
        "graph": "radius", "scale": "minmax", "own": ("scale", "neighbors"),
        "by": ["site", "hour"],
    },
    "together": {"own": ("calibration",), "aggregation": "mean"},
    "neighbors": {"own": ["neighbors"], "n_neighbors": 3, "scale": "minmax"},
    "drawn": {"calibration": "loo", "calibration_size": 9},
    "scaled": {"own": ("scale",), "scale": "minmax+quantile"},
    "scaled with gaps": {"own": ("scale", "calibration"), "missing": "measure"},
    "scaled by covariance": {"own": ("scale", "calibration"), "metric": "mahalanobis"},
    "radius 0": {"graph": "radius", "radius": 0.0, "scale": None},
    "pooled": {"small_groups": "pool"},
    "pooled and weighed": {
        "anomaly_log_density": log_bell, "small_groups": "pool", "calibration": "conformal",
    },
    "weighed": {"anomaly_log_density": log_bell, "own": ("neighbors", "calibration")},
}  # fmt: skip
#: Those that `make test` saves.
FEW = ["standard", "quantiles of two", "gaps", "together", "weighed", "pooled"]


@pytest.fixture(autouse=True)
def settings():
    with dask.config.set({"lpe-dask.block-rows": 64, "scheduler": "sync"}):
        yield


def fitted(rows=NOMINAL, **given):
    arguments = {
        "by": ["site"], "alpha": 0.1, "scale": "standard", "calibration": "loo",
        "categorical": ["kind"], "random_state": 0,
    } | given  # fmt: skip
    if arguments["by"] != ["site"] or given.keys() & {"metric", "anomaly_log_density"}:
        rows, arguments["categorical"] = rows.drop(columns="kind"), None
    return LPE(**arguments).fit(rows)


def reloaded(model, folder):
    model.save(folder)
    return lpe_dask.load(folder, anomaly_log_density=model.anomaly_log_density)


def assert_same(loaded, model, queries=QUERIES):
    """All that users see is what it was, to the last bit."""
    for given in (queries, dd.from_pandas(queries, npartitions=2)):
        for method in ("score_samples", "statistic", "predict", "status"):
            actual, expected = dask.compute(
                getattr(loaded, method)(given), getattr(model, method)(given)
            )
            pd.testing.assert_series_equal(actual, expected, check_exact=True)
    pd.testing.assert_frame_equal(
        loaded.score_frame(queries), model.score_frame(queries), check_exact=True
    )
    pd.testing.assert_frame_equal(loaded.groups_, model.groups_, check_exact=True)
    np.testing.assert_array_equal(loaded.calibration_, model.calibration_)
    assert loaded.get_params() == model.get_params() | {"own": loaded.own}
    assert [*loaded.own] == [*model.own]
    assert {name for name in vars(loaded) if name[-1] == "_"} == {
        name for name in vars(model) if name[-1] == "_"
    }
    is_whole = model.calibration_kind_ == "loo" and model.calibration_size is None
    if is_whole and model.small_groups != "pool":
        for name in ("p_values_", "statistic_"):
            (expected,) = dask.compute(getattr(model, name))
            np.testing.assert_array_equal(getattr(loaded, name), expected)
    else:
        why = (
            "small groups were compared" if model.small_groups == "pool" else "were calibr"
        )
        with pytest.raises(AttributeError, match=why):
            _ = loaded.p_values_


@pytest.mark.parametrize("name", mostly_full(MODELS, FEW))
def test_load__gives_the_model_that_was_saved(name, tmp_path):
    """And once more, when what was loaded is saved."""
    rows = NOMINAL.copy()
    if "gaps" in name:
        rows.loc[::7, "y"] = np.nan
    model = fitted(rows, **MODELS[name])

    loaded = reloaded(model, tmp_path / "model")

    assert_same(loaded, model)
    assert_same(reloaded(loaded, tmp_path / "again"), model)
    assert loaded.score_samples(QUERIES).notna().any()
    is_small = loaded.groups_["why_small"] != ""
    assert is_small.any() == (name not in ("own radius", "scaled"))  # which all rows have


def test_load__of_an_array_finds_columns_by_their_places(tmp_path):
    rows = np.random.default_rng(0).integers(0, 4, (90, 3)) * 1.0
    model = LPE(by=[1], alpha=0.1).fit(rows)

    loaded = reloaded(model, tmp_path / "model")

    pd.testing.assert_frame_equal(loaded.groups_, model.groups_)
    np.testing.assert_array_equal(loaded.score_samples(rows), model.score_samples(rows))
    assert loaded.by == [1]


def test_load__of_a_model_whose_parameters_were_changed(tmp_path):
    """It goes on as it was fitted."""
    model = fitted()
    expected = model.score_samples(QUERIES)
    model.set_params(by=["hour"], own=("calibration",), small_groups="error")

    loaded = reloaded(model, tmp_path / "model")

    pd.testing.assert_series_equal(loaded.score_samples(QUERIES), expected)
    pd.testing.assert_frame_equal(loaded.groups_, model.groups_)
    assert loaded.get_params() == model.get_params()


def test_load__with_a_group_all_of_whose_rows_were_dropped(tmp_path):
    rows = NOMINAL.copy()
    rows.loc[rows["site"] == "small", "x"] = np.nan
    model = fitted(rows, missing="drop")
    assert model.groups_.set_index("site").loc["small", "nominal_rows"] == 0

    assert_same(reloaded(model, tmp_path / "model"), model)


VALUES = {
    "text": ["b", "", "\n\"'", "ü", "\ud800", "x" * 3000],
    "whole numbers": [3, -1, 2**62],
    "large whole numbers": [2**70, 5, -(2**64)],
    "booleans": [True, False],
    "days": [datetime.date(2026, 11, 29), datetime.date(1969, 1, 1)],
    "instants": [pd.Timestamp("2026-11-29 12:00:00.000001"), pd.Timestamp("1700-01-01")],
    "in a zone": [pd.Timestamp("2026-11-29", tz=zone) for zone in ["Europe/Berlin"]],
    "from UTC": [pd.Timestamp(f"2026-11-2{day}", tz="UTC+02:00") for day in (8, 9)],
}


@pytest.mark.parametrize("name", VALUES)
def test_load__gives_values_of_the_same_types(name, tmp_path):
    values, numbers = VALUES[name], np.arange(120) % 7 * 0.5
    of_rows = [values[i % len(values)] for i in range(120)]
    type_ = object if name.startswith(("large", "days", "text")) else None
    rows = pd.DataFrame({"x": numbers, "key": pd.Series(of_rows, dtype=type_)})
    model = LPE(by=["key"], alpha=0.2, scale=None).fit(rows)

    loaded = reloaded(model, tmp_path / "model")

    found, expected = loaded.groups_["key"], model.groups_["key"]
    pd.testing.assert_series_equal(found, expected)
    assert [*map(type, found)] == [*map(type, expected)]
    assert len(found) == len(values)
    pd.testing.assert_series_equal(loaded.score_samples(rows), model.score_samples(rows))


def test_stored_column__of_dates_in_a_zone_without_a_name_keeps_the_instants():
    class Zone(datetime.tzinfo):
        def utcoffset(self, when):
            return datetime.timedelta(hours=3)

        def dst(self, when):
            return None

    dates = pd.Series(pd.to_datetime(["2026-11-29"]).tz_localize("UTC").as_unit("us"))
    given = dates.dt.tz_convert(Zone())

    column, numbers = StoredColumn.of(DATES, given)

    assert (column.zone, column.is_known) == ("UTC", True)
    pd.testing.assert_series_equal(column.values(numbers, 1), dates)


def test_values_of__gives_what_words_of_was_given():
    for values in ([], ["a"], ["\ud800", "a\0b"], [2**100, -1]):
        type_ = int if values and isinstance(values[0], int) else str
        assert values_of(words_of(values), type_, len(values)) == values
    with pytest.raises(ValueError, match="lists 1 values instead of 2"):
        values_of(words_of(["a"]), str, 2)
    for text in (b"[" * 100_000, b"{}      ", b"[1, 2.5]", b"[true]  ", b"\xff" * 8):
        with pytest.raises(ValueError, match="contains"):
            values_of(np.frombuffer(text, np.int64), int, None)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["a", "a", "b"], [1, 2, 0]], True),
        ([["a", "a", "b"], [1, 1, 2]], False),
        ([["a", "b", "a"], [1, 2, 3]], False),
        ([[1, 1, 2], [2, 1, 3]], False),
        ([[5]], True),
    ],
)
def test_are_ascending__by_the_first_column_that_differs(columns, expected):
    assert are_ascending(pd.DataFrame(dict(enumerate(columns)))) is expected


def test_manifest__does_not_grow_with_the_groups(tmp_path):
    rng = np.random.default_rng(0)
    sizes = []
    for n_groups in (10, 3000):
        site = [f"site {i % n_groups:05}" for i in range(6000)]
        rows = pd.DataFrame({"x": rng.integers(0, 9, 6000) * 0.5, "site": site})
        with dask.config.set({"lpe-dask.block-rows": 10_000}):
            model = LPE(by=["site"], own=["neighbors", "calibration"], alpha=0.5).fit(rows)
        model.save(tmp_path / str(n_groups))
        sizes.append((tmp_path / str(n_groups) / "manifest.json").stat().st_size)
        assert len(lpe_dask.load(tmp_path / str(n_groups)).groups_) == n_groups

    assert sizes[1] < sizes[0] + 200


@pytest.mark.parametrize("own", [ALL, ("calibration",)])
def test_input_positions__of_a_loaded_model(own, tmp_path):
    """Where rows were dropped it is known which if all others were measured."""
    rows = NOMINAL.copy()
    rows.loc[[0, 17], "x"] = np.nan
    model = fitted(rows, own=own, missing="drop")
    numbers = np.arange(fitted_of(model).reference.shape.n_reference)
    expected = input_positions(fitted_of(model), numbers)

    loaded = reloaded(model, tmp_path / "model")
    found = input_positions(fitted_of(loaded), numbers)

    is_searched = np.ones(N_ROWS, bool)
    if own == ALL:
        is_searched = ~np.isnan(model.p_values_)
    is_searched[[0, 17]] = False
    assert expected.tolist() == np.flatnonzero(is_searched).tolist()
    assert found.tolist() == expected.tolist()


# Made by a stranger: beside what test_manifest.py has


@pytest.mark.parametrize(
    ("kind", "number", "why"),
    [("dates", -(2**63), "a missing date"), ("booleans", 2, "no truth values")],
)
def test_stored_column__of_numbers_that_are_no_values(kind, number, why):
    with pytest.raises(ValueError, match=why):
        StoredColumn(kind).values(np.array([number]), 1)


#: Values and ranks of two runs of knots, and of how many rows they are.
KNOTS = [0.0, 1.0, 5.0], [0, 8, 4], [4, 4]


@pytest.mark.parametrize(
    ("values", "ranks", "n_sampled", "expected"),
    [
        (*KNOTS, True),
        ([0.0, 0.0, 5.0], *KNOTS[1:], False),
        ([0.0, np.nan, 5.0], *KNOTS[1:], False),
        ([0.0, 1.0, np.inf], *KNOTS[1:], False),
        ([-1.7e308, 1.7e308, 5.0], *KNOTS[1:], False),
        ([0.0, 5e-324, 5.0], *KNOTS[1:], False),
        (KNOTS[0], [8, 8, 4], KNOTS[2], False),
        (KNOTS[0], [-1, 8, 4], KNOTS[2], False),
        (KNOTS[0], [0, 9, 4], KNOTS[2], False),
        (KNOTS[0], [0, 8, 9], KNOTS[2], False),
        (*KNOTS[:2], [4, 0], False),
        (*KNOTS[:2], [4, 2**31], False),
    ],
)
def test_are_usable__as_knots_of_one_column(values, ranks, n_sampled, expected):
    """A run of none, which a group has of which nothing was learned, is between them."""
    starts, of_runs = np.array([0, 2, 2, 3]), np.insert(n_sampled, 1, 0)

    assert _are_usable(np.array(values), np.array(ranks), starts, of_runs) is expected


@pytest.mark.parametrize("radius", [-1e-9, -1.0, np.inf, 1e9])
def test_load__of_a_strange_radius(radius, tmp_path):
    model = fitted(**MODELS["own radius"])
    model.save(tmp_path / "model")
    (path,) = (tmp_path / "model").glob("data-*/groups.parquet")
    table = pd.read_parquet(path)
    assert (table["radius"] > 0).all()
    columns = {name: table[name].to_numpy() for name in table}
    columns["radius"] = np.full(len(table), radius)
    content = json.loads((tmp_path / "model" / MANIFEST_NAME).read_text())
    file = StoredFile.write(str(path), columns)
    content["files"][path.name] = {"n_bytes": file.n_bytes, "sha256": file.sha256}
    del content["sha256"]
    signed = {"sha256": manifest._digest(content), **content}
    (tmp_path / "model" / MANIFEST_NAME).write_text(json.dumps(signed))

    with pytest.raises(ValueError, match=r"groups.parquet has a radius that is out of"):
        lpe_dask.load(tmp_path / "model")


# Fits that resume


@pytest.mark.parametrize("calibration", ["loo", "split", "conformal"])
def test_fit__resumes_with_groups(calibration, tmp_path, monkeypatch):
    """What was measured stays, and the bits are those of one fit."""
    arguments = LPE(
        by=["site"], alpha=0.1, scale="standard", calibration=calibration, random_state=0
    ).get_params()
    rows, folder = NOMINAL.drop(columns="kind"), tmp_path / "fit"
    rows = dd.from_pandas(rows, npartitions=4)
    anew = fit_model(arguments, rows)
    with (
        dask.config.set({"lpe-dask.block-rows": 32}),
        stop_after(checkpoint, "_record", 1),
        pytest.raises(Stop),
    ):
        fit_model(arguments, rows, f"{folder}")
    n_known = sum(pq.read_metadata(path).num_rows for path in folder.glob("rows-*"))
    recorded = count_calls(monkeypatch, checkpoint, "_record")

    resumed = fit_model(arguments, rows, f"{folder}")

    n_measured = sum(len(numbers) for (numbers, _), _ in recorded)
    assert min(n_known, n_measured) > 0
    assert n_known + n_measured == anew.division.n_calibration
    for actual, expected in zip(
        (resumed.calibration.stored_values, *dask.compute(*resumed.blocks(QUERIES_OF_IT))),
        (anew.calibration.stored_values, *dask.compute(*anew.blocks(QUERIES_OF_IT))),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


QUERIES_OF_IT = QUERIES.drop(columns="kind")


def test_checkpoint__of_other_groups_is_another(tmp_path):
    """Also of another alpha, which decides which groups are small."""
    NOMINAL.to_parquet(tmp_path / "rows.parquet")

    def url(**given):
        job = fit_job(tmp_path / "rows.parquet", tmp_path / "model", **given)
        return Run.prepare(job).fit.checkpoint_url("")

    plain = {"columns": ["x", "y"]}
    base = plain | {"by": ["site"]}
    others = [{"own": ["neighbors"]}, {"alpha": 0.2}, {"small_groups": "pool"}]
    urls = [url(**plain), url(**base), *(url(**base, **other) for other in others)]
    urls += [url(**plain, by=by) for by in (["hour"], ["site", "hour"])]

    assert len({*urls}) == len(urls)
    assert url(**plain, alpha=0.2) == url(**plain)


def test_load__of_a_model_that_refuses_small_groups(tmp_path):
    rows = NOMINAL[NOMINAL["site"].isin(["a", "b"])]
    loaded = reloaded(fitted(rows, small_groups="error"), tmp_path / "model")

    with pytest.raises(ValueError, match="groups have no nominal row"):
        loaded.score_samples(QUERIES)
    assert loaded.score_samples(QUERIES[QUERIES["site"] == "a"]).notna().any()

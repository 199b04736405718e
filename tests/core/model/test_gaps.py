"""Rows with missing values that are measured, beside the definition."""

import itertools
import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import definitions
import lpe_dask
from calling import invoke
from choosing import mostly_dealt, mostly_full
from flows import CATEGORICAL, NAMES, table
from lpe_dask import LPE
from lpe_dask.cli.outcome import summary_lines
from lpe_dask.forecast import sample as samples
from lpe_dask.model.learning import medians
from lpe_dask.model.learning.column_facts import AskedFacts, read_facts
from lpe_dask.model.learning.medians import Medians
from oracle import Oracle
from problems import computed


def with_gaps(frame, share, seed):
    """A frame with values removed at random, as it may come."""
    rng = np.random.default_rng(seed)
    holes = pd.DataFrame(rng.random(frame.shape) < share, frame.index, frame.columns)
    objects = frame.astype(object).mask(holes, None)
    return objects.astype({"x": float, "y": float, "port": "Int64", "flag": "boolean"})


NOMINAL = with_gaps(table(80, 0), 0.2, 0)
NEW = with_gaps(
    table(24, 1, protocols=("tcp", "icmp", "sctp"), ports=(80, 443, 22)), 0.3, 1
).set_index(np.arange(24) * 3)
NEW.iloc[3, 1], NEW.iloc[4] = np.inf, [pd.NA, np.nan, pd.NA, pd.NA, np.nan, pd.NA]

SCALES = [None, "minmax", "standard", "quantile", "minmax+quantile"]
WEIGHTS = [
    None,
    {"w_missing": 3.0},
    {"w": [1.0, 2.0, 0.5, 1.0, 0.0, 4.0], "w_missing": 0.5},
]
FORMS = [
    {"n_neighbors": 4}, {"n_neighbors": 4, "aggregation": "mean"},
    {"graph": "radius", "radius": 1.5},
]  # fmt: skip


def unfitted(scale=None, calibration="loo", form=FORMS[0], weights=None, **given):
    return LPE(
        **form, missing="measure", categorical=CATEGORICAL, calibration=calibration,
        scale=scale, metric_params=weights, random_state=0, **given,
    )  # fmt: skip


def right(model):
    return Oracle(NOMINAL, **model.get_params())


@pytest.mark.parametrize(
    ("scale", "calibration", "form", "weights", "algorithm"),
    mostly_dealt(
        SCALES, ["loo", "split", "conformal"], FORMS, WEIGHTS, ["brute", "pruned"]
    ),
)
def test_lpe__measures_gaps_as_defined(scale, calibration, form, weights, algorithm):
    model = unfitted(scale, calibration, form, weights, algorithm=algorithm).fit(NOMINAL)
    expected = right(model)

    np.testing.assert_array_equal(model.calibration_, expected.calibration_)
    np.testing.assert_array_equal(model.p_values_, expected.p_values_)
    np.testing.assert_array_equal(model.statistic(NEW), expected.statistic(NEW))
    np.testing.assert_array_equal(model.score_samples(NEW), expected.score_samples(NEW))
    with pytest.warns(UserWarning, match="1 row has inf, and no"):
        labels = model.predict(NEW)
    np.testing.assert_array_equal(labels, expected.predict(NEW))


def dask_frame(frame, n_partitions=4):
    return dd.from_pandas(frame, npartitions=n_partitions, sort=False)


def in_file(tmp_path, frame, name):
    frame.to_parquet(tmp_path / name, row_group_size=7)
    return str(tmp_path / name)


KINDS = {
    "pandas": lambda frame, _: frame,
    "objects": lambda frame, _: frame.astype(object),
    "array": lambda frame, _: frame.to_numpy(object),
    "dask frame": lambda frame, _: dask_frame(frame),
    "dask array": lambda frame, _: da.from_array(frame.to_numpy(object), chunks=(11, 2)),
    "parquet": lambda frame, path: in_file(path, frame, f"{len(frame)}.parquet"),
}


@pytest.mark.parametrize(
    ("fitted", "kind"),
    mostly_full(itertools.product(KINDS, KINDS), zip(KINDS, KINDS, strict=True)),
)
def test_lpe__measures_gaps_in_any_kind_of_input(tmp_path, fitted, kind):
    by_position = [NAMES.index(name) for name in CATEGORICAL]
    categorical = by_position if "array" in fitted else CATEGORICAL
    model = unfitted("standard", "conformal").set_params(categorical=categorical)
    model.fit(KINDS[fitted](NOMINAL, tmp_path))
    expected = right(unfitted("standard", "conformal"))
    rows = KINDS[kind](NEW, tmp_path)

    np.testing.assert_array_equal(computed(model.p_values_), expected.p_values_)
    np.testing.assert_array_equal(
        computed(model.score_samples(rows)), expected.score_samples(NEW)
    )
    statuses = ["infinite value" if i == 3 else "ok" for i in range(len(NEW))]
    assert computed(model.status(rows)).tolist() == statuses


@pytest.mark.parametrize("n_parts", [1, 5])
@pytest.mark.parametrize("size", [None, 20])
def test_lpe__gives_the_same_bits_however_gaps_are_cut(monkeypatch, n_parts, size):
    """Also where medians take several passes, and not all rows are measured at first."""
    model = unfitted("standard", "loo", calibration_size=size)
    whole = model.fit(NOMINAL)
    expected = [whole.p_values_, whole.score_samples(NEW)]
    monkeypatch.setattr(medians, "N_THRESHOLDS", 2)
    monkeypatch.setattr(medians, "MAX_VALUES", 3)
    with dask.config.set(scheduler="sync"):
        model = unfitted("standard", "loo", calibration_size=size)
        model.fit(dask_frame(NOMINAL, n_parts))
        found = [model.p_values_, model.score_samples(dask_frame(NEW, n_parts))]

    for values, right_ones in zip(found, expected, strict=True):
        np.testing.assert_array_equal(computed(values), right_ones)


@pytest.mark.parametrize("does", ["save", "pickle"])
def test_models__that_were_stored_measure_gaps(tmp_path, does):
    model = unfitted("quantile").fit(NOMINAL)
    if does == "save":
        model.save(tmp_path / "model")
        copy = lpe_dask.load(tmp_path / "model")
    else:
        copy = pickle.loads(pickle.dumps(model))

    pd.testing.assert_frame_equal(copy.score_frame(NEW), model.score_frame(NEW))
    np.testing.assert_array_equal(copy.p_values_, model.p_values_)
    pd.testing.assert_frame_equal(copy.explain(NEW), model.explain(NEW))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_explain__gives_gaps_the_shares_of_their_columns(weights):
    model = unfitted("standard", weights=weights).fit(NOMINAL)
    expected = right(model).shares(NEW)
    places = {name: place for place, name in enumerate(NAMES)}

    found = model.explain(NEW, top=6)

    is_column = [model.metric_params is None or name != "y" for name in found["column"]]
    assert all(is_column) or "w" not in weights
    for (label, of_row), shares in zip(
        found.groupby(level=0, sort=False), expected, strict=True
    ):
        right_ones = shares[[places[name] for name in of_row["column"]]]
        np.testing.assert_allclose(of_row["share"].astype(float), right_ones, atol=1e-12)
        values = NEW.loc[label, of_row["column"].tolist()]
        assert pd.isna(of_row["value"]).tolist() == values.isna().tolist()


def test_explain__says_how_often_values_are_missing():
    rows = np.array([[1.0, 1], [2, np.nan], [3, 2], [4, 3], [5, np.nan], [np.nan, 5]] * 5)
    model = LPE(2, missing="measure", calibration="loo").fit(rows)

    found = model.explain(np.array([[np.nan, 70.0], [3.0, np.nan]]), top=2)

    usual = dict(zip(found["column"], found["usual"], strict=True))
    assert usual[0] == "1 to 5, median 3, missing 17%"
    assert usual[1] == "1 to 5, median 2, missing 33%"
    first = found.iloc[0]
    assert (first["column"], first["value"]) == (1, 70.0)


def test_explain__says_that_a_category_is_often_missing():
    rows = pd.DataFrame({"x": np.arange(40.0), "c": ["a", None, "b", None] * 10})
    model = LPE(2, missing="measure", categorical=["c"], calibration="loo").fit(rows)

    found = model.explain(pd.DataFrame({"x": [90.0], "c": ["b"]}), top=2)

    usual = dict(zip(found["column"], found["usual"], strict=True))
    assert usual["c"] == "missing 50%, a 25%, b 25%"


def test_explain__of_a_column_without_weight_does_not_say_that_it_is_missing():
    rows = np.random.default_rng(0).standard_normal((40, 2))
    model = LPE(2, metric_params={"w": [1.0, 0.0]}).fit(rows)

    found = model.explain(np.array([[9.0, 0.0]]))

    assert found["column"].tolist() == [0]
    assert "missing" not in found["usual"][0]


def test_nearest_nominal__of_a_row_with_gaps():
    rows = np.array([[1.0, 1], [2, np.nan], [3, 2], [4, 3]])
    model = LPE(1, missing="measure").fit(rows)

    found = model.nearest_nominal(np.array([[2.0, np.nan], [np.inf, 1]]), n=1)

    assert found["nominal_row"].tolist()[0] == 1
    np.testing.assert_array_equal(found["distance"], [0.0, np.nan])


@pytest.mark.parametrize("with_nominal", [True, False])
def test_runs__measure_gaps_and_name_them(tmp_path, with_nominal):
    nominal, out = in_file(tmp_path, NOMINAL, "nominal.parquet"), str(tmp_path / "out")
    rows = NEW.assign(x=NEW["x"].where(NEW.index != 6, 90.0))
    data = in_file(tmp_path, rows, "rows.parquet") if with_nominal else nominal
    given = {"missing": "measure", "scale": "standard", "categorical": CATEGORICAL}
    path = nominal if with_nominal else None

    summary = lpe_dask.score_files(data, out, nominal=path, alpha=0.3, **given)

    n_infinite = int(with_nominal)
    counts = {name: n for name, n in summary["p_value_status"].items() if n > 0}
    expected = {"ok": summary["rows"] - n_infinite, "infinite value": n_infinite}
    assert counts == {name: n for name, n in expected.items() if n > 0}
    done = invoke("explain", out)
    assert done.exit_code == 0
    assert "=missing (" in done.output
    lines = summary_lines(summary, "out")
    assert ("1 without a p-value: 1 infinite value\n" in lines) == with_nominal


def test_check_calibration__holds_out_rows_with_gaps():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 3))
    rows[rng.random(rows.shape) < 0.1] = np.nan

    check = LPE(missing="measure", scale="standard").fit(rows).check_calibration()

    assert check.table["verdict"].tolist() != ["too many"] * 3
    assert check.n_held_out == 60


def learn_medians(rows, sample, names):
    return read_facts(rows, AskedFacts(), gaps=Medians.near(sample, names)).medians


@given(
    npst.arrays(
        np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.sampled_from([-1e300, -2.0, -0.0, 0.0, 1.0, 2.0, 1e-310, np.nan]),
    ),
    st.integers(1, 5), st.integers(0, 12), st.integers(1, 4), st.integers(1, 4),
)  # fmt: skip
def test_learn_medians__are_exact_in_any_chunks(rows, chunk, n_sampled, n_thresholds, most):
    rows[0] = np.nan_to_num(rows[0])
    names = list("abc")[: rows.shape[1]]
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(medians, "N_THRESHOLDS", n_thresholds)
        patch.setattr(medians, "MAX_VALUES", most)
        found = learn_medians(da.from_array(rows, (chunk, -1)), rows[:n_sampled], names)

    np.testing.assert_array_equal(found, [definitions.median(of) for of in rows.T])


@pytest.mark.parametrize(("most", "expected"), [(10**6, 1), (2, 3)])
def test_learn_medians__reads_rows_once(monkeypatch, most, expected):
    """Again only where too many values are between two of a sample."""
    n_read = []
    rows = np.random.default_rng(0).standard_normal((5000, 2))
    monkeypatch.setattr(medians, "MAX_VALUES", most)
    monkeypatch.setattr(medians, "N_THRESHOLDS", 100)

    def read(block):
        n_read.append(len(block))
        return block

    blocks = da.from_array(rows, (1000, -1)).map_blocks(read, meta=rows[:0])
    with dask.config.set(scheduler="sync"):
        found = learn_medians(blocks, rows[:500], ["a", "b"])

    np.testing.assert_array_equal(found, np.median(rows, axis=0))
    assert len(n_read) == 5 * expected


def test_plan__does_not_take_a_sample_for_all_rows(tmp_path, monkeypatch):
    """A column that has a value in few rows has none in a sample."""
    monkeypatch.setattr(samples, "SAMPLE_ROWS", 20)
    rows = pd.DataFrame({"a": np.arange(400.0), "b": np.nan})
    rows.loc[237, "b"] = 1.0
    rows.to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    given = {"missing": "measure", "metric_params": {"w_missing": 2.0}, "n_neighbors": 3}

    forecast = lpe_dask.plan(str(tmp_path / "rows.parquet"), **given)

    assert "400 to score" in str(forecast)


@pytest.mark.parametrize("kind", ["pandas", "dask frame"])
def test_fit__refuses_columns_without_a_value_and_infinite_ones(kind, tmp_path):
    empty = NOMINAL.assign(x=np.nan)
    infinite = NOMINAL.copy()
    infinite.iloc[7, 4] = -np.inf

    with pytest.raises(ValueError, match=r"all 80 values are missing in .*: x\. Leave"):
        unfitted().fit(KINDS[kind](empty, tmp_path))
    with pytest.raises(ValueError, match=r"contain inf in .*: y \(1\)\. Only what is"):
        unfitted().fit(KINDS[kind](infinite, tmp_path))


def test_fit__refuses_a_column_without_a_value_in_the_rows_that_are_searched():
    rows = pd.DataFrame({"a": np.arange(40.0), "b": np.nan})
    model = LPE(2, missing="measure", calibration="conformal", random_state=0)
    chosen = np.flatnonzero(Oracle(rows.assign(b=0.0), **model.get_params()).is_kept)
    searched = Oracle(rows.assign(b=0.0), **model.get_params()).searched
    rows.loc[np.setdiff1d(chosen, searched)[0], "b"] = 1.0

    with pytest.raises(ValueError, match="all values of b are missing in the rows that"):
        model.fit(rows)


@pytest.mark.parametrize("empty", ["float", "object", "null"])
def test_score_samples__measures_a_column_that_is_missing_in_all_rows(tmp_path, empty):
    """A sensor that was down all day."""
    nominal = NOMINAL[["x", "y"]]
    model = LPE(3, missing="measure", calibration="loo").fit(nominal)
    rows = pd.DataFrame({"x": [0.1, 0.2], "y": [np.nan, np.nan]})
    expected = Oracle(nominal, **model.get_params())
    given = rows
    if empty == "object":
        given = rows.assign(y=pd.Series([None, None], dtype=object))
    elif empty == "null":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {"x": rows["x"], "y": pa.nulls(2)}
        pq.write_table(pa.table(columns), tmp_path / "day.parquet")
        given = str(tmp_path / "day.parquet")

    np.testing.assert_array_equal(
        computed(model.score_samples(given)), expected.score_samples(rows)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "mahalanobis"}, "missing='measure' does not go with metric="),
        ({"metric": "geodesic"}, "missing='measure' does not go with metric="),
        ({"algorithm": "nn_descent"}, "does not go with algorithm='nn_descent'"),
        ({"graph": "radius", "scale": "minmax"}, "does not go with radius=None"),
        ({"anomaly_log_density": len}, "does not go with anomaly_log_density"),
        ({"metric_params": {"w_missing": -1}}, "must be a number of at least 0"),
        ({"metric_params": {"w_missing": "1"}}, "must be a number of at least 0"),
        ({"metric_params": {"w_missing": np.inf}}, "must be a number of at least 0"),
        ({"metric_params": {"w_missing": None}}, "must be a number of at least 0"),
        (
            {"metric_params": {"w_missing": None}, "missing": "drop"},
            "must be a number of at least 0",
        ),
        (
            {"metric_params": {"w_missing": 1}, "missing": "drop"},
            "is for missing='measure'",
        ),
    ],
)
def test_fit__refuses_what_does_not_go_with_gaps(given, message):
    with pytest.raises(ValueError, match=message):
        LPE(**{"missing": "measure"} | given).fit(NOMINAL[["x", "y"]].to_numpy())

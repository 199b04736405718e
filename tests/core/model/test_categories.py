"""Rows with categories: exact results for every kind of input, and saved models."""

import functools
import itertools
import json
import pickle
import tempfile
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import definitions
import lpe_dask
from choosing import mostly_dealt, mostly_full
from flows import CATEGORICAL, NAMES, NUMBERS, table
from lpe_dask import LPE
from lpe_dask.model.persistence.manifest import MANIFEST_NAME
from lpe_dask.tables import partitions
from lpe_dask.tables import table as tables
from lpe_dask.tasks import transfer
from searching import EXACT

SCALES = ["minmax", "standard", "quantile", "minmax+quantile"]
RADII = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}


NOMINAL = table(90, 0)
NEW = table(25, 1, protocols=("tcp", "icmp", "sctp"), ports=(80, 443, 22)).set_index(
    np.arange(25) * 3
)
MISSING = NEW.astype(object)
MISSING.iloc[3, 0] = None
MISSING.iloc[4, 1] = np.nan
MISSING.iloc[5, 5] = pd.NA


def plain(frame, learned_from, weights, scale):
    """Rows as the definitions take them: numbers, then categories; weights of both."""
    of = dict(zip(frame.columns, weights, strict=True))
    numeric = [name for name in frame.columns if name in NUMBERS]
    categorical = [name for name in frame.columns if name in CATEGORICAL]
    numbers, of_numbers = np.zeros((len(frame), 0)), []
    if numeric:
        learned_from = learned_from[numeric].to_numpy(float)
        numbers = definitions.forms(frame[numeric].to_numpy(float), learned_from, scale)
        params = {"w": [of[name] for name in numeric]}
        of_numbers = definitions.weights_of_forms(learned_from, scale, params=params)
    categories = frame[categorical].to_numpy(object)
    rows = [[*a, *b] for a, b in zip(numbers, categories, strict=True)]
    return rows, [of[name] for name in categorical], of_numbers


def expected(
    nominal,
    new,
    n_neighbors,
    weights=(1.0,) * 6,
    scale=None,
    radii_of=definitions.knn_radii,
):
    """Statistic and p-values of new rows, and those of the nominal ones themselves."""
    reference, *weights_of = plain(nominal, nominal, weights, scale)
    queries, *_ = plain(new, nominal, weights, scale)
    own = radii_of(reference, reference, n_neighbors, True, *weights_of)
    radii = radii_of(queries, reference, n_neighbors, False, *weights_of)
    p_values = [definitions.knn_p_value(radius, own) for radius in radii]
    return radii, p_values, [definitions.knn_p_value(radius, own) for radius in own]


@functools.cache
def expected_of_new():
    return expected(NOMINAL, NEW, 4)


def dask_frame(frame, n_partitions=4):
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(frame, npartitions=n_partitions, sort=False)


def in_files(frame, ending):
    folder = Path(tempfile.mkdtemp()) / "table"
    folder.mkdir()
    for i, start in enumerate(range(0, len(frame), 20)):
        part = frame.iloc[start : start + 20]
        if ending == "csv":
            part.to_csv(folder / f"{i}.csv", index=False)
        else:
            part.to_parquet(folder / f"{i}.parquet")
    return str(folder)


def whole_frame(frame):
    return frame.astype({"port": float, "flag": "boolean", "protocol": "category"})


KINDS = {
    "pandas": lambda frame: frame,
    "other types": whole_frame,
    "objects": lambda frame: frame.astype(object),
    "array": lambda frame: frame.to_numpy(object),
    "list": lambda frame: frame.to_numpy(object).tolist(),
    "dask frame": dask_frame,
    "dask frame of other types": lambda frame: dask_frame(whole_frame(frame)),
    "dask frame of objects": lambda frame: dask_frame(frame.astype(object)),
    "dask array": lambda frame: da.from_array(frame.to_numpy(object), chunks=(11, 2)),
    "parquet": lambda frame: in_files(frame, "parquet"),
    "csv": lambda frame: in_files(frame, "csv"),
}


def columns_of(kind):
    """The categorical columns, as LPE takes them for a kind of input."""
    is_by_position = "array" in kind or kind == "list"
    return [NAMES.index(c) for c in CATEGORICAL] if is_by_position else CATEGORICAL


def computed(values):
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


@pytest.mark.parametrize("kind", KINDS)
def test_lpe__with_categories_is_the_definition(kind):
    radii, p_values, own = expected_of_new()

    model = LPE(4, categorical=columns_of(kind)).fit(KINDS[kind](NOMINAL))

    X = KINDS[kind](NEW)
    np.testing.assert_array_equal(computed(model.statistic(X)), radii)
    np.testing.assert_array_equal(computed(model.score_samples(X)), p_values)
    labels = np.where(np.array(p_values) <= 0.05, -1, 1)
    np.testing.assert_array_equal(computed(model.predict(X)), labels)
    np.testing.assert_array_equal(computed(model.p_values_), own)
    assert model.n_features_in_ == 6


FITTED = ["pandas", "array", "csv"]


@pytest.mark.parametrize(
    ("kind", "fitted"),
    mostly_dealt(KINDS, FITTED),
)
def test_score_samples__takes_rows_of_any_kind(fitted, kind):
    model = LPE(4, categorical=columns_of(fitted)).fit(KINDS[fitted](NOMINAL))

    if fitted == "csv" != kind:  # categories of a CSV are text
        with pytest.raises(TypeError, match=r"whole numbers.*Convert it to text"):
            computed(model.score_samples(KINDS[kind](NEW)))
        return
    actual = model.score_samples(KINDS[kind](NEW))

    np.testing.assert_array_equal(computed(actual), expected_of_new()[1])
    if kind in ("pandas", "dask frame"):
        assert list(actual.index) == list(NEW.index)


@pytest.mark.parametrize("kind", ["pandas", "array", "dask frame", "dask array", "parquet"])
def test_score_samples__of_missing_values_is_nan(kind):
    model = LPE(4, categorical=CATEGORICAL).fit(NOMINAL)
    rows = MISSING if "array" in kind else MISSING.convert_dtypes()

    p_values = computed(model.score_samples(KINDS[kind](rows)))

    right = np.array(expected_of_new()[1])
    right[3:6] = np.nan
    np.testing.assert_array_equal(p_values, right)
    with pytest.raises(
        ValueError, match=r"NaN or inf.* protocol \(1\), x \(1\), port \(1\)"
    ):
        LPE(4, categorical=CATEGORICAL).fit(rows if kind == "pandas" else MISSING)


FEW_KINDS, CALIBRATIONS = ["pandas", "dask frame", "dask array"], ["loo", "conformal"]


@pytest.mark.parametrize(
    ("kind", "calibration"),
    mostly_dealt(FEW_KINDS, CALIBRATIONS),
)
def test_fit__drops_rows_with_missing_categories(kind, calibration):
    nominal = NOMINAL.astype(object)
    nominal.iloc[[0, 50], 0] = [None, "only here"]
    nominal.iloc[50, 5] = None
    options = {"missing": "drop", "calibration": calibration, "random_state": 0}

    model = LPE(4, categorical=columns_of(kind), **options).fit(KINDS[kind](nominal))

    whole = LPE(4, categorical=CATEGORICAL, **options).fit(
        nominal.drop([0, 50]).reset_index(drop=True)
    )
    np.testing.assert_array_equal(
        computed(model.score_samples(NEW)), whole.score_samples(NEW)
    )
    own = computed(model.p_values_)
    assert np.isnan(own[[0, 50]]).all()
    np.testing.assert_array_equal(np.delete(own, [0, 50]), computed(whole.p_values_))


@pytest.mark.parametrize("algorithm", mostly_full(EXACT, ["pruned"]))
@settings(max_examples=30)
@given(data=st.data())
def test_lpe__with_categories_of_any_parameters_is_the_definition(algorithm, data):
    seeds, sizes = st.integers(0, 10**6), st.integers(6, 40)
    names = data.draw(st.permutations(NAMES))[: data.draw(st.integers(1, 6))]
    nominal = table(data.draw(sizes), data.draw(seeds))[names]
    new = table(data.draw(st.integers(1, 10)), data.draw(seeds), ("7", "new", "tcp"))[names]
    weight = st.sampled_from([0.0, 0.3, 1.0, 4.0])
    weights = data.draw(st.lists(weight, min_size=len(names), max_size=len(names)))
    n_neighbors = data.draw(st.integers(1, len(nominal) - 1))
    scale = data.draw(st.sampled_from([None, *SCALES]))
    aggregation = data.draw(st.sampled_from([*RADII]))
    X = data.draw(st.sampled_from([nominal, dask_frame(nominal, 3)]))

    model = LPE(
        n_neighbors, categorical=[c for c in CATEGORICAL if c in names] or None,
        metric_params={"w": weights}, scale=scale, aggregation=aggregation,
        calibration="loo", algorithm=algorithm,
    ).fit(X)  # fmt: skip

    radii, p_values, own = expected(
        nominal, new, n_neighbors, weights, scale, RADII[aggregation]
    )
    np.testing.assert_array_equal(model.statistic(new), radii)
    np.testing.assert_array_equal(model.score_samples(new), p_values)
    np.testing.assert_array_equal(computed(model.p_values_), own)


@pytest.mark.parametrize("calibration", ["split", "conformal"])
def test_fit__measures_levels_that_only_calibration_rows_have(calibration):
    """Such a level differs from all: among pairs, some are apart by a whole mismatch."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(300), "c": rng.permutation(np.arange(300) // 2)})
    options = {"categorical": ["c"], "scale": "minmax", "random_state": 0}

    model = LPE(1, calibration=calibration, **options).fit(frame)
    of_text = LPE(1, calibration=calibration, **options).fit(
        frame.assign(c=frame.c.map(str))
    )

    assert (model.calibration_ >= 1).any()
    np.testing.assert_array_equal(of_text.calibration_, model.calibration_)


def test_categorical__of_all_columns():
    nominal, new = NOMINAL[["protocol", "flag"]], NEW[["protocol", "flag"]]
    model = LPE(2, categorical="auto", scale="minmax").fit(nominal)

    assert model.calibration_kind_ == "loo"  # nothing is learned
    mismatches = [
        sorted((nominal.to_numpy(object) != row).sum(axis=1))
        for row in new.to_numpy(object)
    ]
    np.testing.assert_array_equal(
        model.statistic(new), [np.sqrt(row[1]) for row in mismatches]
    )


def test_auto__chooses_the_calibration_by_the_numbers_alone():
    """200 rows for each column of numbers are enough for minmax."""
    few, many = table(399, 0), table(400, 0)

    kinds = [
        LPE(2, scale="minmax", categorical=CATEGORICAL).fit(rows).calibration_kind_
        for rows in (few, many)
    ]

    assert kinds == ["conformal", "loo"]


def test_check_calibration__with_categories():
    nominal = table(600, 2)
    checks = [
        LPE(4, categorical=CATEGORICAL, random_state=0).fit(X).check_calibration()
        for X in (nominal, dask_frame(nominal))
    ]

    assert checks[0].holds
    pd.testing.assert_frame_equal(checks[0].table, checks[1].table)


def test_check_calibration__of_other_rows_takes_what_is_unknown_for_one_value():
    nominal = pd.DataFrame({"c": ["a", "b"] * 20, "x": 1.0})
    other = pd.DataFrame({"c": [f"level {i}" for i in range(100)], "x": 1.0})
    model = LPE(1, categorical=["c"], alpha=0.1).fit(nominal)

    check = model.check_calibration(other, alphas=[0.5])

    same = model.check_calibration(other.assign(c="unknown"), alphas=[0.5])
    pd.testing.assert_frame_equal(check.table, same.table)
    rare = other.assign(c=["a"] * 99 + ["unknown"])
    assert model.check_calibration(rare, alphas=[0.5]).holds
    whole = other.assign(c=1)
    for X in (whole, whole.to_numpy(object), dask_frame(whole.astype(object))):
        with pytest.raises(TypeError, match=r"column ('c'|0) has whole numbers"):
            model.check_calibration(X)
    for X in (other[["c"]], other["c"], [["a"]]):
        with pytest.raises(ValueError, match=r"lack the columns|1D array|has 1 feat"):
            model.check_calibration(X)


@pytest.mark.parametrize("kind", ["pandas", "array", "list"])
def test_check_calibration__codes_rows_once(kind, monkeypatch):
    model = LPE(4, categorical=columns_of(kind)).fit(KINDS[kind](NOMINAL))
    coded, original = [], partitions.coded

    def noted(column, *arguments, **options):
        coded.append(len(column))
        return original(column, *arguments, **options)

    monkeypatch.setattr(partitions, "coded", noted)
    model.check_calibration()

    assert sum(coded) == len(CATEGORICAL) * len(NOMINAL)


SAVED_KINDS = ["pandas", "array", "dask frame", "csv"]


@pytest.mark.parametrize(
    ("kind", "calibration"),
    mostly_dealt(SAVED_KINDS, CALIBRATIONS),
)
def test_load__gives_the_same_bits(tmp_path, kind, calibration):
    arguments = {"calibration": calibration, "random_state": 0, "scale": "minmax"}
    model = LPE(4, categorical=columns_of(kind), **arguments).fit(KINDS[kind](NOMINAL))

    model.save(tmp_path / "model")
    loaded = lpe_dask.load(tmp_path / "model")
    loaded.save(tmp_path / "again")

    again = clone(loaded).fit(KINDS[kind](NOMINAL))
    new = NEW.assign(port=NEW["port"].astype(str)) if kind == "csv" else NEW
    pickled = pickle.loads(pickle.dumps(model))
    for other in (loaded, lpe_dask.load(tmp_path / "again"), again, pickled):
        np.testing.assert_array_equal(
            computed(other.score_samples(new)), computed(model.score_samples(new))
        )
        assert other.categorical == columns_of(kind)
    manifest = json.loads((tmp_path / "model" / MANIFEST_NAME).read_text())
    assert manifest["categories"]["levels"] == [
        ["7", "tcp", "udp"], [False, True], ["high", "low"],
        ["443", "80"] if kind == "csv" else [80, 443],
    ]  # fmt: skip
    with pytest.raises(TypeError, match=r"'protocol'.* whole numbers, .* text"):
        loaded.score_samples(new.assign(protocol=7))


def test_save__with_names_of_any_kind(tmp_path):
    names = ["a", "x", "None", 1, 2, "1"]
    nominal, new = (frame.set_axis(names, axis=1) for frame in (NOMINAL, NEW))
    model = LPE(4, categorical=["a", "None", np.int64(1)]).fit(nominal)
    model.save(tmp_path / "model")

    loaded = lpe_dask.load(tmp_path / "model")

    assert loaded.categorical == ["a", "None", 1]
    np.testing.assert_array_equal(loaded.score_samples(new), model.score_samples(new))


def test_score__reads_a_csv_as_the_model_knows_it(tmp_path):
    """Columns that look like numbers in the rows to score alone."""
    pd.DataFrame({"id": [1, 2, 3], "c": ["007", "a", "7"], "x": [1, 2, 3]}).to_csv(
        tmp_path / "nominal.csv", index=False
    )
    pd.DataFrame({"id": [1, 2], "c": ["7", "007"], "x": [3, 1]}).to_csv(
        tmp_path / "new.csv", index=False
    )

    p_values = lpe_dask.score(
        tmp_path / "new.csv", tmp_path / "nominal.csv", columns=["c", "x"],
        categorical=["c"], n_neighbors=1,
    )  # fmt: skip

    model = LPE(1, categorical=["c"]).fit(
        pd.DataFrame({"c": ["007", "a", "7"], "x": [1, 2, 3]})
    )
    expected = model.score_samples(pd.DataFrame({"c": ["7", "007"], "x": [3, 1]}))
    np.testing.assert_array_equal(p_values.compute(), expected)
    assert p_values.compute().tolist() == [1.0, 1.0]


#: Where categories are: in every task, in one of their own, in the spool.
PLACES = {
    "carried": (transfer, "LITERAL_BYTES", transfer.LITERAL_BYTES),
    "entered": (tables, "CARRIED_BYTES", 0),
    "large": (transfer, "LITERAL_BYTES", 1),
}


LAZY_KINDS, ELSEWHERE = ["dask frame", "dask array", "parquet"], ["entered", "large"]


@pytest.mark.parametrize(
    ("kind", "place"),
    mostly_dealt(LAZY_KINDS, ELSEWHERE),
)
def test_categories__that_are_large_are_not_in_each_task(kind, place, monkeypatch):
    monkeypatch.setattr(*PLACES[place])

    model = LPE(4, categorical=columns_of(kind), calibration="conformal", random_state=0)
    model.fit(KINDS[kind](NOMINAL))

    right = LPE(4, categorical=CATEGORICAL, calibration="conformal", random_state=0)
    right.fit(NOMINAL)
    np.testing.assert_array_equal(
        computed(model.score_samples(KINDS[kind](NEW))), right.score_samples(NEW)
    )
    np.testing.assert_array_equal(computed(model.p_values_), right.p_values_)


def test_fit__of_categories_that_change_says_so():
    """Rows that are read again have a value that no row had at first."""
    n_read = []

    def part(i):
        n_read.append(i)
        value = "a" if len(n_read) <= 4 else "b"
        return pd.DataFrame({"c": [value] * 10, "x": np.arange(10.0) + i})

    meta = pd.DataFrame({"c": pd.Series(dtype="str"), "x": pd.Series(dtype=float)})
    X = dd.from_map(part, [0, 1, 2, 3], meta=meta)

    with (
        dask.config.set(scheduler="sync"),
        pytest.raises(ValueError, match=r"the nominal rows changed .* column 'c'"),
    ):
        LPE(2, categorical=["c"]).fit(X)


@functools.cache
def _found_here():
    with dask.config.set(scheduler="sync"):
        model = LPE(4, categorical=CATEGORICAL, **SENT).fit(NOMINAL)
        return model.score_samples(NEW), computed(model.p_values_)


SENT = {"calibration": "conformal", "random_state": 0, "scale": "standard"}
SENT_KINDS = ["pandas", "array", "dask frame", "parquet", "csv"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "place"),
    mostly_full(
        itertools.product(SENT_KINDS, PLACES), [("array", "entered"), ("parquet", "large")]
    ),
)
def test_cluster__gives_the_same_numbers(kind, place, client, monkeypatch):
    p_values, own = _found_here()
    monkeypatch.setattr(*PLACES[place])

    model = LPE(4, categorical=columns_of(kind), **SENT).fit(KINDS[kind](NOMINAL))

    np.testing.assert_array_equal(computed(model.score_samples(KINDS[kind](NEW))), p_values)
    np.testing.assert_array_equal(computed(model.p_values_), own)

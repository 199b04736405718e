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

import lpe_dask
from choosing import mostly_dealt, mostly_full
from flows import CATEGORICAL, NAMES, table
from lpe_dask import LPE
from lpe_dask.model.persistence.manifest import MANIFEST_NAME
from lpe_dask.tables import partitions
from lpe_dask.tables import table as tables
from lpe_dask.tasks import transfer
from oracle import Oracle
from problems import computed

NOMINAL = table(90, 0)
NEW = table(25, 1, protocols=("tcp", "icmp", "sctp"), ports=(80, 443, 22)).set_index(
    np.arange(25) * 3
)
MISSING = NEW.astype(object)
MISSING.iloc[3, 0] = None
MISSING.iloc[4, 1] = np.nan
MISSING.iloc[5, 5] = pd.NA


GIVEN = {"calibration": "conformal", "random_state": 0, "scale": "standard"}


@functools.cache
def right():
    """P-values of the new rows and of the nominal ones, by the definition."""
    oracle = Oracle(NOMINAL, n_neighbors=4, categorical=CATEGORICAL, **GIVEN)
    return oracle.score_samples(NEW), oracle.p_values_


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


def pairs_of_kinds():
    """Each kind twice, with itself and with another one."""
    kinds = list(KINDS)
    return [
        *zip(kinds, kinds, strict=True),
        *zip(kinds, kinds[1:] + kinds[:1], strict=True),
    ]


def columns_of(kind):
    """The categorical columns, as LPE takes them for a kind of input."""
    is_by_position = "array" in kind or kind == "list"
    return [NAMES.index(c) for c in CATEGORICAL] if is_by_position else CATEGORICAL


@pytest.mark.parametrize(
    ("fitted", "kind"), mostly_full(itertools.product(KINDS, KINDS), pairs_of_kinds())
)
def test_lpe__with_categories_of_any_kind_is_the_definition(fitted, kind):
    model = LPE(4, categorical=columns_of(fitted), **GIVEN).fit(KINDS[fitted](NOMINAL))
    p_values, own = right()

    np.testing.assert_array_equal(computed(model.p_values_), own)
    assert model.n_features_in_ == 6
    if fitted == "csv" != kind:  # categories of a CSV are text
        with pytest.raises(TypeError, match=r"whole numbers.*Convert it to text"):
            computed(model.score_samples(KINDS[kind](NEW)))
        return
    actual = model.score_samples(KINDS[kind](NEW))
    np.testing.assert_array_equal(computed(actual), p_values)
    if kind in ("pandas", "dask frame"):
        assert list(actual.index) == list(NEW.index)


@pytest.mark.parametrize("kind", ["pandas", "array", "dask frame", "dask array", "parquet"])
def test_score_samples__of_missing_values_is_nan(kind):
    model = LPE(4, categorical=CATEGORICAL, **GIVEN).fit(NOMINAL)
    rows = MISSING if "array" in kind else MISSING.convert_dtypes()

    p_values = computed(model.score_samples(KINDS[kind](rows)))

    expected = right()[0].copy()
    expected[3:6] = np.nan
    np.testing.assert_array_equal(p_values, expected)
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


def test_auto__chooses_the_calibration_by_the_numbers_alone():
    """200 rows for each column of numbers are enough for minmax; categories need none."""
    few, many = table(399, 0), table(400, 0)

    kinds = [
        LPE(2, scale="minmax", categorical=categorical).fit(rows).calibration_kind_
        for rows, categorical in (
            (few, CATEGORICAL), (many, CATEGORICAL), (few[["protocol", "flag"]], "auto")
        )
    ]  # fmt: skip

    assert kinds == ["conformal", "loo", "loo"]


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
    assert model.check_calibration().holds is not False

    assert sum(coded) == len(CATEGORICAL) * len(NOMINAL)


@pytest.mark.parametrize("kind", ["array", "csv"])
def test_load__knows_the_levels(tmp_path, kind):
    model = LPE(4, categorical=columns_of(kind), **GIVEN).fit(KINDS[kind](NOMINAL))
    model.save(tmp_path / "model")

    loaded = lpe_dask.load(tmp_path / "model")

    new = NEW.assign(port=NEW["port"].astype(str)) if kind == "csv" else NEW
    for some in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(computed(some.score_samples(new)), right()[0])
    assert loaded.categorical == columns_of(kind)
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

    model = LPE(4, categorical=columns_of(kind), **GIVEN).fit(KINDS[kind](NOMINAL))

    p_values, own = right()
    np.testing.assert_array_equal(computed(model.score_samples(KINDS[kind](NEW))), p_values)
    np.testing.assert_array_equal(computed(model.p_values_), own)


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


SENT_KINDS = ["pandas", "array", "dask frame", "parquet", "csv"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "place"),
    mostly_full(
        itertools.product(SENT_KINDS, PLACES), [("array", "entered"), ("parquet", "large")]
    ),
)
def test_cluster__gives_the_same_numbers(kind, place, client, monkeypatch):
    p_values, own = right()
    monkeypatch.setattr(*PLACES[place])

    model = LPE(4, categorical=columns_of(kind), **GIVEN).fit(KINDS[kind](NOMINAL))

    np.testing.assert_array_equal(computed(model.score_samples(KINDS[kind](NEW))), p_values)
    np.testing.assert_array_equal(computed(model.p_values_), own)

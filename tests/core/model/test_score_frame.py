"""All results of rows as one table, of one search; and why rows have no p-value."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import definitions
import lpe_dask
from choosing import mostly_full
from lpe_dask import LPE
from lpe_dask.search import join
from problems import computed, lattice

NAMES = ["a", "b", "c"]
NOMINAL = pd.DataFrame(lattice(60, 0), columns=NAMES)
ROWS = pd.DataFrame(lattice(20, 1, -3, 13), columns=NAMES, index=np.arange(20) * 3)
ROWS.iloc[7, 1], ROWS.iloc[9, 2], ROWS.iloc[11] = np.nan, -np.inf, [np.inf, 0, np.nan]
STATUSES = [definitions.status(row) for row in ROWS.to_numpy()]


def _unknown(frame):
    array = da.from_array(frame.to_numpy(), (7, 3))
    return array[(array[:, 0] < 99) | ~(array[:, 0] < 99)]


#: Kinds of rows, made of a frame, and of what is found for them.
KINDS = {
    "numpy": (lambda frame: frame.to_numpy(), pd.DataFrame),
    "pandas": (lambda frame: frame, pd.DataFrame),
    "dask array": (lambda frame: da.from_array(frame.to_numpy(), (7, 3)), dd.DataFrame),
    "unknown chunks": (_unknown, dd.DataFrame),
    "dask frame": (lambda frame: dd.from_pandas(frame, npartitions=3), dd.DataFrame),
    "polars": (lambda frame: pl.from_pandas(frame, nan_to_null=False), pl.DataFrame),
    "arrow": (lambda frame: pa.Table.from_pandas(frame, preserve_index=False), pa.Table),
    "rows": (lambda frame: frame.to_dict("records"), pd.DataFrame),
    "stream": (
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(),
        pa.Table,
    ),
}

MODELS = {
    "loo": {"n_neighbors": 2},
    "conformal": {"n_neighbors": 2, "calibration": "conformal"},
    "some": {"n_neighbors": 2, "calibration_size": 5},
    "radius": {"graph": "radius", "radius": 4.0},
    "weighed": {
        "n_neighbors": 2,
        "anomaly_log_density": lambda rows: -np.abs(rows).sum(axis=1),
    },
    "approximate": {"n_neighbors": 2, "algorithm": "nn_descent", "max_p_error": 0.99},
}
OPTIONS = {"alpha": 0.1, "random_state": 0, "missing": "drop"}


def fitted(name, nominal=NOMINAL):
    return LPE(**OPTIONS, **MODELS[name]).fit(nominal)


def as_frame(table):
    """Return a table as pandas has it, with NaN for null."""
    table = table.to_pandas() if isinstance(table, pl.DataFrame | pa.Table) else table
    frame = table.compute() if hasattr(table, "compute") else table
    floats = frame[["p_value", "statistic"]].astype(float)
    flags = frame["is_anomaly"].astype("boolean")
    return floats.assign(is_anomaly=flags, status=frame["p_value_status"].astype(str))


def assert_is_of(frame, p_values, statistic, index):
    expected = pd.DataFrame({"p_value": p_values, "statistic": statistic}, index)
    pd.testing.assert_frame_equal(frame[["p_value", "statistic"]], expected)
    flags = [pd.NA if np.isnan(p) else p <= 0.1 for p in p_values]
    assert frame["is_anomaly"].tolist() == flags
    assert frame["status"].tolist() == STATUSES


@pytest.mark.parametrize(
    ("name", "kind"),
    mostly_full(
        [(name, kind) for name in MODELS for kind in KINDS],
        [("loo", kind) for kind in KINDS]
        + [("weighed", "dask frame"), ("weighed", "pandas"), ("weighed", "dask array")],
    ),
)
def test_score_frame__has_what_each_method_returns(name, kind):
    make, result = KINDS[kind]
    nominal = (
        NOMINAL.to_numpy() if kind in ("numpy", "dask array", "unknown chunks") else NOMINAL
    )
    model = fitted(name, nominal)
    X = make(ROWS)

    table = model.score_frame(X)

    assert isinstance(table, result)
    if kind == "unknown chunks":
        make = pd.DataFrame.to_numpy
    p_values, statistic = (
        np.asarray(computed(getattr(model, method)(make(ROWS))))
        for method in ("score_samples", "statistic")
    )
    frame = as_frame(table)
    has_index = kind in ("pandas", "dask frame")
    index = ROWS.index if has_index else pd.RangeIndex(len(ROWS))
    assert_is_of(frame, p_values, statistic, index)
    if isinstance(table, dd.DataFrame):
        pd.testing.assert_frame_equal(
            table._meta, table.compute().iloc[:0], check_index_type=False
        )


@pytest.mark.parametrize(
    ("name", "kind"),
    mostly_full(
        [(name, kind) for name in MODELS for kind in KINDS],
        [("loo", kind) for kind in KINDS]
        + [("some", "dask frame"), ("some", "pandas"), ("some", "dask array")],
    ),
)
def test_score__returns_the_same_of_rows_among_themselves(name, kind):
    arguments = OPTIONS | MODELS[name]
    X = KINDS[kind][0](ROWS)

    table = lpe_dask.score(X, output="frame", **arguments)

    model = LPE(**arguments).fit(KINDS[kind][0](ROWS))
    p_values, statistic = (
        np.asarray(computed(of)) for of in (model.p_values_, model.statistic_)
    )
    index = ROWS.index if kind in ("pandas", "dask frame") else pd.RangeIndex(len(ROWS))
    assert_is_of(as_frame(table), p_values, statistic, index)


@pytest.mark.parametrize("kind", KINDS)
def test_status__is_of_the_kind_of_the_rows(kind):
    arrays = ("numpy", "dask array", "unknown chunks")
    model = fitted("loo", NOMINAL.to_numpy() if kind in arrays else NOMINAL)

    found = model.status(KINDS[kind][0](ROWS))

    kinds = {"pandas": pd.Series, "dask frame": dd.Series, "polars": pl.Series}
    kinds |= dict.fromkeys(arrays[1:], da.Array)
    kinds |= dict.fromkeys(["arrow", "stream"], pa.Array)
    assert isinstance(found, kinds.get(kind, np.ndarray))
    found = found.to_pylist() if isinstance(found, pa.Array) else list(computed(found))
    assert found == STATUSES


def test_status__of_a_missing_and_of_an_infinite_category():
    nominal = pd.DataFrame({"n": [0.0, 1, 2, 3], "c": [1.0, 2, 1, 2]})
    model = LPE(1, categorical=["c"]).fit(nominal)
    rows = pd.DataFrame({"n": [0.0] * 4, "c": [1.0, 7.0, np.nan, np.inf]})

    found = model.score_frame(rows)

    expected = ["ok", "ok", "missing value", "infinite value"]
    assert found["p_value_status"].tolist() == expected
    assert found["p_value"].isna().tolist() == [False, False, True, True]
    assert model.explain(rows, top=1)["p_value"].isna().tolist() == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("kind", ["dask array", "dask frame", "pandas"])
def test_score_frame__searches_once(monkeypatch, kind):
    """Three results of a notebook took three searches."""
    n_searched, search = [], join._in_passes

    def counting(rows, *given):
        n_searched.append(len(rows))
        return search(rows, *given)

    nominal = NOMINAL.to_numpy() if kind == "dask array" else NOMINAL
    for name in ("loo", "weighed"):
        model = fitted(name, nominal)
        n_searched.clear()
        with monkeypatch.context() as patch:
            patch.setattr(join, "_in_passes", counting)
            computed(model.score_frame(KINDS[kind][0](ROWS)))
        assert sum(n_searched) == len(ROWS)


def test_score__of_another_output_is_refused():
    with pytest.raises(ValueError, match="output='table' is not available; this version"):
        lpe_dask.score(NOMINAL, output="table")

"""Tables in memory as people have them: a case of each line of docs/guide/input.md."""

import logging
import pickle
import re
import sqlite3
from collections import namedtuple
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import lpe_dask
from choosing import mostly_full
from lpe_dask import LPE

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "input.md"

RNG = np.random.default_rng(13)
NOMINAL = pd.DataFrame({"a": RNG.random(100), "b": 100 * RNG.random(100)})
MODEL = LPE(4).fit(NOMINAL)
#: Other p-values if they were taken by position.
ROWS = pd.DataFrame({"b": [50.0, 500.0, 20.0], "a": [0.5, 0.5, 0.1]})
ARRAY = ROWS[["a", "b"]].to_numpy()
GAPS = ARRAY.copy()
GAPS[1, 0] = GAPS[2, 1] = np.nan
MASKED = np.ma.array(np.where(np.isnan(GAPS), 1e6, GAPS), mask=np.isnan(GAPS))
NULLS = {"b": [50, 500, None], "a": [0.5, None, 0.1]}
EXPECTED, WITH_GAPS = MODEL.score_samples(ARRAY), MODEL.score_samples(GAPS)

POLARS, ARROW = pl.from_pandas(ROWS), pa.Table.from_pandas(ROWS)
RECORDS = ROWS.to_dict("records")
STRUCTURED = ROWS.to_records(index=False)
Named = namedtuple("Named", ["b", "a"])


@dataclass
class Data:
    b: float
    a: float


class Stream:
    def __arrow_c_stream__(self, requested_schema=None):
        return ARROW.__arrow_c_stream__(requested_schema)


class Batch:
    def __arrow_c_array__(self, requested_schema=None):
        return ARROW.to_batches()[0].__arrow_c_array__(requested_schema)


class Stored:
    """As datasets of HDF5 are: no array, but with its type."""

    dtype, shape = STRUCTURED.dtype, STRUCTURED.shape

    def __array__(self, dtype=None, copy=None):
        return STRUCTURED


def of_database():
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE rows (b REAL, a REAL)")
    connection.executemany("INSERT INTO rows VALUES (?, ?)", ROWS.to_numpy().tolist())
    found = connection.execute("SELECT * FROM rows").fetchall()
    connection.close()
    return found


def big_endian():
    rows = [tuple(row) for row in ROWS.to_numpy()]
    return np.array(rows, [("b", ">f8"), ("a", ">f8")])


def masked_fields():
    rows = [*map(tuple, MASKED.data)]
    mask = [*map(tuple, MASKED.mask)]
    return np.ma.array(rows, mask=mask, dtype=[("a", float), ("b", float)])


def masked_blocks_that_are_not_declared():
    whole = dask.delayed(MASKED)
    return da.from_delayed(whole, MASKED.shape, float)


#: Type of the result -> line of the page -> what is brought, with names.
BY_NAME = {
    pd.Series: {
        "a pandas DataFrame": [ROWS],
        "a frame of narwhals": [nw.from_native(ROWS)],
    },
    dd.Series: {"a Dask DataFrame": [dd.from_pandas(ROWS, npartitions=2)]},
    pl.Series: {
        "a Polars DataFrame": [POLARS],
        "a Polars LazyFrame": [POLARS.lazy()],
        "a frame of narwhals": [nw.from_native(POLARS)],
        "columns in another order": [POLARS.select("a", "b")],
        "columns that were not fitted": [
            POLARS.with_columns(c=pl.lit([1])),
            POLARS.lazy().with_columns(c=pl.lit("x")),
        ],
    },
    pa.Array: {
        "an Arrow table, record batch, reader or array of structs": [
            ARROW,
            ARROW.to_batches()[0],
            pa.array(RECORDS),
        ],
        "an Arrow table that has the index of a pandas frame": [
            pa.Table.from_pandas(ROWS.set_axis(["x", "y", "z"]))
        ],
        "another object with the C interface of Arrow": [Stream(), Batch()],
        "columns in another order": [ARROW.select(["a", "b"])],
        "columns that were not fitted": [ARROW.append_column("c", [["x"] * 3])],
    },
    np.ndarray: {
        "a dict of columns: lists, arrays, Series, dicts": [
            ROWS.to_dict("list"),
            ROWS.to_dict(),
            dict(ROWS.items()),
            {"b": ROWS["b"].array, "a": ROWS["a"].to_numpy()},
            {"b": POLARS["b"], "a": ARROW["a"]},
            {"b": ARROW["b"].combine_chunks(), "a": pd.Index(ROWS["a"])},
        ],
        "a structured array of NumPy": [STRUCTURED, big_endian(), Stored()],
        "a list of dicts, named tuples, dataclass objects or rows of a database": [
            RECORDS,
            tuple(RECORDS),
            [Named(*row) for row in ROWS.to_numpy()],
            [Data(*row) for row in ROWS.to_numpy()],
            [*ROWS.itertuples()],
            [row for _, row in ROWS.iterrows()],
            [*STRUCTURED],
            of_database(),
        ],
        "columns that were not fitted": [
            [{"c": date(2026, 1, 1), **row} for row in RECORDS]
        ],
    },
}
BY_POSITION = {
    np.ndarray: {
        "a NumPy array": [ARRAY],
        "a list of rows without names": [ARRAY.tolist(), [*map(tuple, ARRAY)], [*ARRAY]],
    },
    da.Array: {"a Dask array": [da.from_array(ARRAY, chunks=(2, 1))]},
}
MISSING = {
    np.ndarray: {
        "a masked array of NumPy": [
            MASKED,
            MASKED.astype(object),
            masked_fields(),
            {"b": MASKED[:, 1], "a": MASKED[:, 0]},
        ],
        "a list with masked values, or of masked rows": [
            [*MASKED],
            [*masked_fields()],
            [[row[0], row[1]] for row in MASKED],
            {"b": [*MASKED[:, 1]], "a": [*MASKED[:, 0]]},
        ],
        "null in a column of Polars or Arrow": [NULLS],
        "a list of dicts, some without a key": [
            [{"a": 0.5, "b": 50.0}, {"b": 500.0}, {"a": 0.1}]
        ],
    },
    da.Array: {
        "a Dask array with masked blocks": [
            da.from_array(MASKED, chunks=(2, 1)),
            da.ma.masked_invalid(da.from_array(GAPS, chunks=(1, 2))),
            masked_blocks_that_are_not_declared(),
        ]
    },
    pl.Series: {"null in a column of Polars or Arrow": [pl.DataFrame(NULLS)]},
    pa.Array: {"null in a column of Polars or Arrow": [pa.table(NULLS)]},
}
#: Line of the page, what is brought, the type of the result, and its values.
READ = [
    (line, X, kind, expected)
    for table, expected in (
        (BY_NAME, EXPECTED),
        (BY_POSITION, EXPECTED),
        (MISSING, WITH_GAPS),
    )
    for kind, lines in table.items()
    for line, tables in lines.items()
    for X in tables
]


def computed(values):
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


@pytest.mark.parametrize(("line", "X", "kind", "expected"), READ)
def test_score_samples__finds_columns_and_missing_values(line, X, kind, expected):
    """By name where there are any, else by position."""
    actual = MODEL.score_samples(X)

    assert isinstance(actual, kind)
    if kind in (pd.Series, dd.Series, pl.Series):
        assert actual.name == "p_value"
    np.testing.assert_array_equal(computed(actual), expected)


def test_score_samples__takes_names_by_position_where_an_array_was_fitted():
    model = LPE(4).fit(NOMINAL.to_numpy())

    actual = model.score_samples(POLARS.select("a", "b"))

    assert isinstance(actual, pl.Series)
    np.testing.assert_array_equal(actual, EXPECTED)


SCALARS = {"a": 0.5, "b": 50.0}
WIDE = {"a": np.ones((3, 2)), "b": [1, 2, 3]}
LAZY = {"a": da.from_array(ARRAY[:, 0]), "b": da.from_array(ARRAY[:, 1])}
OTHER_INDEX = {"a": pd.Series([0.5, 0.5]), "b": pd.Series([50.0, 500.0], [1, 0])}
LAZY_STRUCTURED = da.from_array(np.asarray(STRUCTURED), chunks=2)
NESTED = np.zeros(3, [("a", [("c", float)]), ("b", float)])
TWICE = pa.table([[1.0]] * 3, names=["a", "b", "b"])
DURATION = np.timedelta64(1, "ns")


def first_of_a(X):
    return {**X, "a": X["a"][:, 0]}


def stacked(X):
    return dd.from_dask_array(da.stack(list(X.values()), axis=1), columns=list(X))


def raveled(X):
    return pd.DataFrame(X.ravel())


#: Line of the page -> what is brought, the error, and what it says is to be done.
INVALID_INPUT = {
    "a column that was fitted is not there": [
        (POLARS.drop("b"), ValueError, r"lack the columns \['b'\].*found are \['a'\]"),
        (POLARS.lazy().drop("b"), ValueError, r"lack .*found are \['a'\]"),
        (ARROW.drop(["b"]), ValueError, r"lack the columns \['b'\]"),
        ([{"a": 1}], ValueError, r"lack the columns \['b'\]"),
        ({}, ValueError, r"lack the columns \['a', 'b'\]"),
    ],
    "two columns of one name": [
        (TWICE, ValueError, r"\['b'\] occur more than once", lambda X: X.select([0, 1]))
    ],
    "a column of text, dates or times": [
        (POLARS.with_columns(a=pl.lit("x")), TypeError, "'a' "),
        (POLARS.with_columns(a=pl.lit(date(2026, 1, 1))), TypeError, "'a' "),
        (ROWS.assign(a=pd.Series([DURATION] * 3, dtype=object)), TypeError, "'a' "),
        ([[1.0, DURATION]], TypeError, r"not: 1 \("),
        (POLARS.with_columns(a=pl.lit(42).cast(pl.Time)), TypeError, "'a': 'time64"),
        (POLARS.cast(pl.Int128), TypeError, "'a': 'Int128'"),
    ],
    "a dict of Series with different indexes": [
        (OTHER_INDEX, ValueError, r"pd.DataFrame\(X\)", pd.DataFrame)
    ],
    "a dict of columns of different lengths": [
        ({"a": [1], "b": [1, 2]}, ValueError, "'b': 2")
    ],
    "a dict of single values": [
        (SCALARS, ValueError, r"\[X\], for a single row", lambda X: [X])
    ],
    "a dict or structured array with several values of a column for each row": [
        (WIDE, ValueError, r"the shapes \{'a': \(3, 2\)\}", first_of_a),
        (
            NESTED,
            TypeError,
            r"not: 'a' \(\[\('c', ",
            lambda X: {"a": X["a"]["c"], "b": X["b"]},
        ),
    ],
    "a dict of Dask collections": [
        (LAZY, TypeError, "dask.compute", lambda X: dask.compute(X)[0]),
        (LAZY, TypeError, "dask.array.stack", stacked),
    ],
    "a structured array of Dask, or not of one dimension": [
        (LAZY_STRUCTURED, TypeError, "from_dask_array", dd.from_dask_array),
        (STRUCTURED.reshape(1, 3), TypeError, "ravel", raveled),
        (np.asarray(STRUCTURED)[0], TypeError, "ravel", raveled),
    ],
    "a list of rows of different lengths": [
        (rows, ValueError, r"row 0 is \[0\.5, 50\.0\], and row 1 is ")
        for rows in ([[0.5, 50.0], [0.5]], [[0.5, 50.0], SCALARS])
    ],
    "a list in which only some rows have names": [
        ([*RECORDS, [1, 2]], TypeError, "row 3 has none", lambda X: X[:3])
    ],
    "a generator, or other rows that can be read only once": [
        (iter(ARRAY.tolist()), TypeError, r"list\(X\)", list),
        (dict(enumerate(ARRAY)).values(), TypeError, r"list\(X\)", list),
    ],
    "a single row with names": [
        (row, TypeError, r"\[X\]", lambda X: [X])
        for row in (Named(0.5, 50.0), Data(0.5, 50.0))
    ],
    "a bag of Dask, or delayed rows": [
        (rows, TypeError, "from_delayed")
        for rows in (db.from_sequence(RECORDS), dask.delayed(ROWS), [dask.delayed(ROWS)])
    ],
    "a series, or a list of numbers": [
        (X, ValueError, "Reshape your data")
        for X in (POLARS["a"], ROWS["a"], ARROW["a"], pa.array(ARRAY[:, 0]), [1.0, 2.0])
    ],
    "a sparse matrix": [
        (make(ARRAY), TypeError, "toarray", lambda X: X.toarray())
        for make in (scipy.sparse.csr_array, scipy.sparse.dok_array)
    ],
}


@pytest.mark.parametrize(
    "case", [case for cases in INVALID_INPUT.values() for case in cases]
)
def test_score_samples__refuses_with_a_remedy_that_works(case):
    X, error, match, *remedies = case

    with pytest.raises(error, match=match):
        MODEL.score_samples(X)

    for remedy in remedies:
        assert np.isfinite(computed(MODEL.score_samples(remedy(X)))).all()


def test_page__has_a_line_for_each_case():
    lines = re.findall(r"^\| (?!what \||---)(.+?) \|", PAGE.read_text(), re.MULTILINE)

    cases = {line for line, *_ in READ} | INVALID_INPUT.keys()
    assert {*lines} == cases | {"a table with names, where an array was fitted"}


# What all methods do


KINDS = {
    "polars": (pl.from_pandas, pl.Series),
    "lazy": (lambda frame: pl.from_pandas(frame).lazy(), pl.Series),
    "arrow": (pa.Table.from_pandas, pa.Array),
    "reader": (lambda frame: pa.Table.from_pandas(frame).to_reader(), pa.Array),
    "dict": (lambda frame: frame.to_dict("list"), np.ndarray),
    "dask": (lambda frame: dd.from_pandas(frame, npartitions=2), dd.Series),
}


@pytest.mark.parametrize("name", mostly_full(KINDS, ["polars", "reader", "dict", "dask"]))
def test_results__are_those_of_pandas_in_the_kind_that_came_in(name):
    make, kind = KINDS[name]
    given = NOMINAL[["b", "a"]]
    model = LPE(4, calibration="split", random_state=0).fit(make(given))
    plain = LPE(4, calibration="split", random_state=0).fit(given)

    for method in ("score_samples", "statistic", "predict", "decision_function"):
        actual, expected = getattr(model, method)(make(ROWS)), getattr(plain, method)(ROWS)
        assert isinstance(actual, kind)
        assert getattr(actual, "name", expected.name) == expected.name
        np.testing.assert_array_equal(actual, expected)
    assert [*model.feature_names_in_] == ["b", "a"]
    for actual, expected in [
        (model.p_values_, plain.p_values_),
        (pickle.loads(pickle.dumps(model)).statistic_, plain.statistic_),
        (LPE(4).fit_predict(make(given)), LPE(4).fit_predict(given)),
        (lpe_dask.score(make(NOMINAL), columns=["b"]), lpe_dask.score(NOMINAL[["b"]])),
        (lpe_dask.score(make(ROWS), make(NOMINAL)), lpe_dask.score(ROWS, NOMINAL)),
    ]:
        assert isinstance(actual, kind)
        np.testing.assert_array_equal(actual, expected)
    assert model.check_calibration().as_json() == plain.check_calibration().as_json()
    for method in ("explain", "nearest_nominal"):
        actual, expected = getattr(model, method)(make(ROWS)), getattr(plain, method)(ROWS)
        pd.testing.assert_frame_equal(actual, expected)
    assert str(lpe_dask.plan(make(ROWS), make(NOMINAL))).startswith("rows    3 to score")


@pytest.mark.parametrize("make", [pl.Series, pa.array, lambda p: pa.chunked_array([p])])
def test_decisions__are_of_the_kind_of_the_p_values(make):
    p_values = [0.01, 0.5, None, 0.04]
    plain = np.array(p_values, float)

    flags = lpe_dask.false_discovery_control(make(p_values))
    adjusted = lpe_dask.false_discovery_control(make(p_values), adjusted=True)

    kind = pl.Series if make is pl.Series else pa.Array
    assert isinstance(flags, kind)
    assert isinstance(adjusted, kind)
    if make is pl.Series:
        assert (flags.name, adjusted.name) == ("is_anomaly", "q_value")
    np.testing.assert_array_equal(flags, lpe_dask.false_discovery_control(plain))
    expected = lpe_dask.false_discovery_control(plain, adjusted=True)
    np.testing.assert_array_equal(adjusted, expected)
    found, judged = (lpe_dask.drift(p, MODEL, run="a") for p in (make(p_values), plain))
    assert str(found) == str(judged)


def test_plot_level_set__takes_rows_by_name():
    from matplotlib.figure import Figure

    for X in (POLARS, MASKED):
        ax = lpe_dask.plot_level_set(MODEL, X, resolution=5, ax=Figure().subplots())

        drawn = {point for line in ax.lines for point in zip(*line.get_data(), strict=True)}
        expected = {*zip(*computed(ROWS[["a", "b"]]).T, strict=True)}
        assert drawn & expected == (expected if X is POLARS else {(0.5, 50.0)})


def test_lazy_frames__are_collected_once_and_said(caplog):
    caplog.set_level(logging.INFO, "lpe_dask")

    LPE(4, categorical="auto").fit(pl.from_pandas(NOMINAL).lazy())

    assert caplog.text.count("100 rows, 2 columns") == 1


# Types of columns


START = 2**60


@pytest.mark.parametrize(
    "make",
    [
        pl.DataFrame,
        pa.table,
        dict,
        lambda X: [{"t": v} for v in X["t"]],
        lambda X: pl.DataFrame(X, schema={"t": pl.UInt64}),
        lambda X: np.ma.array(
            [[v or 0] for v in X["t"]], mask=[[v is None] for v in X["t"]]
        ),
        lambda X: [[np.ma.masked if v is None else v] for v in X["t"]],
    ],
)
def test_whole_numbers__keep_their_digits_beside_missing_ones(make):
    nominal = [START + 2 * i for i in range(40)]
    plain = LPE(1).fit(pd.DataFrame({"t": pd.array(nominal, "Int64")}))
    values = [START + 2, None, START + 3, START + 99]
    expected = plain.score_samples(pd.DataFrame({"t": pd.array(values, "Int64")}))

    model = LPE(1, missing="drop").fit(make({"t": [*nominal, None]}))

    np.testing.assert_array_equal(model.score_samples(make({"t": values})), expected)
    assert expected.tolist()[3] == 0


TEXT = ["x", None, "other"]


@pytest.mark.parametrize(
    "make",
    [
        pl.DataFrame,
        lambda X: pl.DataFrame(X, schema_overrides={"k": pl.Categorical}),
        lambda X: pl.DataFrame(X, schema_overrides={"k": pl.Enum(["other", "x", "y"])}),
        pa.table,
        lambda X: pa.table({**X, "k": pa.array(X["k"]).dictionary_encode()}),
        dict,
        lambda X: [{"a": a, "k": k} for a, k in zip(X["a"], X["k"], strict=True)],
    ],
)
def test_categories__are_those_of_pandas(make):
    nominal = pd.DataFrame({"a": NOMINAL["a"], "k": ["x", "y"] * 50})
    rows = {"a": [0.5, 0.5, 0.5], "k": TEXT}
    expected = LPE(4, categorical="auto").fit(nominal).score_samples(pd.DataFrame(rows))

    model = LPE(4, categorical="auto").fit(make(nominal.to_dict("list")))

    np.testing.assert_array_equal(model.score_samples(make(rows)), expected)
    np.testing.assert_array_equal(np.isnan(expected), [False, True, False])


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32, object, str])
@pytest.mark.parametrize("categorical", [None, [0, 1]])
def test_masked_values__of_any_type_are_missing(dtype, categorical):
    if dtype is str and categorical is None:
        categorical = "auto"
    values = np.arange(60).reshape(30, 2) // 2 % 2
    mask = np.arange(60).reshape(30, 2) % 29 == 28
    masked = np.ma.array(values.astype(dtype), mask=mask)
    objects = masked.data.astype(object)
    objects[mask] = None
    plain = LPE(2, missing="drop", categorical=categorical).fit(objects).p_values_
    assert np.isnan(plain).sum() == 2

    for X in (masked, da.from_array(masked, chunks=(7, 1))):
        model = LPE(2, missing="drop", categorical=categorical).fit(X)
        np.testing.assert_array_equal(computed(model.p_values_), plain)
    with pytest.raises(ValueError, match="column 0 "):
        LPE(2, categorical=categorical).fit(masked)

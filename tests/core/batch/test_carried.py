"""What is carried over from files to the output comes out as it went in."""

import itertools
import re
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lpe_dask
from arrow_values import VALUES, column, newer_values
from choosing import dealt, mostly_dealt, mostly_full, pairs
from lpe_dask.batch.api import score_files
from lpe_dask.tables import parquet_files
from lpe_dask.tables.errors import TableError


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    """Partitions of at most 4 rows."""
    monkeypatch.setattr(parquet_files, "PARTITION_ROWS", 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The path of a model that measures ``x``."""
    path = tmp_path_factory.mktemp("models") / "model"
    rows = np.random.default_rng(0).standard_normal((30, 1))
    lpe_dask.LPE(3).fit(pd.DataFrame(rows, columns=["x"])).save(path)
    return path


def write_table(folder, name, columns, n_rows=8):
    """Write a file of two partitions, with a column that is measured."""
    folder.mkdir(exist_ok=True)
    table = pa.table({"x": np.arange(n_rows) / n_rows, **columns})
    pq.write_table(table, folder / name, row_group_size=4)


@pytest.mark.parametrize(
    ("missing", "decides"),
    mostly_dealt(["none", "some", "all"], ["alpha", "fdr"]),
)
def test_score_files__carries_over_every_type(tmp_path, model, missing, decides):
    """Missing are none, some or all values of the first part; later parts have values."""
    n_missing = {"none": 0, "some": 2, "all": 4}[missing]
    values = dict(enumerate([*VALUES, *newer_values()]))
    for file, n_null in (("a.parquet", n_missing), ("b.parquet", 1)):
        columns = {
            f"c{i}": column(arrow_type, [None] * n_null + [value] * (8 - n_null))["c"]
            for i, (arrow_type, value) in values.items()
        }
        write_table(tmp_path / "data", file, columns)

    score_files(tmp_path / "data", tmp_path / "out", model=model, **{decides: 0.1})

    given, actual = pq.read_table(tmp_path / "data"), pq.read_table(tmp_path / "out")
    assert actual.schema.names == [
        *given.schema.names,
        "p_value",
        "statistic",
        "is_anomaly",
        "p_value_status",
        *(["q_value"] if "fdr" in decides else []),
    ]
    for name in given.schema.names:
        assert actual.schema.field(name) == given.schema.field(name)
        # As text, as NaN is not equal to itself.
        assert repr(actual[name].to_pylist()) == repr(given[name].to_pylist())
    expected = pd.read_parquet(tmp_path / "data")
    frame = pd.read_parquet(tmp_path / "out")
    pd.testing.assert_frame_equal(frame[expected.columns], expected)
    assert frame["is_anomaly"].dtype == "boolean"


def test_score_files__carries_over_what_it_measures(tmp_path, model):
    """A nullable column, whose numbers are not written as floats."""
    x = pa.array([None, 2**53 - 1, 3])
    write_table(tmp_path / "data", "a.parquet", {"x": x}, 3)

    score_files(tmp_path / "data", tmp_path / "out", model=model)

    actual = pq.read_table(tmp_path / "out")
    assert actual["x"].combine_chunks() == x
    assert actual["p_value"].to_pylist()[:2] == [None, 0.0]


def test_score_files__carries_over_what_pandas_says_of_a_column(tmp_path, model):
    frame = pd.DataFrame(
        {
            "x": np.arange(6.0),
            "id": pd.array([2**60 + 1, None, 3, 4, 5, 6], "Int64"),
            "flag": pd.array([True, None] * 3, "boolean"),
            "kind": pd.Categorical(list("abcabc"), categories=list("cba"), ordered=True),
        }
    )
    frame.columns.name = "feature"
    frame.to_parquet(tmp_path / "data.parquet", row_group_size=4)

    score_files(tmp_path / "data.parquet", tmp_path / "out", model=model)

    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out")[frame.columns], frame)


TIMES = pd.date_range("2026-03-29", periods=12, freq="h", tz="Europe/Zurich")
INDEXES = {
    "range": pd.RangeIndex(100, 112),
    "steps": pd.RangeIndex(0, -24, -2),
    "named range": pd.RangeIndex(5, 17, name="id"),
    "numbers": pd.Index(np.arange(12) ** 2, name="square"),
    "text": pd.Index(list("abcdefghijkl")),
    "times": pd.DatetimeIndex(TIMES, freq=None, name="at"),
    "levels": pd.MultiIndex.from_product([range(3), list("abcd")], names=["a", None]),
}


OPTIONS = INDEXES, [(0, 12), (0, 5, 12)], [None, ("x",), ()]


@pytest.mark.parametrize(
    ("kind", "edges", "keep"),
    mostly_full([*pairs(*OPTIONS), *dealt(*OPTIONS)], dealt(*OPTIONS)),
)
def test_score_files__keeps_the_index(tmp_path, model, kind, edges, keep):
    frame = pd.DataFrame({"x": np.arange(12.0), "note": "text"}, index=INDEXES[kind])
    (tmp_path / "data").mkdir()
    for start, stop in itertools.pairwise(edges):
        path = tmp_path / "data" / f"{start:02}.parquet"
        frame.iloc[start:stop].to_parquet(path, row_group_size=4)

    keep = keep and list(keep)
    score_files(tmp_path / "data", tmp_path / "out", model=model, keep=keep)

    actual = pd.read_parquet(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("part-*"))) == len(edges) + 1
    pd.testing.assert_index_equal(actual.index, frame.index, exact="equiv")
    names = ["x", "note"] if keep is None else keep
    results = ["p_value", "statistic", "is_anomaly", "p_value_status"]
    assert list(actual.columns) == [*names, *results]
    if kind == "range":  # Dask knows no levels
        again = dd.read_parquet(tmp_path / "out")["p_value"].compute()
        assert again.tolist() == actual["p_value"].tolist()
    series = lpe_dask.load(model).score_samples(tmp_path / "data")
    pd.testing.assert_series_equal(series.compute(), actual["p_value"])


def test_score_files__counts_the_rows_where_an_index_was_left_out(tmp_path, model):
    frame = pd.DataFrame({"x": np.arange(6.0)}, index=list("abcdef"))
    pq.write_table(pa.Table.from_pandas(frame).select(["x"]), tmp_path / "data.parquet")

    score_files(tmp_path / "data.parquet", tmp_path / "out", model=model)

    assert pd.read_parquet(tmp_path / "out").index.equals(pd.RangeIndex(6))


def test_score_files__carries_over_what_stands_in_names_of_folders(tmp_path, model):
    (tmp_path / "data").mkdir()
    for key in ("site=a", "site=b"):
        write_table(tmp_path / "data" / key, "a.parquet", {})

    score_files(tmp_path / "data", tmp_path / "out", model=model)

    given, actual = pq.read_table(tmp_path / "data"), pq.read_table(tmp_path / "out")
    assert actual["site"].to_pylist() == ["a"] * 8 + ["b"] * 8
    assert actual.schema.field("site") == given.schema.field("site")


@pytest.mark.parametrize(
    ("of_first", "of_second", "error"),
    [
        (pa.array([Decimal(2**53 + 1)], pa.decimal128(38, 0)), pa.array([0.5]), ValueError),
        (pa.array([Decimal("1.10")]), pa.array([0.5], pa.float32()), ValueError),
        (pa.array([{"a": Decimal("1.10")}]), pa.array([{"a": 0.5}]), ValueError),
        (pa.array([2**53 + 1]), pa.array([0.5]), TableError),
        (pa.array([2**63], pa.uint64()), pa.array([-1]), TableError),
        (
            pa.array([-(10**17)], pa.timestamp("us")),
            pa.array([1], pa.timestamp("ns")),
            TableError,
        ),
        (pa.array([2**62 + 1]), pa.array([Decimal("1.10")], pa.decimal128(9, 2)), None),
        (pa.array([2**53 - 1]), pa.array([0.5]), None),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), None),
        (pa.array([True]), pa.array([2**60 + 1]), None),
    ],
)
def test_score_files__rounds_nothing_that_is_only_carried_over(
    tmp_path, model, of_first, of_second, error
):
    for i, values in enumerate((of_first, of_second)):
        write_table(tmp_path / "in", f"{i}.parquet", {"y": values}, n_rows=1)

    if error is None:
        score_files(tmp_path / "in", tmp_path / "out", model=model)
        found = pq.read_table(tmp_path / "out")["y"].to_pylist()
        assert found == [*of_first.to_pylist(), *of_second.to_pylist()]
    else:
        words = rf"\by\b.*{re.escape(str(of_first.type))}"
        with pytest.raises(error, match=words) as refused:
            score_files(tmp_path / "in", tmp_path / "out", model=model)
        assert error is ValueError or "--keep" in str(refused.value)
    score_files(tmp_path / "in", tmp_path / "other", model=model, keep=["x"])

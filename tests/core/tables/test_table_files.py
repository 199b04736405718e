"""Tables in files, as users have them."""

import os
import pickle
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFile

import lpe_dask
from choosing import mostly_dealt
from lpe_dask.tables import parquet_files
from lpe_dask.tables.csv_blocks import CSV_SAMPLE_BYTES
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.table_files import FileTable, find_files, open_table, read_frame


def write(path, **columns):
    pq.write_table(pa.table(columns), path)


FRAME = pd.DataFrame(
    {"x": [1, 2, 3, 5], "y": [0.5, 1.5, np.nan, 2.5], "id": ["007", "8", "9", "10"]}
)


def test_read_frame__parquet_with_its_index(tmp_path):
    frame = FRAME.set_index("id")
    frame.to_parquet(tmp_path / "a table.parquet")

    actual = read_frame(tmp_path / "a table.parquet").compute()

    assert actual.index.tolist() == frame.index.tolist()
    assert actual.index.name == "id"
    np.testing.assert_array_equal(actual[["x", "y"]], frame)


def test_read_frame__reads_row_groups_of_parquet_in_parts(tmp_path):
    frame = pd.DataFrame({"x": np.arange(500_000)})
    frame.to_parquet(tmp_path / "x.parquet", row_group_size=50_000)

    actual = read_frame(tmp_path / "x.parquet")

    assert actual.npartitions == 5
    np.testing.assert_array_equal(actual["x"].compute(), frame["x"])


def test_frame__of_many_row_groups_reads_nothing_and_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "PARTITION_ROWS", 1)
    columns = {f"a column with a name {i}": np.zeros(100) for i in range(50)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=1)
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(tmp_path / "a.parquet"), "/groups/a.parquet")
    table, again = (open_table("memory://groups/a.parquet") for _ in range(2))
    opened = []

    with monkeypatch.context() as patch:
        patch.setattr(type(filesystem), "_open", lambda *_, **__: opened.append(1))
        with dask.config.set({"tokenize.ensure-deterministic": True}):
            names = {table.frame()._name, again.frame()._name}

    assert opened == []
    assert len(names) == 1
    assert len(table.parts) == 100
    assert len(pickle.dumps(table.parts)) < 100 * 100
    assert len(table.frame().compute(scheduler="sync")) == 100


def test_frame__of_other_rows_has_another_name(tmp_path):
    names = set()
    for x in (1, 2):
        pd.DataFrame({"x": [x]}).to_parquet(tmp_path / "a.parquet")
        names.add(read_frame(tmp_path / "a.parquet")._name)

    assert len(names) == 2


def test_count_rows__asks_the_footers(tmp_path):
    pd.DataFrame({"x": range(5)}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"x": range(3)}).to_parquet(tmp_path / "b.parquet")
    pd.DataFrame({"x": range(3)}).to_csv(tmp_path / "c.csv")

    both = [tmp_path / "b.parquet", tmp_path / "a.parquet"]
    assert open_table(tmp_path / "*.parquet").n_rows == open_table(both).n_rows == 8
    assert open_table(tmp_path / "c.csv").n_rows is None


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([range(100, 160)], pd.RangeIndex(100, 160, name="id")),
        ([range(60, 0, -2)], pd.RangeIndex(60, 0, -2, name="id")),
        ([range(5, 9), range(9, 9), range(9, 20)], pd.RangeIndex(5, 20, name="id")),
        ([range(9), range(9)], pd.RangeIndex(18)),
        ([range(7), range(8, 9)], pd.RangeIndex(8)),
    ],
)
def test_read_frame__has_the_index_of_one_table(tmp_path, monkeypatch, ranges, expected):
    """Ranges that follow each other make one; else rows are counted, as by pandas."""
    monkeypatch.setattr(parquet_files, "PARTITION_ROWS", 4)
    for i, one in enumerate(ranges):
        index = pd.RangeIndex(one, name="id")
        frame = pd.DataFrame({"x": np.arange(len(one)) * 1.0}, index=index)
        frame.to_parquet(tmp_path / f"{i}.parquet", row_group_size=4)

    frame = read_frame(tmp_path)

    assert frame.npartitions > len(ranges)
    pd.testing.assert_index_equal(frame.compute().index, expected, exact="equiv")


def test_read_frame__is_of_float64_where_any_file_is(tmp_path):
    """Whatever the order of the files: 10**8 + 1 is no float32."""
    small, large = np.arange(20), 10**8 + np.arange(20)
    for place, (a, b) in {"up": "ab", "down": "ba"}.items():
        (tmp_path / place).mkdir()
        write(tmp_path / place / f"{a}.parquet", x=pa.array(small, pa.float32()))
        write(tmp_path / place / f"{b}.parquet", x=pa.array(large, pa.float64()))

    statistics = {
        place: lpe_dask.LPE(1).fit(tmp_path / place).statistic_.compute().tolist()
        for place in ("up", "down")
    }

    assert read_frame(tmp_path / "up")["x"].dtype == np.float64
    assert statistics == {"up": [1.0] * 40, "down": [1.0] * 40}


def test_read_frame__takes_a_csv_without_rows(tmp_path):
    (tmp_path / "0.csv").write_text("x,name\n")

    empty = read_frame(tmp_path / "0.csv", columns=["x"]).compute()
    (tmp_path / "1.csv").write_text("x,name\n1.5,a\n")
    both = read_frame(tmp_path / "*.csv", columns=["x"]).compute()

    assert (len(empty), empty["x"].dtype) == (0, "float64")
    assert both["x"].tolist() == [1.5]


def test_find_files__tells_files_that_changed(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": range(5)}).to_parquet(path)
    ((name, n_bytes, before),) = find_files(path).stamps
    os.utime(path, (1, 1))
    ((_, _, after),) = find_files(path).stamps

    assert (name, n_bytes) == (f"file://{path}", path.stat().st_size)
    assert before != after


def test_read_frame__takes_several_places_in_their_order(tmp_path):
    pd.DataFrame({"x": [1, 2]}).to_parquet(tmp_path / "b.parquet")
    pd.DataFrame({"x": [3]}).to_parquet(tmp_path / "a.parquet")
    fsspec.filesystem("memory").pipe_file("/kept/a.parquet", b"")

    frame = read_frame((tmp_path / "b.parquet", str(tmp_path / "a.*")))

    assert frame.compute()["x"].tolist() == [1, 2, 3]
    with pytest.raises(FileNotFoundError, match="no files are named"):
        read_frame([])
    with pytest.raises(ValueError, match="on different storages"):
        find_files([tmp_path / "a.parquet", "memory://kept/a.parquet"])
    with pytest.raises(ValueError, match=r"a.parquet and .*a.parquet are the same file"):
        read_frame([tmp_path, tmp_path / "a.parquet"])


@pytest.mark.parametrize(
    "path", ["{}", "{}/*.parquet", "file://{}", "{}/part.[01]*.parquet"]
)
def test_read_frame__has_the_order_of_dask(tmp_path, path):
    frame = dd.from_pandas(pd.DataFrame({"x": range(24)}), npartitions=12)
    frame.to_parquet(tmp_path)
    n_rows = 24 if "[" not in path else 8

    actual = read_frame(path.format(tmp_path)).compute()["x"].tolist()

    expected = dd.read_parquet(path.format(tmp_path)).compute()["x"].tolist()
    assert actual == expected == sorted(expected)
    assert len(actual) == n_rows


def test_read_frame__has_the_order_of_dask_for_csv(tmp_path):
    for i in (1, 2, 10):
        pd.DataFrame({"x": [i]}).to_csv(tmp_path / f"{i}.csv", index=False)

    actual = read_frame(tmp_path).compute()["x"].tolist()

    assert actual == dd.read_csv(f"{tmp_path}/*.csv").compute()["x"].tolist()


def test_read_frame__names_columns_of_one_name_and_their_file(tmp_path):
    twice = pa.table([[1.0], [2.0], [3.0]], ["x", "y", "x"])
    pq.write_table(twice, tmp_path / "a.parquet")

    with pytest.raises(ValueError, match=r"a.parquet: column names must.*\['x'\]"):
        read_frame(tmp_path / "a.parquet")


def test_read_frame__of_several_files_whose_names_look_like_patterns(tmp_path):
    for i, name in enumerate(("a.csv", "a[1].csv", "b*.csv", "bc.csv")):
        pd.DataFrame({"x": [i]}).to_csv(tmp_path / name, index=False)

    assert read_frame(f"{tmp_path}/*.csv").compute()["x"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("separator", "ending"),
    mostly_dealt([",", ";", "\t", "|"], [".csv", ".tsv", ".csv.gz"]),
)
def test_read_frame__csv(tmp_path, separator, ending):
    FRAME.to_csv(tmp_path / f"t{ending}", sep=separator, index=False)

    actual = read_frame(str(tmp_path / f"t{ending}"), columns=["x", "y"]).compute()

    assert actual["id"].tolist() == ["007", "8", "9", "10"]
    assert actual["x"].dtype == actual["y"].dtype == np.float64
    np.testing.assert_array_equal(actual[["x", "y"]], FRAME[["x", "y"]])


def test_read_frame__csv_whose_whole_numbers_have_fractions_later(tmp_path):
    """What a column looks like at the beginning does not decide what it may hold."""
    path = tmp_path / "drift.csv"
    n_whole = CSV_SAMPLE_BYTES
    path.write_text("x\n" + "1\n" * n_whole + "0.5\n\n")

    actual = read_frame(path).compute()

    assert len(actual) == n_whole + 1
    assert actual["x"].iloc[-1] == 0.5


@pytest.mark.parametrize("name", ["missing.parquet", "missing", "*.parquet", "s/*.csv"])
def test_read_frame__of_nothing(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"there is no table at .*Parquet or CSV"):
        read_frame(tmp_path / name)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"t.xlsx": "sheet"}, r"holds t\.xlsx\. A table consists of Parquet files"),
        ({"a.csv": "x\n1\n", "b.parquet": ""}, "not of both"),
        ({"t.csv": ""}, "is empty"),
    ],
)
def test_read_frame__says_which_file_and_why(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    path = tmp_path if len(files) > 1 else tmp_path / name

    with pytest.raises(ValueError, match=message):
        read_frame(path)


def test_open_table__refuses_files_whose_indexes_have_nothing_in_common(tmp_path):
    for name, index in (("a", [1, 2]), ("b", ["one", "two"])):
        frame = pd.DataFrame({"x": [0.5, 1.5]}, index=pd.Index(index, name="id"))
        frame.to_parquet(tmp_path / f"{name}.parquet")

    with pytest.raises(ValueError, match=r"b\.parquet and .*a\.parquet .*id \(int64 and"):
        open_table(tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (pa.array([True]), pa.array([7]), pa.int64()),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.string()),
        (pa.array(["a"]), pa.nulls(1), pa.string()),
        (pa.array([1], pa.int32()), pa.array([0.5], pa.float32()), pa.float64()),
        (pa.array([1]), pa.array(["text"]), None),
        (pa.array([[1]], pa.list_(pa.int8())), pa.array([[1000]]), pa.list_(pa.int64())),
    ],
)
def test_open_table__has_types_that_hold_the_values_of_all_files(
    tmp_path, first, second, common
):
    write(tmp_path / "a.parquet", c=first)
    write(tmp_path / "b.parquet", c=second)

    if common is None:
        with pytest.raises(ValueError, match=r"b\.parquet and .*a\.parquet do not belong"):
            read_frame(tmp_path)
    else:
        assert open_table(tmp_path).schema.field("c").type == common


def test_part_labels__tell_the_places_of_row_groups_in_their_file():
    """A file of many rows is read as several partitions."""
    parts = [("out/a.parquet", 0), ("out/a.parquet", 50), ("out/b.parquet", 80)]
    table = SimpleNamespace(parts=[SimpleNamespace(name=n, first=f) for n, f in parts])

    assert FileTable.part_labels(table) == [
        ("a.parquet", 0),
        ("a.parquet", 50),
        ("b.parquet", 0),
    ]


# Damaged files, and storages that fail


def damaged(path, group, column):
    """Write two columns in two row groups, and overwrite a page of one of them."""
    values = np.arange(200.0)
    pq.write_table(pa.table({"x": values, "y": values}), path, row_group_size=100)
    pages = pq.read_metadata(path).row_group(group).column(column)
    with open(path, "r+b") as file:
        file.seek(pages.dictionary_page_offset)
        file.write(bytes(60))


@pytest.mark.parametrize(("group", "column"), [(0, 1), (1, 0), (1, 1)])
def test_read__says_which_column_is_damaged_and_where(tmp_path, group, column):
    damaged(tmp_path / "a.parquet", group, column)
    (part,) = open_table(tmp_path / "a.parquet").parts

    with pytest.raises(TableError, match=f"in row group {group}, column '{'xy'[column]}'"):
        part.read(["x", "y"])


def test_read__of_another_file_under_the_name_says_that_it_is_damaged(tmp_path):
    """No column is read that could be named."""
    (tmp_path / "k=1").mkdir()
    path = tmp_path / "k=1" / "a.parquet"
    write(path, x=[1.0])
    (part,) = open_table(tmp_path).parts
    path.write_bytes(b"another file")

    with pytest.raises(
        TableError, match=r"a\.parquet is damaged: .*Copy or write it again"
    ):
        part.read(["k"])


@pytest.mark.parametrize("step", [1, 2], ids=["rows", "search"])
def test_read__takes_no_failure_of_a_storage_for_damage(tmp_path, monkeypatch, step):
    """Neither while it reads, nor while it finds out what is damaged."""

    def failing(part, names, groups):
        steps.append(names)
        if len(steps) == step:
            raise ConnectionResetError("lost")
        return read_groups(part, names, groups)

    damaged(tmp_path / "a.parquet", 1, 1)
    (part,) = open_table(tmp_path / "a.parquet").parts
    steps, read_groups = [], parquet_files.RowGroups._read_groups
    monkeypatch.setattr(parquet_files.RowGroups, "_read_groups", failing)

    with pytest.raises(TableError, match="in row group 1, column 'y'"):
        part.read(["x", "y"])

    assert steps.count(["x", "y"]) == 2


def test_open_table__reads_a_footer_again_where_a_storage_fails(tmp_path, monkeypatch):
    def failing(file, *arguments):
        if failures:
            raise failures.pop()
        return read(file, *arguments)

    write(tmp_path / "a.parquet", x=[1.0, 2.0])
    fsspec.filesystem("memory").put(str(tmp_path / "a.parquet"), "/failing/a.parquet")
    failures, read = [ConnectionResetError("lost")], MemoryFile.read
    monkeypatch.setattr(MemoryFile, "read", failing)

    assert open_table("memory://failing/a.parquet").n_rows == 2
    assert not failures

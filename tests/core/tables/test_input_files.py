"""Folders and files of users: a case of each line of docs/guide/input_files.md."""

import os
import re
import shutil
import sys
from io import BytesIO
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lpe_dask
from hostile import ATTACKS, limited
from lpe_dask.tables.table_files import open_table, read_frame

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "input_files.md"


def write(path, x, **further):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": x, **further}), path)


def write_tree(folder, tree):
    """Write files, of a number or columns as Parquet; a path is that of a link."""
    for name, content in tree.items():
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if isinstance(content, int):
            write(path, [float(content)])
        elif isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        elif isinstance(content, Path):
            path.symlink_to(folder / content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            content(path)


def parquet():
    pq.write_table(pa.table({"x": [1.0]}), file := BytesIO())
    return file.getvalue()


def hard_link(path):
    os.link(path.with_name("a.pq"), path)


def saved_model(path):
    lpe_dask.LPE(1).fit(np.arange(9.0)[:, None]).save(path)


LINKED = {"in/a.pq": 1, "days/b.pq": 2, "in/days": Path("days")}
LOOP = {"in/sub/a.pq": 1, "in/sub/back": Path("in")}
HIDDEN = {"in/a.pq": 1, "in/_temporary/0/a.pq": 9, "in/.saved/a.pq": 9, "in/.b.pq": 9}
DELTA = {"lake/delta/k=1/a.pq": 1, "lake/delta/_delta_log/": None}
ICEBERG = {"ice/data/a.pq": 1, "ice/metadata/v1.metadata.json": b"{}"}
OUTPUT = {"in/out/part-00000.pq": 1, "in/out/_summary.json": b"{}"}
DIFFERING = {"in/a.pq": {"x": [1.0], "fee": [0.0]}, "in/b.pq": {"x": [2.0], "Fee": [0.0]}}
OTHER_ORDER = {"in/a.pq": {"x": [1.0], "y": [5]}, "in/b.pq": {"y": [6], "x": [2.0]}}
NO_ROWS = {"in/a.pq": 1, "in/b.pq": {"x": pa.array([], "f8")}}
#: A key without a value.
NULL = "k=__HIVE_DEFAULT_PARTITION__"

#: Line of the page -> cases: the values of x or the message, and what there is; perhaps
#: which path is read.
CASES = {
    "a link to a file": [([1], {"b.pq": 1, "in/a.pq": Path("b.pq")})],
    "a link to a folder in a folder": [([1, 2], LINKED), ([1, 2], LINKED, "in/**/*.pq")],
    "a link to a folder that it is in": [("link .*sub/back leads to .*in", LOOP)],
    "a link to nothing": [
        ("link .*gone leads to", {"in/a.pq": 1, "in/gone": Path("nothing")})
    ],
    "a file at two names, by a link": [
        (r"[ab]\.pq are the same file", {"in/a.pq": 1, "in/b.pq": Path("in/a.pq")}),
        ("are the same file", {"in/a.pq": 1, "in/b.pq": hard_link}, "in/a.pq", "in/b.pq"),
    ],
    "hidden files and folders (`_x`, `.x`) below a folder or glob": [
        ([1], HIDDEN),
        ([1], HIDDEN, "in/**/*.pq"),
    ],
    "a hidden file that is named outright": [
        ([1], {"_in/_a.pq": 1}, "_in/_a.pq"),
        ([1], {".in/_data/a.pq": 1}, ".in/_data/*.pq"),
        ([1], {"in/_a.pq": 1, "in/.b.pq": 9}, "in/_*.pq"),
    ],
    "a glob that finds folders": [([1, 2], {"in/a/a.pq": 1, "in/b/b.pq": 2}, "in/*")],
    "a glob with `**` beside other characters": [("only alone", LINKED, "in/**.pq")],
    "a name with `*`, `?`, `[`, `::`, `%20` or spaces that exists": [
        *(
            ([1], {f"in/{name}/{name}.pq": 1}, path)
            for name in ("a*", "b?", "c[1]", "d::e", "f%20g", "h i")
            for path in (f"in/{name}", f"in/{name}/{name}.pq")
        ),
        ([1], {"in/c[1]/a.pq": 1}, "in/c[1]/*.pq"),
        ([1], {"a::b.csv": b"x\n1\n"}, "a::b.csv"),
    ],
    "a Delta table, a file in it, or a folder above it": [
        ("_delta_log.*deltalake", DELTA | {"in/k=1": Path("lake/delta/k=1")}, path)
        for path in ("lake/delta", "lake/delta/*/*.pq", "lake/delta/k=1/a.pq", "lake", "in")
    ],
    "an Iceberg table": [("ice/metadata.*pyiceberg", ICEBERG, "ice/data")],
    "a Hudi table": [("hoodie.*spark", {"hudi/a.pq": 1, "hudi/.hoodie/": None}, "hudi")],
    "parts of a run that has not finished": [
        ("has not finished", {"in/part-00000.pq": 1, "in/_run.json": b"{}"})
    ],
    "the output of a run that is named": [([1], OUTPUT, "in/out")],
    "the output of a run beside other files in one folder": [
        ("in/out is the output", OUTPUT | {"in/a.pq": 1})
    ],
    "files of a saved model": [("saved model", {"in": saved_model})],
    "keys in names of folders": [
        ({"k": ["007", "7"]}, {"in/k=007/a.pq": 0, "in/k=7/a.pq": 1})
    ],
    "a key without a value": [
        ({"k": [None, "a"]}, {f"in/{NULL}/a.pq": 0, "in/k=a/a.pq": 1})
    ],
    "a key with `%` escapes": [({"k": ["a/b"]}, {"in/k=a%2Fb/a.pq": 0})],
    "a key that is a column in the files, too": [
        ({"k": [5]}, {"in/k=1/a.pq": {"x": [0.0], "k": [5]}})
    ],
    "folders of different keys": [
        ("is in a folder of the key", {"in/k=1/a.pq": 0, "in/l=2/a.pq": 1})
    ],
    "files with different columns": [(r"b\.pq and .*a\.pq.*--keep", DIFFERING)],
    "files with columns in another order": [({"x": [1, 2], "y": [5, 6]}, OTHER_ORDER)],
    "a Parquet file without rows": [([1], NO_ROWS)],
    "a Parquet file of no bytes, cut short, or of another kind": [
        (r"a\.pq is not .*[^.]\.$", {"in/a.pq": content})
        for content in (b"", parquet()[:-9], b"x\n1\n")
    ],
}


def as_csv(folder):
    """Write the files of a folder as CSV instead."""
    for path in folder.glob("**/*.pq"):
        pd.read_parquet(path).to_csv(path.with_suffix(".csv"), index=False)
        path.unlink()


ABOUT_COLUMNS = {line for line in CASES if re.search(r"\bkeys?\b|columns", line)}


@pytest.mark.parametrize(
    ("line", "case", "is_csv"),
    [
        (line, case, is_csv)
        for line, cases in CASES.items()
        for case in cases
        for is_csv in (False, True)[: 1 + (line in ABOUT_COLUMNS)]
    ],
)
def test_open_table__does_what_the_page_says(tmp_path, line, case, is_csv):
    expected, tree, *given = case
    write_tree(tmp_path, tree)
    if is_csv:
        as_csv(tmp_path)
    paths = [tmp_path / path for path in given or ["in"]]

    if isinstance(expected, str):
        expected = expected.replace("pq", "csv") if is_csv else expected
        with pytest.raises(ValueError, match=expected):
            read_frame(paths)
        return
    table = open_table(paths)
    columns = expected if isinstance(expected, dict) else {"x": expected}
    for name, values in columns.items():
        found = [v for part in table.parts for v in part.read([name])[name].to_pylist()]
        assert found == values
    assert len(table.frame().compute(scheduler="sync")) == len(found)


def test_page__has_a_line_for_each_case():
    lines = re.findall(r"^\| (?!what \||---)(.+?) \|", PAGE.read_text(), re.MULTILINE)

    assert {*lines} == CASES.keys()


def test_score__measures_no_key_that_is_not_named(tmp_path, caplog):
    rng = np.random.default_rng(0)
    for day in (1, 2):
        kinds = ["a", "b"] * 50
        write(tmp_path / f"date=2026-11-0{day}" / "a.parquet", rng.random(100), kind=kinds)
    one, two = sorted(tmp_path.iterdir())

    actual = lpe_dask.score(two, nominal=one, categorical="auto").compute()

    plain = [pd.read_parquet(f"{day}/a.parquet")[["x", "kind"]] for day in (two, one)]
    expected = lpe_dask.score(plain[0], nominal=plain[1], categorical="auto")
    np.testing.assert_array_equal(actual, expected)
    assert "date" in caplog.text


def test_score_files__needs_only_the_columns_that_it_uses_to_agree(tmp_path):
    write_tree(tmp_path, DIFFERING)
    path, use = tmp_path / "in", {"columns": ["x"], "n_neighbors": 1}

    with pytest.raises(ValueError, match=r"differ in \['[Ff]ee'\]"):
        lpe_dask.score_files(path, tmp_path / "out", **use)
    summary = lpe_dask.score_files(path, tmp_path / "out", keep=[], **use)

    assert summary["rows"] == 2
    assert lpe_dask.score(path, **use).compute().tolist() == [1, 1]


def test_score_files__keeps_a_missing_key_and_measures_it(tmp_path):
    rows = pd.DataFrame({"x": np.arange(9.0), "k": ["a", None, "b"] * 3})
    rows.to_parquet(tmp_path / "in", partition_cols=["k"])

    lpe_dask.score_files(
        tmp_path / "in", tmp_path / "out", columns=["x", "k"], categorical=["k"],
        missing="drop", n_neighbors=1,
    )  # fmt: skip

    out = pd.read_parquet(tmp_path / "out")
    assert out["k"].isna().tolist() == out["p_value"].isna().tolist()
    assert out["k"].isna().sum() == 3


def test_read_frame__reads_what_is_written_from_a_delta_table(tmp_path, monkeypatch):
    """The remedy of the error works."""
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.chdir(tmp_path)
    for value in (1.0, 2.0):
        table = pa.table({"x": [value]})
        deltalake.write_deltalake(tmp_path / "delta", table, mode="overwrite")

    with pytest.raises(ValueError, match="_delta_log") as raised:
        read_frame(tmp_path / "delta")
    exec(str(raised.value).partition("that folder: ")[2])

    assert read_frame("plain").compute()["x"].tolist() == [2.0]
    shutil.rmtree("plain")


def test_open_table__takes_files_beside_a_folder_that_is_called_metadata(tmp_path):
    tree = {"in/data/a.pq": 1, "in/metadata/readme.json": b"{}"}
    write_tree(tmp_path, tree)

    assert read_frame(tmp_path / "in/data").compute()["x"].tolist() == [1]


def test_open_table__passes_over_hidden_files_also_on_other_storages(tmp_path):
    write_tree(tmp_path, HIDDEN)
    filesystem = fsspec.filesystem("memory")
    filesystem.put(f"{tmp_path}/in", "/hiding", recursive=True)
    assert len(filesystem.find("/hiding")) == len(HIDDEN)

    assert read_frame("memory://hiding").compute()["x"].tolist() == [1]


READ = """
import sys
from lpe_dask.tables.table_files import open_table

for path in sys.argv[1:]:
    try:
        print(open_table(path), flush=True)
    except (OSError, ValueError) as error:
        print(error, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has neither pipes nor devices")
def test_open_table__with_something_else_than_files_neither_hangs_nor_grows(tmp_path):
    folders = []
    for ending in ("parquet", "csv", "csv.gz"):
        for attack in ("pipe", "zeros", "listener"):
            folder = tmp_path / f"{attack}-{ending}"
            write(folder / "a.parquet", [1.0])
            ATTACKS[attack](folder / f"b.{ending}")
            folders.append(folder)

    said = limited(READ, *folders).splitlines()

    assert len(said) == len(folders)
    for folder, line in zip(folders, said, strict=True):
        assert line.startswith(f"{folder}/b."), line
        assert "and only a regular file is read" in line

"""Folders and files as people have them: a case of each line of docs/input_files.md."""

import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lpe_dask
from hostile import ATTACKS, limited
from lpe_dask.tables.table_files import open_table, read_frame

PAGE = Path(__file__).parents[3] / "docs" / "input_files.md"


def write(path, *values, **further):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [float(v) for v in values], **further}), path)


def linked_file(t):
    write(t / "elsewhere.parquet", 1, 2)
    (t / "in").mkdir()
    (t / "in" / "a.parquet").symlink_to(t / "elsewhere.parquet")
    return t / "in"


def linked_folder(t):
    write(t / "in" / "a.parquet", 1)
    write(t / "days" / "b.parquet", 2)
    (t / "in" / "days").symlink_to(t / "days")
    return t / "in"


def linked_folder_by_glob(t):
    linked_folder(t)
    return t / "in" / "**" / "*.parquet"


def loop(t):
    write(t / "in" / "sub" / "a.parquet", 1)
    (t / "in" / "sub" / "back").symlink_to(t / "in")
    return t / "in"


def broken(t):
    write(t / "in" / "a.parquet", 1)
    (t / "in" / "gone").symlink_to(t / "nothing")
    return t / "in"


def same_by_symlink(t):
    write(t / "in" / "a.parquet", 1)
    (t / "in" / "b.parquet").symlink_to("a.parquet")
    return t / "in"


def same_by_hard_link(t):
    write(t / "in" / "a.parquet", 1)
    os.link(t / "in" / "a.parquet", t / "in" / "b.parquet")
    return [t / "in" / "a.parquet", t / "in" / "b.parquet"]


def hidden(t):
    write(t / "in" / "a.parquet", 1)
    write(t / "in" / "_temporary" / "0" / "a.parquet", 9)
    write(t / "in" / ".ipynb_checkpoints" / "a.parquet", 9)
    write(t / "in" / ".b.parquet", 9)
    return t / "in"


def hidden_by_glob(t):
    hidden(t)
    return t / "in" / "**" / "*.parquet"


def hidden_named(t):
    write(t / "_in" / "_a.parquet", 1)
    return t / "_in" / "_a.parquet"


def hidden_fixed(t):
    write(t / ".in" / "_data" / "a.parquet", 1)
    return t / ".in" / "_data" / "*.parquet"


def folders_by_glob(t):
    write(t / "in" / "a" / "a.parquet", 1)
    write(t / "in" / "b" / "b.parquet", 2)
    return t / "in" / "*"


def two_stars(t):
    write(t / "in" / "a.parquet", 1)
    return t / "in" / "**.parquet"


def odd_name(name):
    def make(t):
        write(t / "in" / name / f"{name}.parquet", 1)
        return t / "in" / name / f"{name}.parquet"

    return make


def odd_csv(t):
    (t / "a::b.csv").write_text("x\n1\n")
    return t / "a::b.csv"


def delta(below):
    def make(t):
        write(t / "lake" / "delta" / "k=1" / "a.parquet", 1)
        (t / "lake" / "delta" / "_delta_log").mkdir()
        return [t / "lake" / one for one in below]

    return make


def linked_delta(t):
    delta([])(t)
    (t / "in").mkdir()
    (t / "in" / "k=1").symlink_to(t / "lake" / "delta" / "k=1")
    return t / "in"


def iceberg(t):
    write(t / "ice" / "data" / "a.parquet", 1)
    (t / "ice" / "metadata").mkdir()
    (t / "ice" / "metadata" / "v1.metadata.json").write_text("{}")
    return t / "ice" / "data"


def hudi(t):
    write(t / "hudi" / "a.parquet", 1)
    (t / "hudi" / ".hoodie").mkdir()
    return t / "hudi"


def output(name):
    def make(t):
        write(t / "in" / "out" / "part-00000.parquet", 1)
        (t / "in" / "out" / name).write_text("{}")
        return t / "in" / "out"

    return make


def mixed(t):
    output("_summary.json")(t)
    write(t / "in" / "a.parquet", 1)
    return t / "in"


def model(t):
    lpe_dask.LPE(1).fit(np.arange(9.0)[:, None]).save(t / "model")
    return t / "model"


def keys(*folders, **further):
    def make(t):
        for i, folder in enumerate(folders):
            columns = {name: [value] for name, value in further.items()}
            write(t / "in" / folder / "a.parquet", i, **columns)
        return t / "in"

    return make


def differing(t):
    write(t / "in" / "a.parquet", 1, fee=[0.0])
    write(t / "in" / "b.parquet", 2, Fee=[0.0])
    return t / "in"


def other_order(t):
    write(t / "in" / "a.parquet", 1, y=[5.0])
    pq.write_table(pa.table({"y": [6.0], "x": [2.0]}), t / "in" / "b.parquet")
    return t / "in"


def no_rows(t):
    write(t / "in" / "a.parquet", 1)
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), t / "in" / "b.parquet")
    return t / "in"


def content(change):
    def make(t):
        write(t / "a.parquet", 1)
        (t / "a.parquet").write_bytes(change((t / "a.parquet").read_bytes()))
        return t / "a.parquet"

    return make


#: What the error of a Delta table names; a key without a value.
DELTA, NULL = "_delta_log.*deltalake", "k=__HIVE_DEFAULT_PARTITION__"

#: Line of the page, what makes it, and the values of x or the message.
CASES = [
    ("a link to a file", linked_file, [1, 2]),
    ("a link to a folder in a folder", linked_folder, [1, 2]),
    ("a link to a folder in a folder", linked_folder_by_glob, [1, 2]),
    ("a link to a folder that it is in", loop, r"link .*sub/back leads to .*in"),
    ("a link to nothing", broken, r"link .*gone leads to"),
    ("a file at two names, by a link", same_by_symlink, r"[ab]\.parquet are the same file"),
    ("a file at two names, by a link", same_by_hard_link, r"are the same file"),
    ("hidden files and folders (`_x`, `.x`) below a folder or glob", hidden, [1]),
    ("hidden files and folders (`_x`, `.x`) below a folder or glob", hidden_by_glob, [1]),
    ("a hidden file that is named outright", hidden_named, [1]),
    ("a hidden file that is named outright", hidden_fixed, [1]),
    ("a glob that finds folders", folders_by_glob, [1, 2]),
    ("a glob with `**` beside other characters", two_stars, "only alone"),
    *(
        ("a name with `*`, `?`, `[`, `::`, `%20` or spaces that exists", make, [1])
        for make in (*map(odd_name, ["a*", "b?", "c[1]", "d::e", "f%20g", "h i"]), odd_csv)
    ),
    *(
        ("a Delta table, a file in it, or a folder above it", delta(below), DELTA)
        for below in (["delta"], ["delta/*/*.parquet"], ["delta/k=1/a.parquet"], ["."])
    ),
    ("a Delta table, a file in it, or a folder above it", linked_delta, DELTA),
    ("an Iceberg table", iceberg, "ice/metadata.*pyiceberg"),
    ("a Hudi table", hudi, "hoodie.*spark"),
    ("parts of a run that has not finished", output("_run.json"), "has not finished"),
    ("the output of a run that is named", output("_summary.json"), [1]),
    ("the output of a run beside other files in one folder", mixed, "in/out is the output"),
    ("files of a saved model", model, "saved model"),
    ("keys in names of folders", keys("k=007", "k=7"), {"k": ["007", "7"]}),
    ("a key without a value", keys(NULL, "k=a"), {"k": [None, "a"]}),
    ("a key with `%` escapes", keys("k=a%2Fb"), {"k": ["a/b"]}),
    ("a key that is a column in the files, too", keys("k=1", k=5), {"k": [5]}),
    ("folders of different keys", keys("k=1", "l=2"), "is in a folder of the key"),
    ("files with different columns", differing, r"b\.parquet and .*a\.parquet.*--keep"),
    ("files with columns in another order", other_order, {"x": [1, 2], "y": [5, 6]}),
    ("a Parquet file without rows", no_rows, [1]),
    *(
        (
            "a Parquet file of no bytes, cut short, or of another kind",
            content(change),
            r"a\.parquet is not",
        )
        for change in (lambda _: b"", lambda whole: whole[:-9], lambda _: b"x\n1\n")
    ),
]  # fmt: skip


def as_csv(folder):
    """Write the files of a folder as CSV instead."""
    for path in folder.glob("**/*.parquet"):
        pd.read_parquet(path).to_csv(path.with_suffix(".csv"), index=False)
        path.unlink()


ABOUT_COLUMNS = [case for case in CASES if re.search(r"\bkeys?\b|columns", case[0])]


@pytest.mark.parametrize(
    ("line", "make", "expected", "is_csv"),
    [*((*case, False) for case in CASES), *((*case, True) for case in ABOUT_COLUMNS)],
)
def test_open_table__does_what_the_page_says(tmp_path, line, make, expected, is_csv):
    path = make(tmp_path)
    if is_csv:
        as_csv(path)
        expected = (
            str(expected).replace("parquet", "csv")
            if isinstance(expected, str)
            else expected
        )

    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            read_frame(path)
        return
    table = open_table(path)
    for name, values in (
        expected if isinstance(expected, dict) else {"x": expected}
    ).items():
        found = [v for part in table.parts for v in part.read([name])[name].to_pylist()]
        assert found == values
    assert len(table.frame().compute(scheduler="sync")) == len(found)


def test_page__has_a_line_for_each_case():
    lines = re.findall(r"^\| (?!what \||---)(.+?) \|", PAGE.read_text(), re.MULTILINE)

    assert {*lines} == {line for line, *_ in CASES}


def test_score__measures_no_key_that_is_not_named(tmp_path, caplog):
    rng = np.random.default_rng(0)
    for day in (1, 2):
        kinds = ["a", "b"] * 50
        write(tmp_path / f"date=2026-11-0{day}" / "a.parquet", *rng.random(100), kind=kinds)
    one, two = sorted(tmp_path.iterdir())

    actual = lpe_dask.score(two, nominal=one, categorical="auto").compute()

    plain = [pd.read_parquet(f"{day}/a.parquet")[["x", "kind"]] for day in (two, one)]
    expected = lpe_dask.score(plain[0], nominal=plain[1], categorical="auto")
    np.testing.assert_array_equal(actual, expected)
    assert "date" in caplog.text


def test_score_files__needs_only_the_columns_that_it_uses_to_agree(tmp_path):
    path, use = differing(tmp_path), {"columns": ["x"], "n_neighbors": 1}

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


READ = """
import sys
from lpe_dask.tables import open_table

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
            write(folder / "a.parquet", 1)
            ATTACKS[attack](folder / f"b.{ending}")
            folders.append(folder)

    said = limited(READ, *folders).splitlines()

    assert len(said) == len(folders)
    for folder, line in zip(folders, said, strict=True):
        assert line.startswith(f"{folder}/b."), line
        assert "and only a regular file is read" in line

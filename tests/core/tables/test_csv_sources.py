"""CSV files in the layouts of known sources, and compressed ones."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from unittest.mock import Mock

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFile

import lpe_dask
from choosing import mostly_full
from lpe_dask.cli.commands import cli
from lpe_dask.tables.table_files import read_frame

RNG = np.random.default_rng(0)
X = np.c_[RNG.normal(20, 3, 300), RNG.gamma(2, 2, 300)].round(2)
HOLE = np.where(np.arange(600).reshape(300, 2) == 14, np.nan, X)


def air_quality():
    """UCI: separator ;, decimal commas, -200 for missing, two empty columns, empty rows."""
    rows = np.nan_to_num(HOLE, nan=-200)
    lines = [f"10/03/2004;18.{i % 60:02}.00;{a};{b};;" for i, (a, b) in enumerate(rows)]
    head = "Date;Time;CO(GT);T;;\n"
    return head + "\n".join(lines).replace(".", ",") + "\n" + ";;;;;\n" * 3


def web_log():
    """Apache's combined log: spaces, quotes, - for nothing, no names."""
    texts = np.where(np.isnan(HOLE), "-", HOLE.astype(str))
    return "".join(
        f'10.0.0.{i % 9} - - [10/Oct/2026:13:00:{i % 60:02} +0000] "GET /p?q=a,b HTTP/1.1" '
        f'{b} {a} "https://example.org/" "Mozilla/5.0 (X11; Linux)"\n'
        for i, (a, b) in enumerate(texts)
    )


def weather():
    """DWD: ; and spaces around values, -999 for missing, and `eor` in the last column."""
    rows = np.nan_to_num(HOLE, nan=-999)
    lines = [
        f"    433;20200101{i % 24:02};{a:8};{b:8};eor" for i, (a, b) in enumerate(rows)
    ]
    return "STATIONS_ID;MESS_DATUM;TT_TU;RF_TU;eor\n" + "\n".join(lines) + "\n"


def river():
    """USGS (RDB): comments, tabs, a line of formats below the names, Ice for missing."""
    head = "# Data provided for site 01646500\n#\nagency\tsite\tflow\tflow_cd\theight\n"
    texts = np.where(np.isnan(HOLE), "Ice", HOLE.astype(str))
    rows = [f"USGS\t01646500\t{a}\tP\t{b}\n" for a, b in texts]
    return head + "5s\t15s\t14n\t10s\t14n\n" + "".join(rows)


#: A file, the measured columns, options, and the rows that these are.
SOURCES = {
    "air quality": (
        "a.csv", air_quality(), "CO(GT),T", ["decimal=,", "na_values=-200"],
        np.r_[HOLE, np.full((3, 2), np.nan)],
    ),
    "web log": (
        "a.txt", web_log(), "7,6", ["separator=space", "header=false", "na_values=-"],
        HOLE,
    ),
    "weather": ("a.txt", weather(), "TT_TU,RF_TU", ["na_values=-999"], HOLE),
    "river": (
        "a.txt", river(), "flow,height",
        ["separator=tab", "comment=#", "skip_rows=[4]", "na_values=Ice"], HOLE,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "source", mostly_full(SOURCES, ["air quality", "web log", "weather"])
)
def test_command__scores_files_of_known_sources(tmp_path, source):
    name, content, columns, options, rows = SOURCES[source]
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    out = tmp_path / "out"

    result = CliRunner().invoke(
        cli,
        ["score", str(tmp_path / name), "--output", str(out), "--columns", columns,
         "--missing", "drop", "--scheduler", "threads",
         *[part for option in options for part in ("--csv", option)]],
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    expected = lpe_dask.score(rows, missing="drop")
    np.testing.assert_array_equal(pd.read_parquet(out)["p_value"], expected)
    made_from = json.loads((out / "_summary.json").read_text())["fingerprint"]
    assert ("csv" in made_from["settings"]) == bool(options)


@pytest.mark.parametrize("value", ["decimal", "seperator=;", "header=3"])
def test_command__refuses_wrong_options(tmp_path, value):
    result = CliRunner().invoke(cli, ["score", "x.csv", "--output", "out", "--csv", value])

    assert result.exit_code == 2
    assert "--csv" in result.output


def test_command__takes_names_with_commas(tmp_path):
    frame = pd.DataFrame(X, columns=["load, mean", " x"]).assign(id="a")
    frame.to_csv(tmp_path / "t.csv", index=False)

    for columns in ('"load, mean", x', ' "load, mean", x'):
        result = CliRunner().invoke(
            cli,
            ["score", str(tmp_path / "t.csv"), "--output", str(tmp_path / "out"),
             "--columns", columns, "--keep", "id, x", "--private", ' x, id', "--overwrite",
             "--scheduler", "threads"],
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        assert list(pd.read_parquet(tmp_path / "out").columns)[:2] == ["id", " x"]
        summary = json.loads((tmp_path / "out" / "_summary.json").read_text())
        assert summary["reasons"]["private_columns"] == [" x", "id"]
    np.testing.assert_array_equal(
        pd.read_parquet(tmp_path / "out")["p_value"], lpe_dask.score(X)
    )


# Compressed files, and files that are not what their names say


PLAIN = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(5000))


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, PLAIN)
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    return file.getvalue()


CODECS = {
    "gz": gzip.compress(PLAIN[:100]) + gzip.compress(PLAIN[100:]),
    "bz2": bz2.compress(PLAIN),
    "xz": lzma.compress(PLAIN),
    "zst": pa.compress(PLAIN, "zstd", asbytes=True),
    "zip": zipped("a.csv", "__MACOSX/._a.csv"),
}
CUT, OTHER = "cut short or damaged", "not compressed as its name says"
INVALID_INPUT = [
    *((f"t.csv.{name}", content[:-20], CUT) for name, content in CODECS.items()),
    *((f"t.csv.{name}", PLAIN, OTHER) for name in CODECS),
    ("t.csv", CODECS["gz"], r"another file \(\.gz\).*Give it the ending of its kind"),
    ("t.csv.gz", CODECS["zip"], OTHER),
    ("t.csv", zipped("xl/workbook.xml"), "Excel workbook"),
    ("t.csv.zip", zipped("a.csv", "b.csv"), r"archive of 2 files \(a.csv, b.csv\)"),
    ("t.csv.gz", tarred(), r"archive \(tar\)"),
    ("t.csv", b"PAR1\x15" + bytes(40), "another file .Parquet"),
]  # fmt: skip


@pytest.mark.parametrize("name", CODECS)
def test_read_frame__reads_compressed_files(tmp_path, name):
    (tmp_path / f"t.csv.{name}").write_bytes(CODECS[name])

    found = read_frame(tmp_path / f"t.csv.{name}").compute(scheduler="sync")

    assert found["y"].tolist() == [i * i for i in range(5000)]


@pytest.mark.parametrize("name", ["gz", "bz2", "xz", "zst", "zip"])
def test_read_frame__does_not_call_a_file_damaged_that_a_storage_fails_to_give(
    monkeypatch, name
):
    fsspec.filesystem("memory").pipe_file(f"/failing/t.csv.{name}", CODECS[name])
    monkeypatch.setattr(MemoryFile, "read", Mock(side_effect=PermissionError("not now")))

    with pytest.raises(PermissionError, match=r"^not now$"):
        read_frame(f"memory://failing/t.csv.{name}")


@pytest.mark.parametrize(("name", "content", "message"), INVALID_INPUT)
def test_read_frame__names_what_is_wrong_with_a_file(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ValueError, match=message):
        read_frame(tmp_path / name).compute(scheduler="sync")

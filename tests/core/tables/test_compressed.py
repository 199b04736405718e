"""Compressed CSV files that are what their names say, or not."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pyarrow as pa
import pytest

from lpe_dask.tables.table_files import read_frame

ROWS = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(5000))


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, ROWS)
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = len(ROWS)
        archive.addfile(member, io.BytesIO(ROWS))
    return file.getvalue()


CODECS = {
    "gz": gzip.compress(ROWS[:100]) + gzip.compress(ROWS[100:]),
    "bz2": bz2.compress(ROWS),
    "xz": lzma.compress(ROWS),
    "zst": pa.compress(ROWS, "zstd", asbytes=True),
    "zip": zipped("a.csv", "__MACOSX/._a.csv"),
}
CUT, OTHER = "cut short or damaged", "not compressed as its name says"
INVALID_INPUT = [
    *((f"t.csv.{name}", content[:-20], CUT) for name, content in CODECS.items()),
    *((f"t.csv.{name}", ROWS, OTHER) for name in CODECS),
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


@pytest.mark.parametrize(("name", "content", "message"), INVALID_INPUT)
def test_read_frame__names_what_is_wrong_with_a_file(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(ValueError, match=message):
        read_frame(tmp_path / name).compute(scheduler="sync")

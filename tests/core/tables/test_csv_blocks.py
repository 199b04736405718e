"""CSV files in blocks: every block is read alike, and errors say where they are."""

import gzip
import itertools
from functools import partial

import dask
import fsspec
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import lpe_dask
from choosing import mostly_dealt
from lpe_dask.batch.api import score_files
from lpe_dask.cli import commands
from lpe_dask.tables import csv_blocks
from lpe_dask.tables.csv_paths import with_csv
from lpe_dask.tables.errors import TableError
from lpe_dask.tables.table_files import open_table, read_frame


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def small_blocks(monkeypatch):
    """A sample and blocks of a few lines."""
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", 60)
    monkeypatch.setattr(csv_blocks, "CSV_BLOCK_BYTES", 100)


def lines(n):
    return [f"{i},{i / 7!r},t{i}" for i in range(n)]


def write(path, rows, header="x,y,note"):
    path.write_bytes("\n".join([header, *rows, ""]).encode())
    return path


@pytest.mark.parametrize("n_bytes", [5, 17, 100, 10**6])
def test_read_frame__gives_the_same_rows_for_blocks_of_any_size(
    tmp_path, monkeypatch, n_bytes
):
    monkeypatch.setattr(csv_blocks, "CSV_BLOCK_BYTES", n_bytes)
    path = write(tmp_path / "a.csv", lines(60))

    actual = read_frame(path, columns=["x", "y"]).compute()

    np.testing.assert_array_equal(actual["x"], np.arange(60))
    np.testing.assert_array_equal(actual["y"], np.arange(60) / 7)
    assert actual["note"].tolist() == [f"t{i}" for i in range(60)]


def test_score_files__keeps_every_digit_and_letter_of_what_it_does_not_measure(tmp_path):
    texts = ["1152921504606846977", "NA", "None", "1.50", "007", "nan", " a ", 'a "b"', ""]
    quoted = ['"a ""b"""' if '"' in text else text for text in texts]
    path = write(tmp_path / "a.csv", [f"{i},{i},{t}" for i, t in enumerate(quoted)])

    score_files(path, tmp_path / "out", columns=["x", "y"], n_neighbors=2)

    actual = pd.read_parquet(tmp_path / "out")
    assert actual["note"].isna().tolist() == [False] * 8 + [True]
    assert actual["note"].tolist()[:8] == texts[:8]
    assert actual["x"].tolist() == list(range(9))


def test_read_frame__takes_what_pandas_takes_for_missing_numbers(tmp_path):
    words = ["", "NA", "nan", "NaN", "None", "null", "<NA>", "N/A", "n/a", "NULL"]
    path = write(tmp_path / "a.csv", ["1,2,t", *[f"{word},+1e3,t" for word in words]])

    actual = read_frame(path, columns=["x", "y"]).compute()

    assert actual["x"].isna().tolist() == [False] + [True] * 10
    assert actual["y"].tolist() == [2.0] + [1000.0] * 10


def test_read_frame__takes_booleans_of_a_csv(tmp_path):
    path = write(tmp_path / "a.csv", ["True,1", "False,2", "true,3"], "x,y")

    assert lpe_dask.LPE(1).fit(path).n_samples_ == 3


#: What is wrong with line 42 of a file, and what is said of it.
WRONG = {
    "no number": (b"oops,1,t", r"column 'x': invalid value 'oops'\. Correct it"),
    "python's number": (b"1_000,1,t", r"column 'x': invalid value '1_000'\. Correct it"),
    "too long": (b"1,2,t,4", r"Expected 3 columns, got 4: 1,2,t,4\. Correct it"),
    "too short": (b"1,2", r"Expected 3 columns, got 2: 1,2\. Correct it"),
    "latin-1": (b"1\xa0,1,t", r"column 'x': invalid value .*iconv -f latin1"),
    "open quote": (b'1,2,"t', r"a quoted value begins here that has no end.*gzip"),
    "long value": (b'1,2,"t' + b"\ntt" * 60 + b'"', r"a quoted value begins here.*gzip"),
    "digit to Python alone": ("\uff11,2,t".encode(), r"column 'x': invalid value"),
}


STEPS = WRONG, ["fit", "score"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("kind", "step"), mostly_dealt(*STEPS))
def test_csv__is_told_by_file_and_line(tmp_path, kind, step):
    wrong, message = WRONG[kind]
    known = write(tmp_path / "known.csv", lines(20))
    rows = [line.encode() for line in lines(80)]
    rows[40] = wrong
    (tmp_path / "bad.csv").write_bytes(b"\n".join([b"x,y,note", *rows]) + b"\n")
    files = {"known": known, "bad": tmp_path / "bad.csv"}
    data, nominal = ("known", "bad") if step == "fit" else ("bad", "known")

    given = [files[data], "--nominal", files[nominal], "--columns", "x,y"]
    given += ["--output", tmp_path / "out", "--scheduler", "threads"]
    result = CliRunner().invoke(commands.cli, ["score", *map(str, given)])

    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"Error: file://{tmp_path}/bad.csv, line 42: ")
    with pytest.raises(TableError, match=message):
        raise TableError(last)


@pytest.mark.parametrize(
    ("written", "value", "name"),
    [
        ('5" pipe', '5" pipe', "a.csv"),  # as many in a block as may be: none is open
        ('"one\ntwo, and ""three"""', 'one\ntwo, and "three"', "a.csv"),
        ('"one\ntwo, and ""three"""', 'one\ntwo, and "three"', "a.csv.gz"),
    ],
)
def test_read_frame__takes_quotes(tmp_path, monkeypatch, written, value, name):
    """Those that hold line breaks in one block; a compressed file is one."""
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", 30)  # ends within quotes
    if name == "a.csv.gz" or "\n" not in written:
        monkeypatch.setattr(csv_blocks, "CSV_BLOCK_BYTES", 100)
    rows = "\n".join(["x,y,note", *[f"{i},1,{written}" for i in range(51)]]).encode()
    (tmp_path / name).write_bytes(gzip.compress(rows) if "gz" in name else rows)

    actual = read_frame(tmp_path / name, columns=["x", "y"]).compute()

    assert actual["x"].tolist() == list(range(51))
    assert set(actual["note"]) == {value}


@pytest.mark.usefixtures("small_blocks")
def test_read_frame__takes_columns_of_each_file_by_name(tmp_path):
    n_rows = range(20)  # of several blocks
    write(tmp_path / "a.csv", [f"{i},{i + 0.5},fee" for i in n_rows], "x,y,fee")
    write(tmp_path / "b.csv", [f"{i + 0.5},Fee,more,{i}" for i in n_rows], "y,Fee,more,x")

    frame = read_frame(tmp_path, columns=["x", "y"])

    assert frame.npartitions > 4
    np.testing.assert_array_equal(frame["x"].compute(), [*n_rows] * 2)
    np.testing.assert_array_equal(frame["y"].compute(), np.r_[n_rows, n_rows] + 0.5)
    with pytest.raises(ValueError, match=r"differ in \['Fee'\].*--columns"):
        read_frame(tmp_path)


def test_read_frame__refuses_files_of_other_widths_without_names(tmp_path):
    for name, row in (("a", "1,2"), ("b", "3,4,5")):
        (tmp_path / f"{name}.csv").write_text(f"{row}\n")

    with pytest.raises(
        TableError, match=r"without column names.*\{2: .*a\.csv.*3: .*b\.csv"
    ):
        read_frame(with_csv(tmp_path, {"header": False}), columns=["0"])


def test_read_frame__minds_a_file_that_changes_after_it_was_opened(tmp_path):
    path = write(tmp_path / "a.csv", lines(3))
    frame = read_frame(path)
    write(path, lines(3), "y,x,note")

    with pytest.raises(TableError, match=r"a\.csv was changed.*Start again"):
        frame.compute()


@pytest.mark.usefixtures("small_blocks")
def test_csv__minds_the_encoding_of_what_it_carries_over(tmp_path):
    rows = [b"1,2,t"] * 20 + ["1,2,größe".encode("latin-1")]
    (tmp_path / "a.csv").write_bytes(b"\n".join([b"x,y,note", *rows]))
    write(tmp_path / "known.csv", lines(20))
    out, given = tmp_path / "out", {"nominal": tmp_path / "known.csv"}

    with pytest.raises(
        TableError, match=r"a\.csv, line 22: column 'note': invalid UTF8 data"
    ):
        score_files(tmp_path / "a.csv", out, columns=["x", "y"], **given)
    summary = score_files(
        tmp_path / "a.csv", out, columns=["x", "y"], keep=["x"], overwrite=True, **given
    )

    assert summary["rows"] == 21


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"gr\xf6\xdfe,x\n1,2\n",
            r"a\.csv, line 1: the column names cannot be read .*iconv",
        ),
        (b"x,x\n1,2\n", r"a\.csv, line 1: .*\['x'\] occur more than once"),
        (b'x,y\n\n1,"' + b"w" * 200_000, r"a\.csv, line 3: a quoted value begins here"),
        (b"x,y\n1," + b"w" * 200_000 + b"\n3\n", r"line 3: Expected 2 columns, got 1: 3"),
        (b"x,y\n1,2\n3\n", r"a\.csv, line 3: Expected 2 columns, got 1: 3"),
        (b"\n\nx,y\n1,2\n3\n", r"a\.csv, line 5: Expected 2 columns, got 1: 3"),
        (b'x,"y\nz"\n1,2\n3\n', r"a\.csv, line 4: Expected 2 columns, got 1: 3"),
        (b"x,y\r1,2\r3,4\r", r"a\.csv, line 1: .*carriage returns alone: tr "),
        (b'x,"y\n1,2\n3,4\n', r"a\.csv, line 3: .*Close their quotes"),
    ],
    ids=lambda text: repr(text)[:30],
)
def test_read_frame__tells_at_once_what_is_wrong_at_the_beginning(
    tmp_path, content, message
):
    (tmp_path / "a.csv").write_bytes(content)

    with pytest.raises(TableError, match=message):
        read_frame(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("\r\nx;y;note\n", ["x", "y", "note"]),
        ("\ufeff\n \nx;y;note\n", ["x", "y", "note"]),
        ('x;y;"a\nnote"\n', ["x", "y", "a\nnote"]),
        ('""\n', ["Unnamed: 0"]),
        (",\n", ["Unnamed: 0", "Unnamed: 1"]),
    ],
)
def test_read_frame__finds_the_names_of_columns(tmp_path, header, names):
    separator = "," if header == ",\n" else ";"
    row = separator.join(["1", "2", "3"][: len(names)])
    (tmp_path / "a.csv").write_bytes(f"{header}{row}\n{row}\n".encode())

    actual = read_frame(tmp_path / "a.csv").compute()

    assert list(actual.columns) == names
    assert actual.iloc[:, 0].tolist() == [1.0, 1.0]


def test_read_frame__of_a_sample_that_ends_with_the_names_of_columns(tmp_path, monkeypatch):
    head = 'x,"y\nz"\n'
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", len(head))
    (tmp_path / "a.csv").write_text(head + "1,2\n3,4\n")

    actual = read_frame(tmp_path / "a.csv").compute()

    assert actual.to_dict("list") == {"x": [1, 3], "y\nz": [2, 4]}


LONG = [200_000, 400_000], [0, 20]  # letters, less and more than a sample; rows before


@pytest.mark.parametrize(("n_letters", "place"), mostly_dealt(*LONG))
def test_score_files__takes_values_of_any_length(tmp_path, n_letters, place):
    rows = lines(20)
    rows.insert(place, f"20,2.5,{'w' * n_letters}")
    path = write(tmp_path / "a.csv", rows)

    score_files(path, tmp_path / "out", columns=["x", "y"])

    assert max(map(len, pd.read_parquet(tmp_path / "out")["note"])) == n_letters
    assert open_table(path).schema.field("note").type == "large_string"


@pytest.mark.usefixtures("small_blocks")
def test_csv__of_codes_where_nominal_rows_have_whole_numbers(tmp_path):
    """00501 is not 501: an error rather than one category."""
    nominal = pd.DataFrame({"x": np.arange(40.0), "zip": [501, 94103] * 20})
    model = lpe_dask.LPE(categorical=["zip"]).fit(nominal)
    same = write(tmp_path / "same.csv", ["1,501", "2,501.0", "3,"], "x,zip")
    codes = write(tmp_path / "codes.csv", ["1,501"] * 40 + ["2,00501"], "x,zip")

    expected = model.score_samples(pd.DataFrame({"x": [1.0, 2.0], "zip": [501, 501]}))
    actual = model.score_samples(same).compute()
    np.testing.assert_array_equal(actual, [*expected, np.nan])
    with pytest.raises(TableError, match=r"line 42: column 'zip' has '00501', a code with"):
        model.score_samples(codes).compute()


def test_csv__in_quotes_of_another_kind_is_no_title(tmp_path):
    path = write(tmp_path / "a.csv", ["'x, y','1.5','2.5'"] * 40, "n,a,b")

    with pytest.raises(TableError, match=r"file to be read by --csv 'quote="):
        read_frame(path)


@pytest.mark.usefixtures("small_blocks")
def test_csv__is_read_again_where_a_storage_fails_for_the_moment(monkeypatch):
    filesystem = fsspec.filesystem("memory")
    rows = [*lines(60), "oops,1,t"]
    filesystem.pipe_file("/busy/a.csv", "\n".join(["x,y,note", *rows, ""]).encode())
    for name in ("_open", "size"):
        monkeypatch.setattr(
            type(filesystem), name, failing_at_first(getattr(type(filesystem), name))
        )

    with dask.config.set({"lpe-dask.retries": BRIEF}):
        table = open_table("memory://busy/a.csv")
        n_rows, _ = table.rows_of_parts()
        frame = table.frame()
        with pytest.raises(TableError, match="line 62: column 'x': invalid value 'oops'"):
            frame.compute()

    assert n_rows[0] > 0


@pytest.mark.parametrize("is_open", [False, True])
def test_csv__gives_up_after_as_many_attempts_as_configured(monkeypatch, is_open):
    """Not after their square: what reads the beginning of a file may be retried itself."""
    filesystem = fsspec.filesystem("memory")
    rows = [f"{i},{i}" for i in range(60)]
    for name in ("a", "b"):
        content = "\n".join(["x,y", *rows, ""]).encode()
        filesystem.pipe_file(f"/unreachable/{name}.csv", content)
    path, opened = "memory://unreachable/*.csv", []
    read = open_table(path).rows_of_parts if is_open else partial(open_table, path)

    def unreachable(self, path, *args, **options):
        opened.append(path)
        raise ConnectionResetError

    monkeypatch.setattr(type(filesystem), "_open", unreachable)
    with (
        dask.config.set({"lpe-dask.retries": BRIEF}),
        pytest.raises(ConnectionError, match="5 attempts"),
    ):
        read()

    assert opened == ["/unreachable/a.csv"] * 5


BRIEF = {"attempts": 5, "first-pause": 0.001, "longest-pause": 0.001}


def failing_at_first(function):
    """Every other call fails as a busy storage does."""
    calls = itertools.count()

    def busy(*args, **options):
        if next(calls) % 2 == 0:
            raise ConnectionResetError
        return function(*args, **options)

    return busy

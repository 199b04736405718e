"""One file with the rows of an output: CSV, or lines of JSON."""

import csv
import io
import json
import math
import re
from decimal import Decimal
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpe_dask
from arrow_values import VALUES, column, newer_values
from interrupting import stop_after, write_files
from lpe_dask.batch import text_output
from lpe_dask.batch.errors import RunError

#: What stands for the values of `VALUES`, by their types, where it is not the value.
WRITTEN = {
    "decimal128(38, 2)": Decimal("123456789012345678901234567890.25"),
    "binary": "ff00", "large_binary": "ff", "binary_view": "ff",
    "fixed_size_binary[3]": "616263",
    "date32[day]": "2026-02-03", "date64[ms]": "2026-02-03",
    "time32[ms]": "04:05:06.789", "time64[us]": "04:05:06.789000",
    "time64[ns]": "04:05:06.789000000",
    "timestamp[ms]": "2026-02-03T04:05:06.789",
    "timestamp[us, tz=Europe/Zurich]": "2026-02-03T04:05:06.789000Z",
    "timestamp[ns, tz=+05:30]": "2026-02-03T04:05:06.789000000Z",
    "duration[s]": 3, "duration[ns]": Decimal("3.000000000"), "double": None,
}  # fmt: skip

#: Texts that a spreadsheet may run or cut, and others like them.
PIECES = [*"=+-@\t\r\n'\",; 1e.", "cmd()", "ä"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
NUMBERS = st.floats() | st.integers(-9, 9).map(float)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Rows become text three at a time."""
    monkeypatch.setattr(text_output, "_BATCH_ROWS", 3)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A working directory with a model of x, and rows to score in three files."""
    monkeypatch.chdir(tmp_path)
    nominal = pd.DataFrame({"x": np.arange(40) / 8})
    lpe_dask.LPE(3, alpha=0.1).fit(nominal).save("model")
    rows = pd.DataFrame({"x": np.arange(10) / 3, "name": [*"abcdefghi", None]})
    rows.loc[4, "x"], rows.loc[7, "x"] = np.nan, np.inf
    write_files(rows, "data", [0, 5, 5, 10])


def scored(output, data="data", **options):
    return lpe_dask.score_files(data, output, model="model", **options)


def lines_of(table, kind):
    """Rows of a table as a format has them: its text, without a line of names."""
    form = text_output._FORMS[kind]
    batches = table.to_batches(max_chunksize=2)
    lines = [line for of in batches for line in text_output._lines(of, form)]
    return b"".join(lines).decode(errors="surrogateescape")


def parsed(text):
    return list(csv.reader(io.StringIO(text, newline="")))


def without_apostrophe(text):
    """What the text of a cell was."""
    return re.sub(r"""(^|[;\t\r\n])([ "]*)'('*[=+\-@])""", r"\1\2\3", text)


def may_run(text):
    """Whether a spreadsheet may take a text for a formula, by a plain look at it."""
    if text.lstrip(' "\t\r\n')[:1] not in ("=", "+", "-", "@") or text == "":
        return False
    try:
        float(text.replace(",", "."))
    except ValueError:
        return True
    return text.strip() != text


def cell_of(value):
    """The text of a plain value in a CSV."""
    return {None: "", True: "true", False: "false"}.get(value, str(value))


# Values


@given(st.lists(st.tuples(TEXTS | st.none(), NUMBERS | st.none()), min_size=1))
def test_csv__gives_back_every_text_and_the_bits_of_every_number(rows):
    texts, numbers = (list(of) for of in zip(*rows, strict=True))
    table = pa.table({"text": texts, "number": pa.array(numbers, pa.float64())})

    text = lines_of(
        table.cast(pa.schema([("text", "string"), ("number", "float64")])), "csv"
    )

    found = parsed(text)
    assert len(found) == len(rows)
    for (cell, number), (given_text, given_number) in zip(found, rows, strict=True):
        assert without_apostrophe(cell) == (given_text or "")
        assert not may_run(cell)
        if given_number is None or math.isnan(given_number):
            assert number == ""
        else:
            assert np.float64(number).tobytes() == np.float64(given_number).tobytes()


@given(TEXTS)
def test_csv__has_no_formula_where_other_separators_cut_it(text):
    """As spreadsheets do: a quote that is not the first of a cell is one more character."""
    line = lines_of(pa.table({"n": [5], "text": [text]}), "csv")

    for separator in ",;\t":
        cells = csv.reader(io.StringIO(line, newline=""), delimiter=separator)
        assert not any(may_run(cell) for row in cells for cell in row)


@given(st.lists(st.tuples(TEXTS | st.none(), NUMBERS | st.none()), min_size=1))
def test_jsonl__gives_back_every_text_and_number(rows):
    texts, numbers = (list(of) for of in zip(*rows, strict=True))
    table = pa.table({'te"xt': pa.array(texts, pa.string()), "n": pa.array(numbers, "f8")})

    text = lines_of(table, "jsonl")

    found = [json.loads(line) for line in text.split("\n")[:-1]]
    assert [list(line) for line in found] == [['te"xt', "n"]] * len(rows)
    assert [line['te"xt'] for line in found] == texts
    for line, number in zip(found, numbers, strict=True):
        if number is None or math.isnan(number):
            assert line["n"] is None
        else:
            assert isinstance(line["n"], str) == math.isinf(number)
            assert float(line["n"]) == number


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=cmd()", "'=cmd()"), ("+1+1", "'+1+1"), ("-a", "'-a"), ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "\tx"), ("\r=x", "\r'=x"), ("'=x", "''=x"), ("-", "'-"), ("+", "'+"),
        ("-12", "-12"), ("+4.5e-3", "+4.5e-3"), ("-1,5", "-1,5"), ("-.5", "-.5"),
        ("a=b", "a=b"), ("'a", "'a"), (" =x", " '=x"), ("-1e", "'-1e"), ("-1\n", "'-1\n"),
        ("n;=2+5;z", "n;'=2+5;z"), ("a\t-x", "a\t'-x"), ('a; "=x', 'a; "\'=x'),
        ("a\n@x", "a\n'@x"), ("a,=x", "a,=x"), ("a;b=x", "a;b=x"), ("=;=", "'=;'="),
    ],
)  # fmt: skip
def test_csv__quotes_what_a_spreadsheet_would_run(text, written):
    """In cells and names, also of categories; numbers stay."""
    values = pa.array([text])
    table = pa.table({"text": values, "kind": values.dictionary_encode(), "n": [-5]})

    assert parsed(lines_of(table, "csv")) == [[written, written, "-5"]]
    header = text_output._FORMS["csv"].header(["ok", text])
    assert parsed(header) == [["ok", written]]
    (line,) = lines_of(table, "jsonl").split("\n")[:-1]
    assert json.loads(line) == {"text": text, "kind": text, "n": -5}


@pytest.mark.parametrize(("kind", "value"), [*VALUES, *newer_values()], ids=str)
def test_formats__have_each_type(kind, value):
    table = column(kind, [None, value]).append_column("n", [[1, 2]])

    cells = [cell for cell, _ in parsed(lines_of(table, "csv"))]
    texts = lines_of(table, "jsonl").splitlines()
    lines = [json.loads(of, parse_float=Decimal)["c"] for of in texts]

    expected = WRITTEN.get(str(kind), value)
    if pa.types.is_map(kind):
        expected = [["key", 2**60 + 1]]
    elif pa.types.is_struct(kind):
        expected = {"a": 2**60 + 1, "b": None}
    assert lines == [None, expected]
    if isinstance(expected, list | dict):
        assert json.loads(cells.pop()) == expected
    else:
        assert cells.pop() == cell_of(expected)
    assert cells == [""]


def test_formats__have_what_is_in_lists_and_structs():
    inner = {
        "number": math.nan, "far": -math.inf,
        "time": pd.Timestamp("2026-02-03T05:05", tz="Europe/Zurich"),
        "bytes": b"\xff", "none": None, "list": [{"deep": 1.5}], "text": "=x",
    }  # fmt: skip
    table = pa.table({"c": pa.array([inner])})

    (line,) = lines_of(table, "jsonl").split("\n")[:-1]

    expected = {
        "number": None, "far": "-Infinity", "time": "2026-02-03T04:05:00Z",
        "bytes": "ff", "none": None, "list": [{"deep": 1.5}], "text": "=x",
    }  # fmt: skip
    assert json.loads(line) == {"c": expected}
    assert json.loads(parsed(lines_of(table, "csv"))[0][0]) == expected


def test_formats__have_text_that_is_no_utf_8_and_times_out_of_range():
    """Parquet carries both over."""
    text = pa.array([b"=\xff"], pa.binary()).view(pa.string())
    table = pa.table({"text": text, "time": pa.array([2**62]).view(pa.timestamp("s"))})

    ((cell, time),) = parsed(lines_of(table, "csv"))

    assert cell.encode(errors="surrogateescape") == b"'=\xff"
    assert time == f"<value out of range: {2**62}>"
    assert json.loads(lines_of(table, "jsonl")) == {"text": "=\ufffd", "time": time}


# Files


@pytest.mark.parametrize("options", [{}, {"rows": "flagged"}, {"fdr": 0.3}])
def test_format__has_the_rows_and_columns_of_the_parts_in_their_order(files, options):
    scored("plain", **options)

    summary = scored("csv", **options, format="csv")
    scored("jsonl", **options, format="jsonl")

    parts = pq.read_table("plain")
    assert summary["output_format"] == "csv"
    names, *cells = parsed(Path("csv/_scores.csv").read_bytes().decode())
    lines = Path("jsonl/_scores.jsonl").read_text().splitlines()
    assert names == parts.schema.names
    assert len(cells) == len(lines) == len(parts) > 0
    for row, line, expected in zip(cells, lines, parts.to_pylist(), strict=True):
        fields = json.loads(line)
        assert list(fields) == names
        for name, cell in zip(names, row, strict=True):
            value = expected[name]
            value = None if value != value else value
            if isinstance(value, float):
                assert float(cell) == float(fields[name]) == value
            else:
                assert fields[name] == value
                assert cell == {None: "", True: "true", False: "false"}.get(
                    value, str(value)
                )


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_format__is_no_part_to_readers_of_the_folder(files, kind):
    scored("plain")
    scored("out", format=kind)

    expected = pd.read_parquet("plain")
    pd.testing.assert_frame_equal(pd.read_parquet("out"), expected)
    assert dd.read_parquet("out")["p_value"].compute().tolist() == pytest.approx(
        expected["p_value"].tolist(), abs=0, nan_ok=True
    )
    again = lpe_dask.load("model").score_samples("out").compute()
    pd.testing.assert_series_equal(again, expected["p_value"], check_exact=True)


def test_format__comes_before_the_summary_and_is_resumed(files):
    scored("expected", format="csv")

    with stop_after(text_output, "_lines", 2), pytest.raises(RunError, match="Stop"):
        scored("out", format="csv")

    names = [path.name for path in Path("out").iterdir()]
    assert {"_scores.csv", "_summary.json"}.isdisjoint(names)
    assert len([name for name in names if name.startswith("part-")]) == 3
    scored("out", format="csv")
    names = [sorted(p.name for p in Path(of).iterdir()) for of in ("out", "expected")]
    assert names[0] == names[1]
    whole = Path("out/_scores.csv").read_bytes()
    assert whole == Path("expected/_scores.csv").read_bytes()
    with pytest.raises(FileExistsError, match="differs in: the format of the output"):
        scored("out", format="jsonl")
    scored("out", format="jsonl", overwrite=True)
    assert not Path("out/_scores.csv").exists()
    assert Path("out/_scores.jsonl").exists()


def test_format__is_written_again_where_the_file_is_gone(files):
    Path("job.toml").write_text(
        '[model]\npath = "model"\n[score]\ndata = "data"\noutput = "out"\nformat = "csv"\n'
    )
    lpe_dask.run("job.toml")
    whole = Path("out/_scores.csv").read_bytes()
    assert lpe_dask.run("job.toml") is None

    Path("out/_scores.csv").unlink()

    assert lpe_dask.run("job.toml") is not None
    assert Path("out/_scores.csv").read_bytes() == whole


def test_format__of_no_rows_has_the_names_of_the_columns(files):
    lpe_dask.LPE(3).fit(pd.DataFrame({"x": np.arange(40) / 8})).save(
        "model", overwrite=True
    )
    pd.DataFrame({"x": [2.0, 2.5]}).to_parquet("near.parquet")

    scored("out", "near.parquet", rows="flagged", format="csv")

    header = '"x","row_number","p_value","statistic","is_anomaly","p_value_status"\n'
    assert Path("out/_scores.csv").read_text() == header

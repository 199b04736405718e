"""CSV files as people have them: a case of each line of docs/guide/csv.md."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.tables import CsvOptions, csv_blocks, with_csv
from lpe_dask.tables.table_files import read_frame

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "csv.md"

#: The rows of each file, and the same with a missing value.
ROWS = np.random.default_rng(0).normal(2000, 300, (60, 2)).round(2)
HOLE = ROWS.copy()
HOLE[7, 0] = np.nan


def text(rows=ROWS, head="x,y", sep=",", form="{:.2f}".format, hole=""):
    lines = [[hole if np.isnan(v) else form(v) for v in row] for row in rows]
    return "\n".join([*head.splitlines(), *map(sep.join, lines)]) + "\n"


def comma(value):
    return f"{value:.2f}".replace(".", ",")


def points(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def marked(sign):
    return "markers of missing values", text(HOLE, hole=sign), HOLE


#: Line of the page, what is in the file, and its values by the remedy of the error.
INVALID_INPUT = [
    ("decimal commas", text(head="x;y", sep=";", form=comma), ROWS),
    ("decimal commas", text(head="x\ty", sep="\t", form=comma), ROWS),
    ("decimal commas", text(ROWS[:, :1], head="x", form=comma), ROWS[:, :1]),
    ("thousands", text(head="x;y", sep=";", form="{:,.2f}".format), ROWS),
    ("thousands", text(head="x;y", sep=";", form=points), ROWS),
    ("thousands", text(form='"{:,.2f}"'.format), ROWS),
    ("no line of column names", text(head=""), ROWS),
    ("no line of column names", text(head="1,1"), np.r_[[[1, 1]], ROWS]),
    *map(marked, ["?", "-", "\\N", " none"]),
    ("comments", text(head="# by hand\n# and so on\nx,y"), ROWS),
    ("comments", text(ROWS[:9]) + "# later\n" + text(ROWS[9:], head=""), ROWS),
    ("a line of units below the names", text(head="x,y\ndegC,%"), ROWS),
    ("lines above the names", text(head="a report\n\nx,y"), ROWS),
    ("a file of a data logger (TOA5)", text(head='"TOA5",1,1\nx,y\nC,%\n"",Avg'), ROWS),
    ("several spaces between values", text(head=" x   y", sep="   "), ROWS),
    ("another separator", text(head="x^y", sep="^"), ROWS),
    ("the first line of Excel (`sep=;`)", "sep=;\n" + text(head="x;y", sep=";"), ROWS),
    ("UTF-16, UTF-32", text().encode("utf-16"), ROWS),
    ("UTF-16, UTF-32", text().encode("utf-16-le"), ROWS),
    ("UTF-16, UTF-32", text().encode("utf-32"), ROWS),
    ("another encoding", text(head="é,y").encode("latin-1"), ROWS),
    ("numbers in other quotes", text(form="'{:.2f}'".format), ROWS),
]  # fmt: skip

#: Line of the page, what is in the file, and what is read (or said, or refused).
OTHERS = {
    "separators `,` `;` tab": (text(head="x\ty", sep="\t"), ROWS),
    "`NA`, `NaN`, `null` or nothing": (text(HOLE, hole="NA"), HOLE),
    "names that count, such as years": (text(head="2019,2020"), ROWS),
    "spaces after commas": (text(head="x, y", sep=", "), ROWS),
}


def written(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def remedy(message):
    """Return the options that an error names, for the command line and for Python."""
    shell, python = re.search(r"(--csv .*?) \(csv=(\{.*?\})\)", message).groups()
    return CsvOptions.of_texts(shlex.split(shell)[1::2]).given(), eval(python)


@pytest.mark.parametrize(("line", "content", "expected"), INVALID_INPUT)
def test_read_frame__names_the_option_that_reads_a_file(
    tmp_path, monkeypatch, line, content, expected
):
    path = written(tmp_path, content)

    for categorical in (None, "auto"):
        with pytest.raises(ValueError, match=r"--csv .*\(csv=") as raised:
            read_frame(path, categorical=categorical).compute(scheduler="sync")
    shell, python = remedy(str(raised.value))

    assert shell == python
    for n_bytes in (100, 2**25):
        monkeypatch.setattr(csv_blocks, "CSV_BLOCK_BYTES", n_bytes)
        found = read_frame(with_csv(path, python)).compute(scheduler="sync")
        np.testing.assert_array_equal(found.to_numpy(float), expected)


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (text(head="", sep=";", form=comma), {}),
        (text(head="x;y", sep=";"), {"decimal": ","}),
        (text(head="x;y", sep=";"), {"decimal": ",", "thousands": " "}),
        (text(head="", sep="^"), {}),
        (text(head="a report\n\nx;y", sep=";", form=comma), {}),
        (text(head="# by hand\n# x\ty", sep="\t", form=comma), {}),
    ],
)
def test_remedies__followed_one_after_another_read_a_file(tmp_path, content, given):
    path, found = written(tmp_path, content), None

    for _ in range(4):
        try:
            found = read_frame(with_csv(path, given)).compute(scheduler="sync")
        except ValueError as error:
            given = remedy(str(error))[1]

    np.testing.assert_array_equal(found, ROWS)


@pytest.mark.parametrize("sentinel", ["1E20", "-1e+30"])
def test_na_values__are_numbers_however_they_are_written(tmp_path, sentinel):
    path = written(tmp_path, f"x\n1.5\n2.5\n{float(sentinel):E}\n")

    found = read_frame(with_csv(path, {"na_values": [sentinel]})).compute(scheduler="sync")

    np.testing.assert_array_equal(found["x"], [1.5, 2.5, np.nan])


def test_layout__of_names_alone_is_no_column_of_decimal_commas(tmp_path):
    path = written(tmp_path, "x\n")

    with pytest.raises(ValueError, match=r"lack the columns \['y'\]"):
        lpe_dask.score(path, columns=["y"])


@pytest.mark.parametrize("name", ["ORCID", "PAR1_mean", "ARROW1"])
def test_names__may_begin_as_other_files_do(tmp_path, name):
    path = written(tmp_path, text(head=f"{name},y"))

    assert list(read_frame(path).columns) == [name, "y"]


def test_names__are_those_of_an_empty_file(tmp_path):
    (tmp_path / "1.csv").write_text(text(head="").lstrip())
    (tmp_path / "2.csv").write_bytes(b"")

    found = read_frame(with_csv(tmp_path, {"names": ["x", "y"]})).compute(scheduler="sync")

    np.testing.assert_array_equal(found, ROWS)


def test_names__that_replace_those_of_files_need_one_order(tmp_path):
    for file, head in (("1", "a,b"), ("2", "b,a")):
        (tmp_path / f"{file}.csv").write_text(text(head=head))
    given = {"names": ["x", "y"], "header": True}

    with pytest.raises(ValueError, match=r"2\.csv are not those in .*1\.csv"):
        read_frame(with_csv(tmp_path, given))
    (tmp_path / "2.csv").write_text(text(head="a,b"))

    assert len(read_frame(with_csv(tmp_path, given))) == 2 * len(ROWS)


def test_na_values__are_compared_exactly_with_large_numbers(tmp_path):
    numbers = [str(2**60 + i) for i in range(9)]
    path = written(tmp_path, "\n".join(["x", *numbers]))

    found = lpe_dask.score(path, csv={"na_values": numbers[:1]}, missing="drop").compute()

    assert found.isna().tolist() == [True] + [False] * 8


@pytest.mark.parametrize(("content", "expected"), OTHERS.values(), ids=OTHERS)
def test_read_frame__reads_plain_files(tmp_path, content, expected):
    found = read_frame(written(tmp_path, content)).compute(scheduler="sync")

    np.testing.assert_array_equal(found.to_numpy(float), expected)


@pytest.mark.parametrize("n_bytes", [60, 10**6])
def test_quotes__that_are_parts_of_values_take_no_rows(tmp_path, monkeypatch, n_bytes):
    """Of '"5 in' in two lines, the rest of the first and the second are one value."""
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", n_bytes)
    path = written(tmp_path, "x,y,note\n" + "".join(f'{a},{b},"5 in\n' for a, b in ROWS))

    with pytest.raises(ValueError, match="line 2: a quote is open for 2 lines") as raised:
        read_frame(path, columns=["x", "y"]).compute(scheduler="sync")
    _, given = remedy(str(raised.value))
    found = read_frame(with_csv(path, given)).compute(scheduler="sync")

    assert found["note"].tolist() == ['"5 in'] * len(ROWS)


@pytest.mark.parametrize(
    ("head", "rows", "given"),
    [
        ("x,y", "1,2,\n" * 9, {}),
        ("x::y", "1::2\n" * 9, {}),
        ("x;y", "12,34;2\n" * 9, {"thousands": ","}),
        ("x,y", "# 1,2\n" * 9 + "# 1,2,3\n3,?\n" * 9, {"comment": "#"}),
    ],
)
def test_error__names_no_option_that_would_be_wrong(tmp_path, head, rows, given):
    path = written(tmp_path, f"{head}\n{rows}")

    with pytest.raises((ValueError, TypeError)) as raised:
        lpe_dask.score(with_csv(path, given), categorical=None)

    assert not {"decimal", "skip_rows", "header", "comment"} & {
        option.partition("=")[0]
        for option in re.findall(r"--csv '?(\S+)", str(raised.value))
    }


@pytest.mark.parametrize("value", ["-", "+", ".", "e5", "-e5", ",5", "1,23"])
def test_error__of_a_number_with_groups_names_the_line(tmp_path, monkeypatch, value):
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", 60)
    rows = "1,234;2\n.5;2\n5.;2\n" * 20
    path = written(tmp_path, f"x;y\n{rows}{value};2\n")

    with pytest.raises(ValueError, match=f"line 62.*'{re.escape(value)}'"):
        read_frame(with_csv(path, {"thousands": ","})).compute(scheduler="sync")


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ("1,5", "decimal=,"),
        ("?", "'na_values=?'"),
        (" NA", "'na_values= NA'"),
        ("# late", "'comment=#'"),
    ],
)
def test_error__of_a_later_block_names_the_option(tmp_path, monkeypatch, value, option):
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", 60)
    separator = ";" if value == "1,5" else ","
    head, _, rows = text(sep=separator).partition("\n")
    last = value if value[0] == "#" else f"{value}{separator}2"
    path = written(tmp_path, f"{head.replace(',', separator)}\n{rows}{last}\n")

    with pytest.raises(ValueError, match=f"line 62.*--csv {re.escape(option)}"):
        read_frame(path).compute(scheduler="sync")


def test_counter_of_to_csv__is_measured(tmp_path):
    pd.DataFrame(ROWS, columns=["x", "y"]).to_csv(tmp_path / "t.csv")

    assert list(read_frame(tmp_path / "t.csv").columns) == ["Unnamed: 0", "x", "y"]


def test_ids__are_no_categories(tmp_path):
    frame = pd.DataFrame(ROWS, columns=["x", "y"]).assign(id=[f"c{i}" for i in range(60)])
    frame.to_csv(tmp_path / "t.csv", index=False)

    for data in (frame, tmp_path / "t.csv"):
        with pytest.raises(
            ValueError, match=r"'id' has 60 .* --columns x,y\), or .* --cat"
        ):
            lpe_dask.score(data, categorical="auto")
        assert len(lpe_dask.score(data, categorical=["id"])) == 60
        assert len(lpe_dask.score(data, columns=["x", "y"])) == 60


def test_codes__stay_text(tmp_path):
    """Also where the sample of the file has no zeros, and where the column is selected."""
    rows = pd.DataFrame({"x": np.arange(400.0) % 7, "zip": ["501", "94103"] * 200})
    rows.loc[399, "zip"] = "00501"
    path, given = tmp_path / "t.csv", {"categorical": ["zip"], "n_neighbors": 3}
    rows.to_csv(path, index=False)
    expected = lpe_dask.score(rows, **given)

    for columns in (None, ["x", "zip"]):
        found = lpe_dask.score(path, columns=columns, **given).compute()
        np.testing.assert_array_equal(found, expected)
    lpe_dask.score_files(path, tmp_path / "out", **given)
    lpe_dask.score_files(path, tmp_path / "carried", columns=["x"])

    for name in ("out", "carried"):
        assert pd.read_parquet(tmp_path / name)["zip"].tolist() == rows["zip"].tolist()
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "out")["p_value"], expected)


def test_page__has_a_line_for_each_case():
    lines = re.findall(
        r"^\| (?!file \||key \||---)(.+?) \|", PAGE.read_text(), re.MULTILINE
    )

    told = {
        "a counter that `to_csv` wrote (`Unnamed: 0`)",
        "ids, nearly all different, with `categorical=\"auto\"`",
        "codes with leading zeros (`00501`)",
        "a quote that is open over several lines, with text behind it",
        "whole numbers beyond 2**53 beside fractions",
    }  # fmt: skip
    keys = {f"`{key}`" for key in CsvOptions.model_fields}
    assert {*lines} == {line for line, *_ in INVALID_INPUT} | OTHERS.keys() | told | keys

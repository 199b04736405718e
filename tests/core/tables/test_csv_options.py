"""Options for CSV files: in Python, on the command line and in jobs."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lpe_dask
from lpe_dask.tables import csv_blocks, with_csv
from lpe_dask.tables.csv_options import CsvOptions
from lpe_dask.tables.table_files import open_table

#: Content, options, and the values that are read; numbers by options alone are read in
#: test_csv_files.
READ = {
    "numbers": (
        "x;y\n-2,25;1e3\n+3;2\n",
        {"decimal": ","},
        {"x": [-2.25, 3], "y": [1000, 2]},
    ),
    "large thousands": (
        'x\n"9,007,199,254,740,993"\n1\n',
        {"thousands": ","},
        {"x": [9007199254740993, 1]},
    ),
    "quotes": ("x,y\n'1',2\n'a,b',3\n", {"quote": "'"}, {"x": ["1", "a,b"], "y": [2, 3]}),
    "no quotes": ('x,y\n1",2\n2,3\n', {"quote": ""}, {"y": [2, 3]}),
    "signs of comments in quotes": (
        '# it is 5" by "a"\nx,note\n1,"a\n# b"\n  # later\n2,"c"\n',
        {"comment": "#"},
        {"x": [1, 2], "note": ["a\n# b", "c"]},
    ),
    "names": ("1,2\n3,4\n", {"names": ["a", "b"]}, {"a": [1, 3], "b": [2, 4]}),
    "other names": (
        "x,x\n3,4\n",
        {"names": ["a", "b"], "header": True},
        {"a": [3], "b": [4]},
    ),
    "markers": (
        "x,y\n?,2\n3,-200.0\n",
        {"na_values": ["?", -200]},
        {"x": [None, 3], "y": [2, None]},
    ),
    "markers in categories": ("x,y\n-,2\na,3\n", {"na_values": "-"}, {"x": [None, "a"]}),
    **{
        encoding: (
            "né,y\n1,é\n".encode(encoding),
            {"encoding": encoding},
            {"né": [1], "y": ["é"]},
        )
        for encoding in ("latin-1", "utf-16")
    },
    "spaces": (
        " x   y \n 1 \t 2  \n3 4\n",
        {"separator": "space"},
        {"x": [1, 3], "y": [2, 4]},
    ),
    "spaces after commas": (
        'x, y\n1, "a, b" \n 2,c\n',
        {"separator": ", "},
        {"y": ["a, b", "c"]},
    ),
}


def written(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, given, categorical=None):
    table = open_table(with_csv(path, given), categorical=categorical)
    parts = [part.read(table.schema.names) for part in table.parts]
    return pa.concat_tables(parts, promote_options="permissive").to_pydict()


@pytest.mark.parametrize(("content", "given", "expected"), READ.values(), ids=READ)
@pytest.mark.parametrize("n_bytes", [16, 2**25])
def test_open_table__reads_by_options(
    tmp_path, monkeypatch, content, given, expected, n_bytes
):
    is_of_lines = 'b"' not in str(content) and given.get("encoding") != "utf-16"
    if is_of_lines:
        monkeypatch.setattr(csv_blocks, "CSV_BLOCK_BYTES", n_bytes)
    path = written(tmp_path, content)
    text = [name for name, values in expected.items() if isinstance(values[-1], str)]

    found = read(path, given, text)

    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"seperator": ";"}, ValueError, r"no key 'seperator'. Did you mean separator\?"),
        ({"separator": ";;"}, ValueError, "must be one ASCII character"),
        ({"separator": ""}, ValueError, "must be one ASCII character"),
        ({"decimal": ";"}, ValueError, r'decimal=.* must be "." or ","'),
        ({"header": "no"}, TypeError, "header='no' must be true or false"),
        ({"skip_rows": -1}, ValueError, "how many lines"),
        ({"names": ["a", "a"]}, ValueError, "none twice"),
        ({"encoding": "utf-99"}, ValueError, "an encoding that Python knows"),
        ({"comment": " "}, ValueError, "not blank"),
        ({"thousands": ","} | {"decimal": ","}, ValueError, "is the decimal point, too"),
        ({"quote": "#", "comment": "#"}, ValueError, "begins comments, too"),
        ([";"], TypeError, "must be a dict"),
    ],
)
def test_csv_options__are_checked(given, kind, message):
    with pytest.raises(kind, match=message):
        CsvOptions.of(given)


def test_csv_options__of_texts():
    texts = [
        "separator=tab",
        "skip_rows=[1, 3]",
        "header=False",
        'names=a,"b,c"',
        "na_values=?",
    ]

    given = CsvOptions.of_texts(texts).given()

    assert given == {
        "separator": "\t", "skip_rows": [1, 3], "header": False, "names": ["a", "b,c"],
        "na_values": ["?"],
    }  # fmt: skip
    with pytest.raises(ValueError, match="KEY=VALUE"):
        CsvOptions.of_texts(["decimal"])


def test_error__of_a_block_names_the_line_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", 40)
    rows = [f"{i};{i},5" for i in range(50)]
    lines = ["title", "# of it", 'y;"x', 'z"', *rows, "1;3.5", ""]
    path = written(tmp_path, "\n".join(lines))
    given = {"decimal": ",", "thousands": ".", "skip_rows": 1, "comment": "#"}

    with pytest.raises(
        ValueError, match=r"t.csv, line 55: column 'x\\nz': invalid value '3.5'"
    ):
        read(path, given)


def test_read__refuses_bytes_of_another_encoding_and_too_few_names(tmp_path, monkeypatch):
    """Where the beginning of a file does not show it, too."""
    monkeypatch.setattr(csv_blocks, "CSV_SAMPLE_BYTES", 40)
    path = tmp_path / "t.csv"
    for head, message in ((b"x,y", "is not ascii"), (b"x,\xe9", "is not ascii.*latin-1")):
        path.write_bytes(head + b"\n" + b"1,2\n" * 40 + b"3,\xe9\n")
        with pytest.raises(ValueError, match=message):
            read(path, {"encoding": "ascii"})
    with pytest.raises(ValueError, match="line 1: 2 values, but names has 1"):
        read(path, {"encoding": "latin-1", "names": ["x"], "header": True})


def test_methods__take_options(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["x", "y"])
    path, given = tmp_path / "t.csv", {"decimal": ","}
    frame.to_csv(path, sep=";", decimal=",", index=False)
    expected = lpe_dask.LPE(3).fit(frame)

    model = lpe_dask.LPE(3).fit(path, csv=given)

    for method in ("statistic", "score_samples", "predict", "decision_function"):
        found = getattr(model, method)(path, csv=given).compute()
        np.testing.assert_array_equal(found, getattr(expected, method)(frame))
    assert model.explain(path, csv=given)["statistic"].notna().all()
    assert len(model.nearest_nominal(path, csv=given)) == 180
    model.check_calibration()
    pd.testing.assert_series_equal(
        lpe_dask.score(path, csv=given, n_neighbors=3).compute().reset_index(drop=True),
        expected.p_values_,
    )
    assert lpe_dask.plan(path, csv=given, n_neighbors=3).fits
    with pytest.raises(TypeError, match="X is a DataFrame"):
        model.predict(frame, csv=given)
    assert pickle.loads(pickle.dumps(with_csv(path, given))).csv == given


def test_score_files__resumes_only_by_the_same_options(tmp_path):
    path = written(tmp_path, "x\n" + "".join(f"{i}.25\n" for i in range(40)))
    lpe_dask.score_files(path, tmp_path / "out", n_neighbors=3)

    with pytest.raises(FileExistsError, match="how CSV files are read"):
        lpe_dask.score_files(
            path, tmp_path / "out", n_neighbors=3, csv={"na_values": [3.25]}, missing="drop"
        )


def test_run__reads_by_the_section_of_a_job(tmp_path):
    path = written(tmp_path, "x;y\n" + "".join(f"{i},25;1\n" for i in range(40)))
    job = tmp_path / "job.toml"
    score = f'[score]\ndata = "{path}"\noutput = "{tmp_path}/out"\n[csv]\ndecimal = ","\n'
    job.write_text(score)

    lpe_dask.run(job)

    assert pd.read_parquet(tmp_path / "out")["x"].tolist() == [i + 0.25 for i in range(40)]
    for line, message in (
        ('thousands = ","', r"job.toml, \[csv\] thousands: .*decimal point, too"),
        ("header = 3", "must be true or false"),
    ):
        job.write_text(score + line)
        with pytest.raises(ValueError, match=message):
            lpe_dask.run(job)

"""Outputs that have only the rows to act on: flagged ones, and those without a p-value."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lpe_dask
from arrow_values import VALUES, column, newer_values
from breaking import parts_in
from choosing import mostly_dealt, mostly_full
from interrupting import N_PARTS, stop_run, write_files
from lpe_dask.batch.explanations import explain_output
from lpe_dask.cli.commands import cli
from lpe_dask.tables import csv_blocks, parquet_files

#: Counts that are the same whatever is written.
COUNTED = [
    "rows", "rows_nan", "flagged", "flagged_share", "flagged_between", "p_value_status",
    "p_value_bins", "values", "fdr_cut_off", "groups",
]  # fmt: skip


def table(n_rows, seed, far=()):
    """Rows on a grid, some of them far away; the last column divides them into groups."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 9, (n_rows, 2)) * 0.5, columns=["x", "y"])
    frame.iloc[list(far)] += 50 + np.arange(len(far))[:, np.newaxis] / 8
    frame["site"] = rng.choice(["a", "b"], n_rows)
    frame.insert(0, "name", [f"row {i}" for i in range(n_rows)])
    return frame


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with nominal rows, and rows to score in several files.

    The second file has no row, and the third none that would be written.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parquet_files, "PARTITION_ROWS", 16)
    table(400, 0).drop(columns="name").to_parquet("nominal.parquet")
    rows = table(60, 1, far=[2, 5, 30, 31, 32, 59])
    rows.loc[[0, 33], "x"] = np.nan
    edges = [0, 9, 9, 28, 60]
    write_files(rows, "data", edges)
    Path("lines").mkdir()
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        rows.iloc[start:stop].to_csv(f"lines/{i}.csv", index=False)
    return tmp_path


def scored(output, data="data", **given):
    given = {"nominal": "nominal.parquet", "columns": ["x", "y"], "n_neighbors": 3} | given
    return lpe_dask.score_files(data, output, calibration="conformal", **given)


def to_act_on(every):
    """The rows that are to be written, by a plain loop."""
    decisions = enumerate(every["is_anomaly"])
    places = [i for i, decision in decisions if decision is pd.NA or decision]
    expected = every.iloc[places].reset_index(drop=True)
    expected.insert(every.columns.get_loc("p_value"), "row_number", places)
    return expected


@pytest.mark.parametrize(
    ("decides", "data", "more"),
    mostly_dealt(
        [{"alpha": 0.02}, {"fdr": 0.5}, {"fdr": 1e-9}],
        ["data", "lines"],
        [{}, {"by": ["site"]}, {"keep": []}],
    ),
)
def test_rows_flagged__are_those_of_an_output_of_all(folder, decides, data, more):
    expected = scored("all", data, **decides, **more)

    summary = scored("flagged", data, **decides, **more, rows="flagged")

    every = pd.read_parquet("all")
    actual = pd.read_parquet("flagged")
    pd.testing.assert_frame_equal(actual, to_act_on(every), check_dtype=True)
    assert actual["row_number"].dtype == np.int64
    assert [path.name for path in sorted(Path("flagged").glob("part-*"))] == [
        path.name for path in sorted(Path("all").glob("part-*"))
    ]
    for name in COUNTED:
        assert summary[name] == expected[name], name
    keys = summary["output_rows"], summary["written_rows"], summary["output_format"]
    assert keys == ("flagged", len(actual), "parquet")
    assert (expected["output_rows"], expected["written_rows"]) == ("all", 60)
    assert (summary["flagged"] > 0) == (decides != {"fdr": 1e-9})


def test_rows_flagged__of_a_csv_in_several_blocks_count_across_these(folder, monkeypatch):
    monkeypatch.setattr(csv_blocks, "CSV_BLOCK_BYTES", 200)

    scored("all", "lines", alpha=0.01)
    scored("flagged", "lines", alpha=0.01, rows="flagged")

    assert len(list(Path("flagged").glob("part-*"))) > 6
    expected = to_act_on(pd.read_parquet("all"))
    pd.testing.assert_frame_equal(pd.read_parquet("flagged"), expected)


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(100, 112),
        pd.Index(list("abcdefghijkl"), name="key"),
        pd.MultiIndex.from_product([range(3), list("abcd")], names=["a", None]),
    ],
    ids=["range", "text", "levels"],
)
def test_rows_flagged__keep_an_index_but_not_a_range(folder, index):
    """A range says which rows there are, and then it would be wrong."""
    rows = table(12, 2, far=[1, 4, 5, 11]).set_index(index)
    write_files(rows, "indexed", [0, 5, 12])

    scored("flagged", "indexed", alpha=0.01, rows="flagged")

    actual = pd.read_parquet("flagged")
    assert actual["row_number"].tolist() == [1, 4, 5, 11]
    assert actual["name"].tolist() == [f"row {i}" for i in (1, 4, 5, 11)]
    expected = index[[1, 4, 5, 11]]
    if isinstance(index, pd.RangeIndex):
        expected = pd.RangeIndex(4)
        for path in Path("flagged").glob("part-*"):
            assert pq.read_schema(path).pandas_metadata["index_columns"] == []
    pd.testing.assert_index_equal(actual.index, expected)


@pytest.mark.parametrize("decides", ["alpha", "fdr"])
def test_rows_flagged__carry_over_every_type(folder, decides):
    values = dict(enumerate([*VALUES, *newer_values()]))
    columns = {
        f"c{i}": column(kind, [None, value] * 4)["c"] for i, (kind, value) in values.items()
    }
    x = [1.0, 90.0, 2.0, None, 91.0, 1.0, 2.0, 93.0]
    pq.write_table(pa.table({"x": x, **columns}), "types.parquet", row_group_size=3)

    scored("flagged", "types.parquet", columns=["x"], rows="flagged", **{decides: 0.1})

    given, actual = pq.read_table("types.parquet"), pq.read_table("flagged")
    places = actual["row_number"].to_pylist()
    assert {1, 3, 4, 7} <= {*places} < {*range(8)}
    for name in given.schema.names:
        assert actual.schema.field(name) == given.schema.field(name)
        # As text, as NaN is not equal to itself.
        every = given[name].to_pylist()
        assert repr(actual[name].to_pylist()) == repr([every[i] for i in places])


# Runs that are repeated


@pytest.mark.parametrize(
    ("fdr", "n_written"),
    mostly_full(
        [*((None, n) for n in range(N_PARTS)), *((0.1, n) for n in range(2 * N_PARTS))],
        [(None, 2), (0.1, 2), (0.1, N_PARTS + 2)],
    ),
)
def test_rows_flagged__are_the_same_where_a_run_was_interrupted(
    tables, tmp_path, fdr, n_written
):
    given = {**tables, "n_neighbors": 5, "fdr": fdr, "rows": "flagged", "format": "csv"}
    lpe_dask.score_files(**given, output=tmp_path / "expected")
    expected = parts_in(tmp_path / "expected")

    stop_run(n_written, **given, output=tmp_path / "out")

    assert parts_in(tmp_path / "out").items() <= expected.items()
    lpe_dask.score_files(**given, output=tmp_path / "out")
    assert parts_in(tmp_path / "out") == expected


def test_rows_flagged__have_other_numbers_where_a_csv_before_them_was_mended(folder):
    """Parts from other files are kept only if their rows have the same numbers."""
    scored("whole", "lines", alpha=0.01, rows="flagged")
    whole = Path("lines/0.csv").read_text()
    Path("lines/0.csv").write_text("".join(whole.splitlines(keepends=True)[:4]))
    scored("out", "lines", alpha=0.01, rows="flagged")
    summary = Path("out/_summary.json")
    fingerprint = json.loads(summary.read_text())["fingerprint"]
    Path("out/_run.json").write_text(json.dumps(fingerprint))
    summary.unlink()  # as if the run had been interrupted
    Path("lines/0.csv").write_text(whole)

    scored("out", "lines", alpha=0.01, rows="flagged")

    pd.testing.assert_frame_equal(pd.read_parquet("out"), pd.read_parquet("whole"))


def test_rows_flagged__are_another_output_than_all_rows(folder):
    """One of all rows says nothing of them: outputs of earlier versions are resumed."""
    for name, given in {"all": {}, "same": {"rows": "all", "format": "parquet"}}.items():
        settings = scored(name, **given)["fingerprint"]["settings"]
        assert {"rows", "format"}.isdisjoint(settings)
    Path("all/_summary.json").rename("all/_run.json")
    content = json.loads(Path("all/_run.json").read_text())["fingerprint"]
    Path("all/_run.json").write_text(json.dumps(content))

    with pytest.raises(FileExistsError, match="differs in: which rows are written, the fo"):
        scored("all", rows="flagged", format="csv")

    scored("all")


# Reasons


@pytest.mark.parametrize("decides", ["alpha", "fdr"])
def test_rows_flagged__are_explained_where_they_are(folder, decides):
    rate = {decides: 0.01 if decides == "alpha" else 0.5}
    nominal = pd.read_parquet("nominal.parquet", columns=["x", "y"])
    lpe_dask.LPE(3, calibration="conformal").fit(nominal).save("model")
    expected = lpe_dask.score_files("data", "all", model="model", **rate)["reasons"]

    summary = lpe_dask.score_files("data", "out", model="model", rows="flagged", **rate)

    reasons = summary["reasons"]
    assert len(reasons["rows"]) == summary["flagged"] >= 6
    assert reasons["flagged_rows"] == summary["flagged"]
    assert reasons["top_columns"] == expected["top_columns"]
    parts = {path.name: pd.read_parquet(path) for path in Path("out").glob("part-*")}
    for row, of_all in zip(reasons["rows"], expected["rows"], strict=False):
        line = parts[row["part"]].iloc[row["row"]]
        assert row["id_columns"]["name"] == line["name"]
        assert (row["statistic"], row["p_value"]) == (line["statistic"], line["p_value"])
        assert row["is_anomaly"]
        assert {**row, "row": 0} == {**of_all, "row": 0}
    stored = pd.read_parquet("out/_reasons.pqt")
    Path("out/_reasons.pqt").unlink()
    pd.testing.assert_frame_equal(explain_output("out", 100), stored)
    assert "row_number" not in "".join(stored["id_columns"])
    assert len(explain_output("out", 2)) == 4


def test_rows_flagged__need_no_reasons_where_there_are_none(folder):
    summary = scored("out", alpha=1e-9, rows="flagged")

    assert (summary["flagged"], summary["written_rows"]) == (0, 2)
    assert summary["reasons"]["reason"] == "no row is flagged, and others are not written"
    with pytest.raises(
        ValueError, match="no row in out is flagged, and others were not wri"
    ):
        explain_output("out")


# Refusals


def test_rows_flagged__refuse_a_column_of_the_name_of_their_numbers(folder):
    table(20, 3).assign(row_number=1).to_parquet("numbered.parquet")

    with pytest.raises(ValueError, match=r"\['row_number'\] already.*keep=, --keep"):
        scored("out", "numbered.parquet", rows="flagged")

    scored("all", "numbered.parquet")
    scored("out", "numbered.parquet", rows="flagged", keep=["name"])
    assert (pd.read_parquet("all")["row_number"] == 1).all()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("rows", "some", r'"all" or "flagged"\. For example: rows="flagged"'),
        ("rows", None, '"all" or "flagged"'),
        ("format", "tsv", r'"parquet", "csv" or "jsonl"\. For example: format="csv"'),
    ],
)
def test_score_files__refuses_other_rows_and_formats(
    folder, read, refusal, name, value, allowed
):
    with pytest.raises(ValueError, match=f"^{name}={value!r} must be {allowed}"):
        scored("out", **{name: value})

    assert not Path("out").exists()
    if value is not None:
        job = f'[score]\ndata = "data"\noutput = "out"\n{name} = "{value}"'
        (line,) = refusal(job)
        assert line.startswith(f", [score] {name}: {name}={value!r} must be ")
        command = ["score", "data", "--output", "out", f"--{name}", value]
        result = CliRunner().invoke(cli, command)
        assert (result.exit_code, f"--{name}" in result.output) == (2, True)


def test_job__and_command_write_what_is_wanted(folder):
    Path("job.toml").write_text(
        '[nominal]\ndata = "nominal.parquet"\ncolumns = ["x", "y"]\n'
        '[score]\ndata = "data"\noutput = "of job"\nrows = "flagged"\nformat = "jsonl"\n'
    )

    lpe_dask.run("job.toml")
    result = CliRunner().invoke(
        cli,
        [
            "score", "data", "--output", "of command", "--nominal", "nominal.parquet",
            "--columns", "x,y", "--rows", "flagged", "--format", "jsonl",
            "--scheduler", "threads",
        ],
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    written = [Path(of, "_scores.jsonl").read_bytes() for of in ("of job", "of command")]
    assert written[0] == written[1]
    n_written = len(pd.read_parquet("of job"))
    assert re.search(rf"\n{n_written} of \d+ rows are written\n", result.output)

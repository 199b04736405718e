"""Anomalies among nominal rows that a person has confirmed, and fits without them."""

import csv
import json
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import lpe_dask
from bands import flagged_band
from interrupting import stop_run, write_files
from lpe_dask.batch.api import fit_job
from lpe_dask.batch.confirmed_rows import MARK, ConfirmedRows
from lpe_dask.batch.explanations import explain_output
from lpe_dask.batch.runs import Run
from lpe_dask.cli.commands import cli
from lpe_dask.tables.row_checksums import row_checksum

N_ROWS = 230
ODD = [3, 60, 61, 130, 229]  # rows that are anomalies
MEASURED = ["x", "y", "kind"]
PLAIN = {"scale": "standard", "categorical": ["kind"]}


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(N_ROWS)],
            "x": rng.integers(0, 50, N_ROWS) / 7,
            "y": rng.integers(0, 50, N_ROWS),
            "kind": rng.choice(["a", "b"], N_ROWS),
        }
    )
    frame.loc[ODD, "x"] = 40.0 + np.arange(len(ODD))
    return frame


def to_csv(frame, folder, edges):
    Path(folder).mkdir()
    for i, start in enumerate(edges[:-1]):
        frame[start : edges[i + 1]].to_csv(f"{folder}/{i}.csv", index=False)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO")


@pytest.fixture
def nominal():
    """Nominal rows in four partitions, one of them empty, that are scored in "scored"."""
    write_files(table(), "nominal", [0, 60, 60, 131, N_ROWS])
    lpe_dask.score_files("nominal", "scored", columns=MEASURED, **PLAIN)
    return table()


def listed(top=50, out="scored", file="list.csv", **more):
    explain_output(out, top, confirm=file, **more)
    return read(file)


def read(file):
    return pd.read_csv(file, keep_default_na=False, dtype={MARK: str})


def mark(rows):
    lines = read("list.csv")
    lines[MARK] = np.where(lines["row"].isin(rows), "x", "")
    lines.to_csv("list.csv", index=False)


def fitted(data, model, **given):
    given = {"columns": MEASURED, "without_rows": "list.csv"} | PLAIN | given
    return Run.prepare(fit_job(data, model, **given), "refuse").execute()


# The list


def test_list__has_the_most_anomalous_rows_in_order_by_their_numbers(nominal, caplog):
    lines = listed(229)

    p_values = lpe_dask.score(nominal[MEASURED], **PLAIN)
    expected = p_values.sort_values(kind="stable")
    assert lines["p_value"].tolist() == expected[:229].tolist()
    assert p_values[lines["row"]].tolist() == lines["p_value"].tolist()
    assert set(lines["row"][: len(ODD)]) == set(ODD)
    assert lines["id_columns"].tolist() == [f"id=row {i}" for i in lines["row"]]
    assert (lines[MARK] == "").all()
    assert lines["reasons"][0].startswith("x=44.0 (8")
    assert "usual" in lines["reasons"][199]
    assert lines["reasons"][200:].eq("").all(), "a run explains 200, and has no model"
    (message,) = (of for of in caplog.messages if "listed without reasons" in of)
    assert "reasons: scored has the reasons of 200 rows, and its model was not" in message
    rows = nominal.sort_index(axis=1).drop(columns="id").to_dict("records")
    assert lines["checksum"].tolist() == [row_checksum(rows[i]) for i in lines["row"]]


def test_explain__has_the_reasons_of_200_rows_that_are_scored_against_each_other(nominal):
    reasons = explain_output("scored", 200)

    assert reasons.groupby(["part", "row"]).ngroups == 200
    summary = json.loads(Path("scored/_summary.json").read_text())
    assert len(summary["reasons"]["rows"]) == 50
    with pytest.raises(ValueError, match="has the reasons of 200 rows"):
        explain_output("scored", 201)


def test_list__needs_no_column_in_the_output_and_shows_no_private_one(nominal):
    given = {"columns": MEASURED, "private": ["x", "id"], **PLAIN}
    lpe_dask.score_files(
        "nominal", "bare", keep=[], private=["x"], **(PLAIN | {"columns": MEASURED})
    )
    lpe_dask.score_files("nominal", "private", **given)

    whole, bare = listed(), listed(out="bare", file="bare.csv")
    private = listed(out="private", file="private.csv")

    for other in (bare, private):
        assert other[["row", "checksum", "p_value"]].equals(
            whole[["row", "checksum", "p_value"]]
        )
        assert other["id_columns"].eq("").all()
        assert not other["reasons"].str.contains("x=").any()
    assert private["reasons"].str.contains("y=").all()


def test_list__of_private_columns_alone_has_no_reasons(nominal):
    lpe_dask.score_files("nominal", "o", columns=["x"], private=["x"])

    lines = listed(out="o")

    assert set(lines["row"][:5]) == set(ODD)
    assert lines["reasons"].eq("").all()


def test_list__is_not_replaced_and_not_part_of_the_output(nominal):
    listed()
    before = Path("list.csv").read_bytes()

    with pytest.raises(FileExistsError, match=r"list\.csv exists, and may have marks"):
        listed()
    with pytest.raises(ValueError, match="would be in the output scored"):
        explain_output("scored", confirm="scored/list.csv")
    with pytest.raises(ValueError, match="must be the name of a file"):
        explain_output("scored", confirm="lists/")
    with pytest.raises(ValueError, match=r"nominal/l.csv would be among the rows at file:"):
        explain_output("scored", confirm="nominal/l.csv")

    assert Path("list.csv").read_bytes() == before
    listed(file="new/folder/list.csv")


def test_list__is_not_among_nominal_rows_or_what_a_pattern_finds(nominal):
    to_csv(nominal, "csv", [0, N_ROWS])
    lpe_dask.score_files("csv/*.csv", "o", nominal="nominal", columns=["x", "y"])

    for file in ("csv/list.csv", "nominal/list.csv", "nominal/new/list.csv"):
        with pytest.raises(ValueError, match="would be among the rows at"):
            explain_output("o", confirm=file)

    listed(out="o", file="csv/lists/list.csv")


def test_list__of_an_output_of_flagged_rows_has_their_numbers_in_the_input(nominal):
    flagged = {"columns": MEASURED, "rows": "flagged", **PLAIN}
    n_flagged = lpe_dask.score_files("nominal", "o", **flagged)["flagged"]
    lpe_dask.score_files("nominal", "none", alpha=1e-9, **flagged)
    whole = listed()

    lines = listed(out="o", file="flagged.csv")

    names = ["row", "checksum", "p_value", "id_columns"]
    pd.testing.assert_frame_equal(lines[names], whole[names][:n_flagged])
    assert len(ODD) < n_flagged < 50
    with pytest.raises(ValueError, match="no row in none is flagged, and others were not"):
        listed(out="none", file="none.csv")


def test_list__is_harmless_in_a_spreadsheet():
    frame = table().rename(columns={"id": "=id"})
    frame.loc[3, "kind"] = "a;=1+1"
    write_files(frame, "nominal", [0, N_ROWS])
    lpe_dask.score_files("nominal", "scored", columns=MEASURED, **PLAIN)

    lines = listed()

    assert lines["id_columns"].str.startswith("'=id=row ").all()
    assert "kind=a;'=1+1" in lines.loc[lines["row"] == 3, "reasons"].item()
    assert lines["checksum"].str.fullmatch("x[0-9a-f]{16}").all(), "no number"


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda: shutil.rmtree("nominal"), "nominal"),
        (
            lambda: table().to_parquet(next(Path("nominal").iterdir())),
            "is changed",
        ),
    ],
)
def test_list__needs_the_input_as_it_was(nominal, change, refusal):
    change()

    with pytest.raises((ValueError, FileNotFoundError), match=refusal):
        listed()

    assert not Path("list.csv").exists()


def test_list__of_rows_without_a_p_value_is_refused():
    table().assign(x=np.inf).to_parquet("rows.parquet")
    table().to_parquet("nominal.parquet")
    lpe_dask.score_files("rows.parquet", "o", nominal="nominal.parquet", columns=["x", "y"])

    with pytest.raises(ValueError, match="no row in o has a p-value: there is nothing"):
        listed(out="o")


def test_list__names_groups_as_reasons_do():
    write_files(table(), "nominal", [0, 100, N_ROWS])
    lpe_dask.score_files("nominal", "scored", columns=["x", "y"], by=["kind"], alpha=0.2)

    lines = listed(3)

    stored = explain_output("scored", 3)["id_columns"].unique()
    assert lines["id_columns"].tolist() == stored.tolist()
    assert "kind=" in stored[0]


# Checksums

_TEXT = st.text(max_size=5)
_NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)


@given(st.dictionaries(_TEXT, _NUMBER | _TEXT | st.none(), max_size=4), st.data())
def test_row_checksum__is_that_of_equal_values_alone(row, data):
    other = dict(row)
    for name in row:
        value = data.draw(_NUMBER | _TEXT | st.none() | st.just(row[name]))
        other[name] = value

    is_equal = row == other

    assert (row_checksum(row) == row_checksum(other)) == is_equal


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (5, [5.0, Decimal("5.00"), np.float32(5).item()]),
        (0, [-0.0, False]),
        (0.1, [Decimal("0.1"), Decimal("0.100")]),
        (None, [float("nan"), pd.NaT]),
        (2**60 + 1, [Decimal(2**60 + 1)]),
    ],
)
def test_row_checksum__does_not_depend_on_types(value, same):
    others = [0.1 + 2**-56, "5", "0", "None", "", "NaN", 2**60, Decimal(2**60) + 2]

    expected = row_checksum({"x": value})

    assert {row_checksum({"x": of}) for of in same} == {expected}
    assert expected not in {row_checksum({"x": of}) for of in others}
    assert expected != row_checksum({"y": value})


def test_list__is_the_same_of_csv_and_parquet():
    frame = table()
    frame.loc[5, "x"] = np.nan
    frame["big"] = 2**55 + np.arange(N_ROWS) % 7
    given = {"columns": [*MEASURED, "big"], "missing": "drop"} | PLAIN
    write_files(frame, "pq", [0, 100, N_ROWS])
    to_csv(frame, "csv", [0, 40, N_ROWS])
    for kind in ("pq", "csv"):
        lpe_dask.score_files(kind, f"of {kind}", **given)

    of_parquet, of_csv = (
        listed(250, f"of {kind}", f"{kind}.csv") for kind in ("pq", "csv")
    )

    names = ["row", "checksum", "p_value", "id_columns"]
    pd.testing.assert_frame_equal(of_parquet[names], of_csv[names])
    assert len(of_csv) == N_ROWS - 1


# The fit

LAYOUTS = [[0, 60, 60, 131, N_ROWS], [0, 3, 4, 60, 62, 229, N_ROWS]]
CONFORMAL = {"calibration": "conformal", "random_state": 3}
GROUPS = {"by": ["kind"], "alpha": 0.2, "columns": ["x", "y"], "categorical": None}


@pytest.mark.parametrize(
    ("write", "more"),
    [
        (write_files, {}),
        (to_csv, {}),
        (write_files, CONFORMAL),
        (to_csv, CONFORMAL | {"missing": "drop"}),
        (write_files, CONFORMAL | GROUPS),
        (write_files, {"scale": "quantile", "missing": "measure"}),
    ],
    ids=lambda of: getattr(of, "__name__", None) or str(of),
)
def test_fit__without_rows_has_the_bits_of_a_table_that_never_had_them(write, more):
    frame, given = table(), {"columns": MEASURED} | PLAIN | more
    if "missing" in more:
        frame.loc[[7, 131], "x"] = np.nan
    frame.to_parquet("all.parquet")
    lpe_dask.score_files("all.parquet", "scored", **given)
    listed(N_ROWS)
    mark(ODD)
    left = frame.drop(index=ODD)
    left.to_parquet("left.parquet")
    fitted("left.parquet", "expected", without_rows=None, **given)
    expected = lpe_dask.load("expected")

    new = frame[list(given["columns"]) + more.get("by", [])]
    for i, edges in enumerate(LAYOUTS):
        data = write(frame, f"data {i}", edges)
        summary = fitted(data, f"model {i}", **given)
        model = lpe_dask.load(f"model {i}")

        assert summary["confirmed_anomalies"] == len(ODD)
        assert summary["nominal_rows"] + summary["dropped_rows"] == N_ROWS - len(ODD)
        if model.calibration_kind_ == "loo":
            np.testing.assert_array_equal(model.p_values_, expected.p_values_)
        pd.testing.assert_series_equal(
            model.score_samples(new), expected.score_samples(new)
        )
        pd.testing.assert_series_equal(model.statistic(new), expected.statistic(new))


def test_fit__takes_a_list_of_the_same_columns_for_groups_of_rows(nominal):
    """It may have taken hours to mark."""
    lpe_dask.score_files("nominal", "o", columns=["x", "y"])
    listed(out="o")
    mark(ODD)

    assert fitted("nominal", "model", **GROUPS)["confirmed_anomalies"] == len(ODD)


def test_fit__leaves_partitions_without_a_row_and_refuses_to_leave_no_row():
    table()[:4].to_parquet("few.parquet")
    lpe_dask.score_files("few.parquet", "scored", columns=["x", "y"], n_neighbors=1)
    listed()
    mark(range(4))

    with pytest.raises(ValueError, match="no nominal rows to learn from"):
        fitted("few.parquet", "model", columns=["x", "y"], categorical=None)


def test_fit__records_what_was_left_out_and_knows_its_model_by_it(nominal):
    listed()
    sources = []
    for i, rows in enumerate([[], ODD[:2], ODD]):
        mark(rows)
        fitted("nominal", f"model {i}")
        manifest = json.loads(Path(f"model {i}/manifest.json").read_text())
        assert manifest["n_confirmed"] == len(rows)
        sources.append(manifest["source"])
    fitted("nominal", "plain", without_rows=None)

    assert len({*sources}) == 3
    assert json.loads(Path("plain/manifest.json").read_text())["source"] == sources[0]
    summary = lpe_dask.score_files("nominal", "later", model="model 2")
    assert summary["confirmed_anomalies"] == len(ODD)


def by_hand(marks, **how):
    """Write a list by hand, with texts for people that no reader needs."""
    lines = pd.DataFrame({"row": range(len(marks)), "checksum": "x5", "p_value": 0.5})
    lines["id_columns"], lines[MARK] = "\N{LATIN SMALL LETTER E WITH ACUTE}\n2", marks
    lines[::-1].to_csv("list.csv", index=False, quoting=csv.QUOTE_ALL, **how)


@pytest.mark.parametrize(
    "how",
    [{"encoding": "latin-1"}, {"sep": ";"}, {"sep": "\t", "encoding": "utf-8-sig"}],
    ids=str,
)
def test_marks__are_read_as_spreadsheets_write_them(how):
    yes, no = ["x", "X", "true", "TRUE", "Yes", " 1 "], ["", " ", "0", "no", "False"]
    by_hand([*yes, *no], lineterminator="\r\n", **how)
    with open("list.csv", "ab") as file:
        file.write(how.get("sep", ",").join([""] * 5).encode() + b"\r\n")

    assert ConfirmedRows.read("list.csv").numbers == list(range(len(yes)))


def test_marks__that_mark_nothing_leave_out_nothing_and_say_so(nominal, caplog):
    listed()

    assert fitted("nominal", "model")["confirmed_anomalies"] == 0
    assert "list.csv marks no row" in caplog.text


def _replace(old, new):
    path = Path("list.csv")
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (lambda: Path("list.csv").unlink(), "there is no list of confirmed rows"),
        (lambda: _replace(MARK, "marked"), "lacks the columns is_anomaly_confirmed; its"),
        (lambda: Path("list.csv").write_text(""), "lacks the columns row, checksum"),
        (lambda: Path("list.csv").write_bytes(b"PK\3\0\xff"), "lacks the columns row"),
        (lambda: _replace('"x"', '"maybe"'), "line 7: is_anomaly_confirmed='maybe' must"),
        (lambda: _replace('"x"', '"1.0"'), "line 7: is_anomaly_confirmed='1.0' must be"),
        (lambda: _replace('"0"', '"-1"'), "line 7: row='-1' must be the number of a row"),
        (lambda: _replace('"0"', '"1e3"'), "row='1e3' must be the number of a row"),
        (lambda: _replace('"0"', f'"{2**70}"'), "must be the number of a row"),
        (lambda: _replace('"0"', '"2"'), "lines 3 and 7 of list.csv are about .* row, 2"),
    ],
)
def test_marks__that_cannot_be_read_are_refused(break_it, problem):
    by_hand(["x", "", ""])
    break_it()

    with pytest.raises((ValueError, FileNotFoundError), match=problem):
        ConfirmedRows.read("list.csv")


def test_fit__refuses_marks_that_are_not_of_these_rows(nominal):
    listed()
    mark(ODD)
    moved = nominal.copy()
    moved.loc[60, "y"] += 1
    write_files(moved, "moved", [0, 100, N_ROWS])
    write_files(nominal[:200], "short", [0, 200])
    several = {"columns": ["x", "y"], "categorical": None}

    for data, more, problem in [
        ("moved", {}, r"1 of the 5 rows that .* other values in moved.*: row 60\."),
        ("nominal", several, r"5 of the 5 .*rows 3, 60, 61, 130, 229\. The .* \(x, y\)"),
        ("short", {}, "marks row 229, but short has 200 rows, 0 to 199"),
    ]:
        with pytest.raises(ValueError, match=problem):
            fitted(data, "model", **more)

    assert not Path("model/manifest.json").exists()


def test_score_files__refuses_marks_without_nominal_rows(nominal):
    lpe_dask.LPE().fit(table()[["x", "y"]]).save("model")

    with pytest.raises(ValueError, match="Give nominal rows"):
        lpe_dask.score_files("nominal", "out", columns=["x"], without_rows="list.csv")
    with pytest.raises(ValueError, match="without_rows cannot be combined"):
        lpe_dask.score_files("nominal", "out", model="model", without_rows="list.csv")


def test_run__that_was_stopped_is_resumed_with_the_same_list_alone(nominal):
    listed()
    mark(ODD)
    given = {"columns": MEASURED, "nominal": "nominal", "without_rows": "list.csv"} | PLAIN
    lpe_dask.score_files("scored", "whole", keep=["id"], **given)
    given |= {"data": "scored", "output": "out", "keep": ["id"]}
    stop_run(2, **given)
    stopped = read("list.csv")

    mark(ODD[:2])
    with pytest.raises(FileExistsError, match="differs in: the nominal rows, the model"):
        lpe_dask.score_files(**given)
    stopped.to_csv("list.csv", index=False)
    lpe_dask.score_files(**given)

    pd.testing.assert_frame_equal(pd.read_parquet("out"), pd.read_parquet("whole"))


def test_commands__list_rows_and_leave_out_what_is_marked(nominal):
    def run(*words):
        done = CliRunner().invoke(cli, [*words, "--scheduler", "threads"])
        assert done.exit_code == 0, done.output
        return done

    result = run("explain", "scored", "--top", "200", "--confirm", "list.csv")
    assert "--without-rows list.csv" in result.stderr
    assert len(read("list.csv")) == 200
    mark(ODD)
    model = ["--columns", "x,y,kind", "--scale", "standard", "--categorical", "kind"]
    left_out = ["--without-rows", "list.csv", *model]
    text = f"{len(ODD)} nominal rows left out: confirmed anomalies"
    assert text in run("fit", "nominal", "--model", "model", *left_out).stderr
    given = ["--nominal", "nominal", "--output", "out", *left_out]
    assert text in run("score", "scored", "--keep", "id", *given).stderr
    summary = json.loads(Path("out/_summary.json").read_text())
    assert summary["nominal_rows"] == N_ROWS - len(ODD)


def test_job__names_the_list_and_is_fitted_again_when_it_changes(nominal, caplog):
    listed()
    mark(ODD)
    Path("job.toml").write_text(
        '[nominal]\ndata = "nominal"\ncolumns = ["x", "y"]\nwithout_rows = "list.csv"\n'
        '[model]\npath = "model"\nrefit = true\n'
    )
    with pytest.raises(ValueError, match=r"job.toml, \[nominal\] without_rows: 5 of the 5"):
        lpe_dask.run("job.toml")
    text = Path("job.toml").read_text()
    Path("job.toml").write_text(
        text.replace('"y"]', '"y", "kind"]') + 'categorical = ["kind"]'
    )

    assert lpe_dask.run("job.toml")["confirmed_anomalies"] == len(ODD)
    assert lpe_dask.run("job.toml") is None, "nothing to do"
    mark(ODD[:1])
    assert lpe_dask.run("job.toml")["confirmed_anomalies"] == 1


def test_job__refuses_another_list_than_its_model_was_fitted_without(nominal, caplog):
    listed(N_ROWS)
    mark(ODD)
    text = (
        '[nominal]\ndata = "nominal"\ncolumns = ["x", "y", "kind"]\nwithout_rows = "{}"\n'
        '[model]\npath = "model"\nscale = "standard"\ncategorical = ["kind"]\n'
        '[score]\ndata = "scored"\nkeep = ["id"]\noutput = "out"\n'
    )
    plain = text.replace('without_rows = "{}"\n', "")
    job = Path("job.toml")
    job.write_text(text.format("list.csv"))
    summary = lpe_dask.run("job.toml")
    left_out = r"rows left out \(without_rows\) instead of"
    for job_text, marks, n_rows in [
        (text, ODD[:2], f"5 {left_out} 2"),
        (text, [2, *ODD[1:]], f"5 {left_out} 5 other ones"),
        (text, [], f"5 {left_out} 0"),
        (plain, ODD, f"5 {left_out} 0"),
    ]:
        mark(marks)
        job.write_text(job_text.format("list.csv"))
        with pytest.raises(ValueError, match=rf"fitted with {n_rows}\."):
            lpe_dask.run("job.toml")
    assert "have changed since" not in caplog.text

    mark(ODD)
    shutil.move("list.csv", "same.csv")
    job.write_text(text.format("same.csv"))
    assert lpe_dask.run("job.toml") is None, "other rows alone are another list"
    job.write_text(text.format("list.csv"))
    with pytest.raises(ValueError, match=r"\[nominal\] without_rows: there is no list of"):
        lpe_dask.run("job.toml")
    job.write_text(plain)
    again = lpe_dask.run("job.toml", overwrite=True)
    assert (summary["confirmed_anomalies"], again["confirmed_anomalies"]) == (len(ODD), 0)
    job.write_text(text.format("same.csv"))
    with pytest.raises(ValueError, match=rf"fitted with 0 {left_out} 5\."):
        lpe_dask.run("job.toml")


# What it does to the promise

ALPHA, N_SETS, N_NEW = 0.1, 40, 200


def n_flagged(rows, new, seed):
    """How many new rows a conformal model of some rows flags, of 40 for calibration."""
    model = lpe_dask.LPE(
        5, calibration="conformal", calibration_size=40, random_state=seed
    ).fit(rows)
    return int((model.score_samples(new) <= ALPHA).sum())


def test_promise__is_kept_without_confirmed_anomalies_and_broken_by_trimming():
    flagged = {"as it is": 0, "confirmed": 0, "trimmed": 0}
    for seed in range(N_SETS):
        rng = np.random.default_rng(seed)
        is_odd = np.arange(100) >= 90
        rows, new = rng.standard_normal((100, 2)), rng.standard_normal((N_NEW, 2))
        rows[is_odd] += rng.choice([-9, 9], (10, 2)) * rng.uniform(1, 9, (10, 1))
        listed = np.isin(np.arange(100), np.argsort(lpe_dask.score(rows))[:30])
        for way, is_out in [
            ("as it is", listed & ~listed), ("confirmed", listed & is_odd),
            ("trimmed", listed),
        ]:  # fmt: skip
            flagged[way] += n_flagged(rows[~is_out], new, seed)

    least, most = flagged_band(N_SETS, N_NEW, ALPHA, 40, 1e-4)
    assert flagged["as it is"] < least, "anomalies hide what is unusual"
    assert least <= flagged["confirmed"] <= most
    assert flagged["trimmed"] > 1.5 * most


def test_promise__is_larger_by_the_share_of_anomalies_that_are_left():
    """P(p <= a) <= a / (1 - e), which anomalies reach that are less unusual than others."""
    e, flagged = 0.5, 0
    for seed in range(N_SETS):
        rng = np.random.default_rng(seed)
        rows, new = rng.standard_normal((100, 2)), rng.standard_normal((N_NEW, 2))
        rows[: int(e * 100)] *= 0.05
        flagged += n_flagged(rng.permutation(rows), new, seed)

    assert flagged > flagged_band(N_SETS, N_NEW, ALPHA, 40, 1e-4)[1]
    assert flagged <= flagged_band(N_SETS, N_NEW, ALPHA / (1 - e), 40, 1e-4)[1]

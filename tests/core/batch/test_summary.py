"""What an output says of its run: its status, the page, and values that rows have."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import lpe_dask
from interrupting import write_files
from lpe_dask.batch import page, parts
from lpe_dask.batch.api import score_files
from lpe_dask.batch.column_values import PRIVATE
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.runs import Run
from lpe_dask.batch.status import read_status
from lpe_dask.batch.summary import read_summary
from lpe_dask.cli.commands import cli
from lpe_dask.pages import report_page
from lpe_dask.storage import Folder, Lock

N_ROWS, N_PARTS, EDGES = 60, 4, (0, 7, 7, 40, 60)


def table(seed):
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["a", "b"], N_ROWS)
    return pd.DataFrame({"x": rng.random(N_ROWS), "y": rng.random(N_ROWS), "kind": kinds})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with nominal rows, and a job that scores them."""
    monkeypatch.chdir(tmp_path)
    write_files(table(0), "rows", EDGES)
    Path("job.toml").write_text('[score]\ndata="rows"\nexclude=["kind"]\noutput="out"\n')


def score(data="rows", **given):
    return score_files(data, "out", **{"nominal": "rows", "exclude": ["kind"]} | given)


# The status


def stop_at(monkeypatch, function, number, **given):
    """Score, but let a function of `parts` fail the time that has this number."""
    whole, calls = getattr(parts, function), []

    def stopping(*args):
        calls.append(args)
        if len(calls) > number:
            raise KeyError("stopped")
        return whole(*args)

    monkeypatch.setattr(parts, function, stopping)
    with pytest.raises(RunError):
        score(**given)


def status(output="out"):
    result = CliRunner().invoke(cli, ["status", output])
    return result.exit_code, result.output.strip()


def test_status__of_a_run_that_is_done():
    summary = score()

    assert status() == (
        0,
        f"done: 60 rows are scored, {summary['flagged']} of them flagged, in "
        f"{summary['seconds']:.1f} s.",
    )


@pytest.mark.parametrize(
    ("function", "number", "fdr", "text"),
    [
        ("_write_part", 3, None, "3 of 4 parts are written. Start the same run"),
        ("_decide_part", 1, 0.1, "4 of 4 parts are measured. 1 of 4 parts are written."),
    ],
)
def test_status__of_a_run_that_was_interrupted(monkeypatch, function, number, fdr, text):
    stop_at(monkeypatch, function, number, fdr=fdr)

    code, said = status()
    assert code == 1
    assert said.startswith(f"interrupted: {text}")


def test_status__of_a_run_that_is_running(monkeypatch):
    found, whole = [], parts._write_part

    def looking(*args):
        found.append(status())
        return whole(*args)

    monkeypatch.setattr(parts, "_write_part", looking)
    score()

    assert [code for code, _ in found] == [75] * N_PARTS
    said = [text.partition(" By process ") for _, text in found]
    assert [text for text, _, _ in said] == [
        f"running: {n} of 4 parts are written." for n in range(N_PARTS)
    ]
    assert all(re.search(r"its last heartbeat was \d s ago", who) for _, _, who in said)


def test_status__of_a_run_that_is_fitting():
    with Lock("out").hold("score a table"):
        state = read_status("out")

    assert state.state == "running"
    assert state.text.startswith("The model is being fitted, and no rows are scored yet.")


@pytest.mark.parametrize("place", ["nowhere", "rows", "empty"])
def test_status__of_what_is_no_output(place):
    Path("empty").mkdir()

    code, said = status(place)

    assert code == 2
    assert f"there is no output of a run at {place}" in said


def test_status__of_a_run_that_begins_anew_is_not_that_of_the_earlier(monkeypatch):
    score()
    shutil.copytree("out", "before")
    stop_at(monkeypatch, "_write_part", 1, overwrite=True)

    assert read_status("out").state == "interrupted"
    assert read_status("before").state == "done"


# The page; what is on it is tested in tests/core/pages


def test_run__leaves_the_page_about_its_summary(monkeypatch):
    monkeypatch.setattr(page, "report_page", report_page)  # the real one

    summary = lpe_dask.run("job.toml")

    text = Path("out/_report.html").read_text()
    assert text == report_page(read_summary("out")) == report_page(summary)
    assert "</html>" in text
    assert json.loads(Path("out/_summary.json").read_text()) == summary


def test_report__returns_where_the_page_is():
    lpe_dask.run("job.toml")
    Path("out/_report.html").unlink()

    assert lpe_dask.report("out") == "out/_report.html"
    assert lpe_dask.report(Path("out").absolute()) == f"{Path.cwd()}/out/_report.html"
    assert Path("out/_report.html").exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", "3"])
def test_report__refuses_what_is_no_summary(content):
    Path("out").mkdir()
    Path("out/_summary.json").write_text(content)

    with pytest.raises(ValueError, match=r"is not a summary.*--overwrite"):
        lpe_dask.report("out")
    with pytest.raises(FileNotFoundError, match=r"no summary.*lpe-dask status nothing"):
        lpe_dask.report("nothing")


def test_run__does_not_fail_because_of_its_page(monkeypatch, caplog):
    def fail(summary):
        raise RuntimeError("a template is wrong")

    monkeypatch.setattr(page, "report_page", fail)

    assert lpe_dask.run("job.toml")["rows"] == N_ROWS

    assert "the page about the run could not be made" in caplog.text
    assert Run.prepare(lpe_dask.batch.next_job("job.toml")).is_finished()


@pytest.mark.parametrize("report", [True, False])
def test_run__makes_the_page_that_is_missing_at_its_next_start(report):
    """It has died before, or was told to make none."""
    if not report:
        Path("job.toml").write_text(Path("job.toml").read_text() + "report = false\n")
    lpe_dask.run("job.toml")
    assert Path("out/_report.html").exists() == report
    Path("out/_report.html").unlink(missing_ok=True)

    assert lpe_dask.run("job.toml") is None

    assert Path("out/_report.html").exists() == report


@pytest.mark.parametrize("error", [PermissionError, NotImplementedError])
def test_run__makes_no_page_where_it_cannot_see_whether_there_is_one(monkeypatch, error):
    """Nor does it fail: what it is asked for is done."""
    lpe_dask.run("job.toml")
    Path("out/_report.html").unlink()
    exists = Folder.exists

    def refuse(folder, name=""):
        if name == page.REPORT_NAME:
            raise error(name)
        return exists(folder, name)

    monkeypatch.setattr(Folder, "exists", refuse)

    assert lpe_dask.run("job.toml") is None
    assert not Path("out/_report.html").exists()


# Missing values, and values that no nominal row has


@pytest.fixture
def new():
    """Rows with gaps in each column, numbers out of range, and new categories."""
    frame = table(1)
    frame.loc[[1, 2, 50], "x"], frame.loc[3, "y"] = np.nan, np.inf
    frame.loc[[4, 51], "x"], frame.loc[5, "y"] = [-1.0, 2.0], 9.0
    frame.loc[[6, 8, 9], "kind"], frame.loc[[10, 11], "kind"] = "new", None
    return frame


def test_values__are_counted_column_by_column(new):
    write_files(new, "new", EDGES)

    summary = score("new", exclude=None, categorical="auto")

    known, nominal = {"x": 57, "y": 59, "kind": 58}, table(0)
    beyond = {
        name: int((~new[name].between(nominal[name].min(), nominal[name].max())).sum())
        - (N_ROWS - known[name])  # missing ones are in no range to pandas
        for name in "xy"
    }
    found = {of["column"]: (of["missing"], of["unseen"]) for of in summary["values"]}
    assert found == {"x": (3, beyond["x"]), "y": (1, beyond["y"]), "kind": (2, 3)}
    totals = [of["missing"] + of["unseen"] for of in summary["values"]]
    assert totals == sorted(totals, reverse=True)
    assert summary["rows_nan"] == 6
    private = {"private": ["kind", "x"], "categorical": "auto", "exclude": None}
    names = [of["column"] for of in score("new", **private, overwrite=True)["values"]]
    assert sorted(names) == [PRIVATE, PRIVATE, "y"]


@pytest.mark.parametrize("edges", [(0, N_ROWS), (0, 7, 7, N_ROWS)])
def test_values__that_are_missing_are_counted_where_rows_are_the_nominal_ones(new, edges):
    write_files(new, "new", edges)

    summary = score("new", nominal=None, exclude=None, categorical="auto", missing="drop")

    found = {of["column"]: (of["missing"], of["unseen"]) for of in summary["values"]}
    assert found == {"x": (3, 0), "y": (1, 0), "kind": (2, 0)}
    assert summary["rows_nan"] == 6
    assert score(nominal=None, overwrite=True)["values"] == []  # whole nominal rows


# Examples of new categories


@pytest.fixture
def all_new():
    """A job whose rows have another category than the nominal ones."""
    write_files(pd.concat(map(table, range(10))), "many", (0, 10 * N_ROWS))
    write_files(table(10).assign(kind="secret"), "new", EDGES)
    Path("job.toml").write_text(
        '[nominal]\ndata = "many"\n'
        '[model]\npath = "model"\ncategorical = ["kind"]\n'
        '[score]\ndata = "new"\noutput = "out"\n'
    )


def new_categories():
    """Run the job, and return columns with more new values than by chance, and examples."""
    values = lpe_dask.run("job.toml", overwrite=True)["drift"]["unseen_values"]
    reported = [of for of in values if of["is_reported"]]
    return [(of["column"], of["unseen"], of["examples"]) for of in reported]


def test_new_categories__are_not_shown_of_a_private_column(all_new):
    assert new_categories() == [("kind", N_ROWS, ["secret"])]
    assert "secret" in Path("out/_summary.json").read_text()

    Path("job.toml").write_text(Path("job.toml").read_text() + 'private = ["kind"]\n')

    assert new_categories() == [(PRIVATE, N_ROWS, [])]
    assert "secret" not in Path("out/_summary.json").read_text()


def test_new_categories__a_run_does_not_fail_for_want_of_them(all_new, monkeypatch, caplog):
    def fail(*arguments):
        raise PermissionError("no such permission")

    monkeypatch.setattr("lpe_dask.tables.categories.unseen_levels", fail)

    assert new_categories() == [("kind", N_ROWS, [])]
    assert (
        "no new values of kind can be shown: PermissionError: no such permission"
        in caplog.text
    )
    assert read_summary("out")["rows"] == N_ROWS == len(pd.read_parquet("out"))

"""The page that a run leaves in its output; what is on it is tested in tests/core/pages."""

import json
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.batch import page
from lpe_dask.batch.runs import prepare
from lpe_dask.batch.summary import read_summary
from lpe_dask.pages import report_page

JOB = """
[nominal]
data = "rows.parquet"
[score]
data = "rows.parquet"
output = "out"
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.standard_normal((60, 2)), columns=["x", "y"]).to_parquet(
        "rows.parquet"
    )
    Path("job.toml").write_text(JOB)
    monkeypatch.setattr(page, "report_page", report_page)  # the real one
    with dask.config.set(scheduler="sync"):
        yield


def test_run__leaves_the_page_about_its_summary():
    summary = lpe_dask.run("job.toml")

    text = Path("out/_report.html").read_text()
    assert text == report_page(read_summary("out")) == report_page(summary)
    assert "</html>" in text


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


def test_report__says_where_there_is_none():
    with pytest.raises(FileNotFoundError, match=r"no summary.*lpe-dask status nothing"):
        lpe_dask.report("nothing")


def test_run__does_not_fail_because_of_its_page(monkeypatch, caplog):
    def fail(summary):
        raise RuntimeError("a template is wrong")

    monkeypatch.setattr(page, "report_page", fail)

    assert lpe_dask.run("job.toml")["rows"] == 60

    assert "the page about the run could not be made" in caplog.text
    assert prepare(lpe_dask.batch.next_job("job.toml")).is_finished()


def test_run__that_died_before_its_page_makes_it_at_the_next_start():
    lpe_dask.run("job.toml")
    Path("out/_report.html").unlink()

    assert lpe_dask.run("job.toml") is None

    assert Path("out/_report.html").exists()


def test_run__makes_no_page_if_told_so():
    Path("job.toml").write_text(f"{JOB}report = false\n")

    lpe_dask.run("job.toml")
    assert lpe_dask.run("job.toml") is None

    assert not Path("out/_report.html").exists()


def test_run__all_of_its_summary_is_json():
    summary = lpe_dask.run("job.toml")

    assert json.loads(Path("out/_summary.json").read_text()) == summary

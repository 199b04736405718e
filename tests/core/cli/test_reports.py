"""What commands tell about a run: drift, reasons and the page."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from calling import THREADS, invoke
from lpe_dask.batch.summary import read_summary

JOB = """
[model]
path = "model"
[score]
data = "{name}.parquet"
output = "out/{name}"
[cluster]
scheduler = "threads"
"""


def rows(seed, shift=0.0, n_rows=300):
    values = np.random.default_rng(seed).standard_normal((n_rows, 2)) + shift
    return pd.DataFrame(values, columns=["speed", "load"]).assign(id="a")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A model, rows like its own, and rows that are not."""
    monkeypatch.chdir(tmp_path)
    model = lpe_dask.LPE(n_neighbors=5, alpha=0.05)
    model.fit(rows(0, n_rows=1000)[["speed", "load"]]).save("model")
    rows(1).to_parquet("same.parquet")
    rows(2, shift=2.0).to_parquet("other.parquet")
    for name in ("same", "other"):
        Path(f"{name}.toml").write_text(JOB.replace("{name}", name))


def score(name, *options):
    data, place = f"{name}.parquet", f"out/{name}"
    return invoke("score", data, "--model", "model", "--output", place, *THREADS, *options)


@pytest.mark.parametrize(("name", "code"), [("same", 0), ("other", 3)])
def test_fail_on_drift__decides_how_a_run_ends(name, code):
    first = invoke("run", f"{name}.toml", "--fail-on-drift")
    again = invoke("run", f"{name}.toml", "--fail-on-drift")

    assert (first.exit_code, again.exit_code) == (code, code), first.output
    assert ("--fail-on-drift: " in first.stderr) == (code != 0)
    assert "nothing to do" in again.stderr
    assert len(pd.read_parquet(f"out/{name}")) == 300


@pytest.mark.parametrize(("name", "verdict"), [("same", "no drift"), ("other", "drift")])
def test_fail_on_drift__asks_for_a_test_of_a_single_run(name, verdict):
    model = lpe_dask.LPE(5, calibration="conformal", alpha=0.05, random_state=0)
    model.fit(rows(0, n_rows=1000)[["speed", "load"]]).save("exact")

    plain = score(name)
    asked = score(name, "--fail-on-drift", "--overwrite", "--model", "exact")

    assert plain.exit_code == 0
    assert "drift" not in plain.stderr
    assert asked.exit_code == 3 * (verdict == "drift")
    assert f"{verdict}: " in asked.stderr
    assert read_summary(f"out/{name}")["drift"]["verdict"] == verdict


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "p-values are ranks"),
        *(
            (
                ["--nominal", "other.parquet", "--calibration", calibration],
                f"and not '{calibration}'. Give that (--calibration conformal)",
            )
            for calibration in ("auto", "loo", "split")
        ),
    ],
)
def test_fail_on_drift__is_refused_where_drift_cannot_be_tested(options, said):
    """Rows have to be measured as new ones are."""
    result = invoke(
        "score", "same.parquet", "--columns", "speed,load", "--output", "out/fit",
        *THREADS, "--fail-on-drift", *options,
    )  # fmt: skip

    assert result.exit_code == 2
    assert said in result.stderr
    assert not Path("out/fit").exists()


def test_report__makes_the_page_that_a_run_has_not_made():
    for result in (
        score("same", "--no-report"),
        invoke("run", "other.toml", "--no-report"),
    ):
        assert result.exit_code == 0, result.output
    assert list(Path("out").glob("*/_report.html")) == []

    result, refused = invoke("report", "out/same"), invoke("report", "nothing")

    assert result.exit_code == 0, result.output
    assert "written to out/same/_report.html" in result.stderr
    assert Path("out/same/_report.html").exists()
    assert refused.exit_code == 2
    assert "no summary of a finished run in nothing" in refused.stderr


def test_explain__prints_patterns_without_computing():
    score("other")
    result = invoke("explain", "out/other", "--patterns")

    assert result.exit_code == 0, result.output
    head, first, *_ = result.stdout.splitlines()
    assert head.split() == ["rows", "share", "pattern", "example"]
    assert re.match(r" *\d+ +\d+\.\d% +(speed|load) high.* id=a, part-00000", first)
    assert "of them in these patterns; no p-value belongs to them" in result.stderr
    both = invoke("explain", "out/other", "--patterns", "--top", 3)
    assert (both.exit_code, "--patterns prints none" in both.stderr) == (2, True)
    summary = read_summary("out/other")
    del summary["patterns"]
    Path("out/other/_summary.json").write_text(json.dumps(summary))
    refused = invoke("explain", "out/other", "--patterns")
    assert refused.exit_code == 2
    assert (
        "an earlier version of lpe_dask wrote it, or its summary is damaged"
        in refused.stderr
    )


def test_explain__of_a_series_says_which_patterns_are_new():
    text = Path("other.toml").read_text().replace("other.parquet", "{date}.parquet")
    Path("daily.toml").write_text(text.replace("out/other", "out/{date}"))
    for date, name in [("2026-11-01", "same"), ("2026-11-02", "other")]:
        Path(f"{name}.parquet").rename(f"{date}.parquet")
        assert invoke("run", "daily.toml", "--date", date).exit_code == 0

    lines = invoke("explain", "out/2026-11-02", "--patterns").stdout.splitlines()

    assert lines[0].split()[-1] == "earlier_runs"
    assert all(re.search(r" (new|1 of 1, up to \d+ rows) *$", line) for line in lines[1:])


def test_explain__prints_reasons_and_works_out_more():
    score("other", "--private", "load")

    few = invoke("explain", "out/other", "--top", 3, *THREADS)
    many = invoke("explain", "out/other", "--top", 80, *THREADS)

    assert (few.exit_code, many.exit_code) == (0, 0), few.output + many.output
    assert len(few.stdout.splitlines()) == 4
    assert len(many.stdout.splitlines()) == 81
    assert "speed=" in few.stdout
    assert "load=" not in few.stdout
    assert "all columns are in out/other/_reasons.pqt" in few.stderr
    stored = pd.read_parquet("out/other/_reasons.pqt")
    assert stored.groupby(["part", "row"]).ngroups == 80


def test_explain__says_what_is_missing():
    assert invoke("explain", "nothing").exit_code == 2
    score("same", "--keep", "id")

    result = invoke("explain", "out/same", "--top", 200, *THREADS)

    assert result.exit_code == 2
    assert "speed" in result.stderr

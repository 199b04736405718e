"""_metrics.prom: the numbers of a run, as both parsers of Prometheus read them."""

import json
import math
import re
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

import lpe_dask
from lpe_dask.batch import metrics_text as module
from lpe_dask.batch.api import score_files
from lpe_dask.batch.metrics_text import metrics_text

JOB = """
[nominal]
data = "nominal.parquet"
[model]
path = "model"
[score]
data = "{date}.parquet"
output = "${PLACE}/out/{date}/scores"
"""
DAYS = [f"2026-11-0{day}" for day in range(1, 4)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A current folder with nominal rows, a table with a missing value, and a job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACE", str(tmp_path))
    rng = np.random.default_rng(0)
    for name in ("nominal", *DAYS):
        rows = pd.DataFrame(rng.standard_normal((600, 2)), columns=["x", "secret"])
        if name != "nominal":
            rows.loc[0, "x"] = np.nan
        rows.to_parquet(f"{name}.parquet")
    Path("job.toml").write_text(JOB)
    with dask.config.set(scheduler="sync"):
        yield tmp_path


def values(text):
    """The value of each metric, by its name and the labels that tell it from others."""
    read = {
        (sample.name, *(v for k, v in sample.labels.items() if k != "output")): sample.value
        for family in parse_openmetrics(text)
        for sample in family.samples
    }
    older = {
        (sample.name, *(v for k, v in sample.labels.items() if k != "output")): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }
    assert repr(read) == repr(older)  # nan is not equal to itself
    return read


def test_run__writes_the_numbers_of_its_summary(here):
    for day in DAYS:
        summary = lpe_dask.run("job.toml", date=day)

    text = Path(f"out/{DAYS[-1]}/scores/_metrics.prom").read_text()

    found = values(text)
    assert found["lpe_dask_rows",] == summary["rows"] == 600
    assert found["lpe_dask_rows_without_p_value",] == 1
    assert found["lpe_dask_flagged_rows",] == summary["flagged"]
    alarms = summary["false_alarms"]
    assert found["lpe_dask_expected_false_alarms",] == alarms["expected"]
    assert ("lpe_dask_max_false_alarms",) not in found  # not known of "loo"
    assert found["lpe_dask_new_patterns",] == sum(
        of["is_new"] for of in summary["patterns"]["listed"]
    )
    drift = summary["drift"]
    assert found["lpe_dask_drift_log10_evidence",] == drift["log10_evidence"]
    verdicts = {key[1]: of for key, of in found.items() if "verdict" in key[0]}
    assert {of for of, is_it in verdicts.items() if is_it} == {drift["verdict"]}
    assert len(verdicts) == 6
    assert found["lpe_dask_run_seconds",] == summary["seconds"]
    assert found["lpe_dask_step_seconds", "score"] == summary["seconds_by_step"]["score"]
    assert found["lpe_dask_worker_peak_bytes",] == summary["peak_worker_bytes"]
    age = pd.Timestamp(summary["finished"]) - pd.Timestamp(summary["model_created"])
    assert found["lpe_dask_model_age_seconds",] == age.total_seconds()
    finished = pd.Timestamp(summary["finished"]).timestamp()
    assert found["lpe_dask_run_finished_timestamp_seconds",] == finished


def test_run__labels_all_days_alike(here):
    for day in DAYS[:2]:
        lpe_dask.run("job.toml", date=day)

    labels = {
        sample.labels["output"]
        for day in DAYS[:2]
        for family in parse_openmetrics(Path(f"out/{day}/scores/_metrics.prom").read_text())
        for sample in family.samples
    }
    assert labels == {f"file://{here}/out/{{date}}/scores"}


def test_metrics__are_gauges_without_time_stamps_and_names():
    """Then node_exporter reads them, too; and no column is named."""
    score_files(f"{DAYS[0]}.parquet", "out", nominal="nominal.parquet", private=["secret"])

    text = Path("out/_metrics.prom").read_text()

    types = [line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")]
    assert set(types) == {"gauge"}
    assert text.endswith("# EOF\n")
    for family in parse_openmetrics(text):
        assert all(sample.timestamp is None for sample in family.samples)
        assert family.samples
    assert "secret" not in text


def test_page__describes_each_metric():
    docs = Path(lpe_dask.__file__).parents[1] / "docs"
    text = (docs / "howto" / "watching.md").read_text()
    score_files(
        f"{DAYS[0]}.parquet", "out", nominal="nominal.parquet", calibration="conformal"
    )
    lpe_dask.run("job.toml", date=DAYS[0])
    lpe_dask.run("job.toml", date=DAYS[1])

    written = Path("out/_metrics.prom").read_text()
    written += Path(f"out/{DAYS[1]}/scores/_metrics.prom").read_text()

    names = set(re.findall(r"^# TYPE (\w+)", written, re.MULTILINE))
    assert names == set(re.findall(r"lpe_dask_\w+", text))


def test_metrics__of_no_rows():
    pd.DataFrame({"x": [], "secret": []}, dtype=float).to_parquet("empty.parquet")
    score_files("empty.parquet", "out", nominal="nominal.parquet")

    found = values(Path("out/_metrics.prom").read_text())

    assert found["lpe_dask_rows",] == found["lpe_dask_flagged_rows",] == 0
    assert found["lpe_dask_drift_verdict", "not tested"] == 1
    assert ("lpe_dask_new_patterns",) not in found


def test_metrics_text__leaves_out_what_is_not_known_and_keeps_what_is_no_number():
    summary = score_files(f"{DAYS[0]}.parquet", "out", nominal="nominal.parquet")
    summary |= {"peak_worker_bytes": None, "model_created": None, "seconds": math.nan}
    summary["drift"] = {"verdict": "drift", "log10_evidence": math.inf}
    summary["output"] = 'file:///a"b\\c\nd'

    found = values(metrics_text(summary))

    assert ("lpe_dask_worker_peak_bytes",) not in found
    assert ("lpe_dask_model_age_seconds",) not in found
    assert math.isnan(found["lpe_dask_run_seconds",])
    assert found["lpe_dask_drift_log10_evidence",] == math.inf
    first = next(iter(parse_openmetrics(metrics_text(summary))))
    assert first.samples[0].labels["output"] == summary["output"]


def test_run__does_not_fail_because_of_its_metrics(monkeypatch, caplog):
    def fail(summary):
        raise RuntimeError("no text")

    monkeypatch.setattr(module, "metrics_text", fail)

    assert lpe_dask.run("job.toml", date=DAYS[0])["rows"] == 600

    assert "the metrics of the run could not be written" in caplog.text


def test_run__writes_the_metrics_that_are_missing_at_its_next_start():
    lpe_dask.run("job.toml", date=DAYS[0])
    path = Path(f"out/{DAYS[0]}/scores/_metrics.prom")
    text = path.read_text()
    path.unlink()

    assert lpe_dask.run("job.toml", date=DAYS[0]) is None

    assert (
        path.read_text()
        == text
        == metrics_text(json.loads(path.with_name("_summary.json").read_text()))
    )

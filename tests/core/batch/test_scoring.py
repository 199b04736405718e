"""Runs from files to files, on the scheduler of this process."""

import errno
import json
import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import dask
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lpe_dask
from choosing import mostly_full
from lpe_dask.batch import fit, parts
from lpe_dask.batch.api import score_files, score_job
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.explanations import explain_output
from lpe_dask.batch.runs import Run
from lpe_dask.monitoring import clopper_pearson_interval
from lpe_dask.tables import RowStatus
from lpe_dask.tasks import worker_pool
from storages import CountingFileSystem

RESULTS = ["p_value", "statistic", "is_anomaly", "p_value_status"]

#: What tells about a run, in its output.
ABOUT = ["_metrics.prom", "_reasons.pqt", "_report.html", "_summary.json"]


pytestmark = pytest.mark.usefixtures("scored_files")

DATA, OUT = Path("data"), Path("out")

#: Instead of nominal rows.
MODEL = {"model": "model", "nominal": None}


def score(**given):
    return score_files(
        **{"data": DATA, "output": OUT, "nominal": "nominal.parquet"} | given
    )


def scored(path=OUT):
    return pd.read_parquet(path)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("scores_nominal_rows", [False, True])
def test_prepare__lists_files_once_and_reads_each_footer_once(
    monkeypatch, scores_nominal_rows
):
    listed, walk = [], os.walk
    monkeypatch.setattr(os, "walk", lambda path, **_: listed.append(path) or walk(path))
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    CountingFileSystem.opened.clear()
    known = None if scores_nominal_rows else f"counting://{Path.cwd()}/nominal.parquet"
    data = DATA.absolute()

    run = Run.prepare(
        score_job(f"counting://{data}", OUT, nominal=known, columns=["x", "y"])
    )

    assert run.scoring.kept.rows_of_parts() == ([4, 4, 2], True)
    footers = dict.fromkeys(["0.parquet", "1.parquet", "2.parquet"], 1)
    assert listed.count(str(data)) == 1
    assert CountingFileSystem.opened == footers | (
        {} if scores_nominal_rows else {"nominal.parquet": 1}
    )


def test_score_files__finds_columns_by_name_and_carries_over_the_others():
    score()
    score(output="own", nominal=None, columns=["x", "y"], n_neighbors=2)

    rows, learned = scored(DATA)[["x", "y"]], scored("nominal.parquet")
    actual, own = scored(), scored("own")
    assert list(actual.columns) == ["name", "y", "x", *RESULTS]
    pd.testing.assert_series_equal(actual["p_value"], lpe_dask.score(rows, learned))
    model = lpe_dask.LPE(n_neighbors=2).fit(rows)  # each row left out
    pd.testing.assert_series_equal(own["p_value"], model.p_values_)
    pd.testing.assert_series_equal(own["statistic"], model.statistic_)


def test_score_files__writes_a_part_for_each_partition_and_the_summary():
    weights = {"w": np.array([1.0, 2.0])}

    summary = score(keep=["name"], n_neighbors=np.int64(3), metric_params=weights)

    names = ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert names_in(OUT) == [*ABOUT, *names]
    part = scored(OUT / names[1])
    assert part.index.tolist() == [104, 105, 106, 107]
    assert list(part.columns) == ["name", *RESULTS]
    types = part[RESULTS].dtypes.astype(str).tolist()
    assert types == ["float64", "float64", "boolean", "category"]
    stored = json.loads((OUT / "_summary.json").read_text())
    assert stored == {**summary, "parameters": stored["parameters"]}
    assert stored["parameters"]["metric_params"] == {"w": [1.0, 2.0]}
    assert stored["parameters"]["n_neighbors"] == 3


def test_score_files__summary_says_what_was_done(tmp_path):
    """Its sections have tests of their own; all of it is JSON: see test_summary."""
    summary = score(scale="minmax", alpha=0.1)

    flagged = scored()["is_anomaly"].sum()
    assert summary.pop("seconds") >= sum(summary.pop("seconds_by_step").values()) > 0
    assert summary.pop("peak_worker_bytes") > 2**25
    assert summary.pop("planned_worker_bytes") > 2**25
    assert datetime.fromisoformat(summary.pop("finished")).utcoffset() is not None
    assert datetime.fromisoformat(summary.pop("model_created")).utcoffset() is not None
    assert len(summary.pop("values")) == 2
    assert len(summary.pop("reasons")["rows"]) == 10
    assert summary.pop("false_alarms")["at_most"] == 1  # which are all that are flagged
    assert summary.pop("patterns")["flagged_rows"] == flagged
    assert sum(summary.pop("p_value_bins")["rows"]) == 10
    assert summary.pop("versions").keys() >= {"python", "lpe_dask", "dask", "numba"}
    drift = summary.pop("drift")
    assert drift["reason"] == drift["text"]
    assert drift["reason"].startswith("this is a single run: only the runs of a job are")
    made_from = summary.pop("fingerprint")
    files = [f"file://{path}" for path in sorted(DATA.absolute().iterdir())]
    assert [name for name, _, _ in made_from["data"]] == files
    assert made_from["settings"]["n_parts"] == 3
    arguments = lpe_dask.LPE(scale="minmax", alpha=0.1).get_params()
    assert summary == {
        "format": 1,
        "rows": 10,
        "output_rows": "all",
        "written_rows": 10,
        "output_format": "parquet",
        "rows_nan": 0,
        "p_value_status": dict.fromkeys(RowStatus.NAMES, 0) | {"ok": 10},
        "nominal_rows": 40,
        "dropped_rows": 0,
        "confirmed_anomalies": 0,
        "algorithm_": "brute",
        "calibration_kind_": "conformal",  # 40 rows are few to learn ranges from
        "calibration_rows": 20,
        "calibration_band": None,
        "certificate": None,
        "calibration_check": None,
        "flagged": flagged,
        "flagged_share": flagged / 10,
        "flagged_between": list(clopper_pearson_interval(flagged, 10)),
        "model": None,
        "model_checksum": None,
        "refit": None,
        "alpha": 0.1,
        "fdr": None,
        "fdr_cut_off": None,
        "confidence": None,
        "inputs": [f"file://{tmp_path}/{name}" for name in ("data", "nominal.parquet")],
        "output": f"file://{tmp_path}/out",
        "output_template": None,
        "parameters": arguments | {"own": list(arguments["own"])},
        "n_neighbors_": 3,
        "radius_": None,
        "groups": None,
    }


def test_score_files__flags_nothing_it_cannot_measure():
    rows = pd.DataFrame({"x": [0.0, np.nan, np.inf, 90.0], "y": [0.0, 1.0, 2.0, 90.0]})
    rows.to_parquet("rows.parquet")

    summary = score(data="rows.parquet")

    assert scored()["is_anomaly"].tolist() == [False, pd.NA, pd.NA, True]
    assert scored()["p_value"].isna().tolist() == [False, True, True, False]
    assert (summary["rows_nan"], summary["flagged_share"]) == (2, 0.5)


def test_score_files__keeps_the_length_when_it_drops_rows_that_it_scores():
    pd.DataFrame({"x": [0.0, np.nan, 2.0, -np.inf]}).to_parquet("rows.parquet")

    summary = score(data="rows.parquet", nominal=None, missing="drop", n_neighbors=1)

    assert scored()["p_value"].isna().tolist() == [False, True, False, True]
    assert scored()["p_value_status"].tolist() == [
        "ok",
        "missing value",
        "ok",
        "infinite value",
    ]
    assert (summary["rows"], summary["rows_nan"], summary["dropped_rows"]) == (4, 2, 2)
    assert [*summary["p_value_status"].values()] == [2, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("fdr", [None, 0.5])
def test_score_files__says_of_each_row_why_it_has_no_p_value(fdr):
    gaps = {"x": [0.0, np.nan, np.inf, 9.0, 2.0], "y": [0.0, 1.0, np.nan, 9.0, np.nan]}
    pd.DataFrame(gaps).to_parquet("rows.parquet", row_group_size=2)
    expected = ["ok", "missing value", "infinite value", "ok", "missing value"]

    summary = score(data="rows.parquet", fdr=fdr)

    assert scored()["p_value_status"].tolist() == expected
    counts = {name: expected.count(name) for name in RowStatus.NAMES}
    assert summary["p_value_status"] == counts
    schema = pq.read_schema(OUT / "part-00000.parquet")
    assert schema.field("p_value_status").type == pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("categorical", [None, "auto"])
def test_score_files__does_not_measure_the_statuses_of_an_output(is_mixed, categorical):
    """Outputs are nominal rows, once a person has looked at them; older ones have none."""
    score(data="nominal.parquet", output="earlier", keep=["x", "y"])
    part = Path("earlier/part-00000.parquet")
    if is_mixed:
        older = pq.read_table(part).drop_columns(["p_value_status"])
        pq.write_table(older, "earlier/part-00001.parquet")
    given = {"exclude": RESULTS[:3], "categorical": categorical}

    score(nominal="earlier", n_neighbors=2, **given)

    summary = json.loads((OUT / "_summary.json").read_text())
    assert summary["fingerprint"]["settings"]["columns"] == ["x", "y"]


def test_score_files__carries_over_a_column_of_the_name_of_the_statuses(caplog):
    """A run that was possible before there were statuses still is."""
    numbers = np.array([np.nan, *range(59)])
    rows = pd.DataFrame({"x": numbers, "y": numbers, "p_value_status": ["a", "b"] * 30})
    rows.to_parquet("rows.parquet")

    summary = score(data="rows.parquet", columns=["x", "y"], **MODEL)

    assert list(scored().columns) == ["x", "y", "p_value_status", *RESULTS[:3]]
    assert scored()["p_value_status"].tolist() == ["a", "b"] * 30
    assert [*summary["p_value_status"].values()] == [59, 1, 0, 0, 0, 0]
    assert "only the summary says why rows have no p-value" in caplog.text
    reasons = explain_output(OUT, top=55)  # more than the run knows
    assert reasons["row"].nunique() == 55
    caplog.clear()
    score(data="rows.parquet", columns=["x", "y"], keep=["x"], output="other")
    assert scored("other")["p_value_status"].tolist() == ["missing value", *["ok"] * 59]
    assert "p_value_status" not in caplog.text


@pytest.mark.parametrize("has_nominal", [False, True])
def test_score_files__carries_over_what_is_excluded_as_it_stands(has_nominal):
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.integers(0, 50, (40, 2)) / 4, columns=["x", "y"])
    rows.insert(0, "code", ["1e3", *(f"{i:03d}" for i in range(39))])
    rows.to_csv("data.csv", index=False, sep=";" if has_nominal else ",")

    score(data="data.csv", nominal="data.csv" if has_nominal else None, exclude=["code"])

    expected = lpe_dask.score(rows, *[rows] * has_nominal, columns=["x", "y"])
    assert scored()["code"].tolist() == rows["code"].tolist()
    pd.testing.assert_series_equal(scored()["p_value"], expected)


@pytest.mark.parametrize("calibration", mostly_full(["auto", "conformal"], ["auto"]))
def test_score_files__says_that_rows_were_fitted(caplog, calibration):
    section = f"[model]\npath = 'm'\ncalibration = '{calibration}'\n"
    Path("job.toml").write_text(f"[nominal]\ndata = 'nominal.parquet'\n{section}")
    lpe_dask.run("job.toml")

    score(output="a", **MODEL | {"model": "m"}, columns=["x", "y"])
    score(output="b")
    assert "these rows were fitted" not in caplog.text
    score(output="c", **MODEL | {"model": "m"}, data="nominal.parquet")
    assert caplog.text.count("these rows were fitted") == 1
    score(output="d", data="nominal.parquet")
    assert caplog.text.count("these rows were fitted") == 2


def test_score_files__scores_no_rows():
    scored(DATA).iloc[:0].to_parquet("empty.parquet")

    summary = score(data="empty.parquet")

    about = [name for name in ABOUT if "reasons" not in name]
    assert names_in(OUT) == [*about, "part-00000.parquet"]
    dtypes = scored().dtypes.astype(str).tolist()
    assert dtypes[-4:] == ["float64", "float64", "boolean", "category"]
    assert scored().index.name == "row"
    assert (summary["rows"], summary["flagged_share"]) == (0, None)


def test_score_files__works_at_a_url():
    memory = fsspec.filesystem("memory")
    rows = pd.DataFrame({"x": [1.0, 90.0], "y": [2.0, 90.0]})
    with memory.open("/runs/rows.parquet", "wb") as file:
        rows.to_parquet(file)

    score(data="memory://runs/rows.parquet", output="memory://scored")

    names = sorted(memory.ls("/scored", detail=False))
    assert names == [f"/scored/{name}" for name in (*ABOUT, "part-00000.parquet")]
    with memory.open(names[-1]) as file:
        assert pd.read_parquet(file)["is_anomaly"].tolist() == [False, True]


def test_prepare__computes_and_writes_nothing(at_most_computes):
    with at_most_computes(0):
        Run.prepare(score_job(DATA, OUT, nominal="nominal.parquet"))

    assert not OUT.exists()


# What is refused


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"columns": ["x", "z"]}, ValueError, r"nominal.parquet: .*the columns \['z'\]"),
        ({"columns": []}, ValueError, "nominal.parquet: no columns to measure"),
        ({"columns": ["x"], "exclude": ["y"]}, ValueError, "two ways to say"),
        ({"keep": ["name", "id"]}, ValueError, r"no columns \['id'\] to keep.*--keep"),
        ({"private": ["z"]}, ValueError, r"no columns \['z'\] to keep private"),
        ({"n_neighbors": 40}, ValueError, "n_neighbors=40 needs at least 41 nominal rows"),
        ({"alpha": 0.0}, ValueError, "alpha=0.0 must be a number between 0 and 1"),
        ({"fdr": 1.5}, ValueError, "fdr=1.5 must be a number between 0 and 1"),
        ({"metric": "cosine"}, ValueError, "metric='cosine' is not available"),
        ({"neighbors": 3}, TypeError, r"score_files\(\) got unexpected .* \['neighbors'\]"),
        ({"refit": True}, TypeError, r"score_files\(\) got unexpected .* \['refit'\]"),
        ({"nominal": "nothing.parquet"}, FileNotFoundError, "no table at nothing.parquet"),
        ({"nominal": None}, TypeError, r"data: .*'name'.*columns=.*--columns y,x"),
        ({"nominal": "named.parquet"}, ValueError, r"data: .*lack the columns \['why'\]"),
        (
            {"nominal": "gaps.parquet", "data": "gaps.parquet"},
            ValueError,
            r"x \(1\), why \(1\).*--missing drop",
        ),
        ({"nominal": "broken.parquet"}, ValueError, "broken.parquet is not a readable"),
        ({"data": "hidden.parquet", "keep": ["p_value"]}, ValueError, "'p_value'.*--keep"),
        ({"data": "hidden.parquet", "keep": []}, ValueError, "'is_anomaly'.*rename"),
        ({**MODEL, "model": "no"}, FileNotFoundError, "no model .* loaded from no"),
        ({"model": "model", "scale": None}, ValueError, "nominal, scale cannot be comb"),
        ({**MODEL, "exclude": ["x"]}, ValueError, "exclude cannot be combined with the"),
        ({**MODEL, "data": "hidden.parquet"}, ValueError, "has 3 .* was fitted on 2"),
    ],
)
def test_score_files__refuses(options, kind, message):
    """Whatever is refused, nothing of the output is left."""
    gaps = pd.DataFrame({"x": [0.0, np.nan, 2.0], "why": [1.0, np.inf, 2.0]})
    gaps.to_parquet("gaps.parquet")
    gaps.fillna(0).replace(np.inf, 0).to_parquet("named.parquet")
    Path("broken.parquet").write_bytes(b"PAR1 and nothing more")
    hidden = pd.DataFrame({"x": [1.0], "y": [1.0], "p_value": [1.0]})
    hidden.set_axis([7]).rename_axis("is_anomaly").to_parquet("hidden.parquet")

    with pytest.raises(kind, match=message):
        score(**options)

    assert not OUT.exists()


def test_score_files__refuses_a_plan_that_does_not_fit():
    with (
        dask.config.set({"lpe-dask.memory-limit": "1MiB"}),
        pytest.raises(MemoryError, match="40 nominal rows x 2 columns need"),
    ):
        score()

    assert not OUT.exists()


# What fails in the middle


class KilledWorker(Exception):
    pass


TOO_LARGE = np._core._exceptions._ArrayMemoryError((1,), np.dtype("f8"))


@pytest.mark.parametrize(
    ("owner", "name", "error", "message"),
    [
        (fit, "fit_model", OSError(errno.ENOSPC, "disk full"), "fitted: OSError"),
        (fit, "fit_model", TOO_LARGE, "fitted: MemoryError"),
        (parts, "_write_part", KilledWorker("task"), "KilledWorker: .*--memory-limit"),
    ],
)
def test_score_files__tells_a_failure_from_bad_input(
    monkeypatch, owner, name, error, message
):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(owner, name, fail)

    with pytest.raises(RunError, match=message):
        score()

    assert OUT.exists() == (owner is parts)


def test_score_files__sees_that_workers_write_to_another_place(monkeypatch):
    """As they do when OUT is a folder of each machine."""

    def write_elsewhere(part, statistic, p_value, values, offset, stats_of, *rest):
        statuses = np.zeros(3, np.int64)
        values = (*values[:2], statuses)
        return stats_of(rest[-1], p_value, statistic, p_value < 0, values)

    monkeypatch.setattr(parts, "_write_part", write_elsewhere)

    with pytest.raises(RunError, match=r"3 of them are not visible.*shared folder"):
        score()

    assert "_summary.json" not in names_in(OUT)


# Memory


def test_peak_process_bytes__is_what_was_in_use_at_most():
    block = np.ones(2**23)
    during = worker_pool.peak_process_bytes()
    del block

    assert during >= 2**26
    assert worker_pool.peak_process_bytes() >= during - 2**21  # the kernel counts in lots


def test_peak_process_bytes__has_another_source(tmp_path):
    assert worker_pool.peak_process_bytes(tmp_path / "no-such-file") > 2**25


def test_peak_bytes__is_that_of_the_largest_worker(monkeypatch):
    peaks = {"tcp://a": 1, "tcp://b": 3, "tcp://c": 2}
    client = SimpleNamespace(run=lambda function, callback_timeout: peaks)
    monkeypatch.setattr(worker_pool, "active_client", lambda: client)

    assert worker_pool.Workers.peak_bytes() == 3

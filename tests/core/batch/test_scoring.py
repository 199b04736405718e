"""Runs from files to files, on the scheduler of this process."""

import errno
import itertools
import json
import os
from datetime import datetime
from types import SimpleNamespace

import dask
import fsspec
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from choosing import mostly_full
from lpe_dask.batch import fit as fit_runs
from lpe_dask.batch import parts
from lpe_dask.batch.api import score_files, score_job
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.runs import prepare
from lpe_dask.monitoring import clopper_pearson_interval
from lpe_dask.tasks import worker_pool
from storages import CountingFileSystem

RESULTS = ["p_value", "statistic", "is_anomaly"]

#: What tells about a run, in its output.
ABOUT = ["_reasons.pqt", "_report.html", "_summary.json"]


@pytest.fixture
def nominal(tmp_path):
    """The path of 40 nominal rows on a grid: ties are the usual case."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 6, (40, 2)) * 1.0, columns=["x", "y"])
    return write(frame, tmp_path / "nominal.parquet")


@pytest.fixture
def data(tmp_path):
    """The path of 10 rows with columns that are not measured, in 3 partitions."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.integers(-2, 9, (10, 2)) * 1.0, columns=["y", "x"])
    frame.insert(0, "name", list("abcdefghij"))
    frame.index = pd.Index([*range(100, 110)], name="row")
    return write_folder(frame, tmp_path / "data", [0, 4, 8, 10])


def write(frame, path):
    frame.to_parquet(path)
    return path


def write_folder(frame, folder, edges):
    folder.mkdir()
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        frame.iloc[start:stop].to_parquet(folder / f"{number:03}.parquet")
    return folder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("scores_nominal_rows", [False, True])
def test_prepare__lists_files_once_and_reads_each_footer_once(
    tmp_path, monkeypatch, nominal, data, scores_nominal_rows
):
    listed, walk = [], os.walk
    monkeypatch.setattr(os, "walk", lambda path, **_: listed.append(path) or walk(path))
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    CountingFileSystem.opened.clear()
    known = None if scores_nominal_rows else f"counting://{nominal}"

    job = score_job(
        f"counting://{data}", tmp_path / "out", nominal=known, columns=["x", "y"]
    )

    run = prepare(job)

    assert run.scoring.kept.rows_of_parts() == ([4, 4, 2], True)
    footers = dict.fromkeys(["000.parquet", "001.parquet", "002.parquet"], 1)
    assert listed.count(str(data)) == 1
    assert CountingFileSystem.opened == footers | (
        {} if scores_nominal_rows else {nominal.name: 1}
    )


def test_score_files__finds_columns_by_name_and_carries_over_the_others(
    tmp_path, data, nominal
):
    """The nominal rows have their columns in another order, and no names."""
    score_files(data, tmp_path / "out", nominal=nominal)
    score_files(data, tmp_path / "own", columns=["x", "y"], n_neighbors=2)

    rows, learned = pd.read_parquet(data)[["x", "y"]], pd.read_parquet(nominal)
    actual, own = pd.read_parquet(tmp_path / "out"), pd.read_parquet(tmp_path / "own")
    assert list(actual.columns) == ["name", "y", "x", *RESULTS]
    pd.testing.assert_series_equal(actual["p_value"], lpe_dask.score(rows, learned))
    model = lpe_dask.LPE(n_neighbors=2).fit(rows)  # each row left out
    pd.testing.assert_series_equal(own["p_value"], model.p_values_)
    pd.testing.assert_series_equal(own["statistic"], model.statistic_)


def test_score_files__writes_a_part_for_each_partition_and_the_summary(
    tmp_path, data, nominal
):
    summary = score_files(
        data, tmp_path / "out", nominal=nominal, keep=["name"], alpha=0.1,
        n_neighbors=np.int64(3), metric_params={"w": np.array([1.0, 2.0])},
    )  # fmt: skip

    names = ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert names_in(tmp_path / "out") == [*ABOUT, *names]
    part = pd.read_parquet(tmp_path / "out" / names[1])
    assert part.index.tolist() == [104, 105, 106, 107]
    assert list(part.columns) == ["name", *RESULTS]
    assert part[RESULTS].dtypes.astype(str).tolist() == ["float64", "float64", "boolean"]
    stored = json.loads((tmp_path / "out" / "_summary.json").read_text())
    assert stored == {**summary, "parameters": stored["parameters"]}
    assert stored["parameters"]["metric_params"] == {"w": [1.0, 2.0]}
    assert stored["parameters"]["n_neighbors"] == 3


def test_score_files__summary_says_what_was_done(tmp_path, data, nominal):
    """Its sections have tests of their own; all of it is JSON: see test_summary."""
    summary = score_files(
        data, tmp_path / "out", nominal=nominal, scale="minmax", alpha=0.1
    )

    flagged = pd.read_parquet(tmp_path / "out")["is_anomaly"].sum()
    assert summary.pop("seconds") >= sum(summary.pop("seconds_by_step").values()) > 0
    assert summary.pop("peak_worker_bytes") > 2**25
    assert summary.pop("planned_worker_bytes") > 2**25
    assert datetime.fromisoformat(summary.pop("finished")).utcoffset() is not None
    assert len(summary.pop("values")) == 2
    assert len(summary.pop("reasons")["rows"]) == 10
    assert sum(summary.pop("p_value_bins")["rows"]) == 10
    assert summary.pop("versions").keys() >= {"python", "lpe_dask", "dask", "numba"}
    drift = summary.pop("drift")
    assert drift["reason"] == drift["text"]
    assert drift["reason"].startswith("this is a single run: only the runs of a job are")
    made_from = summary.pop("fingerprint")
    files = [f"file://{path}" for path in sorted(data.iterdir())]
    assert [name for name, _, _ in made_from["data"]] == files
    assert made_from["settings"]["n_parts"] == 3
    assert summary == {
        "format": 1,
        "rows": 10,
        "rows_nan": 0,
        "nominal_rows": 40,
        "dropped_rows": 0,
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
        "alpha": 0.1,
        "fdr": None,
        "fdr_cut_off": None,
        "output": f"file://{tmp_path}/out",
        "parameters": lpe_dask.LPE(scale="minmax", alpha=0.1).get_params(),
        "n_neighbors_": 3,
        "radius_": None,
    }


def test_score_files__flags_nothing_it_cannot_measure(tmp_path, nominal):
    rows = pd.DataFrame({"x": [0.0, np.nan, np.inf, 90.0], "y": [0.0, 1.0, 2.0, 90.0]})

    summary = score_files(
        write(rows, tmp_path / "rows.parquet"), tmp_path / "out", nominal=nominal
    )

    actual = pd.read_parquet(tmp_path / "out")
    assert actual["is_anomaly"].tolist() == [False, pd.NA, pd.NA, True]
    assert actual["p_value"].isna().tolist() == [False, True, True, False]
    assert (summary["rows_nan"], summary["flagged_share"]) == (2, 0.5)


def test_score_files__keeps_the_length_when_it_drops_rows_that_it_scores(tmp_path):
    rows = pd.DataFrame({"x": [0.0, np.nan, 2.0, 3.0]})

    summary = score_files(
        write(rows, tmp_path / "rows.parquet"), tmp_path / "out", missing="drop"
    )

    actual = pd.read_parquet(tmp_path / "out")
    assert actual["p_value"].isna().tolist() == [False, True, False, False]
    assert (summary["rows"], summary["rows_nan"], summary["dropped_rows"]) == (4, 1, 1)


@pytest.mark.parametrize("has_nominal", [False, True])
def test_score_files__carries_over_what_is_excluded_as_it_stands(tmp_path, has_nominal):
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.integers(0, 50, (40, 2)) / 4, columns=["x", "y"])
    rows.insert(0, "code", ["1e3", *(f"{i:03d}" for i in range(39))])
    rows.to_csv(tmp_path / "data.csv", index=False, sep=";" if has_nominal else ",")
    given = {"nominal": tmp_path / "data.csv"} if has_nominal else {}

    score_files(tmp_path / "data.csv", tmp_path / "out", exclude=["code"], **given)

    actual = pd.read_parquet(tmp_path / "out")
    expected = lpe_dask.score(rows, *[rows] * has_nominal, columns=["x", "y"])
    assert actual["code"].tolist() == rows["code"].tolist()
    pd.testing.assert_series_equal(actual["p_value"], expected)


@pytest.mark.parametrize("arguments", mostly_full([{}, {"calibration": "conformal"}], [{}]))
def test_score_files__says_that_rows_were_fitted(
    tmp_path, data, nominal, caplog, arguments
):
    job = tmp_path / "job.toml"
    given = "".join(f"{name} = {value!r}\n" for name, value in arguments.items())
    job.write_text(f"[nominal]\ndata='{nominal}'\n[model]\npath='{tmp_path}/m'\n{given}")
    lpe_dask.run(job)

    score_files(data, tmp_path / "a", model=tmp_path / "m", columns=["x", "y"])
    score_files(data, tmp_path / "b", nominal=nominal)
    assert "these rows were fitted" not in caplog.text
    score_files(nominal, tmp_path / "c", model=tmp_path / "m")
    assert caplog.text.count("these rows were fitted") == 1
    score_files(nominal, tmp_path / "d", nominal=nominal)
    assert caplog.text.count("these rows were fitted") == 2


def test_score_files__scores_no_rows(tmp_path, data, nominal):
    empty = pd.read_parquet(data).iloc[:0]

    summary = score_files(
        write(empty, tmp_path / "empty.parquet"), tmp_path / "out", nominal=nominal
    )

    actual = pd.read_parquet(tmp_path / "out")
    assert names_in(tmp_path / "out") == [*ABOUT[1:], "part-00000.parquet"]
    assert actual.dtypes.astype(str).tolist()[-3:] == ["float64", "float64", "boolean"]
    assert actual.index.name == "row"
    assert (summary["rows"], summary["flagged_share"]) == (0, None)


def test_score_files__works_at_a_url(nominal):
    memory = fsspec.filesystem("memory")
    rows = pd.DataFrame({"x": [1.0, 90.0], "y": [2.0, 90.0]})
    with memory.open("/runs/rows.parquet", "wb") as file:
        rows.to_parquet(file)

    score_files("memory://runs/rows.parquet", "memory://scored", nominal=nominal)

    names = sorted(memory.ls("/scored", detail=False))
    assert names == [f"/scored/{name}" for name in (*ABOUT, "part-00000.parquet")]
    with memory.open(names[-1]) as file:
        assert pd.read_parquet(file)["is_anomaly"].tolist() == [False, True]


def test_prepare__computes_and_writes_nothing(tmp_path, data, nominal, at_most_computes):
    with at_most_computes(0):
        prepare(score_job(data, tmp_path / "out", nominal=nominal))

    assert not (tmp_path / "out").exists()


# What is refused


@pytest.fixture
def model(tmp_path, nominal):
    """The path of a model that has no names of columns."""
    lpe_dask.LPE(2).fit(pd.read_parquet(nominal).to_numpy()).save(tmp_path / "model")
    return tmp_path / "model"


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
        ({"model": "no", "nominal": None}, FileNotFoundError, "no model .* loaded from no"),
        ({"model": "model", "scale": None}, ValueError, "nominal, scale cannot be comb"),
        (
            {"model": "model", "nominal": None, "exclude": ["x"]},
            ValueError,
            "exclude cannot be combined with the saved model",
        ),
        (
            {"model": "model", "nominal": None, "data": "hidden.parquet"},
            ValueError,
            "has 3 columns to measure, but the model was fitted on 2",
        ),
    ],
)
def test_score_files__refuses(
    tmp_path, monkeypatch, data, nominal, model, options, kind, message
):
    """Whatever is refused, nothing of the output is left."""
    monkeypatch.chdir(tmp_path)
    gaps = pd.DataFrame({"x": [0.0, np.nan, 2.0], "why": [1.0, np.inf, 2.0]})
    gaps.to_parquet("gaps.parquet")
    gaps.fillna(0).replace(np.inf, 0).to_parquet("named.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing more")
    hidden = pd.DataFrame({"x": [1.0], "y": [1.0], "p_value": [1.0]})
    hidden.set_axis([7]).rename_axis("is_anomaly").to_parquet("hidden.parquet")

    with pytest.raises(kind, match=message):
        score_files(**{"data": data, "output": "out", "nominal": nominal} | options)

    assert not (tmp_path / "out").exists()


def test_score_files__refuses_a_plan_that_does_not_fit(tmp_path, data, nominal):
    with (
        dask.config.set({"lpe-dask.memory-limit": "1MiB"}),
        pytest.raises(MemoryError, match="40 nominal rows x 2 columns need"),
    ):
        score_files(data, tmp_path / "out", nominal=nominal)

    assert not (tmp_path / "out").exists()


# What fails in the middle


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "disk full"),
        np._core._exceptions._ArrayMemoryError((1,), np.dtype("f8")),
    ],
)
def test_score_files__tells_a_failure_in_fit_from_bad_input(
    tmp_path, data, nominal, monkeypatch, error
):
    def fail(parameters, rows, checkpoint, advises):
        raise error

    monkeypatch.setattr(fit_runs, "fit_model", fail)

    with pytest.raises(RunError, match=f"while it fitted: {type(error).__name__}"):
        score_files(data, tmp_path / "out", nominal=nominal)

    assert not (tmp_path / "out").exists()


def test_score_files__says_how_to_help_workers_that_died(
    tmp_path, data, nominal, monkeypatch
):
    class KilledWorker(Exception):
        pass

    def die(*arguments):
        raise KilledWorker("task on 4 different workers")

    monkeypatch.setattr(parts, "_write_part", die)

    with pytest.raises(RunError, match=r"KilledWorker: .*--memory-limit"):
        score_files(data, tmp_path / "out", nominal=nominal)


def test_score_files__sees_that_workers_write_to_another_place(
    tmp_path, data, nominal, monkeypatch
):
    """As they do when OUT is a folder of each machine."""

    def write_elsewhere(part, statistic, p_value, values, offset, stats_of, *rest):
        return stats_of(rest[-1], p_value, statistic, p_value < 0, values)

    monkeypatch.setattr(parts, "_write_part", write_elsewhere)

    with pytest.raises(RunError, match=r"3 of them are not visible.*shared folder"):
        score_files(data, tmp_path / "out", nominal=nominal)

    assert "_summary.json" not in names_in(tmp_path / "out")


# Memory


def test_peak_process_bytes__is_what_was_in_use_at_most():
    block = np.ones(2**23)
    during = worker_pool.peak_process_bytes()
    del block

    assert during >= 2**26
    assert worker_pool.peak_process_bytes() >= during - 2**21  # the kernel counts in lots


def test_peak_process_bytes__has_another_source(tmp_path):
    assert worker_pool.peak_process_bytes(tmp_path / "no-such-file") > 2**25


def test_peak_worker_bytes__is_that_of_the_largest_worker(monkeypatch):
    peaks = {"tcp://a": 1, "tcp://b": 3, "tcp://c": 2}
    client = SimpleNamespace(run=lambda function, callback_timeout: peaks)
    monkeypatch.setattr(worker_pool, "active_client", lambda: client)

    assert worker_pool.peak_worker_bytes() == 3

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
import pyarrow.parquet as pq
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


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


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


def test_score_files__without_nominal_leaves_each_row_out(tmp_path, data):
    score_files(data, tmp_path / "out", columns=["x", "y"], n_neighbors=2)

    rows = pd.read_parquet(data)[["x", "y"]]
    actual = pd.read_parquet(tmp_path / "out")
    model = lpe_dask.LPE(n_neighbors=2).fit(rows)
    pd.testing.assert_series_equal(actual["p_value"], model.p_values_)
    pd.testing.assert_series_equal(actual["statistic"], model.statistic_)


def test_score_files__finds_columns_by_name_and_carries_over_the_others(
    tmp_path, data, nominal
):
    """The nominal rows have their columns in another order, and no names."""
    score_files(data, tmp_path / "out", nominal=nominal)

    actual = pd.read_parquet(tmp_path / "out")
    expected = lpe_dask.score(pd.read_parquet(data)[["x", "y"]], pd.read_parquet(nominal))
    assert list(actual.columns) == ["name", "y", "x", *RESULTS]
    pd.testing.assert_series_equal(actual["p_value"], expected)


def test_score_files__writes_a_part_for_each_partition_and_the_summary(
    tmp_path, data, nominal
):
    summary = score_files(data, tmp_path / "out", nominal=nominal, keep=["name"], alpha=0.1)

    names = ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert names_in(tmp_path / "out") == [*ABOUT, *names]
    part = pd.read_parquet(tmp_path / "out" / names[1])
    assert part.index.tolist() == [104, 105, 106, 107]
    assert list(part.columns) == ["name", *RESULTS]
    assert part[RESULTS].dtypes.astype(str).tolist() == ["float64", "float64", "boolean"]
    assert json.loads((tmp_path / "out" / "_summary.json").read_text()) == summary


def test_score_files__summary_says_what_was_done(tmp_path, data, nominal):
    summary = score_files(
        data, tmp_path / "out", nominal=nominal, scale="minmax", alpha=0.1
    )

    flagged = pd.read_parquet(tmp_path / "out")["is_anomaly"].sum()
    parameters = lpe_dask.LPE(scale="minmax", alpha=0.1).get_params()
    assert summary.pop("seconds") >= sum(summary.pop("seconds_by_step").values()) > 0
    assert summary.pop("peak_worker_bytes") > 2**25
    assert summary.pop("planned_worker_bytes") > 2**25
    assert datetime.fromisoformat(summary.pop("finished")).utcoffset() is not None
    assert summary.pop("drift") == {
        "verdict": None,
        "reason": "this is a single run: only the runs of a job are compared",
        "text": "this is a single run: only the runs of a job are compared",
    }
    values = summary.pop("values")
    assert {of["column"] for of in values} <= {"x", "y"}
    assert [of["missing"] for of in values] == [0] * len(values)
    nominal_rows, rows = pd.read_parquet(nominal), pd.read_parquet(tmp_path / "out")
    for of in values:
        low, high = nominal_rows[of["column"]].agg(["min", "max"])
        assert of["unseen"] == (~rows[of["column"]].between(low, high)).sum() > 0
    assert len(summary.pop("reasons")["rows"]) == 10
    assert sum(summary.pop("p_value_bins")["rows"]) == 10
    assert summary.pop("output") == f"file://{tmp_path}/out"
    assert summary.pop("versions").keys() >= {"python", "lpe_dask", "dask", "numba"}
    made_from = summary.pop("fingerprint")
    assert [name for name, _, _ in made_from["data"]] == [
        f"file://{path}" for path in sorted(data.iterdir())
    ]
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
        "parameters": parameters,
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


def test_score_files__summary_takes_parameters_from_numpy(tmp_path, data, nominal):
    weights = {"w": np.array([1.0, 2.0])}

    score_files(
        data,
        tmp_path / "out",
        nominal=nominal,
        metric_params=weights,
        n_neighbors=np.int64(3),
    )

    summary = json.loads((tmp_path / "out" / "_summary.json").read_text())
    assert summary["parameters"]["metric_params"] == {"w": [1.0, 2.0]}
    assert summary["parameters"]["n_neighbors"] == 3


def test_score_files__drops_nominal_rows_on_request(tmp_path, data):
    known = pd.DataFrame({"x": [0.0, np.nan, 2.0, 3.0, 4.0], "y": [1.0, 1, 2, np.inf, 4]})
    path = write(known, tmp_path / "nominal.parquet")

    with pytest.raises(ValueError, match=r"x \(1\), y \(1\).*--missing drop"):
        score_files(data, tmp_path / "out", nominal=path)
    summary = score_files(data, tmp_path / "out", nominal=path, missing="drop")

    assert (summary["nominal_rows"], summary["dropped_rows"]) == (3, 2)


def test_score_files__keeps_the_length_when_it_drops_rows_that_it_scores(tmp_path):
    rows = pd.DataFrame({"x": [0.0, np.nan, 2.0, 3.0]})

    summary = score_files(
        write(rows, tmp_path / "rows.parquet"), tmp_path / "out", missing="drop"
    )

    actual = pd.read_parquet(tmp_path / "out")
    assert actual["p_value"].isna().tolist() == [False, True, False, False]
    assert (summary["rows"], summary["rows_nan"], summary["dropped_rows"]) == (4, 1, 1)


@pytest.mark.parametrize("separator", [",", ";"])
def test_score_files__reads_csv_and_leaves_other_columns_as_they_stand(
    tmp_path, nominal, separator
):
    csv = tmp_path / "data.csv"
    lines = ["code,x,y", "007,1,2.5", "1e3,3,4", ",5,6"]
    csv.write_text("\n".join(lines).replace(",", separator))

    score_files(csv, tmp_path / "out", nominal=nominal)

    actual = pd.read_parquet(tmp_path / "out")
    rows = pd.DataFrame({"x": [1.0, 3.0, 5.0], "y": [2.5, 4.0, 6.0]})
    expected = lpe_dask.score(rows, pd.read_parquet(nominal))
    assert actual["code"].fillna("").tolist() == ["007", "1e3", ""]
    pd.testing.assert_series_equal(actual["p_value"], expected)


@pytest.mark.parametrize("has_nominal", [False, True])
def test_score_files__carries_over_what_is_excluded_as_it_stands(tmp_path, has_nominal):
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.integers(0, 50, (40, 2)) / 4, columns=["x", "y"])
    rows.insert(0, "code", [f"{i:03d}" for i in range(40)])
    rows.to_csv(tmp_path / "data.csv", index=False)
    given = {"nominal": tmp_path / "data.csv"} if has_nominal else {}

    score_files(tmp_path / "data.csv", tmp_path / "out", exclude=["code"], **given)

    actual = pd.read_parquet(tmp_path / "out")
    learned = [rows] * has_nominal
    expected = lpe_dask.score(rows, *learned, columns=["x", "y"])
    assert actual["code"].tolist() == rows["code"].tolist()
    pd.testing.assert_series_equal(actual["p_value"], expected)


def test_score_files__excludes_nothing_of_a_model(tmp_path, data, nominal):
    with pytest.raises(ValueError, match="exclude cannot be combined with the saved model"):
        score_files(data, tmp_path / "out", model=tmp_path / "model", exclude=["x"])
    with pytest.raises(ValueError, match="two ways to say"):
        score_files(data, tmp_path / "out", columns=["x"], exclude=["y"])


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


def test_score_files__parts_are_one_table_though_partitions_differ(tmp_path, nominal):
    """Missing values and other categories change what pandas makes of a column."""
    many = [f"c{i}" for i in range(300)]
    frame = pd.DataFrame(
        {
            "x": 0.0,
            "y": 0.0,
            "whole": pd.array([*range(302)], dtype="Int64"),
            "flag": pd.array([True] * 302, dtype="boolean"),
            "kind": pd.Categorical([*many[:2], *many]),
            "text": [None, None, *many],
        }
    )
    frame.loc[2:, "whole"] = pd.NA
    frame.loc[2:, "flag"] = pd.NA
    folder = write_folder(frame, tmp_path / "data", [0, 0, 2, 302])

    score_files(folder, tmp_path / "out", nominal=nominal)

    actual = pd.read_parquet(tmp_path / "out")
    assert actual["whole"].tolist()[:2] == [0, 1]
    assert actual["whole"].isna().sum() == actual["flag"].isna().sum() == 300
    assert actual["kind"].astype(str).tolist() == frame["kind"].astype(str).tolist()
    assert actual["text"].isna().sum() == 2
    schemas = [
        pq.read_schema(path) for path in sorted((tmp_path / "out").glob("*.parquet"))
    ]
    assert {str(schema.field("whole").type) for schema in schemas} == {"int64"}
    assert {str(schema.field("flag").type) for schema in schemas} == {"bool"}


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


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"columns": ["x", "z"]},
            ValueError,
            r"nominal.parquet: .*lack the columns \['z'\]",
        ),
        ({"columns": []}, ValueError, "nominal.parquet: no columns to measure"),
        ({"keep": ["name", "id"]}, ValueError, r"no columns \['id'\] to keep.*--keep"),
        ({"n_neighbors": 40}, ValueError, "n_neighbors=40 needs at least 41 nominal rows"),
        ({"alpha": 0.0}, ValueError, "alpha=0.0 must be a number between 0 and 1"),
        ({"metric": "cosine"}, ValueError, "metric='cosine' is not available"),
        (
            {"neighbors": 3},
            TypeError,
            r"score_files\(\) got unexpected arguments \['neighbors'\]",
        ),
        (
            {"refit": True},
            TypeError,
            r"score_files\(\) got unexpected arguments \['refit'\]",
        ),
        ({"nominal": "nothing.parquet"}, FileNotFoundError, "no table at nothing.parquet"),
        ({"nominal": None}, TypeError, r"data: .*'name'.*columns=.*--columns y,x"),
    ],
)
def test_score_files__refuses(tmp_path, data, nominal, options, kind, message):
    """Whatever is refused, nothing of the output is left."""
    with pytest.raises(kind, match=message):
        score_files(data, tmp_path / "out", **{"nominal": nominal, **options})

    assert not (tmp_path / "out").exists()


def test_score_files__refuses_rows_without_the_columns_of_the_nominal_ones(
    tmp_path, nominal
):
    rows = write(pd.DataFrame({"x": [1.0], "why": [2.0]}), tmp_path / "rows.parquet")

    with pytest.raises(ValueError, match=r"rows.parquet: .*lack the columns \['y'\]"):
        score_files(rows, tmp_path / "out", nominal=nominal)


@pytest.mark.parametrize("hidden", mostly_full(RESULTS, ["p_value"]))
def test_score_files__refuses_to_hide_a_result(tmp_path, data, nominal, hidden):
    rows = pd.read_parquet(data).rename(columns={"name": hidden})
    path = write(rows, tmp_path / "rows.parquet")
    indexed = write(rows.set_index(hidden), tmp_path / "indexed.parquet")

    with pytest.raises(ValueError, match=f"'{hidden}'.*--keep"):
        score_files(path, tmp_path / "out", nominal=nominal)
    with pytest.raises(ValueError, match=f"'{hidden}'.*rename"):
        score_files(indexed, tmp_path / "out", nominal=nominal)
    score_files(path, tmp_path / "out", nominal=nominal, keep=[])

    assert list(pd.read_parquet(tmp_path / "out").columns) == RESULTS


def test_score_files__refuses_a_file_that_is_not_what_its_name_says(tmp_path, data):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing more")

    with pytest.raises(ValueError, match=r"broken.parquet is not a readable Parquet file"):
        score_files(data, tmp_path / "out", nominal=tmp_path / "broken.parquet")


def test_score_files__refuses_a_plan_that_does_not_fit(tmp_path, data, nominal):
    with (
        dask.config.set({"lpe-dask.memory-limit": "1MiB"}),
        pytest.raises(MemoryError, match="40 nominal rows x 2 columns need"),
    ):
        score_files(data, tmp_path / "out", nominal=nominal)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["nominal", "nominal/*", "*/a.parquet", "*/*.parquet"])
def test_score_files__refuses_an_output_in_the_way_of_the_nominal_rows(tmp_path, name):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    (tmp_path / "nominal").mkdir()
    frame.to_parquet(tmp_path / "nominal" / "a.parquet")
    frame.to_parquet(tmp_path / "rows.parquet")
    output = tmp_path / ("nominal/out" if name == "nominal/*" else "nominal")

    with pytest.raises(ValueError, match="overlap: one is the other"):
        score_files(
            tmp_path / "rows.parquet", output, nominal=tmp_path / name, columns=["x", "y"],
            overwrite=True,
        )  # fmt: skip


def test_score_files__refuses_an_output_that_its_glob_would_find(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    (tmp_path / "logs").mkdir()
    frame.to_parquet(tmp_path / "logs" / "a.parquet")

    with pytest.raises(ValueError, match="overlap: one is the other"):
        score_files(f"{tmp_path}/*/*.parquet", tmp_path / "out", columns=["x", "y"])


@pytest.mark.parametrize("output", ["data", "data/scores", "."])
def test_score_files__refuses_an_output_in_the_way_of_the_input(tmp_path, data, output):
    before = names_in(data)

    with pytest.raises(ValueError, match="overlap: one is the other"):
        score_files(data, tmp_path / output, columns=["x", "y"], overwrite=True)

    assert names_in(data) == before


def test_score_files__takes_an_output_beside_the_files_of_a_glob(tmp_path, data, nominal):
    score_files(str(data / "*.parquet"), data / "scores", nominal=nominal)

    assert len(pd.read_parquet(data / "scores")) == 10


def test_score_files__refuses_an_output_it_cannot_write(tmp_path, data, nominal):
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match=r"nothing can be written to the output .*file/out"):
        score_files(data, tmp_path / "file" / "out", nominal=nominal)


# Existing outputs


def test_score_files__refuses_an_existing_output(tmp_path, data, nominal):
    score_files(data, tmp_path / "out", nominal=nominal)

    with pytest.raises(FileExistsError, match=r"exists.*--overwrite"):
        score_files(data, tmp_path / "out", nominal=nominal)


def test_score_files__replaces_an_earlier_output_whole(tmp_path, data, nominal):
    score_files(data, tmp_path / "out", nominal=nominal)
    (tmp_path / "out" / ".part-00007.parquet.0123.tmp").touch()
    short = write(pd.read_parquet(data).iloc[:2], tmp_path / "short.parquet")

    score_files(short, tmp_path / "out", nominal=nominal, overwrite=True)

    assert names_in(tmp_path / "out") == [*ABOUT, "part-00000.parquet"]
    assert len(pd.read_parquet(tmp_path / "out")) == 2


def test_score_files__spares_an_earlier_output_until_the_nominal_rows_are_fitted(
    tmp_path, data, nominal
):
    score_files(data, tmp_path / "out", nominal=nominal)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    with pytest.raises(ValueError, match="n_neighbors=40"):
        score_files(data, tmp_path / "out", nominal=nominal, n_neighbors=40, overwrite=True)

    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("name", ["notes.txt", "part.0.parquet", "part-00000.parquet"])
def test_score_files__replaces_nothing_that_no_run_wrote(tmp_path, data, nominal, name):
    """A table of somebody else's may be named like a part."""
    (tmp_path / "out").mkdir()
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "out" / name)

    with pytest.raises(FileExistsError, match=f"not the output of a run: {name}"):
        score_files(data, tmp_path / "out", nominal=nominal, overwrite=True)

    assert names_in(tmp_path / "out") == [name]


def test_score_files__does_not_take_a_broken_file_for_a_part(tmp_path, data, nominal):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000.parquet").write_bytes(b"something else")

    with pytest.raises(FileExistsError, match="not the output of a run"):
        score_files(data, tmp_path / "out", nominal=nominal, overwrite=True)


def test_score_files__does_not_replace_a_file_by_a_folder(tmp_path, data, nominal):
    (tmp_path / "out").touch()

    with pytest.raises(FileExistsError, match="is a file"):
        score_files(data, tmp_path / "out", nominal=nominal, overwrite=True)


# What fails in the middle


def patch_parts(monkeypatch, write):
    """Let ``write`` write the parts; other files are written with options."""
    write_table = pq.write_table

    def write_either(table, file, **options):
        return write_table(table, file, **options) if options else write(table, file)

    monkeypatch.setattr(pq, "write_table", write_either)


def test_score_files__leaves_nothing_half_written_when_interrupted(
    tmp_path, data, nominal, monkeypatch
):
    def interrupt(table, file):
        file.write(b"PAR1")
        raise KeyboardInterrupt

    patch_parts(monkeypatch, interrupt)

    with pytest.raises(KeyboardInterrupt):
        score_files(data, tmp_path / "out", nominal=nominal)

    fit, record = names_in(tmp_path / "out")
    assert (fit[:5], record) == ("_fit-", "_run.json")


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

    def die(table, file):
        raise KilledWorker("task on 4 different workers")

    patch_parts(monkeypatch, die)

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


def test_peak_worker_bytes__is_not_worth_a_run(monkeypatch):
    def fail(function, callback_timeout):
        raise OSError("connection lost")

    monkeypatch.setattr(worker_pool, "active_client", lambda: SimpleNamespace(run=fail))

    assert worker_pool.peak_worker_bytes() is None

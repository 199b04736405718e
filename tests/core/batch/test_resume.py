"""Runs that were interrupted, and resumed: the same bytes, nothing done twice."""

import io
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from scipy.stats import false_discovery_control

import definitions
import lpe_dask
from breaking import parts_in
from choosing import mostly_full
from interrupting import (
    N_NOMINAL,
    N_PARTS,
    PART_ROWS,
    copy_of,
    stop_after,
    uninterrupted,
    write_files,
    write_tables,
)
from lpe_dask.batch import parts
from lpe_dask.batch.api import fit_job, score_files, score_job
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.runs import prepare
from lpe_dask.forecast import make_forecast
from lpe_dask.model import Fitted
from lpe_dask.model.persistence import checkpoint
from lpe_dask.search import join
from lpe_dask.search.plan import share_of
from lpe_dask.storage.lock import LockedError, locked
from lpe_dask.tables import TableError


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Paths of nominal rows and of rows to score."""
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def expected(tables, tmp_path_factory):
    return uninterrupted(tables, tmp_path_factory.mktemp("expected"))


@pytest.fixture(scope="module")
def stopped(tables, tmp_path_factory):
    """The output of a run that stopped after four of its parts."""
    out = tmp_path_factory.mktemp("stopped") / "out"
    with (
        dask.config.set(scheduler="sync"),
        stop_after(PartFolder, "publish", 4),
        pytest.raises(RunError, match="Stop"),
    ):
        score_files(**tables, output=out, n_neighbors=5)
    return out


@pytest.fixture
def interrupted(stopped, tmp_path):
    """A copy of that output, which a test may change."""
    return shutil.copytree(stopped, tmp_path / "out")


def fit_files(nominal, model, *, overwrite=False, **arguments):
    """Do what `lpe-dask fit` does."""
    job = fit_job(nominal, model, **arguments)
    return prepare(job, "replace" if overwrite else "refuse").execute()


def count_calls(monkeypatch, owner, name):
    """Return a list that grows with every call of a function of tasks."""
    function, calls = getattr(owner, name), []

    def counted(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


# Parts


def test_score_files__gives_the_same_bytes_when_it_stops_twice(tables, expected, tmp_path):
    for n_written in (1, 3):
        with stop_after(PartFolder, "publish", n_written), pytest.raises(RunError):
            score_files(**tables, output=tmp_path / "out", n_neighbors=5)
        assert parts_in(tmp_path / "out").items() < expected.items()

    score_files(**tables, output=tmp_path / "out", n_neighbors=5)

    assert parts_in(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("n_written", "fdr"),
    mostly_full(itertools.product(range(5), [None, 0.5]), [(1, None), (3, 0.5)]),
)
def test_score_files__resumes_parts_without_rows(tmp_path, fdr, n_written):
    """Two nominal rows, K = n - 1, ties, and files of no row, one row and some."""
    rows = pd.DataFrame({"x": [0.0, 1.0, 1.0, 9.0]})
    (tmp_path / "rows").mkdir()
    for i, (start, stop) in enumerate(itertools.pairwise([0, 0, 1, 1, 4])):
        rows.iloc[start:stop].to_parquet(tmp_path / "rows" / f"{i}.parquet")
    rows.iloc[:2].to_parquet(tmp_path / "nominal.parquet")
    given = {"data": tmp_path / "rows", "nominal": tmp_path / "nominal.parquet"}
    given |= {"n_neighbors": 1, "fdr": fdr}
    score_files(**given, output=tmp_path / "expected")
    out, n_tasks = tmp_path / "out", 4 if fdr is None else 8
    if n_written < n_tasks:
        with stop_after(PartFolder, "publish", n_written), pytest.raises(RunError):
            score_files(**given, output=out)

    score_files(**given, output=out)

    assert parts_in(out) == parts_in(tmp_path / "expected")
    p_values = pd.read_parquet(out)["p_value"].to_numpy()
    scored, known = rows.to_numpy(), rows.iloc[:2].to_numpy()
    own = definitions.knn_radii(known, known, 1, exclude_self=True)
    judged = [
        definitions.knn_p_value(radius, own)
        for radius in definitions.knn_radii(scored, known, 1)
    ]
    assert p_values.tolist() == judged


def test_score_files__measures_only_what_is_missing(
    tables, expected, interrupted, monkeypatch
):
    measured = count_calls(monkeypatch, join, "_join")

    summary = score_files(**tables, output=interrupted, n_neighbors=5)

    n_measured = 0
    for rows, share, n_shares, *_ in measured:
        if len(rows) == PART_ROWS:  # others are tried for reasons
            which = share_of(len(rows), share, n_shares)
            n_measured += which.stop - which.start
    assert n_measured == 2 * PART_ROWS
    assert parts_in(interrupted) == expected
    assert (summary["rows"], summary["rows_nan"]) == (N_PARTS * PART_ROWS, 1)
    assert summary["flagged"] == pd.read_parquet(interrupted)["is_anomaly"].sum()


@pytest.mark.parametrize(
    "damage", mostly_full(["cut", "empty", "foreign", "other run"], ["cut", "other run"])
)
def test_score_files__writes_a_damaged_part_again(tables, expected, interrupted, damage):
    out = interrupted
    part = next(out.glob("part-*"))
    if damage == "other run":
        table = pq.read_table(part)
        said = json.loads(table.schema.metadata[b"lpe_dask"]) | {"fingerprint": "0" * 16}
        changed = table.schema.metadata | {b"lpe_dask": json.dumps(said).encode()}
        pq.write_table(table.replace_schema_metadata(changed), part)
    elif damage == "foreign":
        pd.DataFrame({"x": [1.0]}).to_parquet(part)
    else:
        part.write_bytes(part.read_bytes()[:200] if damage == "cut" else b"")

    score_files(**tables, output=out, n_neighbors=5)

    assert parts_in(out) == expected


@pytest.fixture(scope="module")
def finished_once(tables, tmp_path_factory):
    """A run that is done, the folder of its model and output, and a copy of that."""
    folder = tmp_path_factory.mktemp("finished") / "folder"
    model, out = folder / "model", folder / "out"
    score = score_job(**tables, output=out, fdr=0.1, n_neighbors=5)
    section = score.model.model_copy(update={"path": str(model)})
    job = score.model_copy(update={"model": section})
    with dask.config.set(scheduler="sync"):
        prepare(job).execute()
    return job, folder, shutil.copytree(folder, folder.with_name("copy"))


@pytest.fixture
def finished(finished_once):
    """A run that is done, with what it leaves if it dies after its summary; its folder."""
    job, folder, copy = finished_once
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    model, out = folder / "model", folder / "out"
    for path in (
        out / "_lock.json", out / "_undecided" / "part-00000.parquet", model / "_lock.json",
        model / "_fit-0a1b" / "rows-0.parquet", model / "._lock.1.tmp",
    ):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (1, 1))
    return job, folder


def names_below(folder):
    return sorted({path.name[:5] for path in folder.iterdir()})


def test_plan__of_a_finished_job_changes_nothing(finished):
    job, folder = finished
    (folder / "out" / "_report.html").unlink()
    before = names_below(folder / "out"), names_below(folder / "model")

    with pytest.raises(FileExistsError, match="nothing to do"):
        make_forecast(None, prepare(job))

    assert (names_below(folder / "out"), names_below(folder / "model")) == before


def test_run__that_is_finished_removes_what_it_left_when_it_died(finished):
    job, folder = finished
    run = prepare(job)
    assert run.is_finished()
    run.clean_up()

    assert names_below(folder / "out") == ["_reas", "_repo", "_summ", "part-"]
    assert names_below(folder / "model") == ["data-", "manif"]


@pytest.mark.parametrize("name", ["out", "model"])
def test_run__that_is_finished_leaves_others_at_work_alone(finished, name):
    job, folder = finished
    os.utime(folder / name / "_lock.json")  # a heartbeat
    before = names_below(folder / name)

    run = prepare(job)
    assert run.is_finished()
    run.clean_up()

    assert names_below(folder / name) == before


@pytest.mark.parametrize("name", ["rm", "makedirs"])
def test_run__that_is_finished_may_not_be_able_to_tidy_up(
    finished, monkeypatch, caplog, name
):
    job, _ = finished
    monkeypatch.setattr(LocalFileSystem, name, refuse)

    run = prepare(job)
    assert run.is_finished()
    run.clean_up()

    assert caplog.text.count("could not remove what a run has left") == 2


def refuse(filesystem, path, *arguments, **options):
    raise PermissionError(path)


def test_score_files__restores_a_part_that_was_removed(tables, expected, tmp_path):
    score_files(**tables, output=tmp_path / "out", n_neighbors=5)
    (tmp_path / "out" / "part-00002.parquet").unlink()

    score_files(**tables, output=tmp_path / "out", n_neighbors=5)

    assert parts_in(tmp_path / "out") == expected


# Fits


@pytest.mark.parametrize(
    "arguments",
    mostly_full(
        [
            {},
            {"calibration_size": 700},
            {"calibration": "split"},
            {"calibration": "conformal"},
            {"metric": "geodesic", "metric_params": {"n_neighbors": 3}},
            {"graph": "radius", "radius": 1.0, "n_neighbors": None},
            {"aggregation": "mean"},
        ],
        core=[{}, {"calibration": "split"}],
    ),
    ids=["loo", "sample", "split", "conformal", "geodesic", "radius", "mean"],
)
def test_score_files__resumes_a_fit_with_other_blocks(
    tables, tmp_path, monkeypatch, arguments
):
    """What was measured stays, also if other workers cut the rows otherwise."""
    given = {**tables, "n_neighbors": 5, **arguments}
    score_files(**given, output=tmp_path / "expected")
    out = tmp_path / "out"
    with (
        dask.config.set({"lpe-dask.block-rows": 256}),
        stop_after(checkpoint, "_record", 2),
        pytest.raises(RunError, match="while it fitted: Stop"),
    ):
        score_files(**given, output=out)
    (fit,) = out.glob("_fit-*")
    n_known = sum(pq.read_metadata(path).num_rows for path in fit.iterdir())
    recorded = count_calls(monkeypatch, checkpoint, "_record")

    score_files(**given, output=out)

    n_rows = len(json.loads((out / "_summary.json").read_text()) and recorded)
    n_measured = sum(len(numbers) for (numbers, _), _ in recorded)
    n_calibration = json.loads((out / "_summary.json").read_text())["calibration_rows"]
    assert n_known > 0
    assert n_rows > 0
    assert n_measured + n_known == n_calibration
    assert parts_in(out) == parts_in(tmp_path / "expected")
    assert not list(out.glob("_fit-*"))


@pytest.mark.parametrize("calibration", mostly_full(["loo", "auto"], ["loo"]))
def test_score_files__keeps_the_draw_of_a_run_that_was_interrupted(
    tables, tmp_path, calibration
):
    """Without a random_state rows are drawn by what the run is made from, or as always."""
    given = {**tables, "n_neighbors": 5, "calibration_size": 50, "calibration": calibration}
    with stop_after(PartFolder, "publish", 2), pytest.raises(RunError, match="Stop"):
        score_files(**given, output=tmp_path / "out")

    summary = score_files(**given, output=tmp_path / "out")
    again = score_files(**given, output=tmp_path / "again")

    assert parts_in(tmp_path / "out") == parts_in(tmp_path / "again")
    assert summary["parameters"] == again["parameters"]
    assert (summary["parameters"]["random_state"] is None) == (calibration == "auto")


def test_fit__is_resumed(tables, tmp_path):
    given = {"nominal": tables["nominal"], "n_neighbors": 5}
    with (
        dask.config.set({"lpe-dask.block-rows": 512}),
        stop_after(checkpoint, "_record", 2),
        pytest.raises(RunError, match="Stop"),
    ):
        fit_files(**given, model=tmp_path / "model")

    fit_files(**given, model=tmp_path / "model")

    fitted = lpe_dask.LPE(n_neighbors=5).fit(pd.read_parquet(tables["nominal"]))
    loaded = lpe_dask.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.calibration_, fitted.calibration_)
    names = {path.name[:5] for path in (tmp_path / "model").iterdir()}
    assert names == {"manif", "data-"}


def test_fit__measures_rows_of_a_damaged_file_again(tables, tmp_path, caplog):
    run = prepare(fit_job(tables["nominal"], tmp_path / "model"))
    folder = Path(run.fit.checkpoint(str(tmp_path / "model")).url)
    folder.mkdir(parents=True)
    (folder / "rows-0.parquet").write_bytes(b"PAR1")

    assert run.execute()["calibration_rows"] == N_NOMINAL
    assert "rows-0.parquet" in caplog.text


# What has changed since


OF_A_MODEL = "the nominal rows, the model or its parameters"

#: Name -> another value of a parameter, and in what a run says that it differs.
OTHERS = {
    "alpha": (0.1, "alpha"),
    "keep": (["x"], "the columns to carry over"),
    "n_neighbors": (6, OF_A_MODEL),
    "fdr": (0.1, "fdr"),
    "scale": ("standard", OF_A_MODEL),
    "aggregation": ("mean", OF_A_MODEL),
}


@pytest.mark.parametrize("name", mostly_full(OTHERS, ["alpha", "keep", "n_neighbors"]))
def test_score_files__refuses_to_go_on_with_something_else(tables, interrupted, name):
    out, (value, words) = interrupted, OTHERS[name]
    given, before = {**tables, "n_neighbors": 5} | {name: value}, parts_in(out)

    with pytest.raises(FileExistsError, match=rf"differs in: {words}\..*--overwrite"):
        score_files(**given, output=out)

    assert parts_in(out) == before
    score_files(**given, output=out, overwrite=True)
    assert len(pd.read_parquet(out)) == N_PARTS * PART_ROWS


def test_score_files__refuses_to_go_on_with_other_nominal_rows(tables, tmp_path):
    copies = {name: copy_of(path, tmp_path / name) for name, path in tables.items()}
    given = {**copies, "n_neighbors": 5, "output": tmp_path / "out"}
    with stop_after(PartFolder, "publish", 3), pytest.raises(RunError, match="Stop"):
        score_files(**given)
    change_a_value(copies["nominal"] / "2.parquet")

    with pytest.raises(FileExistsError, match="the nominal rows"):
        score_files(**given)

    summary = score_files(**given, overwrite=True)
    assert summary["rows"] == N_PARTS * PART_ROWS


def change_a_value(file):
    changed = pd.read_parquet(file)
    changed.iloc[5, 0] += 1
    changed.to_parquet(file)


def add_a_row(file):
    longer = pd.concat([pd.read_parquet(file)] * 2, ignore_index=True)
    longer.iloc[: PART_ROWS + 1].to_parquet(file)


@pytest.mark.parametrize(
    ("change", "fdr"),
    mostly_full(
        itertools.product([change_a_value, add_a_row], [None, 0.1]),
        [(change_a_value, 0.1), (add_a_row, None)],
    ),
)
def test_score_files__goes_on_with_the_parts_whose_rows_are_the_same(
    tables, tmp_path, monkeypatch, fdr, change
):
    """A row more changes the index of all."""
    data = copy_of(tables["data"], tmp_path / "data")
    given = {**tables, "data": data, "n_neighbors": 5, "fdr": fdr}
    with stop_after(PartFolder, "publish", 3), pytest.raises(RunError, match="Stop"):
        score_files(**given, output=tmp_path / "out")
    (*there,) = (tmp_path / "out").rglob("part-*")
    change(data / f"{int(there[0].stem[5:])}.parquet")
    measured = count_calls(monkeypatch, parts, "_write_part")

    score_files(**given, output=tmp_path / "out")

    n_kept = len(there) - 1 if change is change_a_value else 0
    assert len(there) == 3
    assert len(measured) == N_PARTS - n_kept
    score_files(**given, output=tmp_path / "anew")
    assert parts_in(tmp_path / "out") == parts_in(tmp_path / "anew")


def test_score_files__does_not_replace_what_is_finished_if_the_input_changes(
    tables, tmp_path
):
    data = copy_of(tables["data"], tmp_path / "data")
    score_files(**{**tables, "data": data}, output=tmp_path / "out")
    before = parts_in(tmp_path / "out")
    change_a_value(data / "2.parquet")

    with pytest.raises(FileExistsError, match=r"2.parquet is changed\).*--overwrite"):
        score_files(**{**tables, "data": data}, output=tmp_path / "out")

    assert parts_in(tmp_path / "out") == before


def times_of_parts(out):
    return {path: path.stat().st_mtime_ns for path in out.glob("part-*")}


def damage(file):
    """Overwrite the first page of a Parquet file, and return what makes it whole."""
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + bytes(60) + whole[64:])
    os.utime(file, (1, 1))
    return whole


def test_score_files__goes_on_when_a_damaged_file_is_mended(tables, expected, tmp_path):
    data, out = copy_of(tables["data"], tmp_path / "data"), tmp_path / "out"
    given = {**tables, "data": data, "output": out, "n_neighbors": 5}
    with stop_after(PartFolder, "publish", 3), pytest.raises(RunError, match="Stop"):
        score_files(**given)
    before = times_of_parts(out)
    missing = min({*range(N_PARTS)} - {int(path.stem[5:]) for path in before})
    file = data / f"{missing}.parquet"
    whole = damage(file)

    with pytest.raises(
        TableError, match=rf"{file} is damaged in row group 0, column 'x': "
    ) as raised:
        score_files(**given)
    file.write_bytes(whole)
    score_files(**given)

    (note,) = raised.value.__notes__
    assert f"the same command resumes, and keeps the parts in file://{out} that" in note
    assert len(before) == 3
    assert before.items() <= times_of_parts(out).items()
    whole = pd.concat(map(pd.read_parquet, map(io.BytesIO, expected.values())))
    pd.testing.assert_frame_equal(
        pd.read_parquet(out).reset_index(drop=True), whole.reset_index(drop=True)
    )


def test_score_files__begins_anew_when_damaged_nominal_rows_are_mended(tables, tmp_path):
    nominal = copy_of(tables["nominal"], tmp_path / "nominal")
    given = {**tables, "nominal": nominal, "output": tmp_path / "out", "n_neighbors": 5}
    whole = damage(nominal / "1.parquet")
    with pytest.raises(TableError, match=r"1.parquet is damaged in row group 0"):
        score_files(**given)
    (nominal / "1.parquet").write_bytes(whole)

    summary = score_files(**given)

    assert summary["nominal_rows"] == N_NOMINAL


def test_fit__names_a_damaged_file_and_goes_on_when_it_is_mended(tables, tmp_path):
    nominal = copy_of(tables["nominal"], tmp_path / "nominal")
    whole = damage(nominal / "1.parquet")
    with pytest.raises(TableError, match=r"1.parquet is damaged in row group 0"):
        fit_files(nominal, tmp_path / "model")
    (nominal / "1.parquet").write_bytes(whole)

    fit_files(nominal, tmp_path / "model")

    assert lpe_dask.load(tmp_path / "model").n_samples_ == N_NOMINAL


def test_score_files__keeps_blocks_of_csv_whose_file_is_the_same(tmp_path, monkeypatch):
    rng, data, out = np.random.default_rng(0), tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for i in range(3):
        frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["x", "y"])
        frame.to_csv(data / f"{i}.csv.gz", index=False)
    frame.to_csv(tmp_path / "nominal.csv", index=False)
    given = {"data": data, "nominal": tmp_path / "nominal.csv", "n_neighbors": 5}
    with stop_after(PartFolder, "publish", 1), pytest.raises(RunError, match="Stop"):
        score_files(**given, output=out)
    (there,) = out.glob("part-*")
    damaged = data / f"{(int(there.stem[5:]) + 1) % 3}.csv.gz"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-300])
    with pytest.raises(TableError, match=f"{damaged.name} is cut short or damaged"):
        score_files(**given, output=out)
    n_there = len([*out.glob("part-*")])
    damaged.write_bytes(whole)
    measured = count_calls(monkeypatch, parts, "_write_part")

    score_files(**given, output=out)

    assert len(measured) == 3 - n_there < 3


@pytest.mark.parametrize("which", mostly_full(["data", "nominal"], ["data"]))
def test_score_files__notices_files_that_change_while_it_reads(
    tables, tmp_path, monkeypatch, which
):
    copies = {name: copy_of(path, tmp_path / name) for name, path in tables.items()}
    given = {**copies, "output": tmp_path / "out"}
    owner, name = {
        "data": (PartFolder, "publish"), "nominal": (checkpoint, "_record")
    }[which]  # fmt: skip
    function = getattr(owner, name)

    file = copies[which] / "1.parquet"
    before, stamp = file.read_bytes(), file.stat()

    def touch(*arguments):
        os.utime(file, (1, 1))
        return function(*arguments)

    pd.DataFrame(pd.read_parquet(file) + 9).to_parquet(file)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, touch)
        with pytest.raises(RunError, match=r"file changed while.*1.parquet is changed"):
            score_files(**given)
    assert not (tmp_path / "out" / "_summary.json").exists()

    file.write_bytes(before)  # nothing was kept that came from what it was meanwhile
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    score_files(**given)  # as the message says
    score_files(**{**tables, "output": tmp_path / "anew"})
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "out"), pd.read_parquet(tmp_path / "anew")
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_score_files__of_files_whose_names_look_like_secrets(tmp_path, ending):
    """They are in no URL, and so are told apart."""
    rows = pd.DataFrame({"x": np.arange(20.0), "y": np.arange(20.0)[::-1]})
    data = tmp_path / "data"
    data.mkdir()
    names = [
        f"{name}.{ending}" for name in ("day#id=3", "10:30@here", "10:31@here", "a?b=c")
    ]
    for name in names:
        is_csv = ending == "csv"
        _ = (
            rows.to_csv(data / name, index=False)
            if is_csv
            else rows.to_parquet(data / name)
        )
    score_files(data, tmp_path / "out", nominal=data / names[0], n_neighbors=3)

    assert len(pd.read_parquet(tmp_path / "out")) == 80
    stored = json.loads((tmp_path / "out" / "_summary.json").read_text())["fingerprint"]
    assert {Path(name).name for name, *_ in stored["data"]} == set(names)


def test_score_files__names_files_that_are_new_or_gone(tables, tmp_path):
    data = copy_of(tables["data"], tmp_path / "data")
    score_files(data, tmp_path / "out", nominal=tables["nominal"])
    (data / "0.parquet").rename(data / "7.parquet")

    with pytest.raises(FileExistsError, match=r"0.parquet is gone and 1 more"):
        score_files(data, tmp_path / "out", nominal=tables["nominal"])


def test_run__is_finished_whatever_version_did_it(tables, tmp_path):
    score_files(**tables, output=tmp_path / "out")
    path = tmp_path / "out" / "_summary.json"
    summary = json.loads(path.read_text())
    summary["fingerprint"]["settings"]["versions"] = ["0.0.1", "2020.1.0"]
    path.write_text(json.dumps(summary))

    assert prepare(score_job(**tables, output=tmp_path / "out")).is_finished()
    next((tmp_path / "out").glob("part-*")).unlink()
    with pytest.raises(FileExistsError, match="the versions of lpe_dask and Dask"):
        prepare(score_job(**tables, output=tmp_path / "out"))


def test_score_files__cannot_tell_functions_from_each_other(tables, tmp_path):
    given = {**tables, "output": tmp_path / "out", "anomaly_log_density": np.sum}
    given["anomaly_log_density"] = lambda rows: np.zeros(len(rows))
    with stop_after(PartFolder, "publish", 3), pytest.raises(RunError, match="Stop"):
        score_files(**given)

    with pytest.raises(FileExistsError, match="the model or its parameters"):
        score_files(**given)


# Two runs at once


def test_score_files__refuses_a_second_run(tables, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with locked(out, "a test"), pytest.raises(LockedError, match="a test"):
        score_files(**tables, output=out)

    out.rmdir()
    score_files(**tables, output=out)


def test_score_files__does_not_write_once_it_was_displaced(tables, tmp_path, monkeypatch):
    out = tmp_path / "out"
    publish, written = PartFolder.publish, []

    def displaced(folder, *rest):
        if len(written) == 2:
            lock = json.loads((out / "_lock.json").read_text())
            (out / "_lock.json").write_text(json.dumps(lock | {"token": "another"}))
        publish(folder, *rest)
        written.append(folder)

    monkeypatch.setattr(PartFolder, "publish", displaced)

    with pytest.raises(RunError, match="another run has taken over"):
        score_files(**tables, output=out)

    assert len(parts_in(out)) == 2
    assert not list(out.glob(".part-*"))


def test_score_files__removes_nothing_once_it_was_displaced(tables, tmp_path, monkeypatch):
    out = tmp_path / "out"
    measured = Fitted.blocks

    def displaced(*arguments):  # by a run that is done by now
        lock = json.loads((out / "_lock.json").read_text())
        (out / "_lock.json").write_text(json.dumps(lock | {"token": "another"}))
        (out / "part-00000.parquet").write_bytes(b"another's")
        return measured(*arguments)

    monkeypatch.setattr(Fitted, "blocks", displaced)

    with pytest.raises(RunError, match="another run has taken over"):
        score_files(**tables, output=out)

    assert (out / "part-00000.parquet").read_bytes() == b"another's"


def test_fit__does_not_save_once_it_was_displaced(tables, tmp_path, monkeypatch):
    model, record = tmp_path / "model", checkpoint._record

    def displaced(*arguments):
        lock = json.loads((model / "_lock.json").read_text())
        (model / "_lock.json").write_text(json.dumps(lock | {"token": "another"}))
        return record(*arguments)

    monkeypatch.setattr(checkpoint, "_record", displaced)

    with pytest.raises(RunError, match="another run has taken over"):
        fit_files(tables["nominal"], model)

    assert not (model / "manifest.json").exists()


def test_score_files__is_not_hindered_by_the_folder_of_a_run_that_died(tables, tmp_path):
    out, nominal = tmp_path / "out", tmp_path / "nominal.parquet"
    pd.DataFrame({"x": [np.nan, 1.0], "y": 1.0}).to_parquet(nominal)
    out.mkdir()
    (out / "_lock.json").touch()  # it was killed before anything else
    os.utime(out / "_lock.json", (1, 1))

    for _ in range(2):
        with pytest.raises(ValueError, match="NaN or inf"):
            score_files(tables["data"], out, nominal=nominal)

    assert list(out.iterdir()) == []


@pytest.mark.parametrize("names", mostly_full([[], ["lost+found"]], [["lost+found"]]))
def test_score_files__takes_an_empty_folder_and_leaves_it_if_it_fails(
    tables, tmp_path, names
):
    """It may be a mounted volume."""
    out, nominal = tmp_path / "out", tmp_path / "nominal.parquet"
    pd.DataFrame({"x": [np.nan, 1.0], "y": 1.0}).to_parquet(nominal)
    out.mkdir()
    for name in names:
        (out / name).mkdir()

    with pytest.raises(ValueError, match="NaN or inf"):
        score_files(tables["data"], out, nominal=nominal)
    assert [path.name for path in out.iterdir()] == names
    score_files(**tables, output=out)

    assert len(parts_in(out)) == N_PARTS
    assert {*names} <= {path.name for path in out.iterdir()}


@pytest.mark.parametrize("name", ["notes.txt", "folder/", ".hidden"])
def test_score_files__refuses_a_folder_with_anything_else_in_it(tables, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / "lost+found").mkdir()
    (out / name).mkdir() if name.endswith("/") else (out / name).touch()

    with pytest.raises(FileExistsError, match="contains files that are not the output"):
        score_files(**tables, output=out)
    with pytest.raises(FileExistsError, match="contains files that are not the output"):
        score_files(**tables, output=out, overwrite=True)

    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["lost+found", name.strip("/")]
    )


@pytest.mark.parametrize("name", mostly_full(["publish", "read_stats"], ["publish"]))
def test_score_files__says_that_its_output_was_removed(tables, tmp_path, caplog, name):
    """And nothing of another run, or of parts that are complete."""
    out, function = tmp_path / "out", getattr(PartFolder, name)

    def remove(*arguments):
        shutil.rmtree(out, ignore_errors=True)
        return function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartFolder, name, remove)
        with pytest.raises(RunError) as raised:
            score_files(**tables, output=out, n_neighbors=5)

    assert re.fullmatch(
        rf"the run stopped while it scored, as file://{out} was removed, or the lock in it "
        r"\(_lock.json\)\. Start the same run again.*", str(raised.value)
    )  # fmt: skip
    assert "lock" not in caplog.text
    assert score_files(**tables, output=out)["rows"] == N_PARTS * PART_ROWS


def test_score_files__refuses_an_output_in_its_model(tables, tmp_path):
    fit_files(tables["nominal"], tmp_path / "model")

    with pytest.raises(ValueError, match="overlap: one is the other"):
        score_files(tables["data"], tmp_path / "model" / "out", model=tmp_path / "model")


@pytest.mark.parametrize("n_parts", mostly_full([None, -1, "6"], ["6"]))
def test_score_files__does_not_believe_a_record_that_was_edited(tables, tmp_path, n_parts):
    score_files(**tables, output=tmp_path / "out")
    path = tmp_path / "out" / "_summary.json"
    summary = json.loads(path.read_text())
    summary["fingerprint"]["settings"]["n_parts"] = n_parts
    path.write_text(json.dumps(summary))

    with pytest.raises(FileExistsError, match="exists"):
        score_files(**tables, output=tmp_path / "out")


def test_prepare__tells_long_arrays_from_each_other(tables, tmp_path):
    long = np.ones(2)
    runs = [
        prepare(score_job(**tables, output=tmp_path / "out", metric_params={"w": weights}))
        for weights in (long, long * 2)
    ]

    assert runs[0].scoring.made_from.run != runs[1].scoring.made_from.run


# Saved models


def test_score_files__takes_alpha_beside_a_model(tables, tmp_path):
    fit_files(tables["nominal"], tmp_path / "model", n_neighbors=5)

    given = {"model": tmp_path / "model", "alpha": 0.3}
    summary = score_files(tables["data"], tmp_path / "out", **given)

    scored = pd.read_parquet(tmp_path / "out")
    assert summary["flagged"] == (scored["p_value"] <= 0.3).sum()
    assert summary["alpha"] == summary["parameters"]["alpha"] == 0.3


def test_score_files__refuses_what_a_model_has_already(tables, tmp_path):
    fit_files(tables["nominal"], tmp_path / "model")

    with pytest.raises(
        ValueError, match="nominal, scale cannot be combined with the saved model"
    ):
        score_files(**tables, output=tmp_path / "o", model=tmp_path / "model", scale=None)


def test_score_files__refuses_columns_that_a_model_does_not_have(tables, tmp_path):
    rows = pd.read_parquet(tables["nominal"]).to_numpy()
    lpe_dask.LPE(n_neighbors=5).fit(rows[:, :1]).save(tmp_path / "model")

    with pytest.raises(ValueError, match="has 2 columns to measure, but the model was"):
        score_files(tables["data"], tmp_path / "out", model=tmp_path / "model")


@pytest.mark.parametrize("model", ["nominal", "nominal/model", "."])
def test_fit__refuses_a_model_in_the_way_of_its_rows(tables, tmp_path, model):
    write_files(pd.read_parquet(tables["nominal"]), tmp_path / "nominal", 1000)

    with pytest.raises(ValueError, match="overlap: one is the other"):
        fit_files(tmp_path / "nominal", tmp_path / model)


def test_fit__does_not_replace_a_model_that_came_meanwhile(tables, tmp_path):
    job = fit_job(tables["data"], tmp_path / "model", missing="drop")
    late = prepare(job, "refuse")
    fit_files(tables["nominal"], tmp_path / "model")

    with pytest.raises(FileExistsError, match="there is a model"):
        late.execute()

    assert lpe_dask.load(tmp_path / "model").n_samples_ == N_NOMINAL


# Decisions at a false discovery rate


@pytest.mark.parametrize("q", mostly_full([0.01, 0.1, 0.5], [0.1]))
def test_score_files__flags_at_a_false_discovery_rate(tables, tmp_path, q):
    summary = score_files(**tables, output=tmp_path / "out", n_neighbors=5, fdr=q)

    scored = pd.read_parquet(tmp_path / "out")
    is_measured = scored["p_value"].notna()
    q_values = false_discovery_control(scored["p_value"][is_measured])
    flags = q_values <= q
    np.testing.assert_array_equal(scored["is_anomaly"][is_measured].astype(bool), flags)
    assert scored["is_anomaly"].isna().tolist() == (~is_measured).tolist()
    assert scored["is_anomaly"].dtype == "boolean"
    assert (summary["fdr"], summary["flagged"]) == (q, flags.sum())
    np.testing.assert_array_equal(scored["q_value"][is_measured], q_values)
    assert scored["q_value"].isna().tolist() == (~is_measured).tolist()
    cut_off = scored["p_value"][is_measured][flags].max() if flags.any() else None
    assert summary["fdr_cut_off"] == cut_off
    assert sorted(path.name[:5] for path in (tmp_path / "out").iterdir()) == [
        "_reas", "_repo", "_summ", *["part-"] * N_PARTS
    ]  # fmt: skip


def test_score_files__q_value_stands_last_and_hides_no_column(tables, tmp_path):
    rows = pd.read_parquet(tables["data"]).assign(q_value="of the input")
    rows.to_parquet(tmp_path / "rows.parquet")
    given = {**tables, "data": tmp_path / "rows.parquet", "n_neighbors": 5}
    results = ["p_value", "statistic", "is_anomaly"]

    with pytest.raises(ValueError, match=r"has \['q_value'\] already.*keep="):
        score_files(**given, output=tmp_path / "refused", fdr=0.1)
    score_files(**given, output=tmp_path / "decided", fdr=0.1, keep=["y"])
    score_files(**given, output=tmp_path / "carried", keep=["q_value"])

    decided, carried = (pd.read_parquet(tmp_path / n) for n in ("decided", "carried"))
    assert decided.columns.tolist() == ["y", *results, "q_value"]
    assert decided["q_value"].dtype == np.float64
    assert carried.columns.tolist() == ["q_value", *results]
    assert set(carried["q_value"]) == {"of the input"}


@pytest.mark.parametrize(
    "n_written", mostly_full([3, N_PARTS, N_PARTS + 2, 2 * N_PARTS], [N_PARTS + 2])
)
def test_score_files__resumes_undecided_parts(tables, tmp_path, n_written):
    given = {**tables, "n_neighbors": 5, "fdr": 0.1}
    score_files(**given, output=tmp_path / "expected")
    out = tmp_path / "out"
    if n_written < 2 * N_PARTS:
        with stop_after(PartFolder, "publish", n_written), pytest.raises(RunError):
            score_files(**given, output=out)
        assert len(parts_in(out)) == max(0, n_written - N_PARTS)

    score_files(**given, output=out)

    assert parts_in(out) == parts_in(tmp_path / "expected")
    assert not (out / "_undecided").exists()


def test_score_files__warns_of_a_rate_that_flags_nothing(tables, tmp_path, caplog):
    summary = score_files(tables["nominal"], tmp_path / "out", fdr=0.2)

    assert summary["flagged"] == 0
    assert summary["fdr_cut_off"] is None
    assert "no row can be flagged with fdr=0.2" in caplog.text


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ("loo", "fdr=0.2 does not hold: about 4.81 of the 500 rows have p = 0"),
        ("conformal", "fdr=0.2 flags nothing: with 50 calibration rows the smallest"),
    ],
)
def test_score_files__warns_once_where_too_few_nominal_rows_are(
    tmp_path, caplog, calibration, said
):
    rng = np.random.default_rng(0)
    nominal, rows = rng.standard_normal((100, 2)), rng.standard_normal((500, 2))
    rows[:3] = 20.0
    for name, values in (("nominal", nominal), ("rows", rows)):
        frame = pd.DataFrame(values, columns=["x", "y"])
        frame.to_parquet(tmp_path / f"{name}.parquet")
    given = {"nominal": tmp_path / "nominal.parquet", "calibration": calibration}
    given["random_state"] = 0  # else the draw follows names and times of the files

    score_files(tmp_path / "rows.parquet", tmp_path / "out", fdr=0.2, **given)
    score_files(tmp_path / "rows.parquet", tmp_path / "by-alpha", **given)

    warnings = [r.getMessage() for r in caplog.records if "fdr" in r.getMessage()]
    (warning,) = warnings
    assert said in warning
    assert "about 2500 / k calibration rows" in warning


@pytest.mark.parametrize("name", ["alpha", "fdr"])
def test_score_files__refuses_a_level_out_of_range(tables, tmp_path, name):
    with pytest.raises(ValueError, match=f"{name}=1.5"):
        score_files(**tables, output=tmp_path / "out", **{name: 1.5})

    assert not Path(tmp_path / "out").exists()

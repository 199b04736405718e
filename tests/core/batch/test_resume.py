"""Runs that were interrupted, and resumed: the same bytes, nothing done twice."""

import json
import os
import re
import shutil
from pathlib import Path

import dask
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

import lpe_dask
from breaking import parts_in
from choosing import mostly_full
from interrupting import (
    N_NOMINAL,
    N_PARTS,
    N_ROWS,
    PART_ROWS,
    count_calls,
    stop_after,
    stop_run,
)
from lpe_dask.batch.api import fit_job, score_files, score_job
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.runs import Run
from lpe_dask.forecast import make_forecast
from lpe_dask.model import Explanation, Fitted
from lpe_dask.model.persistence import checkpoint
from lpe_dask.search import join
from lpe_dask.search.plan import share_of


@pytest.fixture(scope="module")
def expected(tables, tmp_path_factory):
    """The bytes of the parts of a run that nothing interrupted."""
    out = tmp_path_factory.mktemp("expected") / "out"
    score_files(**tables, output=out, n_neighbors=5)
    return parts_in(out)


@pytest.fixture(scope="module")
def stopped(tables, tmp_path_factory):
    """The output of a run that stopped after four of its parts."""
    out = tmp_path_factory.mktemp("stopped") / "out"
    stop_run(4, **tables, output=out, n_neighbors=5)
    return out


@pytest.fixture
def interrupted(stopped, tmp_path):
    """A copy of that output, which a test may change."""
    return shutil.copytree(stopped, tmp_path / "out")


# Parts


@pytest.mark.parametrize(
    ("fdr", "n_written"),
    mostly_full(
        [*((None, n) for n in range(N_PARTS)), *((0.1, n) for n in range(2 * N_PARTS))],
        [(None, 1), (0.1, N_PARTS + 2)],
    ),
)
def test_score_files__resumes_wherever_it_stopped(tables, tmp_path, fdr, n_written):
    """Where a rate decides, all parts are measured before the first is written."""
    given, out = {**tables, "n_neighbors": 5, "fdr": fdr}, tmp_path / "out"
    score_files(**given, output=tmp_path / "expected")
    expected = parts_in(tmp_path / "expected")

    stop_run(n_written, **given, output=out)

    assert len(parts_in(out)) == max(0, n_written - (N_PARTS if fdr else 0))
    assert parts_in(out).items() <= expected.items()
    score_files(**given, output=out)
    assert parts_in(out) == expected
    assert not (out / "_undecided").exists()


def test_score_files__measures_only_what_is_missing(
    tables, expected, interrupted, monkeypatch
):
    n_missing = N_ROWS - len(pd.read_parquet(interrupted))
    calls = count_calls(monkeypatch, join, "_join")

    summary = score_files(**tables, output=interrupted, n_neighbors=5)

    measured = [
        share_of(len(rows), share, n_shares)
        for rows, share, n_shares, *_ in calls
        if len(rows) == PART_ROWS  # others are tried for reasons
    ]
    assert sum(which.stop - which.start for which in measured) == n_missing > 0
    assert parts_in(interrupted) == expected
    assert (summary["rows"], summary["rows_nan"]) == (N_ROWS, 1)
    assert summary["flagged"] == pd.read_parquet(interrupted)["is_anomaly"].sum()


def exchange_run(part):
    table = pq.read_table(part)
    said = json.loads(table.schema.metadata[b"lpe_dask"]) | {"fingerprint": "0" * 16}
    changed = table.schema.metadata | {b"lpe_dask": json.dumps(said).encode()}
    pq.write_table(table.replace_schema_metadata(changed), part)


DAMAGES = {
    "cut": lambda part: part.write_bytes(part.read_bytes()[:200]),
    "empty": lambda part: part.write_bytes(b""),
    "foreign": lambda part: pd.DataFrame({"x": [1.0]}).to_parquet(part),
    "other run": exchange_run,
    "removed": Path.unlink,
}


@pytest.mark.parametrize("damage", mostly_full(DAMAGES, ["cut", "other run", "removed"]))
def test_score_files__writes_a_damaged_part_again(tables, expected, interrupted, damage):
    if damage == "removed":  # a run that is done does not look into its parts
        score_files(**tables, output=interrupted, n_neighbors=5)
    DAMAGES[damage](min(interrupted.glob("part-*")))

    score_files(**tables, output=interrupted, n_neighbors=5)

    assert parts_in(interrupted) == expected


def test_score_files__reads_a_part_again_after_a_temporary_error(
    tables, interrupted, monkeypatch
):
    """Rather than write it again."""
    n_there, whole, lost = len(parts_in(interrupted)), PartFolder.open, []

    def lose_first(folder, number):
        if not lost:
            lost.append(number)
            raise ConnectionResetError("lost")
        return whole(folder, number)

    monkeypatch.setattr(PartFolder, "open", lose_first)
    written = count_calls(monkeypatch, PartFolder, "publish")

    score_files(**tables, output=interrupted, n_neighbors=5)

    assert len(lost) == 1
    assert len(written) == N_PARTS - n_there < N_PARTS


# What a run has left that died after its summary


def saved_job(tables, folder):
    """A job that saves its model, in a folder with the output."""
    job = score_job(**tables, output=folder / "out", fdr=0.1, n_neighbors=5)
    section = job.model.model_copy(update={"path": str(folder / "model")})
    return job.model_copy(update={"model": section})


@pytest.fixture
def finished(tables, tmp_path):
    """A run that is done, with what it leaves if it dies after its summary; its folder."""
    job, model, out = saved_job(tables, tmp_path), tmp_path / "model", tmp_path / "out"
    Run.prepare(job).execute()
    for path in (
        out / "_lock.json", out / "_undecided" / "part-00000.parquet", model / "_lock.json",
        model / "_fit-0a1b" / "rows-0.parquet", model / "._lock.1.tmp",
    ):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (1, 1))
    return job, tmp_path


def names_below(folder):
    return {
        name: sorted({path.name[:5] for path in (folder / name).iterdir()})
        for name in ("out", "model")
    }


@pytest.mark.parametrize("at_work", [None, "out", "model"])
def test_run__that_is_finished_removes_what_it_left_when_it_died(finished, at_work):
    """But its plan changes nothing, and what another run holds is left alone."""
    job, folder = finished
    if at_work:
        os.utime(folder / at_work / "_lock.json")  # a heartbeat
    before = names_below(folder)
    about = ["_metr", "_reas", "_repo", "_summ"]
    tidied = {"out": [*about, "part-"], "model": ["data-", "manif"]}

    with pytest.raises(FileExistsError, match="nothing to do"):
        make_forecast(None, Run.prepare(job))
    assert names_below(folder) == before

    run = Run.prepare(job)
    assert run.is_finished()
    run.clean_up()
    assert names_below(folder) == tidied | {n: before[n] for n in before if n == at_work}


@pytest.mark.parametrize("name", ["rm", "makedirs"])
def test_run__that_is_finished_may_not_be_able_to_tidy_up(
    finished, monkeypatch, caplog, name
):
    def refuse(filesystem, path, *arguments, **options):
        raise PermissionError(path)

    job, _ = finished
    monkeypatch.setattr(LocalFileSystem, name, refuse)

    run = Run.prepare(job)
    assert run.is_finished()
    run.clean_up()

    assert caplog.text.count("could not remove what a run has left") == 2


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
@pytest.mark.parametrize("most", [10**6, 0], ids=["here", "on storage"])
def test_score_files__resumes_a_fit_with_other_blocks(
    tables, tmp_path, monkeypatch, arguments, most
):
    """What was measured stays, also if other workers cut the rows otherwise.

    Without a random_state rows are drawn by what the run is made from.
    """
    given, out = {**tables, "n_neighbors": 5, **arguments}, tmp_path / "out"
    anew = score_files(**given, output=tmp_path / "anew")
    monkeypatch.setitem(
        dask.config.config, "lpe-dask",
        dask.config.config["lpe-dask"] | {"statistics-in-memory": most},
    )  # fmt: skip
    with (
        dask.config.set({"lpe-dask.block-rows": 256}),
        stop_after(checkpoint, "_record", 2),
        pytest.raises(RunError, match="while it fitted: Stop"),
    ):
        score_files(**given, output=out)
    n_known = sum(pq.read_metadata(path).num_rows for path in out.glob("_fit-*/*"))
    recorded = count_calls(monkeypatch, checkpoint, "_record")
    stored = count_calls(monkeypatch, checkpoint, "vector_of_files")

    summary = score_files(**given, output=out)

    assert len(stored) == (most == 0)
    n_measured = sum(len(numbers) for (numbers, _), _ in recorded)
    assert min(n_known, n_measured) > 0
    assert n_measured + n_known == summary["calibration_rows"]
    assert parts_in(out) == parts_in(tmp_path / "anew")
    assert summary["parameters"] == anew["parameters"]
    assert not list(out.glob("_fit-*"))


def test_fit__measures_rows_of_a_damaged_file_again(tables, tmp_path, caplog):
    run = Run.prepare(fit_job(tables["nominal"], tmp_path / "model"))
    folder = Path(run.fit.checkpoint_url(str(tmp_path / "model")))
    folder.mkdir(parents=True)
    (folder / "rows-0.parquet").write_bytes(b"PAR1")

    assert run.execute()["calibration_rows"] == N_NOMINAL
    assert "rows-0.parquet" in caplog.text


# Other runs at the same time


MOMENTS = {
    "measures nominal rows": ("model", checkpoint, "_record", 0),
    "begins to score": ("out", Fitted, "blocks", 0),
    "writes parts": ("out", PartFolder, "publish", 2),
    "gives reasons": ("out", Explanation, "of", 0),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_run__changes_no_file_once_it_was_displaced(tables, tmp_path, monkeypatch, moment):
    name, owner, function_name, n_calls = MOMENTS[moment]
    folder, function = tmp_path / name, getattr(owner, function_name)
    calls, files = [], []

    def displaced(*arguments, **options):
        calls.append(arguments)
        if len(calls) == n_calls + 1:
            lock = folder / "_lock.json"
            lock.write_text(re.sub('"token": "', r"\g<0>0", lock.read_text()))
            (folder / "part-00099.parquet").write_bytes(b"another's")
            files.append(files_in(folder))
        return function(*arguments, **options)

    monkeypatch.setattr(owner, function_name, displaced)

    with pytest.raises(RunError, match="another run has taken over"):
        Run.prepare(saved_job(tables, tmp_path)).execute()

    assert files == [files_in(folder)]


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_fit__does_not_replace_a_model_that_came_meanwhile(tables, tmp_path):
    late = Run.prepare(
        fit_job(tables["data"], tmp_path / "model", missing="drop"), "refuse"
    )
    Run.prepare(fit_job(tables["nominal"], tmp_path / "model"), "refuse").execute()

    with pytest.raises(FileExistsError, match="there is a model"):
        late.execute()

    assert lpe_dask.load(tmp_path / "model").n_samples_ == N_NOMINAL

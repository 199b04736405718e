"""Runs that are started again with other arguments, or after their files have changed."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from breaking import parts_in
from choosing import mostly_full
from interrupting import (
    N_NOMINAL,
    N_PARTS,
    N_ROWS,
    PART_ROWS,
    count_calls,
    stop_run,
    write_files,
)
from lpe_dask.batch import parts
from lpe_dask.batch.api import fit_job, score_files, score_job
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder
from lpe_dask.batch.runs import Run
from lpe_dask.model.persistence import checkpoint
from lpe_dask.tables import TableError


@pytest.fixture
def copies(tables, tmp_path):
    """Copies of the files, which a test may change."""
    return {name: shutil.copytree(path, tmp_path / name) for name, path in tables.items()}


# Other arguments


OF_A_MODEL = "the nominal rows, the model or its parameters"

#: Name -> another value of a parameter, and in what a run says that it differs.
OTHERS = {
    "alpha": (0.1, "alpha"),
    "keep": (["x"], "the columns to carry over"),
    "n_neighbors": (6, OF_A_MODEL),
    "fdr": (0.1, "fdr"),
    "scale": ("standard", OF_A_MODEL),
    "aggregation": ("mean", OF_A_MODEL),
    "nominal": (None, OF_A_MODEL),
}


@pytest.mark.parametrize(
    "name", mostly_full(OTHERS, ["alpha", "keep", "n_neighbors", "nominal"])
)
def test_score_files__refuses_to_go_on_with_something_else(copies, tmp_path, name):
    out, (value, words) = tmp_path / "out", OTHERS[name]
    stop_run(4, **copies, output=out, n_neighbors=5)
    given, before = {**copies, "n_neighbors": 5}, parts_in(out)
    if name == "nominal":
        change_a_value(copies["nominal"] / "2.parquet")
    else:
        given[name] = value

    with pytest.raises(FileExistsError, match=rf"differs in: {words}\..*--overwrite"):
        score_files(**given, output=out)

    assert parts_in(out) == before
    score_files(**given, output=out, overwrite=True)
    assert len(pd.read_parquet(out)) == N_ROWS


def zeros(rows):
    return np.zeros(len(rows))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("metric_params", [{"w": np.ones(2)}, {"w": np.ones(2) * 2}]),
        ("anomaly_log_density", [zeros, zeros]),  # as functions are never known again
    ],
)
def test_prepare__tells_values_from_each_other(tables, tmp_path, name, values):
    jobs = [score_job(**tables, output=tmp_path / "out", **{name: v}) for v in values]
    one, other = (Run.prepare(job).scoring.made_from for job in jobs)

    assert one.run != other.run
    assert one.differences(other) == OF_A_MODEL


def edit_settings(out, **changed):
    path = out / "_summary.json"
    summary = json.loads(path.read_text())
    summary["fingerprint"]["settings"] |= changed
    path.write_text(json.dumps(summary))


def test_run__is_finished_whatever_version_did_it(tables, tmp_path):
    job, out = score_job(**tables, output=tmp_path / "out"), tmp_path / "out"
    score_files(**tables, output=out)
    edit_settings(out, versions=["0.0.1", "2020.1.0"])

    assert Run.prepare(job).is_finished()
    next(out.glob("part-*")).unlink()
    with pytest.raises(FileExistsError, match="the versions of lpe_dask and Dask"):
        Run.prepare(job)


@pytest.mark.parametrize("n_parts", mostly_full([None, -1, "6"], ["6"]))
def test_score_files__does_not_believe_a_record_that_was_edited(tables, tmp_path, n_parts):
    score_files(**tables, output=tmp_path / "out")
    edit_settings(tmp_path / "out", n_parts=n_parts)

    with pytest.raises(FileExistsError, match="exists"):
        score_files(**tables, output=tmp_path / "out")


# Other files


def change_a_value(file):
    changed = pd.read_parquet(file)
    changed.iloc[5, 0] += 1
    changed.to_parquet(file)


def move_all_away(file):
    (pd.read_parquet(file) + 1000).to_parquet(file)


def add_a_row(file):
    """A row more changes the index of all."""
    longer = pd.concat([pd.read_parquet(file)] * 2, ignore_index=True)
    longer.iloc[: PART_ROWS + 1].to_parquet(file)


@pytest.mark.parametrize(
    ("change", "fdr", "n_written", "n_again"),
    mostly_full(
        [
            (change_a_value, None, 3, N_PARTS - 2),
            (change_a_value, 0.1, 3, N_PARTS - 2),
            (add_a_row, None, 3, N_PARTS),
            (add_a_row, 0.1, 3, N_PARTS),
            # What is flagged in each part follows from the p-values of all.
            (move_all_away, 0.3, N_PARTS + 2, 1),
        ],
        [(change_a_value, 0.1, 3, N_PARTS - 2), (add_a_row, None, 3, N_PARTS)],
    ),
)
def test_score_files__goes_on_with_the_parts_whose_rows_are_the_same(
    copies, tmp_path, monkeypatch, change, fdr, n_written, n_again
):
    given, out = {**copies, "n_neighbors": 5, "fdr": fdr}, tmp_path / "out"
    stop_run(n_written, **given, output=out)
    first = min(path.stem[5:] for path in out.rglob("part-*"))
    change(copies["data"] / f"{int(first)}.parquet")

    measured = count_calls(monkeypatch, parts, "_write_part")
    score_files(**given, output=out)

    assert len(measured) == n_again
    score_files(**given, output=tmp_path / "anew")
    assert parts_in(out) == parts_in(tmp_path / "anew")


#: What has changed, as an error says it.
CHANGES = {
    "2.parquet is changed": lambda data: change_a_value(data / "2.parquet"),
    "0.parquet is gone and 1 more": lambda data: (data / "0.parquet").rename(
        data / "a.parquet"
    ),
}


@pytest.mark.parametrize("words", CHANGES)
def test_score_files__does_not_replace_what_is_finished_if_the_input_changes(
    copies, tmp_path, words
):
    score_files(**copies, output=tmp_path / "out")
    before = parts_in(tmp_path / "out")
    CHANGES[words](copies["data"])

    with pytest.raises(FileExistsError, match=rf"{words}\).*--overwrite"):
        score_files(**copies, output=tmp_path / "out")

    assert parts_in(tmp_path / "out") == before


def test_score_files__does_not_replace_what_is_finished_if_files_come_in_another_order(
    copies, tmp_path
):
    given = {**copies, "data": sorted(map(str, copies["data"].glob("*.parquet")))}
    score_files(**given, output=tmp_path / "out")

    with pytest.raises(FileExistsError, match="the order of the input files"):
        score_files(**{**given, "data": given["data"][::-1]}, output=tmp_path / "out")


def damage_page(content):
    """Overwrite the first page of a Parquet file."""
    return content[:4] + bytes(60) + content[64:]


KINDS = {
    "parquet": (damage_page, "is damaged in row group 0, column 'x': "),
    "csv.gz": (lambda content: content[:-100], "is cut short or damaged"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_score_files__goes_on_when_a_damaged_file_is_mended(
    copies, tmp_path, monkeypatch, kind
):
    damaged, words = KINDS[kind]
    data, out = copies["data"], tmp_path / "out"
    (data / f"{N_PARTS - 1}.parquet").unlink()
    if kind == "csv.gz":
        for file in [*data.iterdir()]:
            pd.read_parquet(file).to_csv(file.with_suffix(".csv.gz"), index=False)
            file.unlink()
    given = {**copies, "n_neighbors": 5}
    stop_run(1, **given, output=out)
    (there,) = out.glob("part-*")
    file = data / f"{(int(there.stem[5:]) + 1) % (N_PARTS - 1)}.{kind}"
    whole, before = file.read_bytes(), there.stat().st_mtime_ns
    file.write_bytes(damaged(whole))
    os.utime(file, (1, 1))

    with pytest.raises(TableError, match=rf"{file} {words}") as raised:
        score_files(**given, output=out)

    if kind == "parquet":  # a CSV file is refused before anything is measured
        (note,) = raised.value.__notes__
        assert f"the same command resumes, and keeps the parts in file://{out} that" in note
    n_there = len(parts_in(out))
    file.write_bytes(whole)
    measured = count_calls(monkeypatch, parts, "_write_part")
    score_files(**given, output=out)
    assert len(measured) == N_PARTS - 1 - n_there < N_PARTS - 1
    assert there.stat().st_mtime_ns == before
    score_files(**given, output=tmp_path / "anew")
    pd.testing.assert_frame_equal(pd.read_parquet(out), pd.read_parquet(tmp_path / "anew"))


def test_score_files__of_rows_among_themselves_does_not_go_on_when_a_file_is_mended(
    tmp_path,
):
    """Each part came from all rows, and no error says that it is kept."""
    data, out = tmp_path / "data", tmp_path / "out"
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"id": np.arange(20.0), "x": rng.random(20)})
    write_files(rows, data, (0, 10, 20))
    file, given = data / "1.parquet", {"columns": ["x"], "n_neighbors": 3}
    whole = file.read_bytes()
    file.write_bytes(damage_page(whole))  # of what is carried over, which no fit reads

    with pytest.raises(TableError, match="column 'id'") as raised:
        score_files(data, out, **given)

    assert not getattr(raised.value, "__notes__", [])
    file.write_bytes(whole)
    os.utime(file, (1, 1))
    with pytest.raises(FileExistsError, match=f"differs in: .*, {OF_A_MODEL}"):
        score_files(data, out, **given)


@pytest.mark.parametrize("is_saved", [True, False])
def test_fit__begins_anew_when_damaged_nominal_rows_are_mended(copies, tmp_path, is_saved):
    def fit():
        if is_saved:
            return Run.prepare(fit_job(copies["nominal"], tmp_path / "model")).execute()
        return score_files(**copies, output=tmp_path / "out")

    file = copies["nominal"] / "1.parquet"
    whole = file.read_bytes()
    file.write_bytes(damage_page(whole))
    with pytest.raises(TableError, match=r"1.parquet is damaged in row group 0"):
        fit()
    file.write_bytes(whole)

    assert fit()["nominal_rows"] == N_NOMINAL


@pytest.mark.parametrize("which", mostly_full(["data", "nominal"], ["data"]))
def test_score_files__notices_files_that_change_while_it_reads(
    tables, copies, tmp_path, monkeypatch, which
):
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

    move_all_away(file)
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
    names = [f"{name}.{ending}" for name in ("day#id=3", "1:3@here", "1:4@here", "a?b=c")]
    for name in names:
        getattr(rows, f"to_{ending}")(data / name, index=False)
    summary = lpe_dask.score_files(
        data, tmp_path / "out", nominal=data / names[0], n_neighbors=3
    )

    assert len(pd.read_parquet(tmp_path / "out")) == 80
    assert {Path(name).name for name, *_ in summary["fingerprint"]["data"]} == set(names)

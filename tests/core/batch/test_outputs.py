"""Folders of outputs: which are refused, which are replaced, and what is left in them."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lpe_dask
from lpe_dask.batch.api import score_files
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.parts import PartFolder
from lpe_dask.storage import Folder


@pytest.fixture(autouse=True)
def nominal_folder(scored_files):
    Path("nominal").mkdir()
    shutil.move("nominal.parquet", "nominal/a.parquet")


def score(output="out", **given):
    return score_files(**{"data": "data", "output": output, "nominal": "nominal"} | given)


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


# Folders that are not taken


@pytest.mark.parametrize(
    ("output", "given"),
    [
        ("data", {}),
        ("data/scores", {}),
        (".", {}),
        ("nominal", {}),
        ("nominal", {"nominal": "nominal/*"}),
        ("nominal/out", {"nominal": "nominal/*"}),
        ("nominal", {"nominal": "*/a.parquet"}),
        ("out", {"nominal": "[no]*/*.parquet"}),  # which would find its parts
        ("out", {"data": "*/*.parquet"}),
        ("model/out", {"nominal": None, "model": "model"}),
    ],
)
def test_score_files__refuses_an_output_in_the_way_of_its_input(output, given):
    before = sorted(Path().rglob("*"))

    with pytest.raises(ValueError, match="overlap: one is the other"):
        score(output, **given, overwrite=True)

    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("name", ["", " "])
def test_score_files__refuses_an_output_without_a_name(name):
    with pytest.raises(ValueError, match="the output has no name"):
        score(name)


JOB = """
[nominal]
data = "nominal"
[model]
path = "{model}"
[score]
data = "data"
output = "out/a"
"""


@pytest.mark.parametrize("model", ["nominal", "nominal/model", ".", "out/a/model", "out/a"])
def test_run__refuses_a_model_in_the_way(model):
    Path("job.toml").write_text(JOB.format(model=model))

    with pytest.raises(ValueError, match="overlap: one is the other"):
        lpe_dask.run("job.toml")

    assert not Path("out").exists()


def test_score_files__takes_an_output_beside_the_files_of_a_glob():
    assert score("data/scores", data="data/*.parquet")["rows"] == 10


def test_score_files__refuses_an_output_it_cannot_write():
    Path("file").touch()

    with pytest.raises(OSError, match=r"nothing can be written to the output .*file/out"):
        score("file/out")
    with pytest.raises(FileExistsError, match="is a file"):
        score("file", overwrite=True)


FOREIGN = {
    "notes.txt": Path.touch,
    "folder": Path.mkdir,
    ".hidden": Path.touch,
    "part.0.parquet": Path.touch,
    # A table of somebody else's may be named like a part.
    "part-00000.parquet": lambda path: pd.DataFrame({"x": [1.0]}).to_parquet(path),
    "part-00001.parquet": lambda path: path.write_bytes(b"something else"),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("overwrite", [False, True])
def test_score_files__replaces_nothing_that_no_run_wrote(name, overwrite):
    Path("out/lost+found").mkdir(parents=True)
    FOREIGN[name](Path("out", name))

    with pytest.raises(FileExistsError, match=f"files that are not the output .*: {name}"):
        score(overwrite=overwrite)

    assert names_in("out") == sorted(["lost+found", name])


# Folders that are


@pytest.mark.parametrize("names", [[], ["lost+found"], ["_lock.json"]])
def test_score_files__takes_an_empty_folder_and_leaves_it_if_it_fails(names):
    """It may be a mounted volume, or of a run that was killed before anything else."""
    Path("out").mkdir()
    for name in names:
        Path("out", name).touch() if "_" in name else Path("out", name).mkdir()
        os.utime(Path("out", name), (1, 1))
    pd.DataFrame({"x": [np.nan, 1.0], "y": 1.0}).to_parquet("gaps.parquet")
    kept = [name for name in names if name != "_lock.json"]

    for _ in range(2):
        with pytest.raises(ValueError, match="NaN or inf"):
            score(nominal="gaps.parquet")
        assert names_in("out") == kept
    assert score()["rows"] == 10
    assert {*kept} <= {*names_in("out")}


def test_score_files__replaces_an_earlier_output_whole():
    score()
    Path("out/.part-00007.parquet.0123.tmp").touch()
    with pytest.raises(FileExistsError, match=r"exists.*--overwrite"):
        score()

    assert score(data="data/0.parquet", overwrite=True)["rows"] == 4

    names = [
        "_metrics.prom",
        "_reasons.pqt",
        "_report.html",
        "_summary.json",
        "part-00000.parquet",
    ]
    assert names_in("out") == names
    assert len(pd.read_parquet("out")) == 4


def test_score_files__spares_an_earlier_output_until_the_nominal_rows_are_fitted():
    score()
    before = {path: path.read_bytes() for path in Path("out").iterdir()}

    with pytest.raises(ValueError, match="n_neighbors=40"):
        score(n_neighbors=40, overwrite=True)

    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


@pytest.mark.parametrize("name", ["publish", "read_stats"])
def test_score_files__says_that_its_output_was_removed(tmp_path, caplog, name):
    """And nothing of another run, or of parts that are complete."""
    function = getattr(PartFolder, name)

    def remove(*arguments):
        shutil.rmtree("out", ignore_errors=True)
        return function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartFolder, name, remove)
        with pytest.raises(RunError) as raised:
            score()

    assert re.fullmatch(
        rf"the run stopped while it scored, as file://{tmp_path}/out was removed, or the "
        r"lock in it \(_lock.json\)\. Start the same run again.*", str(raised.value)
    )  # fmt: skip
    assert "lock" not in caplog.text
    assert score()["rows"] == 10


def test_score_files__whose_storage_fails_says_that_parts_are_kept(monkeypatch):
    """And not that somebody has removed them, where it cannot look."""

    def refuse(*arguments):
        raise PermissionError("no access")

    def fail(*arguments):
        patch.setattr(Folder, "exists", refuse)
        refuse()

    with monkeypatch.context() as patch:
        patch.setattr(PartFolder, "publish", fail)
        with pytest.raises(RunError, match=r"no access\. The parts that are .* complete"):
            score()

    assert score()["rows"] == 10

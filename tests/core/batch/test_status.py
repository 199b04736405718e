"""How far a run is, told from its output alone."""

import re
import shutil

import dask
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from lpe_dask.batch import parts
from lpe_dask.batch.api import score_files
from lpe_dask.batch.errors import RunError
from lpe_dask.batch.status import read_status
from lpe_dask.cli import commands
from lpe_dask.storage.lock import locked

N_PARTS = 4


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (40, 2)) * 1.0)
    rows.columns = ["x", "y"]
    (tmp_path / "rows").mkdir()
    for i in range(N_PARTS):
        rows[10 * i : 10 * i + 10].to_parquet(tmp_path / f"rows/{i}.parquet")
    with dask.config.set(scheduler="sync"):
        yield "rows"


def stop_at(monkeypatch, function, number):
    """Let a function of `parts` fail the time that has this number."""
    whole, calls = getattr(parts, function), []

    def stopping(*args):
        calls.append(args)
        if len(calls) > number:
            raise KeyError("stopped")
        return whole(*args)

    monkeypatch.setattr(parts, function, stopping)


def invoke(output):
    result = CliRunner().invoke(commands.cli, ["status", output])
    return result.exit_code, result.stdout.strip()


def test_status__of_a_run_that_is_done(table):
    summary = score_files(table, "out")

    assert invoke("out") == (
        0,
        f"done: 40 rows are scored, {summary['flagged']} of them flagged, in "
        f"{summary['seconds']:.1f} s.",
    )


def test_status__of_a_run_that_was_interrupted(table, monkeypatch):
    stop_at(monkeypatch, "_write_part", 3)
    with pytest.raises(RunError):
        score_files(table, "out")

    code, text = invoke("out")
    assert code == 1
    assert text.startswith("interrupted: 3 of 4 parts are written. Start the same run")


def test_status__of_a_run_with_a_rate(table, monkeypatch):
    stop_at(monkeypatch, "_decide_part", 1)
    with pytest.raises(RunError):
        score_files(table, "out", fdr=0.1)

    text = "interrupted: 4 of 4 parts are measured. 1 of 4 parts are written."
    assert invoke("out")[1].startswith(text)


def test_status__of_a_run_that_is_running(table, monkeypatch):
    found = []
    whole = parts._write_part

    def looking(*args):
        found.append(invoke("out"))
        return whole(*args)

    monkeypatch.setattr(parts, "_write_part", looking)
    score_files(table, "out")

    assert [code for code, _ in found] == [75] * N_PARTS
    said = [text.partition(" By process ") for _, text in found]
    assert [text for text, _, _ in said] == [
        f"running: {n} of 4 parts are written." for n in range(N_PARTS)
    ]
    assert all(re.search(r"its last heartbeat was \d s ago", who) for _, _, who in said)


def test_status__of_a_run_that_is_fitting(table):
    with locked("out", "score a table"):
        state = read_status("out")

    assert state.state == "running"
    assert state.text.startswith("The model is being fitted, and no rows are scored yet.")


@pytest.mark.parametrize("place", ["nowhere", "rows", "empty"])
def test_status__of_what_is_no_output(table, tmp_path, place):
    (tmp_path / "empty").mkdir()

    result = CliRunner().invoke(commands.cli, ["status", place])

    assert result.exit_code == 2
    assert f"there is no output of a run at {place}" in result.stderr


def test_status__of_a_run_that_begins_anew_is_not_that_of_the_earlier(table, monkeypatch):
    score_files(table, "out")
    shutil.copytree("out", "before")
    stop_at(monkeypatch, "_write_part", 1)
    with pytest.raises(RunError):
        score_files(table, "out", overwrite=True)

    assert read_status("out").state == "interrupted"
    assert read_status("before").state == "done"

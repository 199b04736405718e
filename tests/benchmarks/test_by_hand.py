"""Benchmarks that the documents name and that are run by hand: they run, small."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import categories, first_minute
from benchmarks.children import environment


def start(module, folder, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{module}", "--folder", str(folder)]
    command += map(str, arguments)
    done = subprocess.run(command, env=environment(2), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_forecasts__tell_what_was_foreseen_and_measured(tmp_path):
    said = start("forecasts", tmp_path, "--rows", 2000, "--scheduler", "threads")

    assert said.count("| one Gaussian | 2,000 |") == 2
    assert said.count("| 20 clusters | 2,000 |") == 2


def test_categories__are_timed_beside_numbers(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.random(300), "label": "normal", "part": "train"})
    table[categories.CATEGORICAL] = rng.choice(["a", "b"], (300, 3))
    table.to_parquet(tmp_path / "kdd99.parquet")
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))

    done = CliRunner().invoke(categories.main, ["--rows", "200", "--repeats", "1"])

    first, second = done.output.splitlines()
    assert first.startswith("38     columns, brute: ")
    assert first.endswith(" s, 1.00")
    assert second.startswith("38 + 3 columns, brute: ")


def test_first_minute__times_each_run():
    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])

    assert done.exit_code == 0, done.output
    _, _, *lines = done.output.splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        f"| {run.label}" for run in first_minute.RUNS
    ]
    assert lines[0].endswith(" | 1.00 |  |")


def test_first_minute__names_the_run_that_failed(monkeypatch):
    broken = first_minute.Run("broken", ("-c", "raise OSError('no such thing')"))
    monkeypatch.setattr(first_minute, "RUNS", (broken,))

    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])

    assert done.exit_code == 1
    assert "broken failed: " in done.output
    assert "no such thing" in done.output

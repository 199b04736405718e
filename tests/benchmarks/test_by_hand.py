"""Benchmarks that the documents name and that are run by hand: they run, small."""

import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import approximate, categories, lists
from benchmarks.children import environment
from indexes import right_lists


def start(module, folder, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{module}", "--folder", str(folder)]
    command += map(str, arguments)
    done = subprocess.run(command, env=environment(2), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.cluster
def test_spooled__measures_against_rows_on_storage(tmp_path):
    said = start("spooled", tmp_path, "--rows", 20_000, "--queries", 50)

    assert "reference: 20000 x 256" in said
    assert "bits of a radius checked: True" in said
    assert "no worker restarted: True" in said
    assert "left of the spool: []" in said


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


@pytest.mark.slow
def test_approximate__tells_errors_and_seconds(tmp_path):
    cell = ["--kind", "embeddings", "--rows", 3000, "--columns", 16, "--new", 200]

    said = start("approximate", tmp_path, *cell, "--contender", "nn_descent")
    again = start("approximate", tmp_path, *cell)

    (line,) = [line for line in again.splitlines() if "| nn_descent |" in line]
    assert line in said
    assert line.count("| 0, 0 |") == 2, "no alarm is missed or invented"
    assert "| embeddings, 3,000 x 16, 200 new | exact |" in again


def test_approximate__compares_p_values():
    calibration = np.array([1.0, 2.0, 2.0, 4.0])
    exact = approximate.p_values(np.array([0.5, 2.0, 2.5, 5.0]), calibration)
    assert exact.tolist() == [1.0, 0.75, 0.25, 0.0]

    told = approximate.compared(np.array([1.0, 0.04, 0.245, 0.06]), exact)

    assert told["missed"] == 1
    assert told["invented"] == 1
    assert told["off"] == 0.5
    assert told["largest"] == pytest.approx(0.71)


def test_lists__tell_of_what_share_the_kth_nearest_is_known():
    rows = np.random.default_rng(0).standard_normal((900, 3))
    right = right_lists(rows)

    assert lists.found_share(rows, right) == 1.0
    assert lists.found_share(rows, right[:, 1:21]) == 1.0
    assert lists.found_share(rows, right[:, :20]) == 0.0  # with themselves: 19 others
    right[::2, 5] = -1
    assert 0.4 < lists.found_share(rows, right[:, 1:21]) < 0.6


def test_lists__tell_what_memory_is_taken():
    with lists.added_bytes() as peaks:
        taken = np.ones(8_000_000)
        time.sleep(0.2)

    assert taken.nbytes * 0.9 < peaks[0] < taken.nbytes * 1.5

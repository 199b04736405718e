"""Benchmarks that the documents name and that are run by hand: they run, small."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import categories, first_minute, forecasts, gaps


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


def test_first_minute__times_each_run_and_names_what_failed(monkeypatch):
    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])

    assert done.exit_code == 0, done.output
    lines = [line.split(" | ") for line in done.output.splitlines()[2:-1]]
    assert [line[0] for line in lines] == [f"| {label}" for label in first_minute.RUNS]
    assert lines[0][-1] == "1.00 |"
    broken = {"broken": ["-c", "raise OSError('no such thing')"]}
    monkeypatch.setattr(first_minute, "RUNS", broken)
    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])
    assert done.exit_code == 1
    assert "broken failed: " in done.output
    assert "no such thing" in done.output


@pytest.mark.slow
def test_forecasts__are_shown_beside_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(forecasts, "CASES", (("gaussian", "brute"),))
    monkeypatch.setattr(forecasts, "NEIGHBORS", (20,))

    given = ["--folder", tmp_path, "--rows", 1000, "--scheduler", "threads"]
    done = CliRunner().invoke(forecasts.main, list(map(str, given)))

    assert done.exit_code == 0, done.output
    assert "| one Gaussian | 1,000 | 20 | brute |" in done.output


def test_gaps__are_counted_by_rows_and_reasons(monkeypatch):
    monkeypatch.setattr(gaps, "N_NOMINAL", 60)
    monkeypatch.setattr(gaps, "N_NEW", 2000)

    done = CliRunner().invoke(gaps.main, ["--sets", "2", "--alpha", "0.9"])

    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split(":")[0] for line in lines] == [*gaps.REASONS]
    assert all("all: 0." in line and "1 gaps" in line for line in lines)

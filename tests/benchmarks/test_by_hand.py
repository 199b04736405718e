"""Benchmarks that the documents name and that are run by hand: they run, small."""

import numpy as np
import pandas as pd
from click.testing import CliRunner

from benchmarks import categories, first_minute


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
    lines = done.output.splitlines()[2:-1]
    labels = [f"| {run.label}" for run in first_minute.RUNS]
    assert [line.split(" | ")[0] for line in lines] == labels
    assert lines[0].endswith(" | 1.00 |  |")


def test_first_minute__names_the_run_that_failed(monkeypatch):
    broken = first_minute.Run("broken", ("-c", "raise OSError('no such thing')"))
    monkeypatch.setattr(first_minute, "RUNS", (broken,))

    done = CliRunner().invoke(first_minute.main, ["--repeats", "1"])

    assert done.exit_code == 1
    assert "broken failed: " in done.output
    assert "no such thing" in done.output

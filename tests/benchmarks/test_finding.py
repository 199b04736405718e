"""What the benchmark of finding anomalies counts, on small tables."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import finding


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder with two small tables, in the form of the public ones."""
    rng = np.random.default_rng(0)
    (tmp_path / "adbench").mkdir()
    rows = np.vstack([rng.standard_normal((120, 3)), rng.uniform(4, 8, (10, 3))])
    np.savez(tmp_path / "adbench" / "7_made.npz", X=rows, y=np.arange(130) >= 120)
    table = pd.DataFrame({"count": rng.integers(0, 9, 400), "rate": rng.random(400)})
    table["part"] = np.repeat(["train10pct", "test_corrected"], 200)
    table["label"] = np.where(np.arange(400) % 200 < 150, "normal", "smurf")
    is_normal = table["label"] == "normal"
    table.loc[~is_normal, ["count", "rate"]] = [8, 0.5]
    table["protocol_type"] = np.where(is_normal, "tcp", "icmp")
    table["service"] = rng.choice(["http", "smtp"], 400)
    table["flag"] = "SF"
    table = table.astype(dict.fromkeys(finding.CATEGORIES, "category"))
    table.to_parquet(tmp_path / "kdd99.parquet")
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))
    return tmp_path


def test_of_kdd__counts_rows_that_repeat(tables):
    problem = finding.of_kdd(100, seed=0)

    assert problem.nominal.shape == (100, 5)
    assert problem.counts.sum() == 200
    assert problem.counts[problem.is_anomaly].sum() == 50
    assert problem.is_anomaly.sum() == 2, "attacks differ in their service only"
    np.testing.assert_array_equal(
        problem.rows["protocol_type"] == "icmp", problem.is_anomaly
    )


def test_problem__weighs_rows_by_how_often_they_occur():
    rows = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    problem = finding.Problem(
        "made", rows, rows, np.array([False, True, True]), np.array([1, 3, 1])
    )

    measures = problem.measures(np.array([1.0, 2.0, 0.0]), np.array([0.0, 0.01, 0.02]))

    assert measures == {"area": 0.75, "found": 0.75, "false alarms": 1.0}


def test_of_table__fits_and_judges_each_row_once(tables):
    problem = finding.of_table(tables / "adbench" / "7_made.npz", "made", seed=0)

    assert len(problem.nominal) == 60
    assert problem.is_anomaly.sum() == 10
    together = pd.concat([problem.nominal, problem.rows])
    with np.load(tables / "adbench" / "7_made.npz") as file:
        assert sorted(together[0]) == sorted(file["X"][:, 0])


def test_main__prints_what_everyone_finds(tables):
    done = CliRunner().invoke(
        finding.main, ["--kdd-rows", "100", "--output", str(tables / "found.csv")]
    )

    assert done.exit_code == 0, (done.output, done.exception)
    found = pd.read_csv(tables / "found.csv")
    assert set(found["set"]) == {"made", finding.KDD}
    assert found.groupby(["set", "label", "K"]).size().max() == 1
    of_made = found[found["set"] == "made"].set_index(["label", "K"])["area"]
    assert of_made["standard, mean", "5"] == 1.0, "anomalies are far out"
    of_kdd = found[found["set"] == finding.KDD].set_index(["label", "K"])["found"]
    assert of_kdd["minmax, kth", "10"] == 0.0, "their numbers are ordinary"
    assert of_kdd["minmax, kth, categories", "10"] == 1.0
    for label in found["label"].unique():
        assert f"| {label} |" in done.output


def test_main__tells_which_tables_are_missing(tables):
    (tables / "kdd99.parquet").unlink()

    made = CliRunner().invoke(finding.main, [])
    none = CliRunner().invoke(finding.main, ["--only", "cardoi"])

    assert made.exit_code == 0
    assert "kdd99.parquet" in made.stderr
    assert "| standard, mean |" in made.stdout
    assert none.exit_code == 2
    assert "cardoi" in none.output

"""The benchmark of scales: its tables are what they say, and it runs, small."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks import mixed_tables, scales
from benchmarks.finding import Problem


def test_mixed_problems__plant_anomalies_of_one_cause():
    found = [*mixed_tables.mixed_problems(400, 0)]

    assert len(found) == 2 * 5 * 3
    assert len({problem.name for _, _, problem in found}) == len(found)
    for cause, share, problem in found:
        assert problem.is_anomaly.sum() == 20
        assert (len(problem.nominal), len(problem.rows)) == (400, 420)
        if cause == "categories":
            column = "channel" if "channel" in problem.rows else "service"
            is_new = problem.rows[column] == "never seen"
            np.testing.assert_array_equal(is_new, problem.is_anomaly)
            assert (problem.nominal[column] == "never seen").mean() == share


def made(nominal, rows):
    return Problem(
        "made", pd.DataFrame(nominal), pd.DataFrame(rows), np.array([True]), np.ones(1),
        ["flag"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("robust", [(9 - 2) / (2 / 1.349), 1.0, 1.0]),
        ("asinh of robust", [np.arcsinh((9 - 2) / (2 / 1.349)), 1.0, 1.0]),
        ("standard, weighted", [(9 - 2) / np.sqrt(2), 1.0, 2.5 / (2 * 0.2 * 0.8)]),
    ],
)
def test_applied__learns_from_nominal_rows_alone(name, expected):
    problem = made(
        {"x": [0.0, 1.0, 2.0, 3.0, 4.0], "flag": [True] + 4 * [False]},
        {"x": [9.0], "flag": [False]},
    )

    _, rows, weights = scales.applied(scales.CANDIDATES[name], problem)

    assert [rows["x"][0], *weights] == pytest.approx(expected)


def test_main__prints_what_each_candidate_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(mixed_tables, "CONTAMINATIONS", (0.0, 0.02))
    monkeypatch.setattr(mixed_tables, "CAUSES", {"tails": mixed_tables.CAUSES["tails"]})
    done = CliRunner().invoke(
        scales.main,
        ["--only=mixed", "--rows=200", "--seeds=1", f"--output={tmp_path / 'found.csv'}"],
    )

    assert done.exit_code == 0, (done.output, done.exception)
    found = pd.read_csv(tmp_path / "found.csv")
    assert found.groupby(["set", "candidate"]).size().tolist() == [1] * 4 * 11
    far_out = found[found["set"].str.startswith("orders, tails, 0.0%")]
    assert far_out.set_index("candidate")["area"]["standard"] > 0.95
    for name in scales.CANDIDATES:
        assert done.stdout.count(f"| {name} |") == 3


def test_problems__of_public_tables(data_folder):
    assert len([*scales.problems("adbench", 0, 0)]) == 8
    ((name, *_, problem),) = scales.problems("kdd", 0, 0)
    assert name == "KDD-99"
    assert len(problem.nominal) == scales.KDD_ROWS

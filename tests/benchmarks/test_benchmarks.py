"""The suite runs, small, and does not let a wrong result count."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features

import definitions
from benchmarks import checks, measure, shapes, worker
from benchmarks.cases import GROUPS, QUICK_ROWS, Case, Run, Target
from benchmarks.contenders import CONTENDERS, PEERS
from benchmarks.contract import Problem, installed_version
from benchmarks.data import SOURCES
from benchmarks.report import grade, report
from benchmarks.worker import FOREIGN, environment, without_avx512

ALL_CASES = {case.name: case for group in GROUPS for case in group.cases}

LATTICE = np.random.default_rng(0).integers(-3, 4, (40, 3)) * 0.1
RADII = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)


@pytest.fixture
def problem(tmp_path):
    """K = 4 on the lattice."""
    np.save(tmp_path / "rows.npy", LATTICE)
    return Problem(tmp_path, 4)


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The case with the most peers, run as users run it: its record."""
    folder = tmp_path_factory.mktemp("quick")
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "gaussian-d8-n100k"]
    done = subprocess.run(
        [*command, "--repeats", "2", "--output", folder],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| one Gaussian | 1,000 | 8 | 20 |" in (folder / "report.md").read_text()
    return json.loads((folder / "results.json").read_text())["gaussian-d8-n100k"]


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lpe_dask", *PEERS])
def test_benchmarks__time_the_library_and_each_peer_that_is_installed(quick_run, label):
    if label in PEERS and installed_version(PEERS[label].distribution) is None:
        pytest.skip(f"{PEERS[label].distribution} is not installed")

    assert len(quick_run["runs"][label]["seconds"]) == 2


def measured(case, n_repeats=1):
    """Measurements of each run of a case."""
    return measure.measure(case, n_repeats)["runs"]


def test_measure__takes_a_share_of_the_rows_where_all_take_too_long(monkeypatch):
    monkeypatch.setattr(measure, "PILOT_ROWS", 10)
    monkeypatch.setattr(measure, "SHARE_ROWS", 100)
    monkeypatch.setattr(measure, "LIMIT", 0.0)

    found = measured(Case("tiny", "clusters", 400, 3, (Run("", "scikit-learn"),)), 2)[""]

    assert found["share"] == 0.25
    assert len(found["seconds"]) == 1, "what is beyond the limit is not repeated"


@pytest.mark.parametrize(
    ("contender", "n_queries"),
    [("fit", 0), ("bare kernel", 0), ("predict", 50), ("score", 0)],
)
def test_measure__times_each_way_of_ours(contender, n_queries):
    run = Run("ours", contender, 5, {"alpha": 0.1} if n_queries else {})

    found = measured(Case("tiny", "clusters", 400, 3, (run,), n_queries=n_queries))["ours"]

    assert "failed" not in found
    assert len(found["seconds"]) == 1


def test_measure__goes_on_after_a_failure(monkeypatch, tmp_path):
    said = {
        "crash": "terminated abruptly", "wrong": "wrong result", "too few": "n_neighbors"
    }  # fmt: skip
    runs = (
        Run("crash", "score"), Run("wrong", "bare kernel"), Run("right", "scikit-learn"),
        Run("too few", "scikit-learn", -2),
    )  # fmt: skip
    monkeypatch.setattr(measure, "time_once", _fail)

    found = measured(Case("tiny", "gaussian", 200, 2, runs))

    for name, message in said.items():
        assert message in found[name]["failed"]
        assert found[name]["seconds"] == []
    assert len(found["right"]["seconds"]) == 1
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))
    record = measure.measure(ALL_CASES["http"].shrunk(), 1)
    assert "16_http.npz" in record["missing"]


def _fail(contender, problem):
    """Time a contender, but let some of them crash or give wrong results."""
    if contender == "score":
        os._exit(1)
    measured = worker.time_once(contender, problem)
    if contender == "bare kernel":
        return measured._replace(result=measured.result + 1)
    return measured


def test_cases__name_what_there_is():
    assert len(ALL_CASES) == sum(len(group.cases) for group in GROUPS)
    for case in ALL_CASES.values():
        labels = [run.label for run in case.runs]
        assert len({*labels}) == len(labels)
        assert case.source in SOURCES
        assert {run.contender for run in case.runs} <= CONTENDERS.keys()
        assert {name for target in case.targets for name in target.runs} <= {*labels[1:]}
        assert max(run.n_neighbors for run in case.runs) < case.shrunk().n_rows


#: What is made by formula, and its columns where there is no choice.
MADE = {name: {"one-hot": 60, "mixed": 34}.get(name, 12) for name in (
    "gaussian", "clusters", "one-hot", "mixed", "flags", "whole-numbers", "log-normal",
    "heavy-tailed", "constant-columns", "in-time", "repeats", "half-equal",
)}  # fmt: skip


def test_sources__give_what_they_are_called():
    for source, n_features in MADE.items():
        rows = SOURCES[source].rows(QUICK_ROWS, n_features)
        assert (rows.shape, rows.dtype) == ((QUICK_ROWS, n_features), np.float32)
        np.testing.assert_array_equal(rows, SOURCES[source].rows(QUICK_ROWS, n_features))
    assert {*np.unique(shapes.flags(400, 40))} == {0, 1}
    for make, n_different in ((shapes.repeats, 2800), (shapes.half_equal, 2000)):
        assert len(np.unique(make(4000, 12), axis=0)) == pytest.approx(n_different, abs=150)


def test_knn_radii__equals_definition():
    own = np.arange(0, 40, 3)

    left_out = checks.knn_radii(LATTICE[own], LATTICE, 4, own)
    new = checks.knn_radii(LATTICE + 0.05, LATTICE, 4)

    np.testing.assert_array_equal(left_out, RADII[own])
    np.testing.assert_array_equal(new, definitions.knn_radii(LATTICE + 0.05, LATTICE, 4))


@pytest.mark.parametrize("expected", [None, RADII], ids=["definition", "first result"])
def test_radii__are_off_by_no_more_than_their_check_allows(problem, expected):
    sampled = replace(problem, n_sample=20)
    off = np.where(np.arange(40) == 3, 1.02 * RADII, RADII)

    checks.check_radii(RADII, problem, expected, 0.0)
    checks.check_radii(RADII[sampled.numbers] * 1.0009, sampled, expected, 1e-3)
    assert checks.share_off(off, problem, expected) == {"off": 1 / 40}
    with pytest.raises(AssertionError):
        checks.check_radii(np.nextafter(RADII, 1.0), problem, expected, 0.0)
    with pytest.raises(AssertionError):
        checks.check_radii(RADII[sampled.numbers] * 1.0011, sampled, expected, 1e-3)


def test_check_order__refuses_a_larger_p_value_farther_out(problem):
    p_values = np.array([definitions.knn_p_value(radius, RADII) for radius in RADII])
    checks.reorder_params(p_values, problem)

    p_values[np.argmax(RADII)] = 0.5

    with pytest.raises(AssertionError):
        checks.reorder_params(p_values, problem)


def test_environment__holds_nobody_to_another_machine(monkeypatch):
    for name in FOREIGN:
        monkeypatch.setenv(name, "Haswell")

    variables, features = environment(2), without_avx512()["NUMBA_CPU_FEATURES"].split(",")

    assert variables.get("OPENBLAS_CORETYPE", "SkylakeX") == "SkylakeX"
    assert "OPENBLAS_L2_SIZE" not in variables
    assert variables["OMP_NUM_THREADS"] == "2"
    assert not [name for name in features if name.startswith(("+avx512", "+amx"))]
    assert ("+avx2" in features) == get_host_cpu_features()["avx2"]


@pytest.mark.parametrize(
    ("target", "measured"),
    [(Target((), 3.0, 5.0), (2.9, 3, 5)), (Target((), 2.0, 1.5), (2.1, 2, 1.5))],
)
def test_grade__knows_which_way_is_up(target, measured):
    assert [grade(value, target) for value in measured] == ["✗", "✓", "✓✓"]


def test_report__has_times_ratios_and_grades():
    case = ALL_CASES["gaussian-d16-n100k"]
    found = {"seconds": [2.0], "share": 1.0}
    runs = {run.label: found for run in case.runs}
    runs["faiss"] = {"seconds": [4.0], "share": 0.5, "off": 0.1}
    record = {
        "n_rows": 100_000, "n_features": 16, "quick": False, "repeats": 1,
        "date": "2020-01-01", "machine": {"processor": "abacus"}, "runs": runs,
    }  # fmt: skip

    text = report({case.name: record, "http": record | {"runs": {}, "missing": "no data"}})

    line = "| one Gaussian | 100,000 | 16 | "
    assert line + "faiss / lpe_dask | 2.00 | ≥ 1.5 | 2.5 | ✓ |" in text
    assert line + "scikit-learn / lpe_dask | 1.00 | ≥ 2 | 4 | ✗ |" in text
    assert line + "20 | 2 | 4\\* (2.00), 10.0% off | 2 (1.00) |" in text
    assert "- http: no data" in text
    assert "- processor: abacus" in text

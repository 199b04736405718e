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
from benchmarks.worker import FOREIGN, Processes, environment, without_avx512

ALL_CASES = {case.name: case for group in GROUPS for case in group.cases}

LATTICE = np.random.default_rng(0).integers(-3, 4, (40, 3)) * 0.1
RADII = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)
NEW_RADII = definitions.knn_radii(LATTICE + 0.05, LATTICE, 4)


@pytest.fixture
def problem(tmp_path):
    """K = 4 on the lattice."""
    np.save(tmp_path / "rows.npy", LATTICE)
    return Problem(tmp_path, 4)


@pytest.fixture
def processes():
    with Processes() as processes:
        yield processes


def p_values_of(radii):
    return np.array([definitions.knn_p_value(radius, RADII) for radius in radii])


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The case with the most peers, run as users run it: its record."""
    folder = tmp_path_factory.mktemp("quick")
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "gaussian-d8"]
    done = subprocess.run(
        [*command, "--repeats", "2", "--output", folder],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| one Gaussian | 1,000 | 8 | 20 |" in (folder / "report.md").read_text()
    return json.loads((folder / "results.json").read_text())["gaussian-d8"]


@pytest.mark.slow
@pytest.mark.parametrize("label", ["lpe_dask", *PEERS])
def test_benchmarks__time_the_library_and_each_peer_that_is_installed(quick_run, label):
    if label in PEERS and installed_version(PEERS[label].distribution) is None:
        pytest.skip(f"{PEERS[label].distribution} is not installed")

    assert len(quick_run["runs"][label]["seconds"]) == 2


def test_measure__takes_a_share_of_the_rows_where_all_take_too_long(processes, monkeypatch):
    monkeypatch.setattr(measure, "PILOT_ROWS", 10)
    monkeypatch.setattr(measure, "SHARE_ROWS", 100)
    monkeypatch.setattr(measure, "LIMIT", 0.0)
    case = Case("tiny", "clusters", 400, 3, (Run("cKDTree", "cKDTree"),))

    found = measure.measure(case, processes, 2)["runs"]["cKDTree"]

    assert found["share"] == 0.25
    assert len(found["seconds"]) == 1, "what is beyond the limit is not repeated"


@pytest.mark.parametrize(
    ("contender", "source", "n_queries"),
    [("fit", "clusters", 0), ("bare kernel", "gaussian", 0), ("predict", "gaussian", 50)],
)
def test_measure__times_each_way_of_ours(processes, contender, source, n_queries):
    runs = (Run("ours", contender, 5, {"alpha": 0.1} if n_queries else {}),)
    case = Case("tiny", source, 400, 3, runs, n_queries=n_queries)

    found = measure.measure(case, processes, 1)["runs"]["ours"]

    assert "failed" not in found
    assert len(found["seconds"]) == 1


def test_measure__goes_on_after_a_failure(processes, monkeypatch):
    crash = (Run("crash", "scikit-learn"), "terminated abruptly")
    wrong = (Run("wrong", "bare kernel"), "wrong result")
    too_many = (Run("too many", "cKDTree", n_neighbors=-2), "ValueError")
    runs = (crash[0], wrong[0], too_many[0], Run("right", "cKDTree"))
    monkeypatch.setattr(measure, "time_once", _fail)

    found = measure.measure(Case("tiny", "gaussian", 200, 2, runs), processes, 1)["runs"]

    for run, message in (crash, wrong, too_many):
        assert message in found[run.label]["failed"]
        assert found[run.label]["seconds"] == []
    assert len(found["right"]["seconds"]) == 1


def _fail(contender, problem):
    """Time a contender, but let some of them crash or give wrong results."""
    if contender == "scikit-learn":
        os._exit(1)
    measured = worker.time_once(contender, problem)
    if contender == "bare kernel":
        return measured._replace(result=measured.result + 1)
    return measured


def test_measure__says_which_table_is_missing(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))

    record = measure.measure(ALL_CASES["http"].shrunk(), processes, 1)

    assert "16_http.npz" in record["missing"]


def test_cases__name_what_there_is():
    assert len(ALL_CASES) == sum(len(group.cases) for group in GROUPS)
    for case in ALL_CASES.values():
        labels = [run.label for run in case.runs]
        assert len({*labels}) == len(labels)
        assert case.source in SOURCES
        assert {run.contender for run in case.runs} <= CONTENDERS.keys()
        assert {name for target in case.targets for name in target.runs} <= {*labels[1:]}
        assert max(run.n_neighbors for run in case.runs) < case.shrunk().n_rows


#: Features by source.
MADE = {
    "gaussian": 6, "clusters": 6, "one-hot": 60, "mixed": 34, "flags": 12,
    "whole-numbers": 12, "log-normal": 12, "heavy-tailed": 12, "constant-columns": 12,
    "in-time": 12, "repeats": 12, "half-equal": 12,
}  # fmt: skip


@pytest.mark.parametrize(("source", "n_features"), MADE.items())
def test_sources__give_float32_of_the_shape_asked_for(source, n_features):
    rows = SOURCES[source].rows(QUICK_ROWS, n_features)

    assert rows.shape == (QUICK_ROWS, n_features)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, SOURCES[source].rows(QUICK_ROWS, n_features))


def test_shapes__are_what_they_are_called():
    flags = shapes.flags(4000, 40)
    assert {*np.unique(flags)} == {0, 1}
    assert ((flags.mean(axis=0) > 0.05) & (flags.mean(axis=0) < 0.45)).all()
    for make, n_different in ((shapes.repeats, 2800), (shapes.half_equal, 2000)):
        rows = np.unique(make(4000, 12), axis=0)
        assert len(rows) == pytest.approx(n_different, abs=150)
    assert (shapes.constant_columns(400, 20)[:, 3] == 7).all()
    np.testing.assert_allclose(shapes.mixed(4000, 34).std(axis=0), 1, rtol=1e-3)


def test_knn_radii__equals_definition():
    own = np.arange(0, 40, 3)

    left_out = checks.knn_radii(LATTICE[own], LATTICE, 4, own)
    new = checks.knn_radii(LATTICE + 0.05, LATTICE, 4)

    np.testing.assert_array_equal(left_out, RADII[own])
    np.testing.assert_array_equal(new, NEW_RADII)


@pytest.mark.parametrize("expected", [None, RADII], ids=["definition", "first result"])
def test_radii__are_off_by_no_more_than_their_check_allows(problem, expected):
    sampled = replace(problem, n_sample=20)
    close = checks.close_radii(1e-3)

    assert checks.equal_radii(RADII, problem, expected) == {}
    close(RADII[sampled.numbers] * 1.0009, sampled, expected)
    with pytest.raises(AssertionError):
        checks.equal_radii(np.nextafter(RADII, 1.0), problem, expected)
    with pytest.raises(AssertionError):
        close(RADII[sampled.numbers] * 1.0011, sampled, expected)
    off = np.where(np.arange(40) == 3, 1.02 * RADII, RADII)
    assert checks.share_off(off, problem, expected) == {"off": 1 / 40}


def test_falling_with_radii__refuses_a_larger_p_value_farther_out(problem):
    p_values = p_values_of(RADII)
    checks.falling_with_radii(p_values, problem)

    p_values[np.argmax(RADII)] = 0.5

    with pytest.raises(AssertionError):
        checks.falling_with_radii(p_values, problem)


def test_p_values_of_labels__refuses_labels_of_another_level(problem):
    np.save(problem.folder / "queries.npy", LATTICE + 0.05)
    problem = replace(problem, arguments=(("alpha", 0.2),))
    p_values = p_values_of(NEW_RADII)

    right, wrong = (np.where(p_values <= level, -1, 1) for level in (0.2, 0.5))
    checks.p_values_of_labels(p_values, problem, right)

    with pytest.raises(AssertionError):
        checks.p_values_of_labels(p_values, problem, wrong)


def test_without_avx512__leaves_avx2():
    features = without_avx512()["NUMBA_CPU_FEATURES"].split(",")

    assert not [name for name in features if name.startswith(("+avx512", "+amx"))]
    assert ("+avx2" in features) == get_host_cpu_features()["avx2"]


def test_environment__holds_nobody_to_another_machine(monkeypatch):
    for name in FOREIGN:
        monkeypatch.setenv(name, "Haswell")

    variables = environment(2)

    assert not {*FOREIGN} & {*variables}
    assert variables["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("target", "measured"),
    [(Target((), 3.0, 5.0), (2.9, 3, 5)), (Target((), 2.0, 1.5), (2.1, 2, 1.5))],
)
def test_grade__knows_which_way_is_up(target, measured):
    assert [grade(value, target) for value in measured] == ["✗", "✓", "✓✓"]


def test_report__has_times_ratios_and_grades():
    case = ALL_CASES["gaussian-d16"]
    found = {"seconds": [2.0], "share": 1.0, "cores": 2.0}
    runs = {run.label: found for run in case.runs}
    runs["faiss"] = {"seconds": [4.0], "share": 0.5, "cores": 1.0, "off": 0.1}
    record = {
        "n_rows": 100_000, "n_features": 16, "quick": False, "repeats": 1,
        "date": "2020-01-01", "machine": {"processor": "abacus"}, "runs": runs,
    }  # fmt: skip

    text = report({case.name: record, "http": record | {"runs": {}, "missing": "no data"}})

    line = "| one Gaussian | 100,000 | 16 | "
    assert line + "faiss / lpe_dask | 2.00 | ≥ 1.5 | 2.5 | ✓ |" in text
    assert line + "scikit-learn / lpe_dask | 1.00 | ≥ 2 | 4 | ✗ |" in text
    assert line + "20 | 2 | 4\\* (2.00), 10.0% off | 2 (1.00) |" in text
    assert "- gaussian-d16, faiss: 1.0 cores were busy" in text
    assert "- http: no data" in text
    assert "- processor: abacus" in text

"""The suite runs, small, and does not let a wrong result count."""

import json
import subprocess
import sys

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features

import definitions
from benchmarks import checks, measure, results, shapes, strict, tables
from benchmarks.cases import GROUPS, QUICK_ROWS, Case, Run, Target
from benchmarks.children import FOREIGN, Children, environment, without_avx512
from benchmarks.contenders import CONTENDERS
from benchmarks.contract import Answer, Problem
from benchmarks.data import SOURCES
from benchmarks.peers import PEERS

ALL_CASES = [case for group in GROUPS for case in group.cases]

LATTICE = np.random.default_rng(0).integers(-3, 4, (40, 3)) * 0.1
ONCE = measure.Plan(repeats=1, limit=60.0, quick=True)


def problem(rows=LATTICE, queries=None, n_neighbors=4, **arguments):
    return Problem(rows, queries, n_neighbors, arguments)


def bench(*arguments):
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, env=environment(2), capture_output=True, text=True)


def skip_unless_installed(contender):
    if not CONTENDERS[contender].is_installed:
        pytest.skip(f"{CONTENDERS[contender].distribution} is not installed")


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The case with the most peers, run as users run it; its folder and its record."""
    folder = tmp_path_factory.mktemp("quick")
    done = bench("--quick", "--only", "gaussian-d8", "--repeats", 2, "--output", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, json.loads((folder / "results.json").read_text())["cases"]["gaussian-d8"]


@pytest.mark.slow
def test_benchmarks__time_the_library(quick_run):
    _, record = quick_run

    assert record["n_rows"] == 1000
    assert len(record["runs"]["lpe_dask"]["seconds"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS)
def test_benchmarks__time_each_peer_that_is_installed(quick_run, peer):
    skip_unless_installed(peer)
    _, record = quick_run

    assert len(record["runs"][peer]["seconds"]) == 2


def test_measure__takes_a_share_of_the_rows_where_all_take_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "PILOT_ROWS", 10)
    monkeypatch.setattr(measure, "SHARE_ROWS", 100)
    case = Case("tiny", "clusters", 400, 3, (Run("cKDTree", "cKDTree"),))

    with Children(tmp_path) as children:
        record = measure.measure(case, children, measure.Plan(2, limit=0.0, quick=True))

    told = record["runs"]["cKDTree"]
    assert told["share"] == 0.25
    assert len(told["seconds"]) == 1, "what is beyond the limit is not repeated"


def test_measure__goes_on_after_a_failure(tmp_path):
    runs = (Run("too many", "cKDTree", n_neighbors=-2), Run("right", "cKDTree"))
    case = Case("tiny", "gaussian", 200, 2, runs)

    with Children(tmp_path) as children:
        record = measure.measure(case, children, ONCE)

    assert "ValueError" in record["runs"]["too many"]["failed"]
    assert record["runs"]["too many"]["seconds"] == []
    assert len(record["runs"]["right"]["seconds"]) == 1


def test_measure__says_which_table_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("LPE_DASK_DATA", str(tmp_path))
    case = next(case for case in ALL_CASES if case.name == "http")

    with Children(tmp_path) as children:
        record = measure.measure(case.shrunk(), children, ONCE)

    assert "16_http.npz" in record["missing"]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_cases__name_what_there_is(case):
    labels = [run.label for run in case.runs]

    assert len(set(labels)) == len(labels)
    assert case.source in SOURCES
    assert {run.contender for run in case.runs} <= CONTENDERS.keys()
    assert {label for target in case.targets for label in target.runs} <= set(labels[1:])
    assert max(run.n_neighbors for run in case.runs) < case.shrunk().n_rows


def test_cases__have_names_of_their_own():
    assert len({case.name for case in ALL_CASES}) == len(ALL_CASES)


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
    assert set(np.unique(flags)) == {0, 1}
    assert ((flags.mean(axis=0) > 0.05) & (flags.mean(axis=0) < 0.45)).all()
    assert len(np.unique(shapes.repeats(4000, 12), axis=0)) == pytest.approx(2800, abs=150)
    assert len(np.unique(shapes.half_equal(4000, 12), axis=0)) == pytest.approx(
        2000, abs=150
    )
    assert (shapes.constant_columns(400, 20)[:, 3] == 7).all()
    np.testing.assert_allclose(shapes.mixed(4000, 34).std(axis=0), 1, rtol=1e-3)


def test_share_off__tells_and_does_not_refuse():
    asked = problem(np.arange(20.0)[:, None], n_neighbors=1)
    radii = np.ones(20)
    radii[3] = 1.02

    assert checks.share_off(Answer(radii, asked, None, np.ones(20))) == {"off": 0.05}


def test_without_avx512__leaves_avx2():
    variables = without_avx512()

    features = variables["NUMBA_CPU_FEATURES"].split(",")
    assert not [name for name in features if name.startswith(("+avx512", "+amx"))]
    assert ("+avx2" in features) == get_host_cpu_features()["avx2"]


def test_strict_knn_radii__equals_definition():
    own = np.arange(0, 40, 3)

    left_out = strict.knn_radii(LATTICE[own], LATTICE, 4, own)
    new = strict.knn_radii(LATTICE[own] + 0.05, LATTICE, 4)

    expected = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)
    np.testing.assert_array_equal(left_out, expected[own])
    np.testing.assert_array_equal(
        new, definitions.knn_radii(LATTICE[own] + 0.05, LATTICE, 4)
    )


def test_equal_radii__takes_no_other_bit():
    radii = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)
    assert checks.equal_radii(Answer(radii, problem())) == {}
    assert checks.equal_radii(Answer(radii, problem(), None, radii)) == {}

    off = np.nextafter(radii, 1.0)

    for expected in (None, radii):
        with pytest.raises(AssertionError):
            checks.equal_radii(Answer(off, problem(), None, expected))


def test_close_radii__allows_its_tolerance_and_no_more():
    radii = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)
    check = checks.close_radii(1e-3)
    sample = np.array([7, 3, 20])

    for expected in (None, radii):
        check(Answer(radii[sample] * 1.0009, problem(), sample, expected))
        with pytest.raises(AssertionError):
            check(Answer(radii[sample] * 1.0011, problem(), sample, expected))


def test_falling_with_radii__refuses_a_larger_p_value_farther_out():
    radii = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)
    p_values = np.array([definitions.knn_p_value(radius, radii) for radius in radii])
    checks.falling_with_radii(Answer(p_values, problem()))

    p_values[np.argmax(radii)] = 0.5

    with pytest.raises(AssertionError):
        checks.falling_with_radii(Answer(p_values, problem()))


def test_p_values_of_labels__refuses_labels_of_another_level():
    radii = definitions.knn_radii(LATTICE, LATTICE, 4, exclude_self=True)
    new = definitions.knn_radii(LATTICE + 0.05, LATTICE, 4)
    p_values = np.array([definitions.knn_p_value(radius, radii) for radius in new])
    asked = problem(queries=LATTICE + 0.05, alpha=0.2)

    right, wrong = (np.where(p_values <= level, -1, 1) for level in (0.2, 0.5))
    checks.p_values_of_labels(Answer(p_values, asked, None, right))

    with pytest.raises(AssertionError):
        checks.p_values_of_labels(Answer(p_values, asked, None, wrong))


def test_verdict__knows_which_way_is_up():
    speed, share = Target(("a",), 3.0, 5.0), Target(("a",), 2.0, 1.5)

    assert [results.verdict(v, speed) for v in (2.9, 3, 5)] == ["missed", "required", "aim"]
    assert [results.verdict(v, share) for v in (2.1, 2, 1.5)] == [
        "missed",
        "required",
        "aim",
    ]


def test_environment__holds_nobody_to_another_machine(monkeypatch):
    for name in FOREIGN:
        monkeypatch.setenv(name, "Haswell")

    variables = environment(2)

    assert not set(FOREIGN) & set(variables)
    assert variables["OMP_NUM_THREADS"] == "2"


def test_report__has_times_ratios_and_verdicts():
    case = next(case for case in ALL_CASES if case.name == "gaussian-d16")
    told = {"seconds": [2.0], "share": 1.0, "cores": 2.0, "n_neighbors": 20}
    runs = {run.label: told for run in case.runs} | {"faiss": told | {"seconds": [4.0]}}
    record = {
        "n_rows": 100_000, "n_features": 16, "quick": False, "repeats": 1,
        "date": "2020-01-01", "machine": {"processor": "abacus"}, "runs": runs,
    }  # fmt: skip

    report = tables.report({"cases": {case.name: record}})

    line = "| one Gaussian | 100,000 | 16 | "
    assert line + "faiss / lpe_dask | 2.00 | ≥ 1.5 | 2.5 | ✓ |" in report
    assert line + "scikit-learn / lpe_dask | 1.00 | ≥ 2 | 4 | ✗ |" in report
    assert line + "20 | 2 | 4 (2.00) | 2 (1.00) |" in report
    assert "- processor: abacus" in report

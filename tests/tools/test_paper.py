"""The scripts of docs/paper: they run on public names alone, and the page is theirs."""

import ast
from pathlib import Path

import dask
import numpy as np
import pytest
from scipy.stats import norm

import lpe_dask
from paper import (
    banana,
    claims,
    densities,
    fits,
    growth,
    level_sets,
    manifold,
    one_class_svm,
    page,
)
from paper.__main__ import run_paper
from paper.claims import FAILS, HOLDS, LEVELS, UNDECIDED, Average
from paper.roc import area, detection_at

DOCS = Path(__file__).parents[2] / "docs"
TABLE, PAGE = DOCS / "paper" / "paper.csv", DOCS / "explanation" / "paper.md"


def write_data(folder):
    """Write small sets of the same form as the real ones."""
    rng = np.random.default_rng(0)
    for name, n_nominal, n_others, d, labels in [
        ("banana", 300, 250, 2, (-1, 1)),
        ("wine", 59, 119, 13, (0, 1)),
        ("ionosphere", 225, 126, 5, (1, -1)),
    ]:
        rows = rng.standard_normal((n_nominal + n_others, d))
        rows[n_nominal:] += 2
        arrays = {"X": rows, "y": np.repeat(labels, [n_nominal, n_others])}
        if name == "banana":
            arrays["realisation_train"] = np.r_[0:200, 300:480]
        np.savez(folder / f"{name}.npz", **arrays)
    digits = np.repeat([0, 3], [400, 20])
    rows = rng.integers(0, 100, (420, 4)) + 50 * digits[:, None]
    of_each = {"X_train": rows, "y_train": digits, "X_test": rows, "y_test": digits}
    np.savez(folder / "usps.npz", **of_each)


@pytest.mark.parametrize(
    "script", sorted((DOCS / "paper").glob("*.py")), ids=lambda p: p.stem
)
def test_scripts__import_public_names_only(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not [name for name in node.names if name.name.startswith("lpe_dask")]
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("lpe_dask"):
            assert node.module == "lpe_dask"
            assert {name.name for name in node.names} <= set(lpe_dask.__all__)


def test_run_paper__writes_figures_a_table_and_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(densities.make_cells, "__defaults__", (40.0, 0.25))
    monkeypatch.setattr(level_sets, "N_RANK_DRAWS", 50)
    monkeypatch.setattr(one_class_svm, "NUS", (0.1, 0.5))
    monkeypatch.setattr(banana, "WIDTHS", (2 / 3, 1.5, 4.5))
    monkeypatch.setattr(growth, "SIZES", (50, 200))
    monkeypatch.setattr(manifold, "SIZES", (50, 200))
    write_data(tmp_path)

    with dask.config.set(scheduler="synchronous"):
        run_paper(tmp_path / "out", tmp_path, draws=2)

    figures = [f"figure-{number}.png" for number in (1, 2, 3, 4, 5)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *figures, "paper.csv", "paper.md"
    ]  # fmt: skip
    found, stored = map(page.read_table, [tmp_path / "out/paper.csv", TABLE])
    assert [row["key"] for row in found] == [row["key"] for row in stored]


def test_page__is_made_from_the_table_beside_it():
    records = page.read_table(TABLE)

    assert PAGE.read_text(encoding="utf-8") == page.render(records), (
        "docs/explanation/paper.md is not what docs/paper/paper.csv gives: run `make paper`"
    )


def test_page__has_the_exact_areas():
    cells = densities.make_cells()
    curves = [densities.clairvoyant_curve, densities.level_set_curve]
    of_ratio, of_sets = (area(curve(cells.nominal, cells.anomalous)) for curve in curves)

    rows = {row["key"]: row for row in page.read_table(TABLE)}
    reason = rows["clairvoyant"]["reason"]
    assert (
        f"clairvoyant curve {of_ratio:.4f}, of the level sets of f0 {of_sets:.4f};"
        in reason
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_page__has_all_numbers_of_the_scripts(data_folder, tmp_path):
    with dask.config.set(scheduler="synchronous"):
        run_paper(tmp_path, data_folder, draws=None)

    for stored in (TABLE, PAGE):
        assert (tmp_path / stored.name).read_bytes() == stored.read_bytes()


def test_clairvoyant_curve__is_the_closed_form_of_two_gaussians():
    """N(0, 1) against N(1.5, 1): rows beyond a bound are flagged."""
    x = np.arange(-9, 11, 1e-3)

    curve = densities.clairvoyant_curve(norm.logpdf(x), norm.logpdf(x, 1.5))

    expected = norm.sf(norm.isf(LEVELS) - 1.5)
    assert detection_at(curve, LEVELS) == pytest.approx(expected, abs=1e-3)
    assert area(curve) == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=1e-6)


@pytest.mark.parametrize(
    "parameters", [{"n_neighbors": 3}, {"graph": "radius", "radius": 1.0}]
)
def test_fit_and_score__is_what_the_detector_gives(parameters):
    rng = np.random.default_rng(0)
    training, nominal, anomalies = (rng.standard_normal((n, 2)) for n in (30, 5, 4))

    found = fits.fit_and_score(training, nominal, anomalies, **parameters)

    rows = np.concatenate([nominal, anomalies])
    model = lpe_dask.LPE(**parameters).fit(training)
    assert found.p_values.tolist() == model.score_samples(rows).tolist()
    assert found.least_p_value == model.score_samples(np.array([[1e9, 0.0]]))[0]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 0.1041, HOLDS),
        (0.0, 0.1039, UNDECIDED),
        (0.0, 0.0959, FAILS),
        (0.0961, 1.0, UNDECIDED),
        (0.1041, 1.0, FAILS),
    ],
)
def test_is_within__leaves_open_what_two_standard_errors_do_not_decide(low, high, expected):
    here = Average(0.10, 0.02, 100)  # with a standard error of 0.002

    assert claims.is_within(here, low, high, "so it is") == (expected, "so it is")

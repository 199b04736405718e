"""What runs of rows in groups are said to need, by the sizes of groups in a sample."""

from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

import lpe_dask
from interrupting import write_files
from lpe_dask import LPE
from lpe_dask.forecast.planned_groups import PlannedGroups
from lpe_dask.model import checked_parameters

SIZES = [1200, 600, 200]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with a table of three groups in two files."""
    monkeypatch.chdir(tmp_path)
    write_files(table(), "rows", [0, 1000, 2000])
    with dask.config.set(scheduler="sync"):
        yield


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 3)), columns=["x", "y", "z"])
    sites = np.repeat(["a", "b", "c"], SIZES)
    return frame.assign(site=rng.permutation(sites))


@pytest.mark.parametrize("kind", ["frame", "array", "files"])
def test_plan__compares_rows_with_those_of_their_groups(kind):
    X, by = table(), "site"
    if kind == "files":
        X = "rows"
    if kind == "array":
        X, by = np.column_stack([X[["x", "y", "z"]], pd.factorize(X["site"])[0]]), [3]

    forecast = lpe_dask.plan(X, by=by, algorithm="brute")

    model = LPE(by=["site"]).fit(table())
    assert f"K = {model.groups_['n_neighbors'].max()}," in str(forecast)
    assert forecast.n_features == 3
    pairs = sum(size**2 for size in SIZES)
    assert forecast.pairs == pytest.approx(pairs, rel=0.01)
    shared = lpe_dask.plan(X, by=by, algorithm="brute", own=["calibration"])
    assert shared.pairs == 2000**2


def test_plan__of_other_rows_and_of_a_saved_model():
    rows = table()[:300]

    forecast = lpe_dask.plan(rows, "rows", by=["site"], algorithm="brute")

    assert forecast.n_rows == 300
    share = sum((size / 2000) ** 2 for size in SIZES)
    assert forecast.row_pairs == pytest.approx(300 * 2000 * share, rel=0.01)
    LPE(by=["site"], algorithm="brute").fit("rows").save("model")
    saved = lpe_dask.plan(rows, model="model")
    assert saved.n_features == 3
    assert saved.n_rows == 300


@pytest.mark.parametrize("nominal", ["rows", None])
def test_plan__of_a_job(nominal):
    learned = "" if nominal is None else f'[nominal]\ndata = "{nominal}"\n'
    Path("job.toml").write_text(
        f'{learned}[model]\nby = "site"\nalgorithm = "brute"\nalpha = 0.01\n'
        '[score]\ndata = "rows"\noutput = "out"\n'
    )

    forecast = lpe_dask.plan("job.toml")

    assert forecast.n_features == 3
    assert forecast.own_pairs == pytest.approx(sum(size**2 for size in SIZES), rel=0.01)
    assert not Path("out").exists()
    assert lpe_dask.run("job.toml")["groups"]["n_groups"] == 3


def test_planned_groups__choose_what_a_fit_does():
    parameters = checked_parameters(
        {"by": ["site"], "scale": "standard", "alpha": 0.01, "calibration": "auto"}
    )

    groups = PlannedGroups.of(parameters, np.array(SIZES) // 10)
    plan = groups.plan(2000, 3, 0)

    model = LPE(by=["site"], scale="standard", alpha=0.01).fit(table())
    assert plan.division.kind == model.calibration_kind_
    assert plan.statistic.n_neighbors == model.groups_["n_neighbors"].max()
    assert groups.algorithm == "pruned"

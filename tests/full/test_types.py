"""What a type checker tells users about their programs, by the wheel that they install."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]

#: Lines that end with "# wrong" are to be reported, and no others.
PROGRAM = """\
from pathlib import Path
from typing import Any, assert_type

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

import lpe_dask

Numbers = NDArray[np.float64]
array = np.ones((9, 2))
frame = pd.DataFrame({"a": [1.0, 2.0, 4.0]})
model = lpe_dask.LPE(2, scale="minmax", categorical=["protocol"], metric_params={"w": [1]})


def log_density(rows: Numbers) -> Numbers:
    return -np.square(rows[:, 0])


def kinds(lazy: da.Array, lazy_frame: dd.DataFrame, other: Any) -> None:
    assert_type(lpe_dask.score(array, n_neighbors=2), Numbers)
    assert_type(lpe_dask.score(frame, columns=["a"]), "pd.Series[float]")
    assert_type(lpe_dask.score(lazy, array, alpha=0.01, scale=None), da.Array)
    assert_type(lpe_dask.score(data=lazy_frame, nominal=frame, missing="drop"), dd.Series)
    assert_type(lpe_dask.score(other), Any)
    lpe_dask.score("rows.csv", csv={"separator": ";"}, anomaly_log_density=log_density)

    assert_type(model.fit(lazy_frame), lpe_dask.LPE)
    for method in (model.statistic, model.score_samples, model.decision_function):
        assert_type(method(array), Numbers)
        assert_type(method(X=frame), "pd.Series[float]")
        assert_type(method(lazy), da.Array)
        assert_type(method(lazy_frame), dd.Series)
        assert_type(method(other), Any)
    assert_type(model.predict(array), NDArray[np.int64])
    assert_type(model.predict(frame), "pd.Series[int]")
    assert_type(model.predict(lazy), da.Array)
    assert_type(model.predict(lazy_frame), dd.Series)
    model.predict("rows.csv", csv={"separator": ";"})
    assert_type(model.fit_predict(array), NDArray[np.int64])
    assert_type(model.fit_predict(frame), "pd.Series[int]")
    assert_type(model.fit_predict(lazy), da.Array)
    assert_type(model.fit_predict(lazy_frame), dd.Series)

    control = lpe_dask.false_discovery_control
    assert_type(control(lpe_dask.score(array)), NDArray[Any])
    assert_type(control(lpe_dask.score(frame), q=0.2), "pd.Series[Any]")
    assert_type(control(lpe_dask.score(lazy), adjusted=True), da.Array)
    assert_type(control(lpe_dask.score(lazy_frame)), dd.Series)
    assert_type(control([0.1, 0.2]), Any)


summary = lpe_dask.score_files(Path("rows"), "out", nominal="nominal", graph="knn", fdr=0.1)
assert_type(summary, dict[str, Any])
assert_type(lpe_dask.plan(array, algorithm="brute").fits, bool)
lpe_dask.plot_roc(lpe_dask.score(array), array[:, 0], graph=model.graph)

lpe_dask.score(frame, n_neighbours=5)  # wrong
lpe_dask.score(array, scale="zscore")  # wrong
lpe_dask.score("rows.csv", aggregation="median")  # wrong
lpe_dask.LPE(scale="zscore")  # wrong
lpe_dask.LPE(graph="kn")  # wrong
lpe_dask.LPE(metric="cosine")  # wrong
lpe_dask.LPE(algorithm="kd_tree")  # wrong
lpe_dask.LPE(aggregation="max")  # wrong
lpe_dask.LPE(calibration="cv")  # wrong
lpe_dask.LPE(missing="ignore")  # wrong
lpe_dask.LPE(categorical="protocol")  # wrong
lpe_dask.LPE(anomaly_log_density=1.0)  # wrong
lpe_dask.LPE(contamination=0.1)  # wrong
lpe_dask.score_files("rows", "out", n_neighbours=5)  # wrong
lpe_dask.score_files("rows", "out", calibration="cv")  # wrong
lpe_dask.plan(array, n_neighbours=5)  # wrong
lpe_dask.plan(array, alpha="0.05")  # wrong
lpe_dask.plot_roc(array, array, graph="kn")  # wrong
model.predict(frame, alpha=0.01)  # wrong
lpe_dask.sore(frame)  # wrong
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as a wheel brings it; nothing else is built beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    source, target = folder / "source", folder / "installed"
    shutil.copytree(ROOT / "lpe_dask", source / "lpe_dask")
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", target, source], check=True, timeout=250)
    return target


@pytest.mark.parametrize("pandas", ["with types", "without types"])
def test_mypy__finds_the_mistakes_of_a_program(installed, tmp_path, pandas):
    program, settings = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text(PROGRAM)
    lines = ["[mypy]", "strict = true"]
    if pandas == "without types":  # as where nobody has installed pandas-stubs
        lines += ["[mypy-pandas.*]", "follow_imports = skip"]
    settings.write_text("\n".join(lines))

    # What both have in common is read once.
    mypy = [sys.executable, "-m", "mypy", "-v", "--cache-dir", installed / "cache"]
    result = subprocess.run(
        [*mypy, "--config-file", settings, program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
    )

    assert f"{installed}/lpe_dask/__init__.pyi" in result.stderr
    assert f"{ROOT}/lpe_dask/" not in result.stderr
    wrong = {n for n, text in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in text}
    found = re.findall(r"^program\.py:(\d+): error", result.stdout, re.MULTILINE)
    assert {*map(int, found)} == wrong, result.stdout
    assert 'did you mean "n_neighbors"?' in result.stdout

"""Docstrings of public names, from which the pages about them are made."""

import inspect
import re
from pathlib import Path

import pytest

import lpe_dask

validate = pytest.importorskip("numpydoc.validate").validate

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "reference" / "api.md"

FUNCTIONS = [
    name for name in lpe_dask.__all__ if inspect.isfunction(getattr(lpe_dask, name))
]
METHODS = [
    f"LPE.{name}"
    for name, of in vars(lpe_dask.LPE).items()
    if inspect.isfunction(of) and not name.startswith("_")
]
PROPERTIES = [f"LPE.{name}" for name, of in vars(lpe_dask.LPE).items() if isinstance(of, property)]
# What functions return that has a page, by the name from which autosummary makes it.
RESULTS = re.findall(r"^   ~([\w.]+)$", PAGE.read_text(), re.MULTILINE)

#: What is checked: there is a docstring (GL08), its sections are known, ordered and once there
#: (GL05 to GL07), its first line is one sentence (SS01 to SS04), and parameters are those of the
#: signature, with a type (PR01 to PR04).
CHECKS = {
    "GL05", "GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS04",
    "PR01", "PR02", "PR03", "PR04",
}  # fmt: skip


def problems(name, *more):
    found = validate(f"lpe_dask.{name}")["errors"]
    return [text for code, text in found if code in {*CHECKS, *more}]


@pytest.mark.parametrize("name", ["LPE", *PROPERTIES])
def test_docstring__of_the_estimator(name):
    assert problems(name) == []


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_docstring__of_functions__says_what_comes_back_and_has_an_example(name):
    assert problems(name, "RT01", "RT02", "RT03", "YD01", "EX01") == []
    assert "Raises\n------" in getattr_of(name)

"""Docstrings of public names, from which the pages about them are made."""

import inspect
import re
from dataclasses import fields, is_dataclass
from operator import attrgetter
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
PROPERTIES = [
    f"LPE.{name}" for name, of in vars(lpe_dask.LPE).items() if isinstance(of, property)
]
# What functions return that has a page, by the name from which autosummary makes it.
RESULTS = re.findall(r"^   ~([\w.]+)$", PAGE.read_text(), re.MULTILINE)

#: What is checked of all: there is a docstring (GL08); its sections are known, in order and
#: there once (GL05 to GL07); its first line is a sentence (SS01 to SS04); parameters are
#: those of the signature, in order, with type and description (PR01 to PR04, PR07).
CHECKS = {
    "GL05", "GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS04",
    "PR01", "PR02", "PR03", "PR04", "PR07",
}  # fmt: skip


def problems(name, *more):
    found = validate(f"lpe_dask.{name}")["errors"]
    return [text for code, text in found if code in {*CHECKS, *more}]


def named(name):
    return attrgetter(name)(lpe_dask)


@pytest.mark.parametrize("name", ["LPE", *PROPERTIES])
def test_docstrings__of_the_estimator_have_all_sections(name):
    assert problems(name) == []


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_docstrings__of_functions_have_what_comes_back_errors_and_an_example(name):
    assert problems(name, "RT01", "RT03", "EX01") == []
    assert "Raises\n------" in inspect.getdoc(named(name))


@pytest.mark.parametrize("name", [of for of in RESULTS if is_dataclass(named(of))])
def test_docstrings__of_results_name_each_attribute(name):
    of = named(name)
    text = inspect.getdoc(of).partition("Attributes\n----------\n")[2]
    documented = re.findall(r"^(\w[\w, ]*) : ", text, re.MULTILINE)

    names = [name for line in documented for name in line.split(", ")]
    assert set(names) == {field.name for field in fields(of)}
    assert not re.search(r"^\S.*(\n\S|$)", text)  # each has a description


# The pages


def test_page__lists_each_public_name_once():
    listed = re.findall(r"^   (\w+)$", PAGE.read_text(), re.MULTILINE)

    assert sorted([*listed, "__version__"]) == lpe_dask.__all__


def test_page__links_each_result_that_is_listed():
    """Types in docstrings are linked, by the table in conf.py."""
    text = (DOCS / "conf.py").read_text()
    table = dict(re.findall(r'^    "(\w+)": "(lpe_dask[a-z_.]*)",$', text, re.MULTILINE))

    assert {f"{module}.{name}" for name, module in table.items()} == {
        f"lpe_dask.{name}" for name in RESULTS
    }


def inventories():
    for path in sorted((DOCS / "inventories").glob("*.inv")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert lines, f"{path.name} has no names"
        yield from (line.split()[0] for line in lines)


@pytest.mark.parametrize("name", [*inventories()])
def test_inventories__have_only_what_is_used(name):
    files = [
        *(ROOT / "lpe_dask").rglob("*.py"), *DOCS.rglob("*.md"), DOCS / "conf.py",
        *(DOCS / "_templates").rglob("*.rst"),
    ]  # fmt: skip
    used = rf"(?<!`)`{re.escape(name)}`(?!`)|\"{re.escape(name)}\""

    assert any(re.search(used, path.read_text()) for path in files)

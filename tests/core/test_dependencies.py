"""What `pip install .` brings, and the oldest versions that `make test-oldest` installs."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
CONTENT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONTENT["project"]


def brought_by(texts):
    """Return the names of all packages that are installed for some requirements."""
    found, left = set(), [Requirement(text) for text in texts]
    while left:
        needed = left.pop()
        name = canonicalize_name(needed.name)
        for extra in {"", *needed.extras} - {of for n, of in found if n == name}:
            found.add((name, extra))
            further = [Requirement(text) for text in requires(name) or []]
            left += [
                of
                for of in further
                if not of.marker or of.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in found}


def test_installation__brings_few_packages():
    brought = brought_by(PROJECT["dependencies"]) | {"lpe-dask"}

    assert len(brought) <= 55, sorted(brought)


@pytest.mark.parametrize("extra", ["bench", "dashboard", "dev", "plot", "test"])
def test_installation__brings_nothing_of_an_extra(extra):
    of_extra = {
        canonicalize_name(Requirement(text).name)
        for text in PROJECT["optional-dependencies"][extra]
    } - {"lpe-dask"}

    assert of_extra
    assert not of_extra & brought_by(PROJECT["dependencies"])


def test_bounds__have_the_form_that_make_test_oldest_reads():
    """A dependency in another form would quietly be installed in its newest version."""
    extras = PROJECT["optional-dependencies"].values()
    groups = [CONTENT["build-system"]["requires"], PROJECT["dependencies"], *extras]
    bounds = [bound for group in groups for bound in group if "lpe-dask" not in bound]
    form = re.search(r"grep -oE '\"(.*?)\"'", (ROOT / "Makefile").read_text())[1]

    assert not [bound for bound in bounds if not re.fullmatch(form, bound)]


def test_bounds__are_one_for_the_two_halves_of_dask():
    bounds = dict(bound.split(">=") for bound in PROJECT["dependencies"])

    assert bounds["distributed"] == bounds["dask[array,dataframe]"]

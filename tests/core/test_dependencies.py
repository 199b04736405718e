"""What `pip install .` brings, and the oldest versions that `make test-oldest` installs."""

import re
import tomllib
from collections import Counter
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
CONTENT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONTENT["project"]
EXTRAS = PROJECT["optional-dependencies"]


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


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"kubernetes"}))
def test_installation__brings_nothing_of_an_extra(extra):
    of_extra = {canonicalize_name(Requirement(text).name) for text in EXTRAS[extra]}

    assert of_extra - {"lpe-dask"}
    assert not (of_extra - {"lpe-dask"}) & brought_by(PROJECT["dependencies"])


def test_extras__are_each_named_in_the_tests_of_all():
    """So that each bound stands in one place, and is installed by `make test-oldest`."""
    others = {"bench", "dev", "docs", "test"}
    named = Requirement(EXTRAS["test"][0])

    assert named.name == "lpe-dask"
    assert named.extras == set(EXTRAS) - others


def test_bounds__have_the_form_that_make_test_oldest_reads():
    """A dependency in another form would quietly be installed in its newest version."""
    required = [CONTENT["build-system"]["requires"], PROJECT["dependencies"]]
    groups = [*required, *EXTRAS.values()]
    bounds = [bound for group in groups for bound in group if "lpe-dask" not in bound]
    form = re.search(r"grep -oE '\"(.*?)\"'", (ROOT / "Makefile").read_text())[1]

    assert not [bound for bound in bounds if not re.fullmatch(form, bound)]


def test_bounds__are_one_for_each_package():
    """Constraints of make test-oldest would contradict each other."""
    groups = [PROJECT["dependencies"], *EXTRAS.values()]
    bounds = {bound for group in groups for bound in group if "lpe-dask" not in bound}
    names = Counter(re.match(r"[\w-]+", bound)[0] for bound in bounds)

    assert [name for name, count in names.items() if count > 1] == []


def test_bounds__are_one_for_the_two_halves_of_dask():
    bounds = dict(bound.split(">=") for bound in PROJECT["dependencies"])

    assert bounds["distributed"] == bounds["dask[array,dataframe]"]

"""The oldest versions that pyproject.toml allows, which `make test-oldest` installs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_bounds__have_the_form_that_make_test_oldest_reads():
    """A dependency in another form would quietly be installed in its newest version."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    extras = project["optional-dependencies"].values()
    groups = [content["build-system"]["requires"], project["dependencies"], *extras]
    bounds = [bound for group in groups for bound in group if "lpe-dask" not in bound]
    form = re.search(r"grep -oE '\"(.*?)\"'", (ROOT / "Makefile").read_text())[1]

    assert not [bound for bound in bounds if not re.fullmatch(form, bound)]


def test_bounds__are_one_for_the_two_halves_of_dask():
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    bounds = dict(bound.split(">=") for bound in content["project"]["dependencies"])

    assert bounds["distributed"] == bounds["dask[array,dataframe]"]

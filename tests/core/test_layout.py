"""CONTRIBUTING.md names paths and packages that there are; docs name tests that exist."""

import re
import tomllib
from pathlib import Path

import pytest

import lpe_dask

FOLDER = Path(lpe_dask.__file__).parent
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_order__is_that_which_is_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    shown = re.findall(r"^ {4}(\w+(?: \| \w+)*) {2,}\S", TEXT, re.MULTILINE)

    assert shown[: len(layers)] == layers


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(\w+/\w+\.\w+)`", TEXT))))
def test_paths__of_the_text_exist(path):
    assert (FOLDER / path).is_file() or (ROOT / path).is_file()


@pytest.mark.parametrize("page", ["reliability.md", "security.md"])
def test_pages__name_tests_that_exist(page):
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs" / page).read_text()))

    assert len(named) > 10
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}

"""CONTRIBUTING.md shows the files there are; docs name tests that exist."""

import re
import tomllib
from pathlib import Path

import pytest

import lpe_dask

FOLDER = Path(lpe_dask.__file__).parent
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def shown_files():
    """Return the files of the tree, by folder."""
    lines = re.search(r"^    lpe_dask/\n((?:^(?: {4}.*)?\n)*)", TEXT, re.MULTILINE)[1]
    files, folder = {"": set()}, ""
    for indent, name, more in re.findall(
        r"^ {4}( +)([\w./-]+)((?:, [\w.-]+)*)", lines, re.MULTILINE
    ):
        if name.endswith("/"):
            folder = name.rstrip("/")
            files[folder] = set()
        else:
            names = {name, *more.split(", ")[1:]}
            files[folder if len(indent) > 2 else ""] |= names
    return files


def files_in(folder):
    """Return the files of a folder that somebody wrote, but for faces."""
    faces = set() if folder == FOLDER else {"__init__.py"}
    return {
        path.name
        for path in folder.iterdir()
        if path.is_file() and path.suffix != ".pyi" and path.name not in faces
    }


def test_tree__shows_every_file():
    packages = {path.parent for path in FOLDER.glob("*/__init__.py")}

    assert shown_files() == {"": files_in(FOLDER)} | {
        package.name: files_in(package) for package in packages
    }


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

"""Pages for developers name layers, paths and functions that there are."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import lpe_dask

FOLDER = Path(lpe_dask.__file__).parent
ROOT = Path(__file__).parents[2]
EXPLANATION = ROOT / "docs" / "explanation"
DESIGN = (EXPLANATION / "design.md").read_text()
TEXT = (ROOT / "CONTRIBUTING.md").read_text() + DESIGN


def file_at(path):
    """Return the file that a page names, of the package or of the repository."""
    return next(folder / path for folder in (FOLDER, ROOT) if (folder / path).is_file())


def test_order__is_that_which_is_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    shown = re.findall(r"^ {4}(\w+(?: \| \w+)*) {2,}\S", DESIGN, re.MULTILINE)

    assert shown[: len(layers)] == layers


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/\w+\.\w+)`", TEXT))))
def test_paths__of_the_text_exist(path):
    assert file_at(path)


@pytest.mark.parametrize(
    ("name", "path"), sorted(set(re.findall(r"`(\w+)`\s+(?:in|of)\s+`([\w/]+\.py)`", TEXT)))
)
def test_names__of_the_text_are_defined_there(name, path):
    assert re.search(
        rf"^(class|def) {name}\b|^{name}\b.* =", file_at(path).read_text(), re.MULTILINE
    )


@pytest.mark.parametrize("page", ["reliability.md", "security.md"])
def test_pages__name_tests_that_exist(page):
    named = set(re.findall(r"`(test_\w+\.py)`", (EXPLANATION / page).read_text()))

    assert len(named) > 10
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_make_docs__begins_without_what_was_made_before():
    """Examples would not run again, and pages of names that are gone break the build."""
    ignored = re.findall(r"^/(docs/.*)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)

    done = subprocess.run(
        ["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    (removed,) = re.findall(r"^rm -rf (.*)$", done.stdout, re.MULTILINE)
    assert {"docs/gallery", "docs/reference/generated"} <= set(ignored)
    assert {"build/site", *ignored} <= set(removed.split())

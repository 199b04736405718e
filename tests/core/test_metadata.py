"""What is said about the package, in each place where it is said."""

import re
import tomllib
from pathlib import Path

import yaml
from trove_classifiers import classifiers, deprecated_classifiers

import lpe_dask

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
INSTALL = (ROOT / "docs" / "install.md").read_text()

#: Tags of the image in the recipe of Kubernetes, by file.
TAGS = {
    path.relative_to(ROOT): re.findall(r"/lpe-dask:([\w.]+)", path.read_text())
    for folder in ("cluster/kubernetes", "docs/howto")
    for path in (ROOT / folder).iterdir()
    if path.is_file()
}


def supported():
    """Return the versions of Python that the classifiers name."""
    return re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))


def test_version__is_that_of_the_citation():
    assert "version" in PROJECT["dynamic"]
    assert CITATION["version"] == lpe_dask.__version__


def test_version__is_the_tag_of_the_image():
    tagged = {path.name: set(tags) for path, tags in TAGS.items() if tags}

    assert {"kubernetes.md", "Containerfile", "cronjob.yaml", "daskjob.yaml"} <= set(tagged)
    assert all(tags == {lpe_dask.__version__} for tags in tagged.values()), tagged


def test_citation__agrees_with_the_package():
    required = {"cff-version", "message", "title", "authors"}  # by the format

    assert required <= set(CITATION)
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["abstract"].rstrip(".") == PROJECT["description"]
    assert [author["name"] for author in CITATION["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]


def test_classifiers__are_known():
    """A package with another one is refused by an index."""
    assert set(PROJECT["classifiers"]) <= classifiers - set(deprecated_classifiers)


def test_classifiers__begin_with_the_oldest_python_allowed():
    minors = [int(version.partition(".")[2]) for version in supported()]

    assert PROJECT["requires-python"] == f">=3.{minors[0]}"
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_page__names_the_versions_of_python():
    assert f"Python {supported()[0]} to {supported()[-1]}" in INSTALL


def test_page__has_the_extras():
    """Of users: what only developers install is in CONTRIBUTING.md."""
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \|", INSTALL, re.MULTILINE)
    extras = PROJECT["optional-dependencies"]
    for_developers = {"bench", "dev", "docs", "test"}

    assert [name for name, _ in rows] == sorted(set(extras) - for_developers)
    for name, packages in rows:
        needs = [re.split("[>[]", text) for text in extras[name]]
        named = {
            f"those of `{of[1][:-1]}`" if of[0] == "lpe-dask" else of[0] for of in needs
        }
        assert set(packages.split(", ")) == named

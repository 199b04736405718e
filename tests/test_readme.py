"""The examples of the README and of docs/ run and print what they say."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    fenced = rf"^```{language}\n(.*?)^```$"
    return re.findall(fenced, page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_blocks__print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where their pictures go
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    names = {}

    for number, block in enumerate(blocks(page, "python")):
        test = parser.get_doctest(block, names, f"{page.name} {number}", str(page), 0)
        runner.run(test, clear_globs=False)
        names = test.globs

    assert runner.tries > 3
    assert runner.failures == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links__lead_to_files_of_the_project(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())

    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.cluster
def test_console_blocks__run_as_they_stand(tmp_path):
    """In one new folder, one after another."""
    lines = "".join(blocks(README, "console")).splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    for command in commands:
        name, *arguments = shlex.split(command)
        program = Path(sys.executable).with_name(name)
        subprocess.run([program, *arguments], cwd=tmp_path, check=True, timeout=200)

    assert len(commands) >= 2
    assert "p_value" in pd.read_parquet(tmp_path / "scored").columns

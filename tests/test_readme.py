"""The README's examples run and print what it says."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

README = Path(__file__).parents[1] / "README.md"


def blocks(language):
    fenced = rf"^```{language}\n(.*?)^```$"
    return re.findall(fenced, README.read_text(), re.MULTILINE | re.DOTALL)


def test_python_blocks__print_what_they_say():
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    names = {}

    for number, block in enumerate(blocks("python")):
        test = parser.get_doctest(block, names, f"README block {number}", str(README), 0)
        runner.run(test, clear_globs=False)
        names = test.globs

    assert runner.tries > 5
    assert runner.failures == 0


@pytest.mark.cluster
def test_console_blocks__run_as_they_stand(tmp_path):
    """In one new folder, one after another."""
    lines = "".join(blocks("console")).splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    for command in commands:
        name, *arguments = shlex.split(command)
        program = Path(sys.executable).with_name(name)
        subprocess.run([program, *arguments], cwd=tmp_path, check=True, timeout=200)

    assert len(commands) >= 2
    assert "p_value" in pd.read_parquet(tmp_path / "scored").columns

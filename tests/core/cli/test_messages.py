"""What data and names of others do to a terminal: nothing."""

import subprocess
import sys

import pandas as pd
import pytest

from calling import THREADS, invoke
from lpe_dask.cli.messages import sanitize

#: Clear the screen, set its title, ring; C1 of eight bits; NUL; turn the direction around.
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\0\r\u202e\u2028"


def is_clean(text):
    """Return whether a terminal would obey nothing of a text."""
    return all(sign == "\n" or sign.isprintable() for sign in text)


@pytest.fixture
def table(tmp_path):
    """Return the path of a table with such names and values."""
    names = [f"{EVIL}\na", "b", "id\x1b[2J"]
    rows = pd.DataFrame({
        names[0]: [f"cat{i % 2}{EVIL}" for i in range(60)],
        names[1]: [*range(59), 10**6],
        names[2]: [f"{EVIL}\nrow {'long' * 10**4} {i}" for i in range(60)],
    })  # fmt: skip
    path = tmp_path / f"t{EVIL.replace(chr(0), '')}.parquet"
    rows.to_parquet(path)
    return path


def command(*arguments):
    """Run a command, check what it prints, and return exit code and text."""
    result = invoke(*arguments)
    assert is_clean(result.output)
    assert max(map(len, result.output.split("\n"))) < 20_000
    return result.exit_code, result.output


def test_commands__print_data_that_do_nothing(table, tmp_path):
    out = tmp_path / f"out{EVIL.replace(chr(0), '')}"
    threads = (*THREADS, "--debug")
    categorical = ("--categorical", "auto", "--exclude", "id\x1b[2J")
    code, text = command("score", table, "--output", out, *categorical, *threads)
    assert code == 0, text
    assert "written to" in text
    code, text = command("explain", out, *threads)
    assert code == 0, text
    assert "cat1?[2J" in text
    assert text.splitlines()[0].split()[:2] == ["part", "row"]
    assert len(text.splitlines()) == 50 + 2  # no value begins a line
    for name in ("status", "report"):
        assert command(name, out)[0] == 0


def test_commands__print_hints_and_errors_that_do_nothing(table, tmp_path):
    out = tmp_path / "out"
    code, text = command("score", table, "--output", out, *THREADS)
    assert code == 2
    assert "--categorical" in text
    assert command("score", f"{tmp_path}/absent{EVIL}", "--output", out, *THREADS)[0] == 2
    assert command("score", table, "--output", out, "--algorithm", EVIL)[0] == 2
    assert command("score", table, "--output", out, f"--{EVIL}")[0] == 2
    assert command(f"{EVIL}")[0] == 2
    assert command("plan", f"{EVIL}.toml")[0] == 2
    job = tmp_path / "job.toml"
    job.write_text(f'[score]\n"{EVIL!r}" = 1\n', "utf-8")
    assert command("run", job)[0] == 2


@pytest.mark.full
def test_commands__print_the_same_into_a_pipe(table, tmp_path):
    given = ("--output", tmp_path / "out", *THREADS)
    command = [sys.executable, "-m", "lpe_dask", "score", table, *given]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 2
    assert is_clean(done.stderr.decode())


def test_sanitize__keeps_lines_and_cuts_long_ones():
    assert sanitize("a\nb") == "a\nb"
    assert sanitize("x" * 10**6 + "\ny") == "x" * 5000 + " ... " + "x" * 5000 + "\ny"

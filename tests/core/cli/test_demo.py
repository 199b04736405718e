"""The command `lpe-dask demo`: what it says is so, and nothing in it alarms."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

import lpe_dask
from calling import COMMAND, THREADS, invoke


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, also for temporary files, which the demo is alone in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_demo__says_what_is_found_and_how_often_by_mistake(folder):
    result = invoke("demo", "--output", "of demo")

    scored = pd.read_parquet("of demo/scores")
    is_benign = scored["diagnosis"] == "benign"
    counts = pd.crosstab(is_benign, scored["p_value"] <= 0.05)
    told = re.findall(
        r"^(?:Found|False alarms): (\d+) of (\d+)", result.stdout, re.MULTILINE
    )
    assert result.exit_code == 0
    assert (~is_benign).mean() == pytest.approx(0.05, abs=0.005)
    assert f"{counts[True].sum()} flagged at alpha 0.05" in result.stdout
    assert [tuple(map(int, line)) for line in told] == [
        (counts.loc[False, True], (~is_benign).sum()),
        (counts.loc[True, True], is_benign.sum()),
    ]
    assert counts.loc[True, True] / is_benign.sum() == pytest.approx(0.05, abs=0.04)
    assert counts.loc[False, True] >= 5


def test_demo__gives_the_reasons_of_the_most_anomalous_rows(folder):
    text = invoke("demo", "--output", "out").stdout

    names = ["new.parquet", "nominal.parquet", "scores"]
    new, nominal, scores = (pd.read_parquet(f"out/{name}") for name in names)
    reasons = re.findall(
        r"index=(\d+), diagnosis=malignant +(.*?) +(\S+) +(\S+) to (\S+), median ", text
    )
    rows = [int(row) for row, *_ in reasons]
    assert rows == [row for row in scores.nlargest(2, "statistic").index for _ in range(2)]
    for row, (_, column, value, low, high) in zip(rows, reasons, strict=True):
        assert float(value) == pytest.approx(new.loc[row, column], rel=1e-3)
        assert nominal[column].between(float(low), float(high)).mean() > 0.97
        assert not float(low) <= float(value) <= float(high)


def test_demo__prints_what_the_readme_shows(folder):
    text = invoke("demo").stdout

    readme = (Path(__file__).parents[3] / "README.md").read_text()
    [shown] = re.findall(r"(?s)\n\$ make demo\n(.*?)\n```\n", readme)
    assert [part for part in shown.split("\n\n") if part not in text] == []


def test_demo__says_where_the_page_is(folder):
    text = invoke("demo").stdout

    page = Path(unquote(re.search(r"in a browser: file://(\S+)", text)[1]))
    assert page.is_relative_to(folder)
    assert page.is_file()


@pytest.mark.parametrize("is_on_path", [True, False])
def test_demo__ends_with_a_command_that_does_the_same(folder, monkeypatch, is_on_path):
    found = os.fspath(COMMAND) if is_on_path else None
    monkeypatch.setattr(shutil, "which", lambda name: found)
    command = invoke("demo").stdout.splitlines()[-1]
    program, arguments = re.fullmatch("(.*?) (score .*)", command).groups()

    again = invoke(*shlex.split(arguments), *THREADS)

    [folder] = folder.glob("lpe-dask-demo-*")
    assert program == ("lpe-dask" if is_on_path else f"{sys.executable} -m lpe_dask")
    assert again.exit_code == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(folder / "again"), pd.read_parquet(folder / "scores")
    )


def test_demo__alarms_nobody(folder):
    """As a process, with what other libraries print, and with its page."""
    result = subprocess.run(
        [COMMAND, "demo", "--output", "out"], capture_output=True, text=True
    )

    page = Path("out/scores/_report.html").read_text()
    seen = re.sub(r"(?s)<style.*?</style>|<[^>]*>", " ", page)
    assert result.returncode == 0
    assert "diagnosis malignant" in " ".join(seen.split())
    alarming = r"broken|repair|invalid|warning|failed|no task|not count|Traceback"
    printed = result.stdout + result.stderr
    assert not re.findall(alarming, printed + seen, re.IGNORECASE)


def test_demo__shows_its_log_on_request_only(folder):
    plain, debug = invoke("demo"), invoke("demo", "--debug")

    assert (plain.exit_code, debug.exit_code) == (0, 0)
    assert plain.stderr == ""
    assert re.search(r"fitted \d+ nominal rows", debug.stderr)


def test_demo__leaves_an_existing_folder_alone(folder):
    result = invoke("demo", "--output", ".")

    assert result.exit_code == 2
    assert "Error: the output . exists" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["--output", "out"]])
def test_demo__that_fails_leaves_nothing(folder, monkeypatch, arguments):
    def fail(*args, **options):
        raise RuntimeError("no memory")

    monkeypatch.setattr(lpe_dask.batch, "score_files", fail)

    result = invoke("demo", *arguments)

    assert result.exit_code == 1
    assert "Error: no memory" in result.stderr
    assert list(folder.iterdir()) == []

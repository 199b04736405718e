"""Benchmarks that the documents name and that are run by hand: they run, small."""

import subprocess
import sys

import pytest

from benchmarks.children import environment


def start(module, folder, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{module}", "--folder", str(folder)]
    command += map(str, arguments)
    done = subprocess.run(command, env=environment(2), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.cluster
def test_spooled__measures_against_rows_on_storage(tmp_path):
    said = start("spooled", tmp_path, "--rows", 20_000, "--queries", 50)

    assert "reference: 20000 x 256" in said
    assert "bits of a radius checked: True" in said
    assert "no worker restarted: True" in said
    assert "left of the spool: []" in said


@pytest.mark.slow
def test_forecasts__tell_what_was_foreseen_and_measured(tmp_path):
    said = start("forecasts", tmp_path, "--rows", 2000, "--scheduler", "threads")

    assert said.count("| one Gaussian | 2,000 |") == 2
    assert said.count("| 20 clusters | 2,000 |") == 2

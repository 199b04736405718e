"""cluster/slurm/chain.sh: what it submits, with a stand-in for `sbatch`.

In SLURM, where that is installed: test_recipes_slurm.py.
"""

import os
import subprocess

import pytest

from recipes import CLUSTER

SBATCH = """#!/bin/bash
echo "$@" >> submitted
wc -l < submitted
"""
DATE = """#!/bin/bash
[ "$*" = +%F ] && echo 2026-11-20
"""


@pytest.fixture
def chain(tmp_path):
    """Return a function that calls the script on 2026-11-20, and gives what it submits."""
    for name, text in [("sbatch", SBATCH), ("date", DATE)]:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def call(*arguments):
        done = subprocess.run(
            ["bash", CLUSTER / "slurm" / "chain.sh", *arguments], cwd=tmp_path, text=True,
            env=os.environ | {"PATH": path}, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        submitted = tmp_path / "submitted"
        lines = submitted.read_text().splitlines() if submitted.exists() else []
        return done, lines

    return call


def test_chain__submits_both_for_the_same_day(chain):
    done, (fit, score) = chain("fit.toml", "score.toml", "--keep-going")

    assert done.returncode == 0, done.stderr
    assert fit.endswith("run.sbatch fit.toml --date 2026-11-20 --keep-going")
    assert score.endswith("run.sbatch score.toml --date 2026-11-20 --keep-going")
    assert "--dependency=afterok:1" in score
    assert done.stdout == "fit: job 1, score: job 2\n"


def test_chain__lets_a_day_replace_today(chain):
    """Of two days the command takes the last one."""
    _, lines = chain("fit.toml", "score.toml", "--date", "2026-11-01")

    assert all(line.endswith("--date 2026-11-20 --date 2026-11-01") for line in lines)


@pytest.mark.parametrize("arguments", [[], ["fit.toml"]])
def test_chain__names_its_arguments(chain, arguments):
    done, lines = chain(*arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("usage: bash chain.sh FIT.toml SCORE.toml")
    assert not lines

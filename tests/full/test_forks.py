"""A fork of a process that has not used the package."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no forks")

USE_OF_A_PARENT = """
import multiprocessing
import dask.array
import lpe_dask

def score():
    rows = dask.array.arange(60.0, chunks=20).reshape(-1, 2)
    print(float(lpe_dask.score(rows, n_neighbors=2).sum().compute()), flush=True)

if __name__ == "__main__":
    dask.array.ones(30, chunks=10).sum().compute()
    fork = multiprocessing.get_context("fork").Process(target=score)
    fork.start()
    score()
    fork.join(60)
    fork.kill()
"""


def test_score__in_a_fork_of_a_process_that_has_used_dask_alone():
    """It has imported hardly anything of the package.

    Both import and score at the same time, which takes half as long: each has its own
    memory, and what the parent does after the fork does not reach it.
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE_OF_A_PARENT],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    of_one, of_other = run.stdout.split()

    assert of_one == of_other

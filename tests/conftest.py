"""Fixtures: a scheduler that counts, a small cluster, and the public data sets."""

import os
from pathlib import Path

import dask
import pytest
from hypothesis import settings

# A first call compiles, and a shared machine stalls: time says nothing about a result here.
settings.register_profile("lpe_dask", deadline=None, max_examples=60)
settings.load_profile("lpe_dask")


class ComputeCounter:
    """A scheduler that refuses the compute after the ``limit``-th."""

    def __init__(self, limit):
        self.limit = limit
        self.count = 0

    def __call__(self, graph, keys, **kwargs):
        self.count += 1
        assert self.count <= self.limit, f"compute {self.count}, allowed {self.limit}"
        return dask.get(graph, keys, **kwargs)


@pytest.fixture
def at_most_computes():
    """``with at_most_computes(n):`` fails at compute n + 1; ``n=0`` proves laziness."""
    return lambda limit: dask.config.set(scheduler=ComputeCounter(limit))


@pytest.fixture(scope="session")
def data_folder():
    """The folder of public data sets; they are not part of the project."""
    default = Path(__file__).parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("LPE_DASK_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no public data sets at {folder} (set LPE_DASK_DATA to their folder)")
    return folder

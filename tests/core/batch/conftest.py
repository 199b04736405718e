"""Fixtures of runs: one thread, and tables that are scored again and again."""

import dask
import pytest

import interrupting


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Paths of nominal rows and of rows to score."""
    return interrupting.write_tables(tmp_path_factory.mktemp("tables"))

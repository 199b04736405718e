"""Fixtures: a scheduler that counts, two worker processes, and the public data sets."""

import gc
import os
import signal
from pathlib import Path

import dask
import pytest
from distributed import Client
from hypothesis import settings

from compiling import WAYS, forget_work, taking
from processes import local_cluster

#: Modules that need packages outside of the extra "test"; their tests skip without these.
collect_ignore = ["manifests.py"]

# A first call compiles, and a shared machine stalls: time says nothing about a result here.
settings.register_profile("quick", deadline=None, max_examples=15)
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("quick")


def pytest_configure():
    # Tests interrupt themselves, also in processes that were started without that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Dask's profiler can hang Python 3.11 for good (CPython issue 106883), most easily in a
    # process with many threads and a cluster, as this one.
    dask.config.set({"distributed.worker.profile.enabled": False})


def pytest_collection_finish():
    """Spare what is imported: tests collect garbage hundreds of times."""
    gc.collect()
    gc.freeze()


class ComputeCounter:
    """A scheduler that refuses the compute after the ``limit``-th."""

    def __init__(self, limit):
        self.limit = limit
        self.count = 0

    def __call__(self, graph, keys, **kwargs):
        self.count += 1
        assert self.count <= self.limit, f"compute {self.count}, allowed {self.limit}"
        return dask.get(graph, keys, **kwargs)


@pytest.fixture(autouse=True)
def short_pauses():
    """Try again what a storage fails at after a moment: a test would take a minute."""
    pauses = {"lpe-dask.retries.first-pause": 0.01, "lpe-dask.retries.longest-pause": 0.1}
    with dask.config.set(pauses):
        yield


@pytest.fixture(autouse=True)
def own_environment():
    """Nannies leave the environment of their workers behind, and later ones take it."""
    before = {
        name: value for name, value in os.environ.items() if name.startswith("MALLOC_")
    }
    yield
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        del os.environ[name]
    os.environ |= before


@pytest.fixture(autouse=True)
def new_process():
    """Begin each test as a process begins: what was compiled before changes nothing."""
    forget_work()


@pytest.fixture(scope="module", params=sorted(WAYS))
def either_way(request):
    """Take compiled kernels, and then their definitions, for all tests of a module."""
    with taking(request.param):
        yield


@pytest.fixture
def compiled_kernels():
    """Take compiled kernels, however small the table is."""
    with taking("compiled"):
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_page():
    """Write a page after each run that is done in this process, but draw nothing on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpe_dask.batch.page.report_page", lambda summary: "<!DOCTYPE html>")
        yield


@pytest.fixture
def at_most_computes():
    """``with at_most_computes(n):`` fails at compute n + 1; ``n=0`` proves laziness."""
    return lambda limit: dask.config.set(scheduler=ComputeCounter(limit))


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, forks of one that has imported all and ends with this one."""
    with local_cluster() as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="session")
def data_folder():
    """The folder of public data sets; they are not part of the project."""
    default = Path(__file__).parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("LPE_DASK_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no public data sets at {folder} (set LPE_DASK_DATA to their folder)")
    return folder

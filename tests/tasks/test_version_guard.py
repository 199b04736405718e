"""A worker that joins with another version of the package ends before its first task."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lpe_dask import __version__
from lpe_dask.tasks import observed
from waiting import eventually

pytestmark = pytest.mark.cluster

PACKAGES = {
    "another": "__version__ = '0.0.1'",
    "broken": "raise ModuleNotFoundError('No module named lazy_loader')",
    "fitting": f"__version__ = {__version__!r}",
}


def left_on(dask_scheduler):
    return [name for name in dask_scheduler.worker_plugins if name.startswith("lpe-")]


@pytest.mark.parametrize("package", PACKAGES)
def test_guard__is_for_workers_that_join(client, tmp_path, package):
    (tmp_path / "lpe_dask").mkdir()
    (tmp_path / "lpe_dask" / "__init__.py").write_text(PACKAGES[package])
    address = client.scheduler.address
    command = [Path(sys.executable).with_name("dask"), "worker", address, "--no-dashboard"]
    seen = []

    def events():
        seen.extend(observation.look().events)
        return [what for what, _ in seen]

    with observed() as observation:
        process = subprocess.Popen(
            [*command, "--local-directory", tmp_path, "--host", "127.0.0.1"],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            stderr=subprocess.DEVNULL,
        )
        try:
            if package == "fitting":
                assert eventually(lambda: events() == ["joined"])
                assert len(client.scheduler_info()["workers"]) == 3
            else:
                assert process.wait(60) != 0
                assert eventually(lambda: len(events()) == 3)
                joined, away, left = events()
                assert (joined, left) == ("joined", "left")
                assert f"instead of lpe_dask {__version__}" in away
                assert len({worker for _, worker in seen}) == 1
        finally:
            process.terminate()
            process.wait()

    assert client.run_on_scheduler(left_on) == []

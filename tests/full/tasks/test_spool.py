"""The spool of a process that ends while its cluster writes."""

import subprocess
import sys

import pytest

WRITTEN_TO_THE_END = """
import os, sys, time
from pathlib import Path
import dask
from distributed import Client, LocalCluster
from lpe_dask.tasks.spool import spool_at

def write(path):
    Path(path, "begun").touch()
    for i in range(10_000):
        Path(path, str(i)).touch()
        time.sleep(0.001)

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0")
    client = Client(cluster)
    entry = spool_at(os.path.abspath(sys.argv[1])).folder("blocks")
    path = entry.url.removeprefix("file://")
    future = client.submit(write, path)
    while not Path(path, "begun").exists():
        time.sleep(0.01)
"""


@pytest.mark.cluster
def test_spool__goes_after_the_cluster_that_writes_to_it(tmp_path):
    (tmp_path / "script.py").write_text(WRITTEN_TO_THE_END)
    (tmp_path / "spools").mkdir()
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "spools")]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert list((tmp_path / "spools").iterdir()) == []
    assert "FileNotFoundError" not in ended.stderr

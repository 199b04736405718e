"""A folder of compiled code that unlike processes share."""

import os
import subprocess
import sys

SLOWLY = """
import sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from lpe_dask.kernels.graph_search import join_lists

read, save = IndexDataCacheFile._load_index, IndexDataCacheFile.save

def read_slowly(file):
    found = read(file)
    time.sleep(0.5)
    return found

def save_slowly(file, key, data):
    IndexDataCacheFile._load_index = read_slowly
    save(file, key, data)
    IndexDataCacheFile._load_index = read

IndexDataCacheFile.save = save_slowly
for name in sys.argv[1:]:
    graph = np.full((3, 2), -1, np.int32)
    join_lists(np.array([[1], [2], [1]], name), graph)
    assert graph.tolist() == [[1, -1], [2, 0], [1, -1]]
print(sum(join_lists.stats.cache_hits.values()))
"""


def test_compiled__by_two_processes_at_once(tmp_path):
    """One for int32, one for int64: a third finds the compiled form of either."""
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def start(*names):
        command = [sys.executable, "-c", SLOWLY, *names]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    both = start("int32"), start("int64")
    assert [process.communicate()[0] for process in both] == ["0\n", "0\n"]

    third = start("int32", "int64")
    assert third.communicate()[0] == "2\n"
    assert third.returncode == 0

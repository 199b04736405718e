import logging
import os
import subprocess
import sys
from pathlib import Path

from lpe_dask.kernels import compiled as module
from lpe_dask.kernels import private_uses
from lpe_dask.kernels.compiled import compiled


def _twice(x):
    return 2 * x


def test_compiled__works_where_nothing_can_be_cached(monkeypatch, caplog):
    def without_locator(*args, cache=False, **kwargs):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(module, "njit", without_locator)
    with caplog.at_level(logging.INFO):
        kernel = compiled(_twice)

    assert kernel(2) == 4
    assert "_twice is compiled by each process" in caplog.text


def _thrice(x):
    return 3 * x


def test_compiled__works_where_the_cache_cannot_be_locked(monkeypatch, caplog):
    def refuse(path):
        raise OSError("no locks available")

    monkeypatch.setattr(private_uses, "lock_file", refuse)
    kernel = compiled(_thrice)

    with caplog.at_level(logging.INFO):
        assert kernel(2) == 6

    assert "_thrice is compiled by each process: no locks available" in caplog.text
    assert kernel.stats.cache_misses
    assert not list(Path(kernel.stats.cache_path).glob("*_thrice*"))


def test_compiled__is_not_confused_by_a_change_in_another_file():
    """numba looks at the file of a function only, and not at those of what it calls."""

    def kernel(x):
        return x

    compiled(kernel)

    assert kernel.__qualname__.endswith(f"_{module.KERNEL_STATE}")
    assert module.KERNEL_STATE.startswith(module._state_of_sources())


def test_cache_folder__is_where_compiled_kernels_go(tmp_path):
    """A second process finds what the first has compiled."""
    program = (
        "import numpy as np\n"
        "from lpe_dask.kernels.selection import keep_smallest\n"
        "keep_smallest(np.zeros(3), 3, 1)\n"
        "print(sum(keep_smallest.stats.cache_hits.values()))\n"
    )
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    hits = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip

    assert hits == ["0", "1"]
    assert list(tmp_path.rglob("*.nbi"))


SLOWLY = """
import sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from lpe_dask.kernels.selection import keep_smallest

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
    array = np.array([3, 1, 2, 0], name)
    keep_smallest(array, 4, 2)
    assert set(array[:2]) == {0, 1}
print(sum(keep_smallest.stats.cache_hits.values()))
"""


def test_compiled__by_two_processes_at_once(tmp_path):
    """One for float32, one for float64: a third finds the compiled form of either."""
    environment = {**os.environ, "DASK_LPE_DASK__CACHE_FOLDER": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def start(*names):
        command = [sys.executable, "-c", SLOWLY, *names]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    both = start("float32"), start("float64")
    assert [process.communicate()[0] for process in both] == ["0\n", "0\n"]

    third = start("float32", "float64")
    assert third.communicate()[0] == "2\n"
    assert third.returncode == 0

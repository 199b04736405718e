import logging
import os
import subprocess
import sys

from lpe_dask.kernels import compiled as module
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


def test_cache_folder__is_where_compiled_kernels_go(tmp_path):
    """A second process finds what the first has compiled."""
    program = (
        "import numpy as np\n"
        "from lpe_dask.kernels import tiles\n"
        "state = tiles.NearestState(np.zeros((1, 2)), 1)\n"
        "state.fold(tiles.pack(np.zeros((3, 2))))\n"
        "print(sum(tiles._fold_nearest.stats.cache_hits.values()))\n"
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

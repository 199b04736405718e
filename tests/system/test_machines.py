"""The same bits on other processors, which environment variables imitate."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from digests import digests

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="how to imitate a lesser processor is known for x86-64 only",
)

#: OpenBLAS without AVX, NumPy without what it finds out when it is imported, glibc without
#: fused multiplication.
OLD_LIBRARIES = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": " ".join(
        np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    ),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA",
}

#: Kernels compiled for the first processors of this kind.
OLD_KERNELS = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""}


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(OLD_LIBRARIES, id="libraries"),
        pytest.param(
            OLD_LIBRARIES | OLD_KERNELS,
            id="kernels",
            marks=pytest.mark.slow,  # compiles all of them anew
        ),
    ],
)
def test_statistics_and_p_values__have_the_same_bits_on_an_older_processor(old, tmp_path):
    cache = {} if old is OLD_LIBRARIES else {"NUMBA_CACHE_DIR": str(tmp_path)}

    child = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "digests.py"],
        env=os.environ | old | cache, check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert json.loads(child.stdout) == digests()

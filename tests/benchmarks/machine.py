"""What the numbers were measured on."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import psutil

from benchmarks.contenders import CONTENDERS
from benchmarks.contract import installed_version
from benchmarks.worker import environment
from lpe_dask.kernels.simd_profiles import SIMD_PROFILES, chosen_profile

#: Packages whose versions matter beside those of the contenders.
BELOW = ("dask", "distributed", "numba", "numpy")


def describe() -> dict[str, str]:
    """Return processor, vectors, cores, memory, system and versions, as text by name."""
    packages = dict.fromkeys([*(c.distribution for c in CONTENDERS.values()), *BELOW])
    versions = {name: installed_version(name) or "not installed" for name in packages}
    return {
        "processor": _processor(),
        "vectors": _vectors(),
        "cores": f"{psutil.cpu_count(logical=False)} ({psutil.cpu_count()} threads)",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return model[1] if model else platform.processor()


def _vectors() -> str:
    """SIMD profile of the kernels, and the processor that BLAS is set to."""
    name = chosen_profile()
    profile = SIMD_PROFILES[name]
    shape = f"{profile.width} rows x {profile.queries} queries at a time"
    held = environment(1).get("OPENBLAS_CORETYPE")
    return f"{name}, {shape}" + ("" if held is None else f"; BLAS as on {held}")

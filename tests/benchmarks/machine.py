"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from benchmarks.contenders import CONTENDERS
from lpe_dask.kernels.forms import FORMS, chosen_form

#: Packages whose versions matter beside those of the contenders.
BELOW = ("dask", "distributed", "numba", "numpy")


def describe() -> dict[str, str]:
    """Return processor, vectors, cores, memory, system and versions, as text by name."""
    packages = dict.fromkeys([*(c.distribution for c in CONTENDERS.values()), *BELOW])
    return {
        "processor": _processor(),
        "vectors": _vectors(),
        "cores": f"{psutil.cpu_count(logical=False)} ({psutil.cpu_count()} threads)",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{package} {_version(package)}" for package in packages),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _vectors() -> str:
    """Return what the kernels are compiled for, and what BLAS was told."""
    form = chosen_form()
    shape = f"{FORMS[form].width} rows x {FORMS[form].queries} queries at a time"
    held = os.environ.get("OPENBLAS_CORETYPE")
    return f"{form}, {shape}" + ("" if held is None else f"; BLAS as on {held}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

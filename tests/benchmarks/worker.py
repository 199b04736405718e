"""The processes of the contenders: one for each run of a case.

Libraries bring their own OpenMP and BLAS, which two in one process would take from each
other. Between its turns a process waits and uses no processor.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from llvmlite.binding import get_host_cpu_features

from benchmarks.contenders import CONTENDERS
from benchmarks.contract import Array, Problem

#: Variables that hold OpenBLAS to another machine's kernels or caches.
FOREIGN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")

#: What NumPy and LLVM call parts of AVX-512 and what came with it.
WIDE_IN_NUMPY = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
WIDE_IN_LLVM = ("avx512", "avx10", "amx")

#: Variables that say how many threads there are.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class Measurement(NamedTuple):
    """What one answer took.

    Attributes
    ----------
    result : ndarray
    build, query : float
        Seconds.
    peak_bytes : int, optional
        Of the process so far; None where the system does not tell.
    """

    result: Array
    build: float
    query: float
    peak_bytes: int | None


def without_avx512() -> dict[str, str]:
    """Return variables with which all libraries take this processor for one with AVX2."""
    features = [
        ("+" if has and not name.startswith(WIDE_IN_LLVM) else "-") + name
        for name, has in get_host_cpu_features().items()
    ]
    return {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": ",".join(features),
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": WIDE_IN_NUMPY,
        "FAISS_OPT_LEVEL": "AVX2",
    }


def environment(n_threads: int) -> dict[str, str]:
    """Return the environment of a process: this one, without what favors a contender."""
    is_held = "NUMBA_CPU_FEATURES" in os.environ
    foreign = () if is_held else FOREIGN
    variables = {name: value for name, value in os.environ.items() if name not in foreign}
    if not is_held and get_host_cpu_features().get("avx512f"):
        # OpenBLAS takes kernels of old processors for one that it does not know: faiss
        # would take 1.6 to 4 times as long on Zen 5.
        variables["OPENBLAS_CORETYPE"] = "SkylakeX"
    variables |= dict.fromkeys(THREADS, str(n_threads))
    variables["OMP_WAIT_POLICY"] = "passive"  # an idle pool must not spin in another's turn
    return variables


class Process:
    """A process of a contender, started by its first call."""

    def __init__(self, contender: str) -> None:
        self._contender = contender
        self._executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def submit(
        self, function: Callable[[str, Problem], Any], problem: Problem
    ) -> Future[Any]:
        """Call a function with the contender and a problem."""
        variables = environment(CONTENDERS[self._contender].process_threads)
        with patch.dict(os.environ, variables, clear=True):
            return self._executor.submit(function, self._contender, problem)

    def end(self) -> None:
        """End the process."""
        self._executor.shutdown()


def prepare(contender: str, problem: Problem) -> None:
    """Warm a contender up."""
    CONTENDERS[contender].prepare(problem)


def time_once(contender: str, problem: Problem) -> Measurement:
    """Let a contender answer once, and return its result and what it took."""
    chosen = CONTENDERS[contender]
    assert len(problem.rows)  # they are read before the clock runs
    start = time.perf_counter()
    index = chosen.build(problem)
    built = time.perf_counter()
    result = chosen.query(index, problem)
    end = time.perf_counter()
    return Measurement(result, built - start, end - built, _peak_bytes())


def _peak_bytes() -> int | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    peak = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
    return int(peak.split()[1]) * 1024

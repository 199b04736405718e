"""The processes of the contenders: one each, alive from its first case to the end.

Libraries bring their own OpenMP and BLAS, which two in one process would take from each
other. Between its turns a child waits for a line on its pipe and uses no processor.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from llvmlite.binding import get_host_cpu_features

from benchmarks.contract import Contender

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
    """Return the environment of a child: this one, without what favors a contender."""
    foreign = () if "NUMBA_CPU_FEATURES" in os.environ else FOREIGN
    variables = {name: value for name, value in os.environ.items() if name not in foreign}
    variables |= dict.fromkeys(THREADS, str(n_threads))
    variables["OMP_WAIT_POLICY"] = "passive"  # an idle pool must not spin in another's turn
    tests = str(Path(__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join([tests, path] if path else [tests])
    return variables


class ChildError(Exception):
    """A contender failed; the message is its traceback, or the end of its log."""


class Child:
    """One process that runs `worker`.

    Parameters
    ----------
    log : Path
        What the process prints goes here.
    n_threads : int
    """

    def __init__(self, log: Path, n_threads: int) -> None:
        self._log = log
        with log.open("w") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker"],
                env=environment(n_threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                text=True,
            )

    def send(self, operation: str, **arguments: Any) -> None:
        """Make a request; see `worker` for what there is to ask."""
        request = json.dumps({"operation": operation, **arguments})
        with contextlib.suppress(BrokenPipeError):  # `receive` tells why it ended
            print(request, file=self._process.stdin, flush=True)

    def receive(self) -> dict[str, Any]:
        """Return the reply to the oldest request that has had none.

        Raises
        ------
        ChildError
            If the contender raised, or its process ended.
        """
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            printed = self._log.read_text()[-2000:]
            raise ChildError(f"the process ended with status {code}; it printed: {printed}")
        reply = json.loads(line)
        if "error" in reply:
            raise ChildError(reply["error"])
        return reply

    @property
    def is_alive(self) -> bool:
        """Whether the process still answers."""
        return self._process.poll() is None

    def hang_up(self) -> None:
        """Let the process end: it has no more requests to wait for."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """End the process, and wait until it has."""
        self.hang_up()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Children:
    """All processes, by the name that contenders give theirs; a context that ends them.

    Parameters
    ----------
    folder : Path
        For their logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children.values():
            child.hang_up()  # they take their time side by side
        for process in list(self._children):
            self.end(process)

    def of(self, contender: Contender) -> Child:
        """Return the process of a contender, started where there is none."""
        name = contender.process
        if name in self._children and not self._children[name].is_alive:
            self.end(name)
        if name not in self._children:
            log = self._folder / f"{name.replace(' ', '-')}.log"
            self._children[name] = Child(log, contender.process_threads)
        return self._children[name]

    def end(self, process: str) -> None:
        """End a process, if there is one of this name."""
        if process in self._children:
            self._children.pop(process).close()

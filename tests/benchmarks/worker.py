"""The loop in a contender's process: a request by line on stdin, a reply on stdout.

    {"operation": "prepare", "contender": ..., "problem": ...}  ->  {}
    {"operation": "time", ..., "sample": path, "result": path}  ->  {"build": seconds, ...}

Whatever goes wrong is replied as ``{"error": traceback}``, and the loop goes on.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.contenders import CONTENDERS
from benchmarks.contract import Problem


@lru_cache(maxsize=2)
def _load(path: str) -> NDArray[np.generic]:
    return np.load(path)


@lru_cache(maxsize=2)
def _problem(described: str) -> Problem:
    """Return the same problem for the same description, so that contenders can know it."""
    description = json.loads(described)
    queries = description["queries"]
    return Problem(
        rows=_load(description["rows"]),
        queries=None if queries is None else _load(queries),
        n_neighbors=description["n_neighbors"],
        arguments=description["arguments"],
    )


def prepare(contender: str, problem: str) -> dict[str, Any]:
    """Warm a contender up."""
    CONTENDERS[contender].prepare(_problem(problem))
    return {}


def time_once(
    contender: str, problem: str, sample: str | None, result: str
) -> dict[str, Any]:
    """Let a contender answer once, save the result, and return what it took.

    Parameters
    ----------
    contender : str
    problem : str
        JSON: the paths of ``rows`` and ``queries``, ``n_neighbors`` and ``arguments``.
    sample : str, optional
        Path of the numbers of the rows to measure.
    result : str
        Path to save the result to.

    Returns
    -------
    reply : dict
        Seconds for ``build`` and ``query``; ``cores`` that were busy in that time, on
        average; ``peak_bytes`` of this process so far, None where the system does not tell.
    """
    chosen, asked = CONTENDERS[contender], _problem(problem)
    numbers = None if sample is None else _load(sample)
    busy, start = _cpu_seconds(), time.perf_counter()
    index = chosen.build(asked)
    built = time.perf_counter()
    answer = chosen.query(index, asked, numbers)
    end = time.perf_counter()
    cores = (_cpu_seconds() - busy) / (end - start)
    np.save(result, answer)
    return {
        "build": built - start,
        "query": end - built,
        "cores": cores,
        "peak_bytes": _peak_bytes(),
    }


OPERATIONS = {"prepare": prepare, "time": time_once}


def _cpu_seconds() -> float:
    """Return what this process and its worker processes have computed."""
    this = psutil.Process()
    spent = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(times.user + times.system for times in spent)


def _peak_bytes() -> int | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    peak = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
    return int(peak.split()[1]) * 1024


def serve(requests: Iterable[str], replies: TextIO) -> None:
    """Reply to each request until there are no more."""
    for line in requests:
        request = json.loads(line)
        operation = OPERATIONS[request.pop("operation")]
        try:
            reply = operation(**request)
        except Exception:
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    # What libraries print must not come between the replies.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, channel)

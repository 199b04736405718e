"""The memory of this process, and of what it runs in: a machine, a container, a job."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

#: Where Linux lists the control groups of this process, and what they are limited to.
_GROUPS, _LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_of_machine() -> int:
    """Return the bytes of memory of this machine, or that this process may use if less.

    Limits are set by containers, services and batch systems: on one of the control groups
    around this process, or as a resource limit (RLIMIT_RSS, as ``--mem`` of SLURM).
    """
    total: int = psutil.virtual_memory().total
    return min([total, *_of_groups(), *_of_process()])


def _of_groups() -> Iterator[int]:
    """Yield the limits of the control groups of this process and of those around them."""
    for file in _limit_files():
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # "max" where there is no limit
            yield int(text)


def _limit_files() -> Iterator[Path]:
    # The outermost group; inside a container that is the container's own.
    yield _LIMITS / "memory.max"
    yield _LIMITS / "memory/memory.limit_in_bytes"
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for group in [Path(path), *Path(path).parents][:-1]:
            inner = str(group).lstrip("/")
            if not controllers:  # version 2
                yield _LIMITS / inner / "memory.max"
            elif "memory" in controllers.split(","):
                yield _LIMITS / "memory" / inner / "memory.limit_in_bytes"


def _of_process() -> Iterator[int]:
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_RSS)
    if limit != resource.RLIM_INFINITY:
        yield limit


def peak_process_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Return the largest resident size that this process has had.

    On Linux from ``status``: ``ru_maxrss`` would also count the program that started it.
    """
    try:
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    except OSError:
        peak = None
    if peak is not None:
        return int(peak.group(1)) * 1024
    import resource  # not on Windows

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024

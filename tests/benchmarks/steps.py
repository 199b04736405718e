"""What share of the time of a fit each of its steps takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from dask.diagnostics import Profiler


def shares_of(fit: Callable[[], object]) -> dict[str, float]:
    """Return the share of each step in the time of a fit on threads; together they are 1.

    "reading" is the survey of the rows, "choosing" what lies between it and the first of
    the blocks, "packing" these, "searching" the join, and "rest" what comes after.
    """
    with Profiler() as profiler:
        began = time.perf_counter()
        fit()
        ended = time.perf_counter()

    def span(*names: str) -> tuple[float, float]:
        tasks = [task for task in profiler.results if _name(task.key).startswith(names)]
        first = min(task.start_time for task in tasks)
        return first, max(task.end_time for task in tasks)

    _, surveyed = span("lpe-survey")
    first_packed, packed = span("lpe-split", "lpe-pack")
    _, searched = span("lpe-join")
    borders = {
        "reading": surveyed,
        "choosing": first_packed,
        "packing": packed,
        "searching": searched,
        "rest": ended,
    }
    shares, before = {}, began
    for step, border in borders.items():
        shares[step] = (border - before) / (ended - began)
        before = border
    return shares


def _name(key: object) -> str:
    return str(key[0] if isinstance(key, tuple) else key)

"""The results: one JSON file that every case is written to when it is done.

    {"cases": {name: {"n_rows": ..., "machine": {...}, "runs": {label: {...}}}}}

and what follows from them: medians, ratios, exponents, verdicts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from benchmarks.cases import Case, Target

Verdict = Literal["missed", "required", "aim"]


def load(path: Path) -> dict[str, Any]:
    """Return the results of a file, or none where there is no file."""
    if not path.exists():
        return {"cases": {}}
    return json.loads(path.read_text())


def save(results: dict[str, Any], path: Path) -> None:
    """Write all results, and replace the file only when they are written."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(unfinished, path)


def seconds(record: dict[str, Any], label: str) -> float | None:
    """Return the median time of one run of a case, None if there is none."""
    times = record["runs"].get(label, {}).get("seconds")
    return median(times) if times else None


def ratio(case: Case, record: dict[str, Any], labels: tuple[str, ...]) -> float | None:
    """Return the time of the fastest of these runs over that of the first of the case.

    None unless all of them have a time.
    """
    times = [seconds(record, label) for label in (case.runs[0].label, *labels)]
    if None in times:
        return None
    first, *others = times
    return min(others) / first


def exponent(n_rows: list[int], times: list[float]) -> float:
    """Return the power of n that the time grows by: least squares in logarithms.

    Examples
    --------
    >>> exponent([100, 200, 400], [1.0, 4.0, 16.0])
    2.0
    """
    return float(np.polyfit(np.log(n_rows), np.log(times), 1)[0])


def growth(
    cases: tuple[Case, ...], results: dict[str, Any], label: str
) -> tuple[list[int], list[float]]:
    """Return the numbers of rows that a run has a time for, and these times."""
    points = []
    for case in cases:
        record = results["cases"].get(case.name)
        time = None if record is None else seconds(record, label)
        if time is not None:
            points.append((record["n_rows"], time))
    points.sort()
    return [n for n, _ in points], [time for _, time in points]


def verdict(value: float, target: Target) -> Verdict:
    """Return how far a number got."""
    sign = -1 if target.is_upper_bound else 1
    if sign * value < sign * target.required:
        return "missed"
    return "required" if sign * value < sign * target.aim else "aim"

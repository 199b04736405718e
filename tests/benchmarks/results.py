"""The results: one JSON file that every case is written to when it is done.

    {"cases": {name: {"n_rows": ..., "machine": {...}, "runs": {label: {...}}}}}

and what follows from them: medians, ratios, verdicts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from typing import Any, Literal

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


def verdict(value: float, target: Target) -> Verdict:
    """Return how far a number got."""
    sign = -1 if target.is_upper_bound else 1
    if sign * value < sign * target.required:
        return "missed"
    return "required" if sign * value < sign * target.aim else "aim"

"""The results as Markdown: what is required first, then a table of times for each group.

Results are one JSON file: ``{case: {"n_rows": ..., "machine": {...}, "runs": {...}}}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks.cases import GROUPS, Case, Group, Run, Target
from benchmarks.data import SOURCES

LEGEND = """\
Seconds are medians; behind them, in parentheses, the ratio to the first contender of the
line. \\* timed on a random share of the rows and scaled up. † timed once, as it took longer
than the limit. ✗ misses what is required, ✓ reaches it, ✓✓ reaches the aim.
"""

Record = dict[str, Any]


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


def report(records: dict[str, Record]) -> str:
    """Return the whole report; groups of which nothing is there are left out."""
    parts = ["# Benchmarks\n"]
    if any(record["quick"] for record in records.values()):
        parts.append("**A quick run: it shows that all of it works, and no more.**\n")
    required = [line for group in GROUPS for line in _required(group, records)]
    if required:
        head = ["data", "n", "d", "ratio", "measured", "required", "aim", ""]
        parts += ["## What is required\n", markdown(head, required)]
    parts.append(LEGEND)
    for group in GROUPS:
        done = [(case, records[case.name]) for case in group.cases if case.name in records]
        if done:
            parts += [f"## {group.title}\n", _times(group, done)]
            parts += filter(None, ["".join(_notes(done))])
    parts += ["## Machine\n", *_machines(records)]
    return "\n".join(parts)


def seconds(record: Record, label: str) -> float | None:
    """Return the median time of one run of a case, None if there is none."""
    times = record["runs"].get(label, {}).get("seconds")
    return median(times) if times else None


def ratio(case: Case, record: Record, labels: tuple[str, ...]) -> float | None:
    """Return the time of the fastest of these runs over that of the first of the case.

    None unless all of them have a time.
    """
    first, *others = (seconds(record, label) for label in (case.runs[0].label, *labels))
    return None if None in (first, *others) else min(others) / first


def grade(measured: float, target: Target) -> str:
    """Return the sign of how far a number got."""
    sign = -1 if target.is_upper_bound else 1
    if sign * measured < sign * target.required:
        return "✗"
    return "✓" if sign * measured < sign * target.aim else "✓✓"


def _shape(case: Case, record: Record) -> list[str]:
    label = SOURCES[case.source].label
    return [label, f"{record['n_rows']:,}", str(record["n_features"])]


def _required(group: Group, records: dict[str, Record]) -> Iterator[list[str]]:
    ratios = []
    for case in group.cases:
        if case.name in records:
            record = records[case.name]
            measured = [ratio(case, record, target.runs) for target in case.targets]
            ratios += [value for value in measured[:1] if value is not None]
            for target, value in zip(case.targets, measured, strict=True):
                fastest = " and ".join(target.runs)
                if len(target.runs) > 1:
                    fastest = f"faster of {fastest}"
                name = f"{fastest} / {case.runs[0].label}"
                yield [*_shape(case, record), name, *_graded(value, target)]
    if group.median is not None and ratios:
        name = f"median, fastest peer / {group.cases[0].runs[0].label}"
        graded = _graded(median(ratios), group.median)
        yield [f"{len(ratios)} tables", "", "", name, *graded]


def _graded(measured: float | None, target: Target) -> list[str]:
    bound = "≤" if target.is_upper_bound else "≥"
    limits = [f"{bound} {target.required:g}", f"{target.aim:g}"]
    if measured is None:
        return ["-", *limits, "-"]
    return [f"{measured:.2f}", *limits, grade(measured, target)]


def _times(group: Group, records: list[tuple[Case, Record]]) -> str:
    labels = list(dict.fromkeys(run.label for case, _ in records for run in case.runs))
    head = ["data", "n", "d", "K", *(f"{label}, s" for label in labels)]
    head += ["peak, MiB"] * group.shows_memory
    lines = []
    for case, record in records:
        runs = {run.label: run for run in case.runs}
        orders = dict.fromkeys(str(run.n_neighbors) for run in case.runs)
        line = [*_shape(case, record), ", ".join(orders)]
        line += [_time(case, record, runs.get(label)) for label in labels]
        if group.shows_memory:
            peaks = [found.get("peak_bytes") for found in record["runs"].values()]
            is_known = peaks and None not in peaks
            line.append(f"{max(peaks) / 2**20:,.0f}" if is_known else "-")
        lines.append(line)
    return markdown(head, lines)


def _time(case: Case, record: Record, run: Run | None) -> str:
    if run is None:
        return ""
    time = seconds(record, run.label)
    if time is None:
        return "-"
    found = record["runs"][run.label]
    text = f"{time:,.0f}" if time >= 100 else f"{time:.3g}"
    if found["share"] < 1:
        text += "\\*"
    if len(found["seconds"]) < record["repeats"]:
        text += "†"
    compared = ratio(case, record, (run.label,))
    if run is not case.runs[0] and compared is not None:
        text += f" ({compared:.2f})"
    if found.get("off", 0) >= 0.0005:
        text += f", {found['off']:.1%} off"
    return text


def _notes(records: list[tuple[Case, Record]]) -> Iterator[str]:
    """Yield why there are gaps."""
    for case, record in records:
        if "missing" in record:
            yield f"- {case.name}: {record['missing']}\n"
        for label, found in record["runs"].items():
            if "missing" in found:
                yield f"- {case.name}, {label}: {found['missing']}\n"
            elif "failed" in found:
                last = found["failed"].strip().splitlines()[-1]
                yield f"- **{case.name}, {label} failed**: {last}\n"


def _machines(records: dict[str, Record]) -> Iterator[str]:
    """Yield each machine that results are from, with its versions and days."""
    machines: dict[str, list[str]] = {}
    for record in records.values():
        lines = "".join(f"- {name}: {text}\n" for name, text in record["machine"].items())
        machines.setdefault(lines, []).append(record["date"])
    for lines, dates in machines.items():
        days = " to ".join(dict.fromkeys((min(dates), max(dates))))
        yield f"{lines}- date: {days}\n"

"""The report in Markdown: what is required first, then a table of times for each group."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.cases import GROUPS, Case, Group, Run, Target
from benchmarks.data import SOURCES
from benchmarks.results import ratio, seconds, verdict

SIGNS = {"missed": "✗", "required": "✓", "aim": "✓✓"}

#: Below this share of its two cores, a run of more than a second did not get both.
FEWEST_CORES = 1.5

LEGEND = """\
Seconds are medians; behind them, in parentheses, the ratio to the first contender of the
line. \\* timed on a random share of the rows and scaled up. † timed once, as it took longer
than the limit. ✗ misses what is required, ✓ reaches it, ✓✓ reaches the aim.
"""


def report(results: dict[str, Any]) -> str:
    """Return the whole report.

    Parameters
    ----------
    results : dict
        As in `results`; groups of which nothing is there are left out.
    """
    parts = ["# Benchmarks\n"]
    if any(record["quick"] for record in results["cases"].values()):
        parts.append("**A quick run: it shows that all of it works, and no more.**\n")
    required = [line for group in GROUPS for line in _required(group, results)]
    if required:
        head = ["data", "n", "d", "ratio", "measured", "required", "aim", ""]
        parts += ["## What is required\n", _table(head, required)]
    parts.append(LEGEND)
    for group in GROUPS:
        done = [case for case in group.cases if case.name in results["cases"]]
        if done:
            times = _times(group, done, results["cases"])
            notes = "".join(_notes(done, results["cases"]))
            parts += filter(None, [f"## {group.title}\n", times, notes])
    parts += ["## Machine\n", *_machines(results["cases"])]
    return "\n".join(parts)


def _table(head: list[str], lines: list[list[str]]) -> str:
    rules = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rules, *lines))


def _shape(case: Case, record: dict[str, Any]) -> list[str]:
    label = SOURCES[case.source].label
    return [label, f"{record['n_rows']:,}", str(record["n_features"])]


def _required(group: Group, results: dict[str, Any]) -> Iterator[list[str]]:
    for case in group.cases:
        record = results["cases"].get(case.name)
        if record is None:
            continue
        for target in case.targets:
            name = f"{_fastest(target)} / {case.runs[0].label}"
            measured = ratio(case, record, target.runs)
            yield [*_shape(case, record), name, *_judged(measured, target)]
    if group.median is not None:
        yield from _median(group, group.median, results)


def _fastest(target: Target) -> str:
    if len(target.runs) == 1:
        return target.runs[0]
    return f"faster of {' and '.join(target.runs)}"


def _judged(measured: float | None, target: Target) -> list[str]:
    bound = "≤" if target.is_upper_bound else "≥"
    limits = [f"{bound} {target.required:g}", f"{target.aim:g}"]
    if measured is None:
        return ["-", *limits, "-"]
    return [f"{measured:.2f}", *limits, SIGNS[verdict(measured, target)]]


def _median(group: Group, target: Target, results: dict[str, Any]) -> Iterator[list[str]]:
    """Yield a line of the median of the ratios of the cases that were timed."""
    records = results["cases"]
    timed = [case for case in group.cases if case.name in records]
    ratios = [ratio(case, records[case.name], case.targets[0].runs) for case in timed]
    known = [measured for measured in ratios if measured is not None]
    if known:
        name = f"median, fastest peer / {group.cases[0].runs[0].label}"
        yield [f"{len(known)} tables", "", "", name, *_judged(median(known), target)]


def _times(group: Group, cases: list[Case], records: dict[str, Any]) -> str:
    labels = list(dict.fromkeys(run.label for case in cases for run in case.runs))
    head = ["data", "n", "d", "K", *(f"{label}, s" for label in labels)]
    if group.shows_memory:
        head.append("peak, MiB")
    lines = []
    for case in cases:
        record = records[case.name]
        by_label = {run.label: run for run in case.runs}
        orders = dict.fromkeys(str(run.n_neighbors) for run in case.runs)
        line = [*_shape(case, record), ", ".join(orders)]
        line += [_time(case, record, by_label.get(label)) for label in labels]
        if group.shows_memory:
            line.append(_peak(record))
        lines.append(line)
    return _table(head, lines)


def _time(case: Case, record: dict[str, Any], run: Run | None) -> str:
    if run is None:
        return ""
    time = seconds(record, run.label)
    if time is None:
        return "-"
    told = record["runs"][run.label]
    text = _rounded(time)
    if told["share"] < 1:
        text += "\\*"
    if len(told["seconds"]) < record["repeats"]:
        text += "†"
    compared = ratio(case, record, (run.label,))
    if run is not case.runs[0] and compared is not None:
        text += f" ({compared:.2f})"
    if told.get("off", 0) >= 0.0005:
        text += f", {told['off']:.1%} off"
    return text


def _rounded(time: float) -> str:
    """Return seconds with three digits.

    Examples
    --------
    >>> _rounded(0.01234), _rounded(12.34), _rounded(1234.5)
    ('0.0123', '12.3', '1,234')
    """
    return f"{time:,.0f}" if time >= 100 else f"{time:.3g}"


def _peak(record: dict[str, Any]) -> str:
    peaks = [told.get("peak_bytes") for told in record["runs"].values()]
    return "-" if None in peaks or not peaks else f"{max(peaks) / 2**20:,.0f}"


def _notes(cases: list[Case], records: dict[str, Any]) -> Iterator[str]:
    """Yield why there are gaps, and who did not get its threads."""
    for case in cases:
        record = records[case.name]
        if "missing" in record:
            yield f"- {case.name}: {record['missing']}\n"
        for label, told in record["runs"].items():
            if "missing" in told:
                yield f"- {case.name}, {label}: {told['missing']}\n"
            elif "failed" in told:
                last = told["failed"].strip().splitlines()[-1]
                yield f"- **{case.name}, {label} failed**: {last}\n"
            elif told["seconds"][-1] > 1 and told["cores"] < FEWEST_CORES:
                yield f"- {case.name}, {label}: {told['cores']:.1f} cores were busy\n"


def _machines(records: dict[str, Any]) -> Iterator[str]:
    """Yield each machine that results are from, with its versions and days."""
    machines: dict[str, list[str]] = {}
    for record in records.values():
        lines = "".join(f"- {name}: {told}\n" for name, told in record["machine"].items())
        machines.setdefault(lines, []).append(record["date"])
    for lines, dates in machines.items():
        days = " to ".join(dict.fromkeys((min(dates), max(dates))))
        yield f"{lines}- date: {days}\n"

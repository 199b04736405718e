"""The picture: time against the number of rows, both in logarithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cases import GROUPS, Case
from benchmarks.data import SOURCES
from benchmarks.results import exponent, growth


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the growth of times with n, one panel for each kind of rows.

    Parameters
    ----------
    results : dict
        As in `results`.
    folder : Path

    Returns
    -------
    paths : list of Path
        The pictures written: none if nothing was timed at two sizes.
    """
    from matplotlib.figure import Figure

    panels = _panels(results)
    if not panels:
        return []
    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    for axes, (title, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for label, (n_rows, times) in lines.items():
            power = exponent(n_rows, times)
            axes.loglog(n_rows, times, "o-", label=f"{label}: $n^{{{power:.2f}}}$")
        axes.set(title=title, xlabel="rows, n", ylabel="seconds")
        axes.legend()
    paths = [folder / "scaling.svg", folder / "scaling.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def _panels(results: dict[str, Any]) -> dict[str, dict[str, tuple[list[int], list[float]]]]:
    """Return title -> label -> numbers of rows and times, where there are two or more."""
    panels = {}
    for group in GROUPS:
        if group.exponent is None:
            continue
        for source in dict.fromkeys(case.source for case in group.cases):
            cases = tuple(case for case in group.cases if case.source == source)
            lines = _lines(cases, results)
            if lines:
                title = f"{SOURCES[source].label}, d = {cases[0].n_features}"
                panels[title] = lines
    return panels


def _lines(
    cases: tuple[Case, ...], results: dict[str, Any]
) -> dict[str, tuple[list[int], list[float]]]:
    labels = dict.fromkeys(run.label for case in cases for run in case.runs)
    lines = {label: growth(cases, results, label) for label in labels}
    return {label: line for label, line in lines.items() if len(line[0]) > 1}

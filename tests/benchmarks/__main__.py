"""The command: ``python -m benchmarks --help``."""

from __future__ import annotations

import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import machine, results, tables
from benchmarks.cases import GROUPS, Case
from benchmarks.children import Children, without_avx512
from benchmarks.measure import Plan, measure

BUILD = Path(__file__).parents[2] / "build" / "benchmarks"

#: Seconds; what would take longer is timed on a share of the rows, or else once.
LIMIT = 15.0


@click.command()
@click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="NAME",
    help="A case or a group, as in gaussian-d8, 'gaussian-*' or whole; repeatable.",
)
@click.option("--list", "lists", is_flag=True, help="List groups and cases, and stop.")
@click.option("--quick", is_flag=True, help="Few rows: shows that all of it works.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the results; build/benchmarks if not given, its quick/ for --quick.",
)
@click.option(
    "--avx2", is_flag=True, help="Let all libraries take the processor for one with AVX2."
)
def main(
    patterns: tuple[str, ...],
    lists: bool,
    quick: bool,
    repeats: int,
    output: Path | None,
    avx2: bool,
) -> None:
    """Time lpe_dask beside its peers, and write results and report.

    Results are added to those already in the folder, case by case.
    """
    console = Console()
    cases = select(patterns)
    if lists:
        for group in GROUPS:
            console.print(f"{group.name}: {' '.join(case.name for case in group.cases)}")
        return
    if avx2 and "NUMBA_CPU_FEATURES" not in os.environ:
        # This process has imported what reads the variables: it describes the machine.
        variables = os.environ | without_avx512()
        command = [sys.executable, "-m", "benchmarks", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=variables, check=False).returncode)
    output = output or BUILD.joinpath(*["avx2"] * avx2, *["quick"] * quick)
    output.mkdir(parents=True, exist_ok=True)
    all_right = True
    with Children(output) as children:
        for case in cases:
            with console.status(case.name):
                record = time_case(case, children, Plan(repeats, LIMIT, quick), output)
            console.print(case.name)
            for label, told in record["runs"].items():
                if "failed" in told:
                    all_right = False
                    console.print(f"{label} failed: {told['failed']}", markup=False)
    path = output / "report.md"
    path.write_text(tables.report(results.load(output / "results.json")))
    console.print(f"report: {path}")
    sys.exit(0 if all_right else 1)


def select(patterns: tuple[str, ...]) -> list[Case]:
    """Return the cases whose name, or that of their group, fits a pattern; all for none."""
    chosen = [
        case
        for group in GROUPS
        for case in group.cases
        if not patterns
        or any(fnmatchcase(name, p) for p in patterns for name in (case.name, group.name))
    ]
    if not chosen:
        raise click.UsageError(f"no case is called {patterns}; --list shows all of them.")
    return chosen


def time_case(case: Case, children: Children, plan: Plan, output: Path) -> dict[str, Any]:
    """Time one case, add it to the results, and return its record."""
    record = measure(case.shrunk() if plan.quick else case, children, plan)
    record["machine"] = machine.describe()
    path = output / "results.json"
    saved = results.load(path)
    saved["cases"][case.name] = record
    results.save(saved, path)
    return record


if __name__ == "__main__":
    main()

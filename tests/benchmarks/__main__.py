"""The command: ``python -m benchmarks --help``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.cases import GROUPS, Case
from benchmarks.measure import measure
from benchmarks.report import report
from benchmarks.worker import without_avx512

BUILD = Path(__file__).parents[2] / "build" / "benchmarks"


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
    cases = select(patterns)
    if lists:
        for group in GROUPS:
            click.echo(f"{group.name}: {' '.join(case.name for case in group.cases)}")
        return
    if avx2 and "NUMBA_CPU_FEATURES" not in os.environ:
        # This process has imported what reads the variables: it describes the machine.
        variables = os.environ | without_avx512()
        command = [sys.executable, "-m", "benchmarks", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=variables, check=False).returncode)
    output = output or BUILD.joinpath(*["avx2"] * avx2, *["quick"] * quick)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.json"
    records = json.loads(path.read_text()) if path.exists() else {}
    has_failed = False
    for case in cases:
        click.echo(case.name)
        record = measure(case.shrunk() if quick else case, repeats)
        records[case.name] = record | {"quick": quick, "machine": machine.describe()}
        path.write_text(json.dumps(records, indent=1) + "\n")
        for label, found in record["runs"].items():
            if "failed" in found:
                has_failed = True
                click.echo(f"{label} failed: {found['failed']}")
    (output / "report.md").write_text(report(records))
    click.echo(f"report: {output / 'report.md'}")
    sys.exit(1 if has_failed else 0)


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


if __name__ == "__main__":
    main()

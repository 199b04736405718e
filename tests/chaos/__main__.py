"""The command: ``python -m chaos --help``."""

import os
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import click

from chaos import network
from chaos.faults import FAULTS
from chaos.history import read_first
from chaos.job import Undisturbed, write_tables
from chaos.run import run
from chaos.schedule import draw

BUILD = Path(__file__).parents[2] / "build" / "chaos"

#: Set in the namespaces in which the runs are made.
INSIDE = "CHAOS_INSIDE"


@click.command()
@click.option("--runs", "n_runs", default=30, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True, help="Of the first run.")
@click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="NAME",
    help="Only this fault, as in worker-killed or 'link-*'; repeatable.",
)
@click.option(
    "--replay",
    "histories",
    multiple=True,
    metavar="HISTORY",
    type=click.Path(exists=True),
    help="One run again, as the first line of its history says; repeatable.",
)
@click.option(
    "--output",
    default=BUILD,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the histories, and of the logs of runs that failed.",
)
def main(n_runs, seed, patterns, histories, output):
    """Do faults to a cluster of three hosts while a job runs on it; check the result."""
    if INSIDE not in os.environ:
        _enter_namespaces()
    schedules = [*map(read_first, histories)]
    if not schedules:
        schedules = [draw(seed + i, patterns) for i in range(n_runs)]
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder)
        write_tables(inputs)
        undisturbed = Undisturbed.of(inputs)
        verdicts = []
        with suppress(KeyboardInterrupt):  # the counts of the runs until then are shown
            for schedule in schedules:
                place = output / str(schedule.seed)
                verdicts.append(run(schedule, place, inputs, undisturbed))
                _show(verdicts[-1])
    code = _show_all(verdicts)
    if len(verdicts) < len(schedules):
        click.echo(f"broken off: {len(schedules)} runs were asked for")
        code = 130
    sys.exit(code)


def _enter_namespaces():
    """Become a process that makes the hosts, and that takes all of them with it."""
    if reason := network.why_not():
        click.echo(f"skipped: no network namespaces can be made here ({reason})")
        sys.exit(0)
    for name, fault in FAULTS.items():
        if not fault.is_possible():
            click.echo(f"left out: {name} needs {fault.needs}, which is not installed")
    os.environ[INSIDE] = "1"
    command = [*network.WRAPPER, sys.executable, "-m", "chaos", *sys.argv[1:]]
    os.execvp(command[0], command)


def _show(verdict):
    faults = ", ".join(verdict.injected.elements()) or "no fault"
    result = "FAILED" if verdict.problems else "ok"
    click.echo(f"{result} seed {verdict.seed}, {verdict.seconds:.0f} s: {faults}")
    if verdict.problems:
        for said in (*verdict.problems, f"history: {verdict.history}"):
            click.echo(f"    {said}")


def _show_all(verdicts):
    """Print the counts, and return the exit code."""
    injected = sum((verdict.injected for verdict in verdicts), Counter())
    errors = sum((verdict.errors for verdict in verdicts), Counter())
    n_failed = sum(bool(verdict.problems) for verdict in verdicts)
    click.echo(f"{len(verdicts)} runs, {injected.total()} faults injected:")
    for name, n in sorted(injected.items()):
        click.echo(f"    {n:4} {name}")
    n_equal = sum(verdict.is_equal for verdict in verdicts)
    click.echo(f"bit-equal results: {n_equal} of {len(verdicts)}")
    click.echo(f"ends after which the job was started again, by exit code: {dict(errors)}")
    click.echo(f"parts written again: {sum(verdict.n_again for verdict in verdicts)}")
    click.echo(f"failed runs: {n_failed}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    main()

"""The options that several commands share: those about workers, and those of a model.

Each is checked as far as that is possible without data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from dask.utils import format_bytes, parse_bytes

from lpe_dask.cli.cluster import ChosenWorkers
from lpe_dask.model import PARAMETERS, Parameter
from lpe_dask.tasks import MIN_WORKER_BYTES, PROCESS_BYTES


def names(value: str) -> list[str]:
    """Return names that were separated by commas."""
    return [name.strip() for name in value.split(",") if name.strip()]


def _mapping(value: str) -> dict[str, Any]:
    """Return a JSON object as a dict."""
    try:
        mapping = json.loads(value)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}.") from None
    if not isinstance(mapping, dict):
        raise click.BadParameter(
            f'{value!r} is not a JSON object. Write it as {{"name": value}}.'
        )
    return mapping


def _none(ctx: Any, param: Any, value: str) -> str | None:
    """Return the value of a choice that has "none" among others."""
    return None if value == "none" else value


def _bytes(value: str) -> int:
    """Return an amount of memory, such as 4GiB, as a number of bytes."""
    try:
        n_bytes: int = parse_bytes(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not an amount of memory. Write it as 4GiB or 800MB."
        ) from None
    if n_bytes < MIN_WORKER_BYTES:
        raise click.BadParameter(
            f"{value} is too little: a worker takes {format_bytes(PROCESS_BYTES)} before "
            f"any data. Give at least {format_bytes(MIN_WORKER_BYTES)}."
        )
    return n_bytes


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that gives a command these options, in this order in its help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def columns_option(default: str) -> Callable[[Any], Any]:
    """Return the option for the columns to measure, which tells the default."""
    text = f"Columns to measure.  [default: {default}]"
    return click.option("--columns", type=names, metavar="A,B,C", help=text)


check_option = click.option(
    "--check-calibration",
    is_flag=True,
    help="Judge by nominal rows that are held out whether false alarms are as rare as "
    "promised; takes about as long as the fit.",
)

worker_options = _options(
    click.option(
        "--scheduler",
        metavar="ADDRESS|threads",
        help="Join a running Dask cluster, for example tcp://10.0.0.1:8786, or work in "
        "this process with `threads`.  [default: start a cluster on this machine]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes of the cluster to start; they share the processor cores.  "
        "[default: as suits the machine]",
    ),
    click.option(
        "--memory-limit",
        type=_bytes,
        metavar="BYTES",
        help="Memory of each worker to start, for example 4GiB.  [default: an equal share "
        "of the machine's]",
    ),
    click.option(
        "--spool",
        metavar="FOLDER",
        help="Where arrays go that tasks read, and nominal rows that do not fit into the "
        "memory of each worker: a folder or URL that all workers see.  [default: Dask's "
        "temporary directory]",
    ),
    click.option(
        "--profile",
        metavar="FILE",
        help="Write Dask's report on what the workers did to this HTML file.",
    ),
    click.option("--debug", is_flag=True, help="Show the full traceback of an error."),
)


def _model_option(name: str, parameter: Parameter) -> Callable[[Any], Any]:
    """Return the option for an argument of `LPE`."""
    kind: Any = _mapping if parameter.type is dict else parameter.type
    given: dict[str, Any] = {"type": kind, "metavar": parameter.metavar}
    default = parameter.default
    if parameter.choices is not None:
        given["type"] = click.Choice([choice or "none" for choice in parameter.choices])
        default = default or "none"
        given["callback"] = _none
    if parameter.type is bool:
        given = {"is_flag": True}
    elif default is not None:
        given["default"] = default
    return click.option(f"--{name.replace('_', '-')}", help=parameter.help, **given)


# In the order of the signature, except for the option about rows, the last in the help.
_ORDERED = sorted(PARAMETERS, key=lambda name: name == "missing")

model_options = _options(
    *(_model_option(n, PARAMETERS[n]) for n in _ORDERED if PARAMETERS[n].is_option)
)


def take_workers(
    options: dict[str, Any], debug: bool, section: Any = None
) -> ChosenWorkers:
    """Remove the options about workers from those of a command, and check them.

    Parameters
    ----------
    options : dict
    debug : bool
        As in `ChosenWorkers`.
    section : ClusterSection, optional
        Of a job file: is used if none of its options was given.
    """
    taken = ("scheduler", "workers", "memory_limit", "profile", "spool")
    scheduler, n_workers, memory_limit, profile, spool = map(options.pop, taken)
    threads = None
    if section is not None and (scheduler, n_workers, memory_limit) == (None, None, None):
        scheduler, n_workers = section.scheduler, section.workers
        memory_limit, threads = section.memory_limit, section.threads
    if scheduler == "threads" and profile is not None:
        raise click.UsageError(
            "--profile needs workers to report on, but with --scheduler threads there are "
            "none. Leave out one or the other."
        )
    if scheduler is not None and (n_workers, memory_limit) != (None, None):
        raise click.UsageError(
            f"--workers and --memory-limit describe a cluster to start, but --scheduler "
            f"{scheduler} starts none. Leave out one or the other."
        )
    if scheduler is not None and scheduler != "threads" and ":" not in scheduler:
        raise click.UsageError(
            f"--scheduler {scheduler} is neither the address of a scheduler, such as "
            f"tcp://10.0.0.1:8786, nor `threads`."
        )
    return ChosenWorkers(scheduler, n_workers, memory_limit, debug, threads, profile, spool)

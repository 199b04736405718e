"""The options that several commands share: those about workers, and those of a model.

Each is checked as far as it can be without looking at data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from dask.utils import format_bytes, parse_bytes

from lpe_dask.model import PARAMETERS, Parameter
from lpe_dask.search import MIN_WORKER_BYTES, PROCESS_BYTES


def names(ctx: Any, param: Any, value: str | None) -> list[str] | None:
    """Return names that were separated by commas."""
    if value is None:
        return None
    return [name.strip() for name in value.split(",") if name.strip()]


def _mapping(ctx: Any, param: Any, value: str | None) -> dict[str, Any] | None:
    """Return a JSON object as a dict."""
    if value is None:
        return None
    try:
        mapping = json.loads(value)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}.") from None
    if not isinstance(mapping, dict):
        raise click.BadParameter(
            f'{value!r} is no JSON object. Write it as {{"name": value}}.'
        )
    return mapping


def _bytes(ctx: Any, param: Any, value: str | None) -> int | None:
    """Return an amount of memory, such as 4GiB, as a number of bytes."""
    if value is None:
        return None
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
        callback=_bytes,
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
    given: dict[str, Any] = {"type": parameter.type, "metavar": parameter.metavar}
    if parameter.type is dict:
        given |= {"type": str, "callback": _mapping}
    default = parameter.default
    if parameter.choices is not None:
        given["type"] = click.Choice([choice or "none" for choice in parameter.choices])
        default = default or "none"
    if default is not None:
        given["default"] = default
    return click.option(f"--{name.replace('_', '-')}", help=parameter.help, **given)


model_options = _options(
    *(_model_option(name, known) for name, known in PARAMETERS.items() if known.is_option)
)

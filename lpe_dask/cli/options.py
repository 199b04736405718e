"""The options that several commands share: those about workers, and those of a model.

Each is checked as far as that is possible without data.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click
import dask
from dask.utils import format_bytes, parse_bytes

from lpe_dask.model import PARAMETERS, Parameter
from lpe_dask.tables import split_names
from lpe_dask.tasks import KERNEL_BYTES, MIN_WORKER_BYTES, PROCESS_BYTES, seconds_of

if TYPE_CHECKING:
    from lpe_dask.cli.cluster import ChosenWorkers

logger = logging.getLogger(__name__)


def _columns_or_auto(value: str) -> str | list[str]:
    """Return names that were separated by commas, or "auto"."""
    return value if value == "auto" else split_names(value)


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
            f"{value} is too little: a worker takes "
            f"{format_bytes(PROCESS_BYTES + KERNEL_BYTES)} before any data. Give at least "
            f"{format_bytes(MIN_WORKER_BYTES)}."
        )
    return n_bytes


def _seconds(value: str) -> float:
    """Return a time, such as 30min, in seconds."""
    try:
        return seconds_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that gives a command these options, in this order in its help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def columns_options(default: str) -> Callable[[Any], Any]:
    """Return the options for the columns to measure, which tell the default."""
    text = f"Columns to measure.  [default: {default}]"
    return _options(
        click.option("--columns", type=split_names, metavar="A,B,C", help=text),
        click.option(
            "--exclude",
            type=split_names,
            metavar="A,B",
            help="Measure all columns but these, instead of --columns.",
        ),
    )


def _csv_options(ctx: Any, param: Any, value: tuple[str, ...]) -> dict[str, Any] | None:
    """Return options for CSV files; None without any."""
    if not value:
        return None
    from lpe_dask.tables import CsvOptions

    try:
        return CsvOptions.of_texts(value).given()
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


csv_option = click.option(
    "--csv",
    multiple=True,
    callback=_csv_options,
    metavar="KEY=VALUE",
    help="How CSV files are read, once for each of separator, decimal, thousands, quote, "
    "comment, skip_rows, header, names, na_values and encoding, for example decimal=,.",
)
check_option = click.option(
    "--check-calibration",
    is_flag=True,
    help="Judge by nominal rows that are held out whether false alarms are as rare as "
    "promised; takes about as long as the fit.",
)

#: About what is told of a run.
drift_option = click.option(
    "--fail-on-drift",
    is_flag=True,
    help="End with exit code 3 if the run is done, but the rows no longer look like those "
    "of the first runs of the job, or that the model was fitted on (conformal).",
)
report_option = click.option(
    "--no-report",
    "report",
    flag_value=False,
    default=True,
    show_default=False,
    help="Make no page about the run (OUT/_report.html).",
)
private_option = click.option(
    "--private",
    type=split_names,
    metavar="A,B",
    help="Columns that are in no reasons and not on the page.",
)

date_option = click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="The value of {date} in a job file.  [default: today, or yesterday if its run "
    "began less than 12 hours ago and was interrupted]",
)

worker_options = _options(
    click.option(
        "--scheduler",
        metavar="ADDRESS|threads",
        help="Join a running Dask cluster, for example tcp://10.0.0.1:8786, or work in "
        "this process with `threads`.  [default: that of DASK_SCHEDULER_ADDRESS, or else "
        "this process for what it does in seconds, and new workers for all else]",
    ),
    click.option(
        "--scheduler-file",
        metavar="FILE",
        help="Join the cluster whose scheduler writes its address to this file, as `dask "
        "scheduler --scheduler-file` does.",
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
        "--give-up-after",
        type=_seconds,
        metavar="TIME",
        help="End the run if no task is done for so long, for example 30min; it can be "
        "resumed.  [default: wait]",
    ),
    click.option(
        "--dashboard",
        is_flag=True,
        help="Start Dask's dashboard with the cluster, and print its address. All users of "
        'this machine can read it. Needs bokeh: pip install "lpe-dask[dashboard]".',
    ),
    click.option("--debug", is_flag=True, help="Show the full traceback of an error."),
)


def _model_option(name: str, parameter: Parameter) -> Callable[[Any], Any]:
    """Return the option for an argument of `LPE`."""
    kinds: dict[Any, Any] = {dict: _mapping, list: _columns_or_auto}
    kind = kinds.get(parameter.type, parameter.type)
    given: dict[str, Any] = {"type": kind, "metavar": parameter.metavar}
    default = parameter.default
    if parameter.choices is not None:
        given["type"] = click.Choice([choice or "none" for choice in parameter.choices])
        default = default or "none"
        given["callback"] = _none
    if default is not None:
        given["default"] = default
    return click.option(f"--{name.replace('_', '-')}", help=parameter.help, **given)


# In the order of the signature, except for the option about rows, the last in the help.
_ORDERED = sorted(PARAMETERS, key=lambda name: name == "missing")

model_options = _options(
    *(_model_option(n, PARAMETERS[n]) for n in _ORDERED if PARAMETERS[n].is_option)
)


#: Options that say which workers there are; those of a job, where none is given.
_PLACE = ("scheduler", "scheduler_file", "workers", "memory_limit")


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
    from lpe_dask.cli.cluster import ChosenWorkers

    place = {name: options.pop(name) for name in _PLACE}
    spool, dashboard = options.pop("spool"), options.pop("dashboard")
    give_up_after, threads = options.pop("give_up_after"), None
    if section is not None:
        if not any(place.values()):
            place, threads = {n: getattr(section, n) for n in _PLACE}, section.threads
            dashboard = dashboard or section.dashboard
        give_up_after = give_up_after or section.give_up_after
    if not any(place.values()) and not threads:
        place["scheduler"] = _configured_scheduler()
    _check_place(**place, dashboard=dashboard)
    return ChosenWorkers(
        place["scheduler"], place["workers"], place["memory_limit"], debug, threads,
        spool, place["scheduler_file"], give_up_after or math.inf, dashboard,
    )  # fmt: skip


def _configured_scheduler() -> str | None:
    """Return the scheduler that Dask's configuration names, as the Dask operator does."""
    address: str | None = dask.config.get("scheduler-address", None) or None
    if address is not None:
        logger.info("scheduler: %s, from Dask's configuration (scheduler-address)", address)
    return address


def _check_place(
    scheduler: str | None,
    scheduler_file: str | None,
    workers: int | None,
    memory_limit: int | None,
    dashboard: bool,
) -> None:
    """Raise if workers are started and joined, an address is none, or bokeh is missing."""
    given = {"--scheduler": scheduler, "--scheduler-file": scheduler_file}
    joined = [f"{option} {value}" for option, value in given.items() if value is not None]
    if len(joined) > 1:
        raise click.UsageError(
            f"{' and '.join(joined)} name a scheduler each. Leave out one or the other."
        )
    if joined and (workers, memory_limit, dashboard) != (None, None, False):
        raise click.UsageError(
            f"--workers, --memory-limit and --dashboard describe a cluster to start, but "
            f"{joined[0]} starts none. Leave out one or the other."
        )
    if scheduler is not None and scheduler != "threads" and ":" not in scheduler:
        raise click.UsageError(
            f"--scheduler {scheduler} is neither the address of a scheduler, such as "
            f"tcp://10.0.0.1:8786, nor `threads`."
        )
    if dashboard and find_spec("bokeh") is None:  # Dask would start it without its pages
        raise click.UsageError(
            "the dashboard (--dashboard, or dashboard = true in a job) needs bokeh, which "
            'is not installed: pip install "lpe-dask[dashboard]"'
        )

"""The options that several commands share: those about workers, and those of a model.

Those about workers are checked as the section [cluster] of a job is, those of a model when
the job is prepared.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click
import dask

from lpe_dask.cli.day_range import DayRange
from lpe_dask.cli.json_lines import log_format_option
from lpe_dask.model import PARAMETERS
from lpe_dask.tables import split_names

if TYPE_CHECKING:
    from lpe_dask.batch import ClusterSection
    from lpe_dask.cli.cluster import WorkerChoice

logger = logging.getLogger(__name__)


def _columns_or_auto(value: str) -> str | list[str]:
    """Return names that were separated by commas, or "auto"."""
    return value if value == "auto" else split_names(value)


def _mapping(value: str) -> dict[str, Any]:
    """Return a JSON object as a dict."""
    try:
        mapping = json.loads(value)
    except json.JSONDecodeError:
        mapping = None
    if not isinstance(mapping, dict):
        raise click.BadParameter(
            f'{value!r} is not a JSON object. Write it as {{"name": value}}.'
        )
    return mapping


def _none_from_text(ctx: Any, param: Any, value: str) -> str | None:
    """Return the value of a choice that has "none" among others."""
    return None if value == "none" else value


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that gives a command these options, in this order in its help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def names_option(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    """Return an option whose value is a list of column names."""
    return click.option(name, type=split_names, metavar=metavar, help=text)


def _csv_options(ctx: Any, param: Any, value: tuple[str, ...]) -> dict[str, Any] | None:
    """Return options for CSV files; None without any."""
    if not value:
        return None
    from lpe_dask.tables import CsvOptions

    try:
        return CsvOptions.of_texts(value).given()
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


nominal_or_model_options = _options(
    click.option(
        "--nominal",
        metavar="NOMINAL",
        help="Rows known to be normal, as a table like DATA. Without it, each row of DATA "
        "is compared with all others.",
    ),
    click.option(
        "--model",
        metavar="MODEL",
        help="Folder of a model that was saved, instead of --nominal and of the options of "
        "the model; `score` takes --alpha and --confidence with it.",
    ),
)
columns_options = _options(
    names_option(
        "--columns", "A,B,C", "Columns to measure.  [default: all, or the model's]"
    ),
    names_option(
        "--exclude", "A,B", "Measure all columns but these, instead of --columns."
    ),
    click.option(
        "--csv",
        multiple=True,
        callback=_csv_options,
        metavar="KEY=VALUE",
        help="How CSV files are read, once for each of separator, decimal, thousands, "
        "quote, comment, skip_rows, header, names, na_values and encoding, for example "
        "decimal=,.",
    ),
)
without_rows_option = click.option(
    "--without-rows",
    metavar="FILE",
    help="Leave out the nominal rows that are marked as anomalies in FILE, which `explain "
    "--confirm` has written.",
)
check_option = click.option(
    "--check-calibration",
    is_flag=True,
    help="Judge by nominal rows that are held out whether false alarms are as rare as "
    "promised; takes about as long as the fit.",
)

#: Options of output about a run.
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
output_options = _options(
    click.option(
        "--rows",
        type=click.Choice(["all", "flagged"]),
        default="all",
        help="Rows to write. flagged: those that are flagged or have no p-value, with "
        "their row_number in DATA, from 0; all rows are counted.",
    ),
    click.option(
        "--format",
        type=click.Choice(["parquet", "csv", "jsonl"]),
        default="parquet",
        help="Write the rows to one file, too: OUT/_scores.csv, in which what a "
        "spreadsheet would run as a formula has an apostrophe before it, or "
        "OUT/_scores.jsonl, lines of JSON.",
    ),
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace what an earlier run wrote."
)
debug_option = click.option(
    "--debug", is_flag=True, help="Show the full traceback of an error."
)
date_option = click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="The value of {date} in a job file.  [default: today, or yesterday if its run "
    "began less than 12 hours ago and was interrupted]",
)

dates_option = click.option(
    "--date",
    "days",
    type=DayRange(),
    metavar="YYYY-MM-DD[..YYYY-MM-DD]",
    help="The value of {date} in a job file; or the first and the last day of a range, "
    "which are done in order, as far as they are not done yet.  [default: today, or "
    "yesterday if its run began less than 12 hours ago and was interrupted]",
)
keep_going_option = click.option(
    "--keep-going",
    is_flag=True,
    help="After a day of a range that has failed, do the others all the same.",
)
deadline_option = click.option(
    "--finish-within",
    metavar="TIME",
    help="Refuse a run that is forecast to take longer, and say what would fit; end it "
    "after a tenth of its rows if they are too slow, so that it can be resumed. For "
    "example 2h.  [default: take any time]",
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
    log_format_option,
    debug_option,
)


def _model_option(name: str) -> Callable[[Any], Any]:
    """Return the option for an argument of `LPE`."""
    parameter = PARAMETERS[name]
    kinds: dict[Any, Any] = {dict: _mapping, list: _columns_or_auto}
    kind = kinds.get(parameter.type, parameter.type)
    given: dict[str, Any] = {"type": kind, "metavar": parameter.metavar}
    default = parameter.default
    if parameter.choices is not None:
        given["type"] = click.Choice([choice or "none" for choice in parameter.choices])
        default = default or "none"
        given["callback"] = _none_from_text
    if default is not None and kind is not _columns_or_auto:  # its help says it
        given["default"] = default
    return click.option(f"--{name.replace('_', '-')}", help=parameter.help, **given)


# In the order of the signature, except for the option about rows, the last in the help.
_ORDERED = sorted(PARAMETERS, key=lambda name: name == "missing")

model_options = _options(
    *(_model_option(name) for name in _ORDERED if PARAMETERS[name].is_option)
)


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, without those that have their defaults."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    return {
        name: value
        for name, value in options.items()
        if context.get_parameter_source(name) not in (default, None)
    }


#: Options that say which workers there are; those of a job, where none is given.
_CLUSTER_KEYS = ("scheduler", "scheduler_file", "workers", "memory_limit")


def pop_worker_options(
    options: dict[str, Any], debug: bool, of_job: ClusterSection | None = None
) -> WorkerChoice:
    """Remove the options about workers from those of a command, and check them.

    Parameters
    ----------
    options : dict
    debug : bool
        As in `WorkerChoice`.
    of_job : ClusterSection, optional
        Of a job file: is used if none of its options was given.
    """
    from lpe_dask.batch import ClusterSection
    from lpe_dask.cli.cluster import WorkerChoice

    of_run = ClusterSection.RUN_KEYS
    spool, names = options.pop("spool"), (*_CLUSTER_KEYS, *of_run, "dashboard")
    values = {name: options.pop(name, None) for name in names}
    given = {name: value for name, value in values.items() if value not in (None, False)}
    section = {} if of_job is None else of_job.model_dump(exclude_unset=True)
    if not given.keys().isdisjoint(_CLUSTER_KEYS):
        section = {name: value for name, value in section.items() if name in of_run}
    section |= given
    address = dask.config.get("scheduler-address", None)  # as the Dask operator sets it
    if address and section.keys().isdisjoint((*_CLUSTER_KEYS, "threads")):
        logger.info("scheduler: %s, from Dask's configuration (scheduler-address)", address)
        section["scheduler"] = address
    checked = ClusterSection.of_options(section)
    if checked.dashboard and find_spec("bokeh") is None:  # Dask would not show its pages
        raise click.UsageError(
            "the dashboard (--dashboard, or dashboard = true in a job) needs bokeh, which "
            'is not installed: pip install "lpe-dask[dashboard]"'
        )
    return WorkerChoice(checked, spool, debug)

"""The command line, `lpe-dask`: score, plan, fit, run and demo.

Starts or joins the workers, calls public functions, and turns errors into messages and exit
codes: 0 done, 1 failed after the start, 2 refused what was given, 3 done, but the rows have
drifted (--fail-on-drift), 130 interrupted, 143 terminated (SIGTERM), 75 try again later:
another run holds the lock. The results of a command go to standard output: the forecast of
`plan`, the table of `demo` and `explain`; messages go to standard error.
"""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from lpe_dask.cli.demo import demo_folder, demo_texts
from lpe_dask.cli.interrupts import handle_signals, has_given_up
from lpe_dask.cli.messages import SafeGroup, echo
from lpe_dask.cli.options import (
    check_option,
    columns_options,
    csv_option,
    date_option,
    drift_option,
    model_options,
    private_option,
    report_option,
    take_workers,
    worker_options,
)
from lpe_dask.cli.outcome import (
    FAILED,
    INTERRUPTED,
    LATER,
    TERMINATED,
    drift_code,
    end_now,
    exit_codes,
    summary_lines,
)
from lpe_dask.tables import split_names

if TYPE_CHECKING:
    from lpe_dask.cli.cluster import ChosenWorkers


@click.group(
    cls=SafeGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    help="""Give each row of a table a p-value: how rarely a nominal row is as unusual.

    Tables may be of any size; the work is done on this machine or on a Dask cluster.
    """,
)
@click.version_option(package_name="lpe-dask", prog_name="lpe-dask")
def cli() -> None:
    """Give each row of a table a p-value: how rarely a nominal row is as unusual."""


@cli.command(
    short_help="Score a table: files in, a folder of p-values out.",
    help="""Score each row of DATA and write it to OUT with its p-value.

    DATA is Parquet or CSV: a file, a folder or a quoted glob, local or a URL such as s3://.
    OUT gets the columns of DATA, and p_value (from 0 to 1, low is anomalous), statistic (to
    rank rows by) and is_anomaly (p_value at most alpha; empty where a number is missing);
    with --fdr also q_value, which is_anomaly then compares with that. What was found, why,
    and whether the model still fits is on the page OUT/_report.html.
    An interrupted run resumes when the same command is given again.
    """,
)
@click.argument("data", metavar="DATA")
@click.option(
    "--output",
    required=True,
    metavar="OUT",
    help="Folder to write: Parquet parts in the order of the input, and _summary.json.",
)
@click.option(
    "--nominal",
    metavar="NOMINAL",
    help="Rows known to be normal, as a table like DATA. Without it, each row of DATA is "
    "compared with all others.",
)
@click.option(
    "--model",
    metavar="MODEL",
    help="Folder of a model that was saved, instead of --nominal; of the options below "
    "that describe a model, only --alpha goes with it.",
)
@columns_options("all columns of the nominal rows")
@csv_option
@click.option(
    "--keep",
    type=split_names,
    metavar="ID,TS",
    help='Columns of DATA to carry over to OUT; "" for none.  [default: all]',
)
@click.option(
    "--fdr",
    type=float,
    metavar="Q",
    help="Flag rows at this false discovery rate: about this share of the flagged rows is "
    "nominal. Replaces alpha.",
)
@model_options
@check_option
@private_option
@report_option
@drift_option
@click.option("--overwrite", is_flag=True, help="Replace OUT if an earlier run wrote it.")
@worker_options
def score(
    data: str, overwrite: bool, fail_on_drift: bool, debug: bool, **options: Any
) -> None:
    """Score each row of DATA and write it to OUT with its p-value."""
    with exit_codes(debug):
        from lpe_dask.batch import score_job

        workers = take_workers(options, debug)
        if options["model"] is not None:  # its arguments are not those of the defaults
            options = _given(options)
        job = score_job(data, **_but_default_scale(options))
        code = _do(job, workers, overwrite, fail_on_drift=fail_on_drift)
    click.get_current_context().exit(code)


@cli.command(
    name="plan",
    short_help="Tell what a run would need; run nothing.",
    help="""Tell what `score` would need: tasks, pairs of rows, memory and time.

    For a job file, which ends in .toml, tell what `run` would need. Reads
    metadata and a sample of the rows, and starts no workers. Ends with exit code 2 if the
    run does not fit into the memory of the workers.
    """,
)
@click.argument("data", metavar="DATA|JOB.toml")
@click.option(
    "--nominal", metavar="NOMINAL", help="Rows known to be normal, as for `score`."
)
@click.option(
    "--model",
    metavar="MODEL",
    help="Folder of a model that was saved, instead of --nominal and of the options below "
    "that describe a model.",
)
@columns_options("all columns of the nominal rows")
@csv_option
@model_options
@date_option
@worker_options
def plan_run(data: str, debug: bool, **options: Any) -> None:
    """Tell what `score` would need: tasks, pairs of rows, memory and time."""
    with exit_codes(debug):
        from lpe_dask.forecast import is_job

        forecast = (_job_forecast if is_job(data) else _forecast)(data, debug, options)
        if forecast is not None:
            echo(forecast)
            forecast.check()


@cli.command(
    short_help="Learn from nominal rows, and save the model.",
    help="""Learn from NOMINAL, rows known to be normal, and save the model to MODEL.

    NOMINAL is Parquet or CSV: a file, a folder or a quoted glob, local or a URL such as
    s3://. `lpe-dask score DATA --model MODEL` then scores tables with it. An interrupted
    fit resumes when the same command is given again.
    """,
)
@click.argument("nominal", metavar="NOMINAL")
@click.option(
    "--model", required=True, metavar="MODEL", help="Folder to save the model to."
)
@columns_options("all")
@csv_option
@model_options
@check_option
@click.option("--overwrite", is_flag=True, help="Replace an existing model.")
@worker_options
def fit(nominal: str, overwrite: bool, debug: bool, **options: Any) -> None:
    """Learn from NOMINAL, rows known to be normal, and save the model to MODEL."""
    with exit_codes(debug):
        from lpe_dask.batch import fit_job

        workers = take_workers(options, debug)
        _do(fit_job(nominal, **_but_default_scale(options)), workers, overwrite)


@cli.command(
    short_help="Do what a job file says: fit, score, or both.",
    help="""Do what the job file JOB says, as far as it is not done yet.

    An interrupted job resumes when it is started again; a finished job says so and does
    nothing. Options about workers replace the section [cluster] of the file.
    """,
)
@click.argument("job", metavar="JOB")
@date_option
@click.option(
    "--overwrite",
    is_flag=True,
    help="Start from scratch: replace the model and the output.",
)
@report_option
@drift_option
@worker_options
def run(
    job: str,
    date: Any,
    overwrite: bool,
    report: bool,
    fail_on_drift: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Do what the job file JOB says, as far as it is not done yet."""
    with exit_codes(debug):
        from lpe_dask.batch import next_job

        due = next_job(job, date)
        if not report and due.score is not None:
            score = due.score.model_copy(update={"report": False})
            due = due.model_copy(update={"score": score})
        workers = take_workers(options, debug, due.cluster)
        code = _do(due, workers, overwrite, keep=True, fail_on_drift=fail_on_drift)
    click.get_current_context().exit(code)


@cli.command(
    short_help="Tell how far a run is: at work, to be resumed, or done.",
    help="""Tell how far the run is that writes OUT, on whatever machine it works.

    Exit code 0: it is done. 75: it is at work. 1: it is not done, and no run is at work.
    """,
)
@click.argument("output", metavar="OUT")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def status(output: str, debug: bool) -> None:
    """Tell how far the run is that writes OUT, on whatever machine it works."""
    with exit_codes(debug):
        from lpe_dask.batch import status_of

        found = status_of(output)
        echo(found)
    codes = {"done": 0, "at work": LATER, "resumable": FAILED}
    click.get_current_context().exit(codes[found.state])


@cli.command(
    name="compile",
    short_help="Compile ahead what a first large search would compile.",
    help="""Compile ahead what a first large search would compile, and keep it on disk.

    For images and machines of a cluster. Compiled code is for one kind of processor; it is
    kept in the folder of the configuration key lpe-dask.cache-folder, or where numba
    chooses.
    """,
)
@click.option(
    "--algorithm",
    type=click.Choice(["auto", "nn_descent"]),
    default="auto",
    show_default=True,
    help="nn_descent: pynndescent as well, which takes a minute longer.",
)
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def compile_ahead(algorithm: str, debug: bool) -> None:
    """Compile ahead what a first large search would compile."""
    with exit_codes(debug):
        from lpe_dask.kernels import compile_kernels

        began = time.monotonic()
        compile_kernels(algorithm)
        echo(f"all kernels are ready, after {time.monotonic() - began:.0f} s")


@cli.command(
    short_help="Tell why the most anomalous rows of a run are anomalous.",
    help="""Tell why the most anomalous rows of the run that wrote OUT are anomalous.

    Prints a line for each, with the three columns that say most. All columns are in
    OUT/_reasons.pqt.
    """,
)
@click.argument("output", metavar="OUT")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=50,
    metavar="N",
    help="How many rows. Each run knows those of 50; more are worked out, with the model.",
)
@worker_options
def explain(output: str, top: int, debug: bool, **options: Any) -> None:
    """Tell why the most anomalous rows of the run that wrote OUT are anomalous."""
    with exit_codes(debug):
        from lpe_dask.batch import explain_output, knows_reasons, reason_lines
        from lpe_dask.forecast import sizes_of_reasons

        workers = take_workers(options, debug)
        if not (is_known := knows_reasons(output, top)):
            workers = workers.chosen(lambda: sizes_of_reasons(output, top))
        with nullcontext() if is_known else _watched(workers):
            reasons = explain_output(output, top)
        echo(reason_lines(reasons))
        echo(f"all columns are in {output.rstrip('/')}/_reasons.pqt", err=True)


@cli.command(
    short_help="Make the page about a run again.",
    help="""Make the page about the run that wrote OUT again, from its summary alone.

    Each run makes it at its end: OUT/_report.html, one file that needs no network.
    """,
)
@click.argument("output", metavar="OUT")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def report(output: str, debug: bool) -> None:
    """Make the page about the run that wrote OUT again, from its summary alone."""
    with exit_codes(debug):
        from lpe_dask.batch import report as make

        echo(f"written to {make(output)}", err=True)


@cli.command(
    short_help="Find anomalies in a real table, from end to end.",
    help="""Learn from benign tumors, then find the malignant ones among new tumors.

    The table is scikit-learn's: 569 breast tumors, each with 30 measurements of its cells.
    A third of the benign ones is held out, so it is known which rows should be flagged, and
    how often that is a false alarm. Takes some seconds, and starts no workers.
    """,
)
@click.option(
    "--output",
    metavar="FOLDER",
    help="New folder for the tables and the page.  [default: one for temporary files]",
)
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def demo(output: str | None, debug: bool) -> None:
    """Learn from benign tumors, then find the malignant ones among new tumors."""
    with exit_codes(debug), demo_folder(output) as folder:
        if not debug:
            logging.getLogger("lpe_dask").setLevel(logging.WARNING)
        for text in demo_texts(folder):
            echo(text)


def main() -> None:
    """Run the command line; the entry of the console command."""
    _start_fast()
    try:
        cli(prog_name="lpe-dask")
    except SystemExit as end:
        code = int(end.code or 0)
        if code in (INTERRUPTED, TERMINATED) or has_given_up():
            end_now(code)
        handle_signals(lambda: end_now(code))  # Python's own end removes the spool later
        raise


def _start_fast() -> None:
    """Spare this process what takes a third of its start."""
    # What is imported lives to the end: no need to look through it again and again.
    gc.set_threshold(10_000, 50, 50)
    # What its import says where no semaphores can be made: only scikit-learn needs it.
    warnings.filterwarnings("ignore", ".*joblib will operate in serial mode")


# What the commands do


def _do(
    job: Any,
    workers: ChosenWorkers,
    overwrite: bool = False,
    *,
    keep: bool = False,
    fail_on_drift: bool = False,
) -> int:
    """Check everything, start or join the workers, do a job, and print what was done.

    Returns the exit code: that rows have drifted, if it is asked for, also if that was
    found by an earlier run that has finished.
    """
    from lpe_dask.batch import prepare, read_summary
    from lpe_dask.forecast import sizes_of_run

    if fail_on_drift and job.score is not None:
        job = job.with_drift_test()
    run = prepare(job, "replace" if overwrite else "keep" if keep else "refuse")
    if keep and run.is_finished():
        run.tidy()
        echo(_nothing_to_do(job.place), err=True)
        is_asked = job.score is not None and fail_on_drift
        summary = read_summary(job.place) if is_asked else {}
    else:
        workers = workers.chosen(lambda: sizes_of_run(run))
        summary = run.execute(_watched(workers))
        echo(summary_lines(summary, job.place), err=True)
    if fail_on_drift and (code := drift_code(summary)) != 0:
        said = (summary.get("drift") or {}).get("text", "drift was not judged")
        echo(f"--fail-on-drift: {said}", err=True)
        return code
    return 0


@contextmanager
def _watched(workers: ChosenWorkers) -> Iterator[None]:
    """Open the workers, show progress, and notice that nothing moves."""
    from rich.console import Console

    from lpe_dask.cli.progress import show_progress
    from lpe_dask.cli.stall_detection import detect_stalls
    from lpe_dask.tasks import listening

    with (
        workers.open(),
        show_progress(Console(stderr=True)) as show,
        detect_stalls(workers.give_up_after) as detect,
        listening(show, detect),
    ):
        yield


def _forecast(data: str, debug: bool, options: dict[str, Any]) -> Any:
    """Return what it takes to score a table."""
    from lpe_dask.batch import check_is_alone
    from lpe_dask.forecast import forecast_score, forecast_with_model

    workers = take_workers(options, debug)
    if options.pop("date") is not None:
        raise click.UsageError("--date is for a job file, which ends in .toml.")
    if options["model"] is None:
        del options["model"]
        with workers.planned() as planned:
            return forecast_score(planned, data, **options)
    given = _given(options)
    path, columns = given.pop("model"), given.pop("columns", None)
    csv = given.pop("csv", None)
    check_is_alone(path, given.pop("nominal", None), given)
    with workers.planned() as planned:
        return forecast_with_model(planned, data, path, columns, csv)


def _job_forecast(job: str, debug: bool, options: dict[str, Any]) -> Any:
    """Return what it takes to do a job; None, and a message, if that is nothing."""
    from lpe_dask.batch import next_job, prepare
    from lpe_dask.forecast import check_no_others, forecast_job

    due = next_job(job, options.pop("date"))
    workers = take_workers(options, debug, due.cluster)
    check_no_others(job, list(_given(options)))
    prepared = prepare(due)
    if prepared.is_finished():
        echo(_nothing_to_do(due.place), err=True)
        return None
    with workers.planned() as planned:
        return forecast_job(planned, prepared)


def _nothing_to_do(place: str) -> str:
    return f"nothing to do: {place} exists already"


def _but_default_scale(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without the scale if none was given: the fit may advise one."""
    is_given = "scale" in _given(options)
    return {n: value for n, value in options.items() if is_given or n != "scale"}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, without those that have their defaults."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    return {
        name: value
        for name, value in options.items()
        if context.get_parameter_source(name) not in (default, None)
    }

"""The command line, `lpe-dask`: score, plan, fit, run and demo.

Starts or joins the workers, calls public functions, and turns errors into messages and exit
codes: 0 done, 1 failed after the start, 2 refused what was given, 3 done, but the rows have
drifted (--fail-on-drift), 4 done, but a new model was rejected (refit), 130 interrupted,
143 terminated (SIGTERM), 75 try again later: another run holds the lock. The results of a
command go to standard output: the forecast of `plan`, the table of `demo` and `explain`;
messages go to standard error.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lpe_dask.cli.demo import demo_folder, demo_texts
from lpe_dask.cli.interrupts import handle_signals, was_aborted
from lpe_dask.cli.json_lines import name_run, writes_json
from lpe_dask.cli.messages import SafeGroup, echo, notice
from lpe_dask.cli.options import (
    check_option,
    columns_options,
    date_option,
    dates_option,
    deadline_option,
    debug_option,
    drift_option,
    given_options,
    keep_going_option,
    model_options,
    names_option,
    nominal_or_model_options,
    output_options,
    overwrite_option,
    pop_worker_options,
    report_option,
    without_rows_option,
    worker_options,
)
from lpe_dask.cli.outcome import (
    FAILED,
    INTERRUPTED,
    TERMINATED,
    TRY_LATER,
    drift_code,
    exit_codes,
    exit_immediately,
    refit_code,
    summary_fields,
    summary_lines,
    url_of,
)

if TYPE_CHECKING:
    import datetime

    from lpe_dask.batch import Job
    from lpe_dask.cli.cluster import WorkerChoice
    from lpe_dask.cli.deadline import Deadline
    from lpe_dask.cli.shared_workers import SharedWorkers

# The help of a command is its docstring, of which the list of commands has the first
# sentence.


@click.group(
    cls=SafeGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="lpe-dask", prog_name="lpe-dask")
def cli() -> None:
    """Give each row of a table a p-value: how rarely a nominal row is as unusual.

    Tables may be of any size; the work is done on this machine or on a Dask cluster.
    """


@cli.command()
@click.argument("data", metavar="DATA")
@click.option(
    "--output",
    required=True,
    metavar="OUT",
    help="Folder to write: Parquet parts in the order of the input, and _summary.json.",
)
@nominal_or_model_options
@columns_options
@names_option(
    "--keep", "ID,TS", 'Columns of DATA to carry over to OUT; "" for none.  [default: all]'
)
@click.option(
    "--fdr",
    type=float,
    metavar="Q",
    help="Flag rows at this false discovery rate: about this share of the flagged rows is "
    "nominal. Replaces alpha.",
)
@model_options
@without_rows_option
@check_option
@names_option("--private", "A,B", "Columns that are in no reasons and not on the page.")
@output_options
@report_option
@drift_option
@overwrite_option
@deadline_option
@worker_options
def score(
    data: str, overwrite: bool, fail_on_drift: bool, debug: bool, **options: Any
) -> None:
    """Score a table: files in, a folder of p-values out.

    DATA is Parquet or CSV: a file, a folder or a quoted glob, local or a URL such as s3://.
    OUT gets the columns of DATA, and p_value (from 0 to 1, low is anomalous), statistic (to
    rank rows by), is_anomaly (p_value at most alpha, or what --confidence leaves of it;
    empty without one) and p_value_status (ok, or why there is no p_value); with --fdr also
    q_value, which is_anomaly then compares with that. What was found, why, and whether the
    model still fits is on the page OUT/_report.html.
    An interrupted run resumes when the same command is given again.
    """
    with exit_codes(debug):
        from lpe_dask.batch import score_job

        workers = pop_worker_options(options, debug)
        job = score_job(data, **given_options(options))
        code = _execute(job, workers, overwrite=overwrite, fail_on_drift=fail_on_drift)
    click.get_current_context().exit(code)


@cli.command(name="plan")
@click.argument("data", metavar="DATA|JOB.toml")
@nominal_or_model_options
@columns_options
@model_options
@date_option
@worker_options
def plan_run(data: str, debug: bool, **options: Any) -> None:
    """Estimate what a run would need; run nothing.

    That is tasks, pairs of rows, memory and time, of `score` or, for a job file, which ends
    in .toml, of `run`. Reads metadata and a sample of the rows, and starts no workers. Ends
    with exit code 2 if the run does not fit into the memory of the workers.
    """
    with exit_codes(debug):
        from lpe_dask.batch import Run, next_job
        from lpe_dask.forecast import is_job, make_forecast

        job = next_job(data, options.pop("date")) if is_job(data) else None
        workers = pop_worker_options(options, debug, None if job is None else job.cluster)
        given, run = given_options(options), None if job is None else Run.prepare(job)
        if run is not None and run.is_finished() and not given:
            _announce(run.job, True)
            return
        with workers.for_plan() as choose:
            found = make_forecast(choose, run or data, **given)
        echo(found)
        found.check()


@cli.command()
@click.argument("nominal", metavar="NOMINAL")
@click.option(
    "--model", required=True, metavar="MODEL", help="Folder to save the model to."
)
@columns_options
@model_options
@without_rows_option
@check_option
@overwrite_option
@deadline_option
@worker_options
def fit(nominal: str, overwrite: bool, debug: bool, **options: Any) -> None:
    """Learn from nominal rows, and save the model.

    NOMINAL is Parquet or CSV: a file, a folder or a quoted glob, local or a URL such as
    s3://. `lpe-dask score DATA --model MODEL` then scores tables with it. An interrupted
    fit resumes when the same command is given again.
    """
    with exit_codes(debug):
        from lpe_dask.batch import fit_job

        workers = pop_worker_options(options, debug)
        job = fit_job(nominal, **given_options(options))
        _execute(job, workers, overwrite=overwrite)


@cli.command()
@click.argument("path", metavar="JOB")
@dates_option
@keep_going_option
@overwrite_option
@report_option
@drift_option
@deadline_option
@worker_options
def run(
    path: str,
    days: Any,
    keep_going: bool,
    report: bool,
    overwrite: bool,
    fail_on_drift: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Do what a job file says: fit, score, or both.

    Does what is not done yet. An interrupted job resumes when it is started again; a
    finished job says so and does nothing. Options about workers replace the section
    [cluster] of the file.

    With a range of days, such as --date 2026-11-01..2026-11-10, they are done in order on
    the same workers. The first one that fails ends that, unless --keep-going is given. The
    exit code is that of the first day that failed.
    """
    with exit_codes(debug):
        from lpe_dask.cli.backfill import Backfill

        job_of = partial(_job_of, path, report)
        execute = partial(
            _execute, overwrite=overwrite, keep=True, fail_on_drift=fail_on_drift
        )
        if isinstance(days, list):
            workers = pop_worker_options(options, debug, job_of(days[0]).cluster)
            backfill = Backfill(path, days, job_of, execute, debug)
            code = backfill.run(workers, keep_going=keep_going)
        elif keep_going:
            raise click.UsageError(
                "--keep-going is for a range of days, such as --date "
                "2026-11-01..2026-11-10. Give one, or leave it out."
            )
        else:
            job = job_of(days)
            code = execute(job, pop_worker_options(options, debug, job.cluster))
    click.get_current_context().exit(code)


@cli.command()
@click.argument("output", metavar="OUT")
@debug_option
def status(output: str, debug: bool) -> None:
    """Show how far a run is: running, interrupted, or done.

    It is the run that writes OUT, on whatever machine it works. Exit code 0: it is done.
    75: it is running. 1: it is interrupted; the same command resumes it.
    """
    with exit_codes(debug):
        from lpe_dask.batch import read_status

        found = read_status(output)
        echo(found)
    codes = {"done": 0, "running": TRY_LATER, "interrupted": FAILED}
    click.get_current_context().exit(codes[found.state])


@cli.command()
@click.argument("path", metavar="MODEL")
@click.option("--json", "as_json", is_flag=True, help="Print all of it, as JSON.")
@debug_option
def inspect(path: str, as_json: bool, debug: bool) -> None:
    """Show what a saved model was fitted on, with which arguments, and what it promises.

    Also when, by which release, and its checksum and size. Reads none of its rows, and
    starts no workers. Exit code 2: there is no model, or it is damaged. 75: the storage is
    not available; try again later.
    """
    with exit_codes(debug):
        from lpe_dask.batch import inspect_model

        inspection = inspect_model(path)
        echo(json.dumps(inspection.content, indent=1) if as_json else inspection)


@cli.command()
@debug_option
def schema(debug: bool) -> None:
    """Print the JSON Schema of job files.

    Editors complete and check a job file if its first line names a file with it, as in
    #:schema ./job.schema.json
    """
    with exit_codes(debug):
        from lpe_dask.batch import job_schema

        echo(json.dumps(job_schema(), indent=1))


@cli.command(name="compile")
@click.option(
    "--algorithm",
    type=click.Choice(["auto", "nn_descent"]),
    default="auto",
    help="nn_descent: pynndescent as well, which takes a minute longer.",
)
@debug_option
def compile_ahead(algorithm: str, debug: bool) -> None:
    """Compile ahead what a first large search would compile.

    For images and machines of a cluster. Compiled code is for one kind of processor; it is
    kept in the folder of the configuration key lpe-dask.cache-folder, or where numba
    chooses.
    """
    with exit_codes(debug):
        from lpe_dask.kernels import compile_kernels

        began = time.monotonic()
        compile_kernels(algorithm)
        echo(f"all kernels are ready, after {time.monotonic() - began:.0f} s")


@cli.command()
@click.argument("output", metavar="OUT")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=50,
    metavar="N",
    help="How many rows. Each run knows those of 50, or of 200 where rows are scored "
    "against each other; more are worked out, with the model.",
)
@click.option(
    "--confirm",
    metavar="FILE",
    help="Write the rows into this new CSV file instead. Mark those that are anomalies (x "
    "in is_anomaly_confirmed); `fit` and `score` leave them out (--without-rows FILE).",
)
@click.option(
    "--patterns",
    "shows_patterns",
    is_flag=True,
    help="Print how the run has grouped its flagged rows by cause, instead of rows. "
    "Computes nothing.",
)
@worker_options
def explain(
    output: str,
    top: int,
    confirm: str | None,
    shows_patterns: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Explain why the most anomalous rows of a run are anomalous.

    Prints a line for each, with the three columns that say most. All columns are in
    OUT/_reasons.pqt. With --patterns, a line for each cause.
    """
    with exit_codes(debug):
        name_run(url_of(output))
        if shows_patterns:
            if given_options({"top": top, "confirm": confirm}):
                raise click.UsageError(
                    "--top and --confirm are for rows, and --patterns prints none. Leave "
                    "one or the other out."
                )
            from lpe_dask.batch import read_patterns
            from lpe_dask.cli.patterns import format_patterns, patterns_note

            found = read_patterns(output)
            echo(format_patterns(found))
            notice(patterns_note(found))
            return
        from lpe_dask.batch import explain_output
        from lpe_dask.cli.reasons import format_reasons, list_text
        from lpe_dask.forecast import Workload

        workers = pop_worker_options(options, debug)
        workers = workers.resolve(lambda: Workload.of_explanations(output, top))
        reasons = explain_output(output, top, _with_progress(workers), confirm)
        if confirm is not None:
            notice(list_text(confirm))
            return
        echo(format_reasons(reasons))
        notice(f"all columns are in {output.rstrip('/')}/_reasons.pqt")


@cli.command()
@click.argument("output", metavar="OUT")
@debug_option
def report(output: str, debug: bool) -> None:
    """Make the page about a run again.

    Each run makes it at its end: OUT/_report.html, one file that needs no network. This
    makes it from the summary in OUT alone.
    """
    with exit_codes(debug):
        from lpe_dask.batch import report as make

        notice(f"written to {make(output)}")


@cli.command()
@click.option(
    "--output",
    metavar="FOLDER",
    help="New folder for the tables and the page.  [default: one for temporary files]",
)
@debug_option
def demo(output: str | None, debug: bool) -> None:
    """Find anomalies in a real table, from end to end.

    Learns from benign tumors, then finds the malignant ones among new tumors. The table is
    scikit-learn's: 569 breast tumors, each with 30 measurements of its cells. A third of
    the benign ones is held out, so it is known which rows should be flagged, and how often
    that is a false alarm. Takes some seconds, and starts no workers.
    """
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
        if code in (INTERRUPTED, TERMINATED) or was_aborted():
            exit_immediately(code)
        # Python's own end removes the spool, and comes later.
        handle_signals(lambda: exit_immediately(code))
        raise


def _start_fast() -> None:
    """Spare this process what takes a third of its start."""
    # What is imported lives to the end: no need to look through it again and again.
    gc.set_threshold(10_000, 50, 50)
    # What its import says where no semaphores can be made: only scikit-learn needs it.
    warnings.filterwarnings("ignore", ".*joblib will operate in serial mode")


# What the commands do


def _job_of(path: str, has_report: bool, day: datetime.date | None) -> Job:
    """Return the job of a file for a day; None: for that which is to be done next."""
    from lpe_dask.batch import next_job

    job = next_job(path, day)
    if has_report or job.score is None:
        return job
    score = job.score.model_copy(update={"report": False})
    return job.model_copy(update={"score": score})


def _announce(job: Job, is_finished: bool) -> None:
    """Say that nothing is to be done, if that is so."""
    if is_finished:
        notice(f"nothing to do: {job.place} exists already", "nothing to do")


def _execute(
    job: Job,
    workers: WorkerChoice | SharedWorkers,
    announce: Callable[[Job, bool], None] = _announce,
    *,
    overwrite: bool = False,
    keep: bool = False,
    fail_on_drift: bool = False,
) -> int:
    """Check everything, start or join the workers, do a job, and print what was done.

    Returns the exit code: that rows have drifted, if it is asked for, also if that was
    found by an earlier run that has finished.
    """
    from lpe_dask.cli.notification import check_command, failures_notified

    name_run(url_of(job.place))
    check_command(job)
    with failures_notified(job):
        return _do_job(job, workers, announce, overwrite, keep, fail_on_drift)


def _do_job(
    job: Job,
    workers: WorkerChoice | SharedWorkers,
    announce: Callable[[Job, bool], None],
    overwrite: bool,
    keep: bool,
    fail_on_drift: bool,
) -> int:
    """Do a job, as `_execute` says."""
    from lpe_dask.batch import Run, read_summary
    from lpe_dask.cli.deadline import Deadline
    from lpe_dask.cli.notification import notify
    from lpe_dask.forecast import Workload

    deadline = Deadline(workers.finish_within)
    fail_on_drift = fail_on_drift and job.score is not None
    if fail_on_drift:
        job = job.with_drift_test()
    run = Run.prepare(job, "replace" if overwrite else "keep" if keep else "refuse")
    if run.has_only_refit_left():  # the rows are there in time, or too late
        deadline = Deadline(math.inf)
    is_finished = keep and run.is_finished()
    announce(job, is_finished)
    if is_finished:
        run.clean_up()
        return _drift_code(read_summary(job.place)) if fail_on_drift else 0
    workers = workers.resolve(lambda: Workload.of_run(run))
    deadline.check_forecast(run, workers)
    notice("", "run started")
    summary = run.execute(_with_progress(workers, deadline))
    code = (drift_code(summary) if fail_on_drift else 0) or refit_code(summary)
    numbers = summary_fields(summary) | {"exit_code": code}
    notice(summary_lines(summary, job.place), "run finished", **numbers)
    deadline.show_late()
    if fail_on_drift:
        _drift_code(summary)
    notify(job, summary, code)
    return code


def _drift_code(summary: dict[str, Any]) -> int:
    """Return how a run ends that is to fail if it drifts, and say why."""
    if (code := drift_code(summary)) != 0:
        text = (summary.get("drift") or {}).get("text", "drift was not judged")
        notice(f"--fail-on-drift: {text}", level=logging.WARNING)
    return code


@contextmanager
def _with_progress(
    workers: WorkerChoice | SharedWorkers, deadline: Deadline | None = None
) -> Iterator[None]:
    """Open the workers, show progress, and notice that nothing moves, or not in time."""
    from rich.console import Console

    from lpe_dask.cli.deadline import Deadline
    from lpe_dask.cli.progress import show_progress
    from lpe_dask.cli.stall_detection import detect_stalls
    from lpe_dask.tasks import Computation

    # Also where the environment says that everything is a terminal.
    console = Console(stderr=True, force_terminal=False if writes_json() else None)
    with (
        workers.open(),
        show_progress(console) as show,
        detect_stalls(workers.give_up_after) as detect,
        (deadline or Deadline(math.inf)).watched(workers) as check,
        Computation.observed(show, detect, check),
    ):
        yield

"""The command line, `lpe-dask`: score, plan, fit, run, demo and paper.

Starts or joins the workers, calls public functions, and turns errors into messages and exit
codes: 0 done, 1 failed after the start, 2 refused what was given, 130 interrupted, 143
terminated (SIGTERM), 75 try again later: another run is at work there. What a command is
there to tell goes to standard output, as the forecast of `plan`, the table of `demo`, the
verdicts of `paper`; messages go to standard error.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
import dask

from lpe_dask.cli.cluster import ChosenWorkers
from lpe_dask.cli.demo import demo_table, write_digits
from lpe_dask.cli.interrupts import Terminated, ignore_signals, signals_raised
from lpe_dask.cli.options import check_option, model_options, names, worker_options
from lpe_dask.storage import LockedError

logger = logging.getLogger(__name__)

#: Exit codes.
FAILED, REFUSED, LATER, INTERRUPTED, TERMINATED = 1, 2, 75, 130, 143

#: What can be refused; any other error, and any in the middle of a run, is a failure.
_REFUSALS = (
    ValueError,
    TypeError,
    OSError,
    MemoryError,
    ImportError,
    NotImplementedError,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="lpe-dask", prog_name="lpe-dask")
def cli() -> None:
    """Give each row of a table a p-value: how rarely a nominal row is as unusual.

    Tables may be of any size; the work is done on this machine or on a Dask cluster.
    """


@cli.command(short_help="Score a table: files in, a folder of p-values out.")
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
@click.option(
    "--columns",
    callback=names,
    metavar="A,B,C",
    help="Columns to measure.  [default: all columns of the nominal rows]",
)
@click.option(
    "--keep",
    callback=names,
    metavar="ID,TS",
    help='Columns of DATA to carry over to OUT; "" for none.  [default: all]',
)
@click.option(
    "--fdr",
    type=float,
    metavar="Q",
    help="Flag as many rows as keep the share of nominal ones among them at about this, "
    "instead of those with a p-value of at most alpha.",
)
@model_options
@check_option
@click.option("--overwrite", is_flag=True, help="Replace OUT if an earlier run wrote it.")
@worker_options
def score(data: str, debug: bool, **options: Any) -> None:
    """Score each row of DATA and write it to OUT with its p-value.

    DATA is Parquet or CSV: a file, a folder or a quoted glob, local or a URL such as s3://.
    OUT gets the columns of DATA, and p_value (from 0 to 1, low is anomalous), statistic (to
    rank rows by) and is_anomaly (p_value at most alpha; empty where a number is missing);
    with --fdr also q_value, which is_anomaly then compares with that.
    A run that was interrupted goes on when the same command is given again.
    """
    with _exit_codes(debug):
        from lpe_dask.batch import score_job

        workers, existing = _take_workers(options, debug), _existing(options)
        with _spool(options.pop("spool")):
            if options["model"] is not None:
                options = _without_defaults(options)
            _do(score_job(data, **_arguments(options)), existing, workers)


@cli.command(name="plan", short_help="Tell what a run would need; run nothing.")
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
@click.option(
    "--columns",
    callback=names,
    metavar="A,B,C",
    help="Columns to measure.  [default: all columns of the nominal rows]",
)
@model_options
@worker_options
def plan_run(data: str, debug: bool, **options: Any) -> None:
    """Tell what `score` would need: tasks, pairs of rows, memory and time.

    Of a job file, which ends in .toml, tell what `run` would need, for the day that it
    would take. Reads metadata and a sample of the rows, and starts no workers. Ends with
    exit code 2 if the run does not fit into the memory of the workers.
    """
    with _exit_codes(debug):
        from lpe_dask.forecast import is_job

        del options["spool"]
        forecast = (_job_forecast if is_job(data) else _forecast)(data, debug, options)
        if forecast is not None:
            click.echo(forecast)
            forecast.check()


@cli.command(short_help="Learn from nominal rows, and save the model.")
@click.argument("nominal", metavar="NOMINAL")
@click.option(
    "--model", required=True, metavar="MODEL", help="Folder to save the model to."
)
@click.option(
    "--columns",
    callback=names,
    metavar="A,B,C",
    help="Columns to measure.  [default: all]",
)
@model_options
@check_option
@click.option("--overwrite", is_flag=True, help="Replace a model that is there.")
@worker_options
def fit(nominal: str, debug: bool, **options: Any) -> None:
    """Learn from NOMINAL, rows known to be normal, and save the model to MODEL.

    NOMINAL is Parquet or CSV: a file, a folder or a quoted glob, local or a URL such as
    s3://. `lpe-dask score DATA --model MODEL` then scores tables with it. A fit that was
    interrupted goes on when the same command is given again.
    """
    with _exit_codes(debug):
        from lpe_dask.batch import fit_job

        workers, existing = _take_workers(options, debug), _existing(options)
        with _spool(options.pop("spool")):
            _do(fit_job(nominal, **_arguments(options)), existing, workers)


@cli.command(short_help="Do what a job file says: fit, score, or both.")
@click.argument("job", metavar="JOB")
@click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="What {date} in the file stands for.  [default: today, or the day of a run that "
    "began less than 12 hours ago and was interrupted]",
)
@click.option(
    "--overwrite", is_flag=True, help="Do all of it anew: replace the model and the output."
)
@worker_options
def run(job: str, date: Any, overwrite: bool, debug: bool, **options: Any) -> None:
    """Do what the job file JOB says, as far as it is not done yet.

    A job that was interrupted goes on when it is started again; one that is finished says
    so and does nothing. Options about workers go before the section [cluster] of the file.
    """
    with _exit_codes(debug):
        from lpe_dask.batch import next_job

        day = None if date is None else date.date()
        due = next_job(job, day, overwrite=overwrite)
        with _spool(options.pop("spool")):
            workers = _take_workers(_with_section(options, due.cluster), debug)
            _do(due, "replace" if overwrite else "keep", workers)


@cli.command(short_help="Score real handwritten digits, from end to end.")
@click.option(
    "--output",
    metavar="FOLDER",
    help="Keep the tables, in this new folder.  [default: they are removed at the end]",
)
@worker_options
def demo(output: str | None, debug: bool, **options: Any) -> None:
    """Learn what the handwritten digits 0 to 4 look like, then score those and 5 to 9.

    The rows are the 8 x 8 images that come with scikit-learn. A third of the digits 0 to 4
    is held out, so it is known which rows should be flagged, and how often by mistake.
    """
    with _exit_codes(debug), ExitStack() as stack:
        from lpe_dask.batch import score_job

        workers = _take_workers(options, debug)
        folder = _demo_folder(output, stack)
        write_digits(folder)
        job = score_job(
            folder / "digits.parquet",
            folder / "scores",
            nominal=folder / "nominal.parquet",
            keep=["digit"],
        )
        with _spool(options["spool"]):
            _do(job, "refuse", workers, tell=False)
        click.echo(demo_table(folder / "scores"))
        click.echo(_demo_ending(folder, is_kept=output is not None), err=True)


@cli.command(short_help="Repeat the paper's experiments: figures and a table of claims.")
@click.option(
    "--output",
    required=True,
    metavar="OUT",
    help="Folder to write: index.html, table.csv and figure-1.png to figure-5.png.",
)
@click.option(
    "--data",
    metavar="FOLDER",
    help="Folder of banana.npz, wine.npz, ionosphere.npz and usps.npz.  [default: fetch "
    "them from OpenML]",
)
@click.option(
    "--draws",
    type=click.IntRange(min=2),
    metavar="N",
    help="Draws of each average.  [default: 100 to 1000, as each figure needs]",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if an earlier run wrote it.")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def paper(output: str, debug: bool, **options: Any) -> None:
    """Repeat the experiments of the paper, and say which of its claims hold.

    All is seeded: each run gives the same numbers. It takes some minutes, in this process,
    and needs matplotlib and jinja2 (pip install "lpe-dask[plot]").
    """
    with _exit_codes(debug):
        # Not needed for --help, and takes a second.
        from lpe_dask.paper import run_paper

        experiments = run_paper(output, **options)
        verdicts = [row.verdict for experiment in experiments for row in experiment.rows]
        for verdict in dict.fromkeys(verdicts):
            click.echo(f"{verdict}: {verdicts.count(verdict)} of {len(verdicts)}")
        click.echo(f"written to {output}: open {Path(output) / 'index.html'}", err=True)


def main() -> None:
    """Run the command line; the entry of the console command."""
    try:
        cli(prog_name="lpe-dask")
    except SystemExit as end:
        if end.code in (INTERRUPTED, TERMINATED):
            _end_now(end.code)
        raise


# What the commands do


def _do(job: Any, existing: Any, workers: ChosenWorkers, *, tell: bool = True) -> None:
    """Check everything, start or join the workers, do a job, and tell what came out."""
    from lpe_dask.batch import prepare

    prepared = prepare(job, existing)
    if existing == "keep" and prepared.is_finished():
        click.echo(_nothing_to_do(job.place), err=True)
        return
    with prepared.reserved() as lock, workers.open(), _progress() as expect:
        summary = prepared.execute(lock, expect)
    if tell:
        click.echo(_summary_lines(summary, job.place), err=True)


def _existing(options: dict[str, Any]) -> str:
    """Take the option out that tells what becomes of a result that is there."""
    return "replace" if options.pop("overwrite") else "refuse"


def _forecast(data: str, debug: bool, options: dict[str, Any]) -> Any:
    """Return what it takes to score a table."""
    from lpe_dask.batch import check_is_alone
    from lpe_dask.forecast import forecast_score, forecast_with_model

    workers = _take_workers(options, debug)
    if options["model"] is None:
        del options["model"]
        with workers.foreseen() as crew:
            return forecast_score(crew, data, **_arguments(options))
    given = _given(options)
    path, columns = given.pop("model"), given.pop("columns", None)
    check_is_alone(path, given.pop("nominal", None), given)
    with workers.foreseen() as crew:
        return forecast_with_model(crew, data, path, columns)


def _job_forecast(job: str, debug: bool, options: dict[str, Any]) -> Any:
    """Return what it takes to do a job; None if that is nothing, which is said."""
    from lpe_dask.batch import next_job, prepare
    from lpe_dask.forecast import check_no_others, forecast_job

    due = next_job(job)
    options = _with_section(options, due.cluster)
    workers = _take_workers(options, debug)
    check_no_others(job, list(_given(options)))
    prepared = prepare(due)
    if prepared.is_finished():
        click.echo(_nothing_to_do(due.place), err=True)
        return None
    with workers.foreseen() as crew:
        return forecast_job(crew, prepared)


def _nothing_to_do(place: str) -> str:
    return f"nothing to do: {place} is there already"


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, rather than left to their defaults."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    return {
        name: value
        for name, value in options.items()
        if context.get_parameter_source(name) not in (default, None)
    }


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as arguments of public functions."""
    return options | ({"scale": None} if options.get("scale") == "none" else {})


def _without_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Leave out the options of a model that were not given: a saved one has its own."""
    kept = ("output", "model", "keep", "columns", "fdr")
    return {name: options[name] for name in kept} | _given(options)


def _spool(folder: str | None) -> Any:
    """Return a context in which nominal rows that do not fit are spooled to ``folder``."""
    configured = dask.config.get("lpe-dask.spool")
    return dask.config.set({"lpe-dask.spool": folder or configured})


def _with_section(options: dict[str, Any], section: Any) -> dict[str, Any]:
    """Return options about workers, or those of a job file where none was given."""
    names = ("scheduler", "workers", "memory_limit")
    if section is None or any(options[name] is not None for name in names):
        return options
    return options | {name: getattr(section, name) for name in (*names, "threads")}


def _progress() -> AbstractContextManager[Any]:
    from lpe_dask.cli.progress import show_progress

    return show_progress()


def _summary_lines(summary: dict[str, Any], place: str) -> str:
    """Return what a run came to: of a table that was scored, or a model that was saved."""
    if "rows" in summary:
        lines, end = _score_lines(summary), f"written to {place}"
    else:
        lines, end = _fit_lines(summary), f"saved to {summary['model']}"
    return "\n".join([*lines, *_check_lines(summary["calibration_check"]), end])


def _score_lines(summary: dict[str, Any]) -> list[str]:
    flagged, share = summary["flagged"], summary["flagged_share"]
    decided = f"alpha {summary['alpha']:g}"
    if summary["fdr"] is not None:
        decided = f"a false discovery rate of {summary['fdr']:g}"
    lines = [
        f"{summary['rows']} rows against {summary['nominal_rows']} nominal rows, "
        f"in {summary['seconds']:.1f} s",
        f"{flagged} flagged at {decided}" + ("" if share is None else f" ({share:.2%})"),
    ]
    if summary["rows_nan"]:
        lines.append(f"{summary['rows_nan']} not measured: NaN or inf")
    if summary["dropped_rows"]:
        lines.append(f"{summary['dropped_rows']} nominal rows dropped: NaN or inf")
    if (band := summary["calibration_band"]) is not None:
        lines.append(
            f"p-values compare with {summary['calibration_rows']} nominal rows: within "
            f"{band['half_width']:.3f} of those with all, {band['level']:.0%} sure"
        )
    return lines


def _fit_lines(summary: dict[str, Any]) -> list[str]:
    lines = [
        f"{summary['nominal_rows']} nominal rows fitted, in {summary['seconds']:.1f} s"
    ]
    if summary["dropped_rows"]:
        lines.append(f"{summary['dropped_rows']} dropped: NaN or inf")
    return lines


def _check_lines(check: dict[str, Any] | None) -> list[str]:
    """Return what was found about false alarms, for each level."""
    if check is None:
        return []
    bounds = "exact bounds" if check["is_exact"] else "approximate bounds"
    lines = [f"{check['n_held_out']} nominal rows were held out; flagged ({bounds}):"]
    for level in check["levels"]:
        line = f"  {level['flagged']} at alpha {level['alpha']:g}"
        if level["upper"] is not None:
            line += f", {level['lower']} to {level['upper']} are expected"
        lines.append(f"{line}: {level['verdict']}")
    return lines


def _demo_folder(output: str | None, stack: ExitStack) -> Path:
    """Return a new folder, which does not outlive the stack if it was not asked for."""
    if output is None:
        temporary = tempfile.TemporaryDirectory(prefix="lpe-dask-demo-")
        return Path(stack.enter_context(temporary))
    folder = Path(output)
    if folder.exists():
        raise FileExistsError(f"the output {output} exists. Give a folder that does not.")
    folder.mkdir(parents=True)
    stack.push(lambda kind, *rest: None if kind is None else shutil.rmtree(folder))
    return folder


def _demo_ending(folder: Path, *, is_kept: bool) -> str:
    if not is_kept:
        return "\nTo keep the tables and try it by hand: lpe-dask demo --output FOLDER"
    tables = f"{folder / 'digits.parquet'} --nominal {folder / 'nominal.parquet'}"
    return (
        f"\nThe p-values are in {folder / 'scores'}. The same by hand:\n"
        f"lpe-dask score {tables} --keep digit --output {folder / 'again'}"
    )


def _take_workers(options: dict[str, Any], debug: bool) -> ChosenWorkers:
    """Take the options about workers out of those of a command, and check them."""
    scheduler = options.pop("scheduler")
    n_workers, memory_limit = options.pop("workers"), options.pop("memory_limit")
    threads, profile = options.pop("threads", None), options.pop("profile")
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
    return ChosenWorkers(scheduler, n_workers, memory_limit, debug, threads, profile)


# Messages and exit codes


class _StderrHandler(logging.Handler):
    """Prints records on what standard error is now: a progress line may have taken it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


@contextmanager
def _exit_codes(debug: bool) -> Iterator[None]:
    """Show the log, and turn errors into one paragraph each and an exit code."""
    log, handler = logging.getLogger("lpe_dask"), _StderrHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    try:
        with signals_raised():
            yield
    except Terminated:
        click.echo("Terminated.", err=True)
        raise click.exceptions.Exit(TERMINATED) from None
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except click.ClickException:
        raise
    except Exception as error:
        _refuse_or_fail(error, debug)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _refuse_or_fail(error: Exception, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exception(error)
    # A job file may have several problems, with a line for each.
    text = "\n".join(" ".join(line.split()) for line in str(error).splitlines())
    is_refused = isinstance(error, _REFUSALS)
    if not is_refused and not isinstance(error, RuntimeError):
        text = f"{type(error).__name__}: {text} (--debug shows where)"
    click.echo(f"Error: {text}", err=True)
    code = LATER if isinstance(error, LockedError) else REFUSED if is_refused else FAILED
    raise click.exceptions.Exit(code)


def _end_now(code: int) -> NoReturn:
    """End this process and its children without waiting for tasks that still run."""
    from lpe_dask.tasks import remove_spools

    ignore_signals()
    for child in multiprocessing.active_children():
        child.kill()
    remove_spools()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

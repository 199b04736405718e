"""What users call: score files, or do what a job file says."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal, Unpack

from lpe_dask.batch.job import Job, ModelSection, NominalSection, ScoreSection, Source
from lpe_dask.batch.resume import next_job
from lpe_dask.batch.runs import Run
from lpe_dask.model import FitArguments, checked_parameters
from lpe_dask.storage import redact_errors
from lpe_dask.tables import CsvOptions, Paths, as_paths
from lpe_dask.tasks import call_options

logger = logging.getLogger(__name__)


@redact_errors()
def run(
    job: str | PathLike[str],
    *,
    date: datetime.date | str | None = None,
    overwrite: bool = False,
) -> dict[str, Any] | None:
    """Do what a job file says, as far as it is not done yet, and return a summary.

    Computes, with the scheduler that is active: the sections ``[cluster]`` and ``[notify]``
    are for the command line, which starts workers or joins them, and runs a command.

    Parameters
    ----------
    job : str or path
        A TOML file; see ``docs/reference/job_file.md``.
    date : datetime.date or str, optional
        The value of ``{date}`` in it, or its text, such as "2026-11-20"; None: today, or
        yesterday, if its run began less than 12 hours ago and was interrupted; a warning
        tells that, and today is left to the next start.
    overwrite : bool, default=False
        Start from scratch: fit, save and score, whatever exists.

    Returns
    -------
    summary : dict or None
        What ``_summary.json`` in the output contains, or for a job that only fits what was
        learned; None if there was nothing to do.

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        For the content of the file, what it names, or another run that holds the lock.
    RunError
        If the job failed after that. Started again, it resumes from there.

    Examples
    --------
    >>> import lpe_dask
    >>> lpe_dask.run("jobs/nightly-scoring.toml")  # doctest: +SKIP
    """
    due = next_job(job, date)
    prepared = Run.prepare(due, "replace" if overwrite else "keep")
    if prepared.is_finished():
        prepared.clean_up()
        logger.info("nothing to do")
        return None
    return prepared.execute()


@redact_errors()
def score_files(
    data: Paths,
    output: str | PathLike[str],
    *,
    nominal: Paths | None = None,
    model: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    exclude: list[Any] | tuple[Any, ...] | None = None,
    keep: Sequence[str] | None = None,
    alpha: float | None = None,
    confidence: float | None = None,
    fdr: float | None = None,
    overwrite: bool = False,
    check_calibration: bool = False,
    private: Sequence[str] | None = None,
    report: bool = True,
    csv: Mapping[str, Any] | None = None,
    rows: Literal["all", "flagged"] = "all",
    format: Literal["parquet", "csv", "jsonl"] = "parquet",  # noqa: A002 - as in jobs
    without_rows: str | PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Unpack[FitArguments],
) -> dict[str, Any]:
    """Score the rows of a table in files, write them with their p-values, return a summary.

    What ``lpe-dask score`` does. Computes, with the active scheduler. The next run with
    the same files and arguments resumes one that was interrupted.

    Parameters
    ----------
    data : str or path, or a sequence of them
        Rows to score: Parquet or CSV; file, folder or glob; local or an fsspec URL.
    output : str or path
        Folder to make, one that all workers see: ``part-00000.parquet`` and so on in input
        order, ``_summary.json``, ``_reasons.pqt``, ``_metrics.prom`` and ``_report.html``.
    nominal : as ``data``, optional
        Nominal rows. None, without ``model``: each row is scored against all others.
    model : str or path, optional
        Folder of a model that `LPE.save` has written, instead of ``nominal``.
    columns : sequence of str, optional
        Columns to measure; None: all columns of the nominal rows, or those of the model.
    exclude : sequence of str, optional
        Measure all columns of the nominal rows but these, instead of ``columns``; not with
        ``model``.
    keep : sequence of str, optional
        Columns of ``data`` to carry over; None: all.
    alpha : float, optional
        False-alarm level of ``is_anomaly``. None: 0.05, or that of the model.
    confidence : float, optional
        The probability with which that level holds for the nominal rows at hand: see `LPE`.
        None: that of the model, or on average. Also that of the bound on false alarms in
        the summary, which is .95 if there is none.
    fdr : float, optional
        False discovery rate of ``is_anomaly``, instead of alpha: see
        `false_discovery_control`. Rows then have a ``q_value``, too.
    overwrite : bool, default=False
        Replace the output of an earlier run, once the nominal rows are fitted.
    check_calibration : bool, default=False
        Judge the model by rows that are held out: see `LPE.check_calibration`.
    private : sequence of str, optional
        Columns that reasons are not given for, and that are not on the page.
    report : bool, default=True
        Make a page about the run: see `report`.
    csv : dict, optional
        How CSV files are read: see `score`.
    rows : {"all", "flagged"}, default="all"
        "flagged": write only rows that are flagged and rows without a p-value, with their
        ``row_number`` in ``data``, from 0. The summary counts all rows.
    format : {"parquet", "csv", "jsonl"}, default="parquet"
        Whether to write the same rows to one file, too: ``_scores.csv``, in which what a
        spreadsheet would run as a formula has an apostrophe before it, or, as lines of
        JSON, ``_scores.jsonl``.
    without_rows : str or path, optional
        A list that ``lpe-dask explain OUTPUT --confirm LIST`` has written: the rows of
        ``nominal`` that are marked in it are left out.
    storage_options : dict, optional
        Keys and other options of the filesystems of fsspec, such as ``{"key": ...,
        "secret": ...}``, with which all URLs of the call open, that of the spool too, here
        and on workers; paths of this machine need none. Those under the name of a protocol,
        such as ``{"s3": {...}}``, are for its URLs alone. They are in no output, message or
        key of a task; see ``docs/explanation/security.md``.
    **arguments
        Of `LPE`; none with ``model``. The columns in ``by`` are read besides ``columns``.

    Returns
    -------
    summary : dict
        What ``_summary.json`` contains: rows, rows_nan, p_value_status, flagged,
        flagged_share, groups, drift, reasons and so on.

    Raises
    ------
    ValueError, TypeError, OSError
        For what was given: files, columns, parameters, rows, the output folder.
    MemoryError
        If the nominal rows do not fit the workers.
    RuntimeError
        If the run failed after that; finished parts stay.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pandas as pd
    >>> import lpe_dask
    >>> folder = tempfile.mkdtemp()
    >>> rng = np.random.default_rng(0)
    >>> nominal = pd.DataFrame(rng.standard_normal((2000, 2)), columns=["speed", "load"])
    >>> nominal.to_parquet(f"{folder}/nominal.parquet")
    >>> rows = pd.DataFrame({"speed": [0.1, 6.0], "load": [0.3, 6.0], "id": ["a", "b"]})
    >>> rows.to_parquet(f"{folder}/rows.parquet")
    >>> summary = lpe_dask.score_files(
    ...     f"{folder}/rows.parquet", f"{folder}/scored",
    ...     nominal=f"{folder}/nominal.parquet", alpha=0.01,
    ...     scale="standard", aggregation="mean", categorical="auto",
    ... )
    >>> summary["rows"], summary["flagged"]
    (2, 1)
    >>> pd.read_parquet(f"{folder}/scored")[["id", "p_value", "is_anomaly"]]
      id  p_value  is_anomaly
    0  a    0.905       False
    1  b    0.000        True
    """
    job = score_job(
        data, output, nominal=nominal, model=model, columns=columns, exclude=exclude,
        keep=keep, alpha=alpha, confidence=confidence, fdr=fdr,
        check_calibration=check_calibration, private=private, report=report, csv=csv,
        rows=rows, format=format, without_rows=without_rows, **arguments,
    ).with_storage_options(call_options(storage_options))  # fmt: skip
    return Run.prepare(job, "replace" if overwrite else "refuse").execute()


def score_job(
    data: Paths,
    output: str | PathLike[str],
    *,
    nominal: Paths | None = None,
    model: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    exclude: list[Any] | tuple[Any, ...] | None = None,
    keep: Sequence[str] | None = None,
    alpha: float | None = None,
    confidence: float | None = None,
    fdr: float | None = None,
    check_calibration: bool = False,
    private: Sequence[str] | None = None,
    report: bool = True,
    csv: Mapping[str, Any] | None = None,
    rows: str = "all",
    format: str = "parquet",  # noqa: A002
    without_rows: str | PathLike[str] | None = None,
    **arguments: Any,
) -> Job:
    """Return the job that `score_files` does.

    Arguments of `LPE` but ``alpha`` and ``confidence`` are checked here, all else by
    `Run.prepare`.

    Raises
    ------
    TypeError
        For arguments that `LPE` does not have.
    ValueError
        For values that they cannot have, and if a saved model is given with what only a
        fit can take.
    """
    if model is not None:
        odd: dict[str, Any] = {"check_calibration": True} if check_calibration else {}
        odd |= {} if exclude is None else {"exclude": exclude}
        odd |= {} if without_rows is None else {"without_rows": without_rows}
        check_not_with_model(model, nominal, arguments | odd)
    if without_rows is not None and nominal is None:
        raise ValueError(
            f"without_rows={fspath(without_rows)!r} leaves rows out of the nominal ones, "
            f"but none are given: rows would be scored against each other. Give nominal "
            f"rows (nominal=, --nominal), or leave without_rows (--without-rows) out."
        )
    checked_parameters(arguments, "score_files")
    job = fit_job(
        nominal, model, columns=columns, exclude=exclude,
        check_calibration=check_calibration, csv=csv, without_rows=without_rows,
        **arguments,
    )  # fmt: skip
    score = ScoreSection.model_construct(
        data=_sources(data), columns=columns, exclude=exclude, keep=keep,
        output=fspath(output), alpha=alpha, confidence=confidence, fdr=fdr,
        private=private, report=report, rows=rows, format=format,
    )  # fmt: skip
    score.check_form()
    return job.model_copy(update={"score": score})


def fit_job(
    nominal: Paths | None,
    model: str | PathLike[str] | None,
    *,
    columns: Sequence[str] | None = None,
    exclude: list[Any] | tuple[Any, ...] | None = None,
    check_calibration: bool = False,
    csv: Mapping[str, Any] | None = None,
    without_rows: str | PathLike[str] | None = None,
    **arguments: Any,
) -> Job:
    """Return the job that fits nominal rows and saves the model; as `score_job`."""
    # The schema is that of job files: not all values of Python are in it.
    section = ModelSection.model_construct(
        path=None if model is None else fspath(model),
        check_calibration=check_calibration,
        **arguments,
    )
    options = None if csv is None else CsvOptions.of(csv)
    if nominal is None:
        return Job.model_construct(model=section, csv=options)
    rows = NominalSection.model_construct(
        data=_sources(nominal), columns=columns, exclude=exclude,
        without_rows=None if without_rows is None else fspath(without_rows),
    )  # fmt: skip
    return Job.model_construct(nominal=rows, model=section, csv=options)


def _sources(paths: Paths) -> tuple[Source, ...]:
    return tuple(map(Source, as_paths(paths)))


def check_not_with_model(
    model: str | PathLike[str], nominal: Any, arguments: Mapping[str, Any]
) -> None:
    """Raise ValueError if a saved model is given with what only a fit can take."""
    odd = [*([] if nominal is None else ["nominal"]), *sorted(arguments)]
    if odd:
        raise ValueError(
            f"{', '.join(odd)} cannot be combined with the saved model {fspath(model)}. "
            f"Leave them out, or leave out the model."
        )

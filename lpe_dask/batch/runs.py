"""Do what a job file says: fit and save a model, score a table, or both.

    job file --read_job--> Job --prepare_job--> JobRun --execute--> model, OUT/

Nothing is done twice: a model that was fitted from the same files with the same parameters
is loaded, an output that is there is left alone, and one that was interrupted is taken up.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any

import fsspec

from lpe_dask.batch.fingerprint import SUMMARY_NAME
from lpe_dask.batch.fit import Expect, FitRun, ignore, prepare_fit
from lpe_dask.batch.job_file import Job, Source, read_job
from lpe_dask.batch.scoring import Run, prepare_run, prepare_scoring
from lpe_dask.batch.unfinished import DayOfJob, Note
from lpe_dask.model import (
    Fitted,
    learnt_by,
    load_fitted,
    model_source,
    model_url,
    with_defaults,
)
from lpe_dask.pvalues import choose_calibration
from lpe_dask.storage import Lock, brief, is_held, retried
from lpe_dask.tables import is_there

logger = logging.getLogger(__name__)

#: A run that began less than so long ago is finished before today is taken.
FINISHED_WITHIN = datetime.timedelta(hours=12)


def run(
    job: str | PathLike[str],
    *,
    date: datetime.date | None = None,
    overwrite: bool = False,
) -> dict[str, Any] | None:
    """Do what a job file says, as far as it is not done yet, and return a summary.

    Computes, with the scheduler that is active: the section ``[cluster]`` is for the
    command line, which starts workers or joins them.

    Parameters
    ----------
    job : str or path
        A TOML file; see ``jobs/README.md``.
    date : datetime.date, optional
        What ``{date}`` in it stands for; None: today, or the day of a run that began less
        than 12 hours ago and was interrupted. That is said, and then today is left to the
        next start.
    overwrite : bool, default=False
        Do all of it anew, also what is there: fit, save and score.

    Returns
    -------
    summary : dict or None
        What ``_summary.json`` in the output holds, or for a job that only fits what was
        learnt; None if there was nothing to do.

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        For what stands in the file, what it names, or another run that is at work on it.
    RunError
        If the job failed after that. Started again, it goes on from there.

    Examples
    --------
    >>> import lpe_dask
    >>> lpe_dask.run("jobs/nightly-scoring.toml")  # doctest: +SKIP
    """
    prepared = prepare_job(next_job(job, date, overwrite=overwrite), overwrite=overwrite)
    if prepared.is_finished():
        logger.info("nothing to do")
        return None
    with prepared.reserved() as lock:
        return prepared.execute(lock)


def next_job(
    path: str | PathLike[str], date: datetime.date | None = None, *, overwrite: bool = False
) -> Job:
    """Return the job that a file describes, of the day that is to be done next.

    That is ``date``, where it is given, and else as `run` says. A run that is at work, or
    would be refused, does not keep today from being done.
    """
    now = _now()
    job = read_job(path, date or now.date())
    if date is not None or job.today is None:
        return job
    older = []
    for note in sorted(_notes_beside(job.today), key=lambda note: note.began):
        if note.job == job.today.job and now - note.began < FINISHED_WITHIN:
            unfinished = read_job(path, note.day)
            if _goes_on(unfinished, overwrite):
                return unfinished
        elif not _is_settled(path, note.day):
            older.append(note)
    if older:
        logger.warning(
            "not finished, and too long ago to be taken up now, or from before the job was "
            "edited: the run of %s. Finish it with --date, or remove its note from %s.",
            ", ".join(f"{note.day} (--date {note.day})" for note in older),
            job.today.notes,
        )
    return job


def _notes_beside(today: DayOfJob) -> list[Note]:
    """Return the notes of other days; none where they cannot be read, which is said."""
    try:
        return [note for note in today.others() if note.day != today.day]
    except ConnectionError:  # the outputs are there, too: no more waiting
        raise
    except (OSError, NotImplementedError) as error:
        logger.warning(
            "whether the run of another day was interrupted is not known, as the notes in "
            "%s cannot be read: %s Such a run goes on with --date.",
            today.notes, brief(error),
        )  # fmt: skip
        return []


def _is_settled(path: str | PathLike[str], day: datetime.date) -> bool:
    """Return whether an older run is finished or at work, so that nothing is to be said."""
    try:
        job = read_job(path, day)
        assert job.today is not None
        assert job.score is not None
        filesystem, root = fsspec.core.url_to_fs(job.score.output)
        if retried(filesystem.exists)(f"{root}/{SUMMARY_NAME}"):
            job.today.forget()
            return True
        return is_held(job.score.output)
    except (ValueError, OSError):
        return False


def _goes_on(job: Job, overwrite: bool) -> bool:
    """Return whether an unfinished run is to be finished now, and say so."""
    assert job.today is not None
    day = job.today.day
    try:
        prepared = prepare_job(job, overwrite=overwrite)
        if prepared.is_finished():
            return False
        is_at_work = is_held(prepared.place)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        logger.warning("the run of %s cannot be finished now: %s", day, brief(error))
        return False
    if is_at_work:
        logger.info("the run of %s is still at work elsewhere", day)
        return False
    logger.warning(
        "the run of %s was interrupted: it is finished first, and nothing else. Start "
        "again for today, or give `run` a --date.", day,
    )  # fmt: skip
    return True


def _now() -> datetime.datetime:
    """Return the time, with the days of this machine's clock."""
    return datetime.datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job whose files and arguments have been checked; nothing is computed yet.

    Attributes
    ----------
    fit : FitRun, optional
        To be done, where nothing is to be scored.
    scoring : Run, optional
    place : str
        Where its result is: for messages, and the folder that is locked.
    day : DayOfJob, optional
        To be noted while it is not finished.
    """

    fit: FitRun | None
    scoring: Run | None
    place: str
    day: DayOfJob | None = None

    def is_finished(self) -> bool:
        """Return whether all that the job says is there; then nothing is noted of it."""
        if self.scoring is None:
            return self.fit is None
        is_finished = self.scoring.is_finished()
        if is_finished and self.day is not None:
            self.day.forget()
        return is_finished

    @contextmanager
    def reserved(self) -> Iterator[Lock | None]:
        """Lock the output while the context is open; a fit locks its model's folder."""
        if self.scoring is None:
            yield None
            return
        day = self.day
        with self.scoring.reserved() as lock, day.noted(_now()) if day else nullcontext():
            yield lock

    def execute(self, lock: Lock | None, expect: Expect = ignore) -> dict[str, Any]:
        """Do what is to be done and return the summary; as `Run.execute`."""
        if self.scoring is not None:
            assert lock is not None
            return self.scoring.execute(lock, expect)
        assert self.fit is not None
        return self.fit.execute_alone(expect)


def prepare_job(job: Job, *, overwrite: bool = False) -> JobRun:
    """Return what is to be done for a job, checked as far as that goes without rows.

    Nothing is computed and nothing written, so it needs no workers.
    """
    model, judged = _model_of(job, overwrite)
    if job.score is None:
        assert job.model.path is not None
        fit = model if isinstance(model, FitRun) else None
        return JobRun(fit, None, job.model.path)
    given = job.score
    options: dict[str, Any] = {
        "keep": given.keep, "alpha": given.alpha, "fdr": given.fdr, "overwrite": overwrite
    }  # fmt: skip
    if job.nominal is None:
        options["columns"] = given.columns
    data = _paths(given.data)
    if model is not None:
        scoring = prepare_scoring(model, data, given.output, judged=judged, **options)
    else:
        arguments = {k: v for k, v in job.lpe_arguments.items() if k != "alpha"}
        scoring = prepare_run(
            data, given.output, check_calibration=job.model.check_calibration, **options,
            **arguments,
        )  # fmt: skip
    return JobRun(None, scoring, given.output, job.today)


def _model_of(job: Job, overwrite: bool) -> tuple[Fitted | FitRun | None, FitRun | None]:
    """Return the model of a job, loaded or to be fitted.

    None where the rows to score are scored among themselves. Last comes the fit that the
    model is, or was.
    """
    path, nominal = job.model.path, job.nominal
    if nominal is None:
        return (None if path is None else load_fitted(path)), None
    url = None if path is None else model_url(path)
    stored = None if path is None or overwrite else model_source(path)
    try:
        fit = prepare_fit(
            _paths(nominal.data), nominal.columns, job.lpe_arguments, url,
            check_calibration=job.model.check_calibration,
        )  # fmt: skip
    except FileNotFoundError as error:
        if path is None or stored is None or job.model.refit:
            raise
        logger.warning("the model at %s is used as it is: %s", path, error)
        return load_fitted(path), None
    if path is None or stored is None or (job.model.refit and stored != fit.source):
        return fit, fit
    model = load_fitted(path)
    if model.source != stored:  # it was replaced meanwhile, and all that depends on it
        return _model_of(job, overwrite)
    # Where rows are scored, their level is that of the output; a model alone has its own.
    alphas = {model.parameters["alpha"], fit.parameters["alpha"]}
    has_alpha = job.score is not None or len(alphas) == 1
    if job.model.refit and not has_alpha:
        return fit, fit
    if stored != fit.source or not has_alpha:
        _check_same(model, job, fit)
        logger.info(
            "the model at %s is used as it is; the nominal rows have changed since it was "
            "fitted (refit = true fits it anew)", path,
        )  # fmt: skip
    return model, fit


def _check_same(model: Fitted, job: Job, fit: FitRun) -> None:
    """Raise ValueError if a model is not what a job, or its silence, says about it."""
    have = model.parameters
    said = with_defaults(job.lpe_arguments)
    # None of these changes what is measured, or a fit has drawn it by itself.
    for name, is_free in (
        ("algorithm", True),
        ("anomaly_log_density", True),
        ("alpha", job.score is not None),
        ("calibration", _takes(said, model) == model.calibration_kind),
        ("random_state", "random_state" not in job.lpe_arguments),
    ):
        if is_free:
            del said[name]
    differing = [
        f"{name}={have[name]!r} instead of {value!r}"
        for name, value in said.items()
        if _as_json(have[name]) != _as_json(value)
    ]
    names = model.columns
    if names is not None and names != list(fit.nominal.columns):
        differing.append(f"columns {names} instead of {list(fit.nominal.columns)}")
    if differing:
        raise ValueError(
            f"{job.path}: the model at {job.model.path} was fitted with "
            f"{', '.join(differing)}. Say the same in the job, set refit = true, or do all "
            f"of it anew (overwrite=True, --overwrite)."
        )


def _takes(parameters: Mapping[str, Any], model: Fitted) -> str:
    """Return the calibration that parameters stand for, for as many rows as a model has."""
    if parameters["calibration"] != "auto":
        return str(parameters["calibration"])
    learnt = learnt_by(parameters)
    return choose_calibration(learnt, model.n_samples, model.n_features)[0]


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dict)


def _paths(sources: Sequence[Source]) -> list[str]:
    """Return the paths of a job's table; days of a range may have no files."""
    absent = [s.path for s in sources if s.is_optional and not is_there(s.path)]
    if absent:
        logger.warning("there are no files at %s: left out", ", ".join(absent))
    there = [s.path for s in sources if s.path not in absent]
    if not there:
        raise FileNotFoundError(
            f"there are no files at {', '.join(absent)}. At least one day of the range has "
            f"to have some."
        )
    return there

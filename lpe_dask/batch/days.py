"""Choose the day to do a job for: today, or the day of a run that was interrupted.

A start at five past midnight finishes a run that was interrupted before midnight, and
leaves today to the next start; a warning names runs that cannot be finished now.
"""

from __future__ import annotations

import datetime
import logging
from os import PathLike

from lpe_dask.batch.job import Job
from lpe_dask.batch.job_file import read_job
from lpe_dask.batch.monitor import catch_up
from lpe_dask.batch.output import SUMMARY_NAME
from lpe_dask.batch.runs import prepare
from lpe_dask.batch.unfinished import DayOfJob, Note, now
from lpe_dask.storage import Folder, brief, is_held

logger = logging.getLogger(__name__)

#: A run that began less than this time ago is finished before that of today is started.
FINISHED_WITHIN = datetime.timedelta(hours=12)


def next_job(
    path: str | PathLike[str], date: datetime.date | None = None, *, overwrite: bool = False
) -> Job:
    """Return the job that a file describes, for the day that is to be done next.

    That is ``date`` if it is given, or else as `run` says. A run that is in progress, or
    would be refused, does not prevent that of today.
    """
    time = now()
    job = read_job(path, date or time.date())
    if date is not None or job.today is None:
        return job
    older = []
    for note in sorted(_notes_beside(job.today), key=lambda note: note.began):
        if note.job == job.today.job and time - note.began < FINISHED_WITHIN:
            unfinished = read_job(path, note.day)
            if _is_resumable(unfinished, note.day, overwrite):
                return unfinished
        elif not _is_settled(path, note.day):
            older.append(note)
    if older:
        logger.warning(
            "unfinished run of %s: it is too old to resume automatically, or the job was "
            "edited since. Finish it with --date, or remove its note from %s.",
            ", ".join(f"{note.day} (--date {note.day})" for note in older), job.today.notes,
        )  # fmt: skip
    return job


def _notes_beside(today: DayOfJob) -> list[Note]:
    """Return the notes of other days; none, and a warning, if they cannot be read."""
    try:
        return [note for note in today.others() if note.day != today.day]
    except ConnectionError:  # the outputs are on the same storage: no more waiting
        raise
    except (OSError, NotImplementedError) as error:
        logger.warning(
            "cannot tell whether a run of another day was interrupted: the notes in %s "
            "cannot be read: %s Use --date to resume such a run.",
            today.notes, brief(error),
        )  # fmt: skip
        return []


def _is_settled(path: str | PathLike[str], day: datetime.date) -> bool:
    """Return whether an older run is finished or in progress; neither needs a warning."""
    try:
        job = read_job(path, day)
        if job.today and Folder(job.place).exists(SUMMARY_NAME):
            _settle(job, job.today)
            return True
        return is_held(job.place)
    except (ValueError, OSError):
        return False


def _settle(job: Job, today: DayOfJob | None) -> None:
    """Count a run that has finished, if it died before that, and remove its note."""
    catch_up(job.place)
    if today is not None:
        today.forget()


def _is_resumable(job: Job, day: datetime.date, overwrite: bool) -> bool:
    """Return whether an unfinished run is to be finished now, and log the reason."""
    try:
        if prepare(job, "replace" if overwrite else "keep").is_finished():
            _settle(job, job.today)
            return False
        is_running = is_held(job.place)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        logger.warning("the run of %s cannot be finished now: %s", day, brief(error))
        return False
    if is_running:
        logger.info("the run of %s is still running elsewhere", day)
        return False
    logger.warning(
        "the run of %s was interrupted: only this run is finished now. Start again for "
        "today, or give `run` a --date.", day,
    )  # fmt: skip
    return True

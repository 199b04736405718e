"""Find the day that a job is to be done for next: a run of another day may be interrupted.

A start at five past midnight finishes what was interrupted before, and leaves today to the
next start; what cannot be finished now is told.
"""

from __future__ import annotations

import datetime
import logging
from os import PathLike

from lpe_dask.batch.job import Job
from lpe_dask.batch.job_file import read_job
from lpe_dask.batch.output import SUMMARY_NAME
from lpe_dask.batch.runs import prepare
from lpe_dask.batch.unfinished import DayOfJob, Note, now
from lpe_dask.storage import Folder, brief, is_held

logger = logging.getLogger(__name__)

#: A run that began less than so long ago is finished before today is taken.
FINISHED_WITHIN = datetime.timedelta(hours=12)


def next_job(
    path: str | PathLike[str], date: datetime.date | None = None, *, overwrite: bool = False
) -> Job:
    """Return the job that a file describes, of the day that is to be done next.

    That is ``date``, where it is given, and else as `run` says. A run that is at work, or
    would be refused, does not keep today from being done.
    """
    time = now()
    job = read_job(path, date or time.date())
    if date is not None or job.today is None:
        return job
    older = []
    for note in sorted(_notes_beside(job.today), key=lambda note: note.began):
        if note.job == job.today.job and time - note.began < FINISHED_WITHIN:
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
        if Folder(job.score.output).exists(SUMMARY_NAME):
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
        if prepare(job, "replace" if overwrite else "keep").is_finished():
            return False
        is_at_work = is_held(job.place)
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

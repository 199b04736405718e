"""Choose the day to do a job for: today, or yesterday if its run was interrupted.

A start at five past midnight finishes a run that was interrupted before midnight, and
leaves today to the next start.
"""

from __future__ import annotations

import datetime
import logging
from os import PathLike

from lpe_dask.batch.fingerprint import now, start_of
from lpe_dask.batch.job import Job
from lpe_dask.batch.job_file import read_job
from lpe_dask.batch.output import SUMMARY_NAME
from lpe_dask.batch.runs import prepare
from lpe_dask.storage import Folder, brief, is_held

logger = logging.getLogger(__name__)

#: A run that began less than this time ago is finished before that of today is started.
FINISHED_WITHIN = datetime.timedelta(hours=12)


def next_job(path: str | PathLike[str], date: datetime.date | str | None = None) -> Job:
    """Return the job that a file describes, for the day that is to be done next.

    That is ``date`` if it is given, or else as `run` says. A run of yesterday that is in
    progress, or would be refused, does not prevent that of today.
    """
    day = _day(date)
    today = day or now().date()
    job = read_job(path, today)
    if day is not None or job.dated_output is None:
        return job
    yesterday = today - datetime.timedelta(days=1)
    try:
        earlier = read_job(path, yesterday)
        is_next = _is_interrupted(earlier.place) and _is_resumable(earlier, yesterday)
    except ConnectionError:  # the output of today is on the same storage: no more waiting
        raise
    except (ValueError, TypeError, OSError, NotImplementedError, MemoryError) as error:
        logger.warning("the run of %s cannot be finished now: %s", yesterday, brief(error))
        return job
    return earlier if is_next else job


def _day(date: datetime.date | str | None) -> datetime.date | None:
    if isinstance(date, datetime.datetime):
        return date.date()
    if date is None or isinstance(date, datetime.date):
        return date
    if not isinstance(date, str):
        raise TypeError(
            f"date={date!r} is no day. Give a datetime.date, or a text as YYYY-MM-DD."
        )
    try:
        return datetime.date.fromisoformat(date)
    except ValueError:
        raise ValueError(
            f"date={date!r} is no day. Give one as YYYY-MM-DD, such as '2026-11-20'."
        ) from None


def _is_interrupted(output: str) -> bool:
    """Return whether a run has begun that is not finished, and not too long ago."""
    if Folder(output).exists(SUMMARY_NAME):
        return False
    time, began = now(), start_of(output)
    # Whoever finishes it after midnight takes over its lock, which then says so.
    midnight = time.replace(hour=0, minute=0, second=0, microsecond=0)
    return began is not None and time - min(began, midnight) < FINISHED_WITHIN


def _is_resumable(job: Job, day: datetime.date) -> bool:
    """Return whether an interrupted run is to be finished now, and log the reason."""
    if is_held(job.place):
        logger.info("the run of %s is still running elsewhere", day)
        return False
    prepare(job)
    logger.warning(
        "the run of %s was interrupted: only this run is finished now. Start again for "
        "today, or give `run` a --date.", day,
    )  # fmt: skip
    return True

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
from lpe_dask.batch.runs import Run
from lpe_dask.storage import Lock, short_message

logger = logging.getLogger(__name__)

#: A run that began less than this time ago is finished before that of today is started.
FINISHED_WITHIN = datetime.timedelta(hours=12)


def next_job(path: str | PathLike[str], date: datetime.date | str | None = None) -> Job:
    """Return the job that a file describes, for the day that is to be done next.

    That is ``date`` if it is given, or else as `run` says. A run of yesterday that is in
    progress, or would be refused, does not prevent that of today.
    """
    if date is not None:
        return read_job(path, _as_day(date))
    time = now()
    job, yesterday = read_job(path, time.date()), time.date() - datetime.timedelta(days=1)
    if job.dated_output is None:
        return job
    try:
        earlier = read_job(path, yesterday)
        began = start_of(earlier.place)
        # Whoever finishes it after midnight takes over its lock, which then says so.
        midnight = time.replace(hour=0, minute=0, second=0, microsecond=0)
        if began is None or time - min(began, midnight) >= FINISHED_WITHIN:
            return job
        if Lock(earlier.place).owner() is not None:
            logger.info("the run of %s is still running elsewhere", yesterday)
            return job
        Run.prepare(earlier)
    except ConnectionError:  # that of today is on the same storage
        raise
    except (ValueError, TypeError, OSError, NotImplementedError, MemoryError) as error:
        logger.warning(
            "the run of %s cannot be finished now: %s", yesterday, short_message(error)
        )
        return job
    logger.warning(
        "the run of %s was interrupted: only this run is finished now. Start again for "
        "today, or give `run` a --date.", yesterday,
    )  # fmt: skip
    return earlier


def _as_day(date: datetime.date | str) -> datetime.date:
    try:
        return datetime.datetime.fromisoformat(str(date)).date()
    except ValueError:
        raise ValueError(
            f"date={date!r} is no day. Give one as YYYY-MM-DD, such as '2026-11-20'."
        ) from None

"""Score the logs of a day with Prefect: one task, whose next try resumes the run.

    LPE_JOB=cluster/local/nightly.toml python cluster/prefect/lpe_nightly.py [2026-11-20]

With a day it runs the flow once, and without one it serves the flow, each morning. With
LPE_SCHEDULER, the address of a Dask scheduler, its workers do the work, and otherwise
threads of this process.
"""

import datetime
import os
import sys
from contextlib import nullcontext

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

import lpe_dask

#: Errors that come again with each try: what is wrong is the job or its input.
FINAL = (
    ValueError, TypeError, ImportError, NotImplementedError, MemoryError,
    FileNotFoundError, FileExistsError, PermissionError,
)  # fmt: skip


def may_pass(_task, _run, state):
    """Return whether another try may succeed."""
    return not isinstance(state.result(raise_on_failure=False), FINAL)


@task(
    retries=8,
    retry_delay_seconds=60,
    retry_condition_fn=may_pass,
    cache_policy=NO_CACHE,  # whether there is something to do is for lpe_dask to say
)
def score(job, day):
    """Run a job for a day, or what is missing of that, and return what to look at."""
    with workers():
        summary = lpe_dask.run(job, date=day)
    if summary is None:
        return "nothing to do"
    return {
        "flagged": summary.get("flagged"),
        "drift": summary.get("drift", {}).get("text"),
        "refit": (summary.get("refit") or {}).get("outcome"),
    }


def workers():
    """Return a context in which Dask computes on the workers that there are."""
    if "LPE_SCHEDULER" not in os.environ:
        return nullcontext()
    from distributed import Client

    return Client(os.environ["LPE_SCHEDULER"])


@flow
def lpe_nightly(day: datetime.date | None = None):
    """Score the logs of a day; None: of that for which the run was scheduled."""
    if day is None:  # the run may start late
        day = flow_run.scheduled_start_time.astimezone().date()
    return score(os.environ["LPE_JOB"], day)


if __name__ == "__main__":
    if days := sys.argv[1:]:
        lpe_nightly(datetime.date.fromisoformat(days[0]))
    else:
        # One at a time and in order: each day follows the one before in its drift test.
        lpe_nightly.serve(name="lpe-nightly", cron="10 6 * * *", limit=1)

"""Score the logs of a day with Airflow: one task, whose next try resumes the run.

Copy it to the folder of DAGs. The environment of the tasks has LPE_JOB, the path of a job
file, and what that needs. With LPE_SCHEDULER, the address of a Dask scheduler, its workers
do the work, and otherwise threads of the task.
"""

import os
from contextlib import nullcontext
from datetime import datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

#: Errors that come again with each try: what is wrong is the job or its input.
FINAL = (
    ValueError, TypeError, ImportError, NotImplementedError, MemoryError,
    FileNotFoundError, FileExistsError, PermissionError,
)  # fmt: skip


@task(retries=8, retry_delay=timedelta(minutes=1), execution_timeout=timedelta(hours=12))
def score(dag_run=None):
    """Run the job for its day, or what is missing of that, and return what to look at."""
    import lpe_dask  # not whenever Airflow reads this file

    day = (dag_run.logical_date or dag_run.run_after).date()
    try:
        with workers():
            summary = lpe_dask.run(os.environ["LPE_JOB"], date=day)
    except FINAL as error:
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
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


@dag(
    schedule="10 6 * * *",
    start_date=datetime(2026, 11, 1),
    catchup=False,
    max_active_runs=1,  # days in order: each follows the one before in its drift test
)
def lpe_nightly():
    """Score the logs of a day."""
    score()


lpe_nightly()

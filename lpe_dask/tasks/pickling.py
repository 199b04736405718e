"""Find out what a value is pickled for, in the middle of that."""

from __future__ import annotations

from typing import Literal

from lpe_dask.tasks.dask_internals import is_submitting, is_tokenizing
from lpe_dask.tasks.worker_pool import active_client


def pickling_purpose() -> Literal["hash", "graph"] | None:
    """Return what this thread pickles a value for; None for anything else.

    In neither case must it wait for results: a scheduler in this process names tasks, too,
    and the event loop of a client may wait for the thread that sends a graph.

    Returns
    -------
    purpose : {"hash", "graph"}, optional
        To name a task, or to be sent to a scheduler within a graph.
    """
    if is_tokenizing():
        return "hash"
    return "graph" if is_submitting(active_client()) else None

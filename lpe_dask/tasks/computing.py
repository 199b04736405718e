"""Compute collections with whatever computes here, and keep no result longer than needed.

tasks --as each is done--> result here --> the workers forget it
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import dask
from dask.delayed import Delayed

from lpe_dask.tasks import private_uses


def compute(*collections: Any) -> tuple[Any, ...]:
    """Return what Dask's collections give, as `dask.compute` does.

    On a cluster each result of a Delayed is taken as soon as it is there: if its worker is
    lost later, its task is not run again, so that a run makes progress also on workers that
    live shorter than the run. (`dask.compute` leaves all results on the workers until the
    last one is there.)

    Within a task of a cluster they are computed in its thread: to wait there for other
    tasks of the same cluster takes the place of one of them, for each task that waits. A
    task that has left its place to others (``distributed.worker_client``) uses the cluster.
    """
    client = private_uses.computing_client()
    if client is not None and private_uses.is_in_task():
        return tuple(dask.compute(*collections, scheduler="sync"))
    # Those of arrays and frames are put together here from many tasks.
    if client is None or not all(isinstance(of, Delayed) for of in collections):
        return tuple(dask.compute(*collections))
    return _taken(client, collections)


def _taken(client: Any, tasks: Sequence[Delayed]) -> tuple[Any, ...]:
    """Return what tasks give, which a cluster computes and then forgets one by one."""
    if not tasks:
        return ()
    results: list[Any] = [None] * len(tasks)
    places = defaultdict(list)
    for place, task in enumerate(tasks):
        places[task.key].append(place)
    awaited = {future.key: future for future in client.compute(list(tasks))}
    try:
        # Each is fetched by itself: one whose worker hangs holds up no other.
        done = sys.modules["distributed"].as_completed(
            awaited.values(), loop=client.loop, with_results=True
        )
        for future, result in done:
            if future.status == "cancelled":  # then it is the error
                raise result
            for place in places[future.key]:
                results[place] = result
            awaited.pop(future.key).release()
    finally:
        for future in awaited.values():
            future.release()
    return tuple(results)

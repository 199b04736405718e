"""A fit on worker processes of this machine, and what it took of them and of the scheduler.

Processor seconds, messages and bytes are counted, which other work on the machine changes
little; how long it took is not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster

from benchmarks.data import clusters
from benchmarks.planned_fits import Shape
from lpe_dask import LPE


@dataclass(frozen=True, slots=True)
class Observed:
    """What a fit took.

    Attributes
    ----------
    scheduler_seconds, worker_seconds, client_seconds : float
        Of a processor.
    wall_seconds : float
        That the scheduler was there for it.
    tasks : float
        That were done.
    messages, message_bytes : float
        Between the scheduler and the workers, to these.
    transfers, transfer_bytes : float
        Requests for results, by workers and the client, and what was sent.
    read_bytes, written_bytes : float
        From and to files, by workers.
    """

    scheduler_seconds: float
    worker_seconds: float
    client_seconds: float
    wall_seconds: float
    tasks: float
    messages: float
    message_bytes: float
    transfers: float
    transfer_bytes: float
    read_bytes: float
    written_bytes: float

    @property
    def moved_bytes(self) -> float:
        """Bytes that workers send, and read and write in files."""
        return self.transfer_bytes + self.read_bytes + self.written_bytes


def write_table(shape: Shape, folder: Path) -> Path:
    """Write the rows of a shape as Parquet, a file each partition, if there are none."""
    path = folder / f"{shape.n_rows}-{shape.n_features}-{shape.n_partitions}"
    if not path.exists():
        path.mkdir(parents=True)
        rows = clusters(shape.n_rows, shape.n_features)
        frame = pd.DataFrame(rows, columns=[f"x{k}" for k in range(shape.n_features)])
        size = -(-shape.n_rows // shape.n_partitions)
        for i in range(shape.n_partitions):
            part = frame.iloc[i * size : (i + 1) * size]
            part.to_parquet(path / f"{i:05}.parquet")
    return path


def observe(shape: Shape, folder: Path, repeats: int) -> Observed:
    """Return the medians of what fits of a shape took, after one that does not count."""
    path = write_table(shape, folder)
    settings = dict(shape.settings) | {"lpe-dask.memory-limit": shape.memory_limit}
    with dask.config.set(settings), _cluster(shape) as client:
        frame = dd.read_parquet(path)
        found = [_observed(client, frame) for _ in range(repeats + 1)][1:]
    return Observed(
        **{
            of.name: median(getattr(one, of.name) for one in found)
            for of in fields(Observed)
        }
    )


@contextmanager
def _cluster(shape: Shape) -> Iterator[Client]:
    # The scheduler has a process of its own, whose processor time is then its own, too.
    with (
        SubprocessCluster(
            n_workers=shape.n_workers,
            worker_kwargs={"nthreads": 1, "memory_limit": 0},
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(shape.n_workers)
        yield client


def _observed(client: Client, frame: Any) -> Observed:
    before, began = _counted(client), time.process_time()
    model = LPE(n_neighbors=20, calibration="loo", algorithm="pruned").fit(frame)
    client_seconds = time.process_time() - began
    after = _counted(client)
    del model
    counts = {name: after[name] - before[name] for name in after}
    return Observed(client_seconds=client_seconds, **counts)


def _counted(client: Client) -> dict[str, float]:
    counts = client.run_on_scheduler(_of_scheduler)
    of_workers = client.run(_of_worker)
    for name in ("worker_seconds", *_OF_WORKER):
        counts[name] = sum(of[name] for of in of_workers.values())
    return counts


_OF_WORKER = ("transfers", "transfer_bytes", "read_bytes", "written_bytes")

# Run in the processes of the cluster.


def _of_scheduler(dask_scheduler: Any) -> dict[str, float]:
    streams = dask_scheduler.stream_comms.values()
    done = (of.state_counts["memory"] for of in dask_scheduler.task_prefixes.values())
    return {
        "scheduler_seconds": time.process_time(),
        "wall_seconds": time.perf_counter(),
        "tasks": sum(done),
        "messages": sum(of.message_count for of in streams),
        "message_bytes": sum(of.byte_count for of in streams),
    }


def _of_worker(dask_worker: Any) -> dict[str, float]:
    lines = Path("/proc/self/io").read_text().splitlines()
    files = {name: int(n) for name, n in (line.split(": ") for line in lines)}
    return {
        "worker_seconds": time.process_time(),
        "transfers": dask_worker.transfer_outgoing_count_total,
        "transfer_bytes": dask_worker.transfer_outgoing_bytes_total,
        "read_bytes": files["rchar"],
        "written_bytes": files["wchar"],
    }

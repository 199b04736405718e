"""Decide, in whole numbers, how a search is cut into tasks and what each one holds.

Nothing here touches data or Dask, so that a plan can be printed, checked against the memory
of a worker and tested by the thousand before a row is read.

A join task takes some query rows and the packed reference, and goes through the queries in
passes of ``pass_rows``: what it adds to the memory of its worker is one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Bytes of a float64.
FLOAT_BYTES = 8

#: Bytes of a worker process before any data: interpreter, NumPy, numba, Dask (measured).
PROCESS_BYTES = 300 * 2**20

#: Share of a worker's memory that a plan may use; Dask spills above 0.6.
USABLE_SHARE = 0.6

#: Bytes that one pass should not exceed: its reservoirs are walked through once for every
#: part of the reference that fits a cache, so they should stay in one themselves.
PASS_BYTES = 16 * 2**20

#: Most query rows of a pass.
MAX_PASS_ROWS = 4096

#: Query rows of a task: fewer are not worth a task, more make a long wait for news and for
#: what a lost worker leaves to be done again.
MIN_TASK_ROWS, MAX_TASK_ROWS = 1024, 32_768

#: Tasks for each thread, so that the last ones to finish leave little idle.
TASKS_PER_THREAD = 8

#: Rows of a reference block are a multiple of this, the lanes of a kernel.
ROW_MULTIPLE = 64

#: Most bytes of one reference block.
MAX_BLOCK_BYTES = 128 * 2**20


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The cut of a search of ``n_reference`` rows.

    Attributes
    ----------
    n_reference, n_features : int
    n_places : int
        Numbers that the state of one query holds: the places of its reservoir, or 1 count.
    block_rows : int
        Rows of a reference block.
    pass_rows : int
        Query rows that a task searches for at a time.
    threads : int
        Tasks that run at once in one worker.
    partition_rows : int
        Rows of the largest partition of the input, of which a task reads one; 0 where that
        is not known before reading.
    """

    n_reference: int
    n_features: int
    n_places: int
    block_rows: int
    pass_rows: int
    threads: int
    partition_rows: int = 0

    @property
    def n_blocks(self) -> int:
        """Reference blocks."""
        return -(-self.n_reference // self.block_rows)

    @property
    def reference_bytes(self) -> int:
        """Bytes of the packed reference, which every worker holds once."""
        groups = -(-self.block_rows // ROW_MULTIPLE)
        return self.n_blocks * groups * ROW_MULTIPLE * self.n_features * FLOAT_BYTES

    @property
    def join_bytes(self) -> int:
        """Bytes that a join task adds at its peak, beside its query rows and the reference.

        One pass: its rows widened, scaled and mapped, a mask of the finite numbers, and
        for each row a reservoir and a dozen numbers of bookkeeping.
        """
        return self.pass_rows * _pass_row_bytes(self.n_features, self.n_places)

    @property
    def pack_bytes(self) -> int:
        """Bytes that the task which prepares one reference block needs at its peak.

        The block as it came, widened, scaled, mapped and packed, and masks of its numbers.
        """
        rows = -(-self.block_rows // ROW_MULTIPLE) * ROW_MULTIPLE
        return rows * (5 * self.n_features + 4) * FLOAT_BYTES

    @property
    def worker_bytes(self) -> int:
        """Bytes of a worker at its peak: the process, the reference, and its tasks."""
        task = max(self.join_bytes, self.pack_bytes) + self.partition_bytes
        return PROCESS_BYTES + self.reference_bytes + self.threads * task

    @property
    def partition_bytes(self) -> int:
        """Bytes of one partition of the input, as float64."""
        return self.partition_rows * self.n_features * FLOAT_BYTES

    def check(self, memory_limit: int) -> None:
        """Raise `MemoryError` if a worker of ``memory_limit`` bytes cannot hold this."""
        usable = int(USABLE_SHARE * memory_limit)
        if self.worker_bytes > usable:
            raise MemoryError(
                f"{self.n_reference} nominal rows x {self.n_features} columns need "
                f"{_mebibytes(self.worker_bytes)} on each worker "
                f"({_mebibytes(self.reference_bytes)} of them these rows, and "
                f"{_mebibytes(self.partition_bytes)} a partition of the input for each "
                f"thread), but of its {_mebibytes(memory_limit)} a worker may use "
                f"{_mebibytes(usable)}. Give each worker more memory (memory_limit= of the "
                f"cluster, --memory-limit) or fewer threads (now {self.threads}), cut the "
                f"input into smaller partitions, or use fewer nominal rows or columns."
            )


def plan_join(
    n_reference: int,
    n_features: int,
    n_places: int,
    *,
    n_threads: int,
    threads: int,
    memory_limit: int,
    block_rows: int | None = None,
    partition_rows: int = 0,
) -> JoinPlan:
    """Return the cut of a search that suits the workers at hand.

    Parameters
    ----------
    n_reference, n_features, n_places : int
        As in `JoinPlan`.
    n_threads, threads : int
        Threads of all workers, and of the one with the most.
    memory_limit : int
        Bytes of the smallest worker.
    block_rows : int, optional
        Rows of a reference block where the configuration sets them.
    partition_rows : int
        As in `JoinPlan`.
    """
    if block_rows is None:
        row_bytes = n_features * FLOAT_BYTES
        even = -(-n_reference // (TASKS_PER_THREAD * n_threads))
        most = min(MAX_BLOCK_BYTES, memory_limit // (64 * threads)) // row_bytes
        block_rows = max(1, min(max(even, MIN_TASK_ROWS), MAX_TASK_ROWS, most))
    block_rows = -(-block_rows // ROW_MULTIPLE) * ROW_MULTIPLE
    pass_bytes = min(PASS_BYTES, memory_limit // (16 * threads))
    pass_rows = max(
        1, min(MAX_PASS_ROWS, pass_bytes // _pass_row_bytes(n_features, n_places))
    )
    return JoinPlan(
        n_reference, n_features, n_places, block_rows, pass_rows, threads, partition_rows
    )


def n_shares(
    n_partitions: int, n_threads: int, largest_partition: int | None = None
) -> int:
    """Return into how many tasks each query partition is cut.

    Enough that all threads have work when there are few partitions; between `MIN_TASK_ROWS`
    and `MAX_TASK_ROWS` each where the rows of the largest partition are known.

    Examples
    --------
    >>> n_shares(n_partitions=1, n_threads=2), n_shares(n_partitions=100, n_threads=2)
    (16, 1)
    >>> n_shares(n_partitions=1, n_threads=2, largest_partition=3000)
    3
    """
    shares = max(1, math.ceil(TASKS_PER_THREAD * n_threads / max(1, n_partitions)))
    if largest_partition is not None:
        shares = max(shares, math.ceil(largest_partition / MAX_TASK_ROWS))
        shares = min(shares, max(1, math.ceil(largest_partition / MIN_TASK_ROWS)))
    return shares


def share_of(n_rows: int, share: int, n_shares: int) -> slice:
    """Return the rows of a partition that are the ``share``-th of ``n_shares`` even shares.

    Examples
    --------
    >>> [share_of(10, i, 3) for i in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """
    return slice(n_rows * share // n_shares, n_rows * (share + 1) // n_shares)


def _pass_row_bytes(n_features: int, n_places: int) -> int:
    return (4 * n_features + n_places + 12) * FLOAT_BYTES


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"

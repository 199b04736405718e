"""Decide, in whole numbers, how a search is cut into tasks and what each one holds.

Nothing here touches data or Dask, so that a plan can be printed, checked against the memory
of a worker and tested by the thousand before a row is read.

A join task takes some query rows and the blocks of the reference, and goes through the
queries in passes of ``pass_rows``. Beside the reference, which is in the memory of each
worker or in a spool, it adds one pass to the memory of its worker, and one block where
blocks come from a spool.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: Bytes of a float64, and of a float32. Whether float32 holds prepared rows is not known
#: before they are read, so a plan takes float64.
FLOAT_BYTES, SINGLE_BYTES = 8, 4

#: Bytes of a worker process before any data: interpreter, NumPy, numba, Dask (measured).
#: One that finds no compiled kernels in numba's cache takes 275 MiB more to compile them.
PROCESS_BYTES = 320 * 2**20

#: What a task takes for a partition of a frame that it reads, as a multiple of its size in
#: float64: what is read, decoded and made rows, and what allocators keep of that (measured,
#: `tests/system/test_worker_memory.py`). An array is there at once.
FRAME_COPIES, ARRAY_COPIES = 6, 1

#: What it takes besides for each column, as a multiple of its size, and at most. Writers of
#: Parquet keep up to 1 MiB of the numbers of a column in a dictionary, which is read and
#: decoded as well.
DICTIONARY_COPIES, DICTIONARY_BYTES = 4, 2 * 2**20

#: Copies of the statistics that p-values compare with which a worker may have for a moment.
#: One of local files, and of other workers (measured); some filesystems hold bytes twice.
CALIBRATION_COPIES = 2

#: Share of a worker's memory that a plan may use; Dask spills above 0.6.
USABLE_SHARE = 0.6

#: Least memory of a worker: below, a plan has nothing left for data.
MIN_WORKER_BYTES = int(PROCESS_BYTES / USABLE_SHARE)

#: Bytes that one pass should not exceed.
PASS_BYTES = 256 * 2**20

#: Query rows of a task: fewer are not worth a task, more make a long wait for news and for
#: what a lost worker leaves to be done again.
MIN_TASK_ROWS, MAX_TASK_ROWS = 1024, 32_768

#: Tasks for each thread, so that the last ones to finish leave little idle.
TASKS_PER_THREAD = 4

#: Rows of a reference block are a multiple of this, the lanes of a kernel.
ROW_MULTIPLE = 64

#: Most bytes of one reference block.
MAX_BLOCK_BYTES = 128 * 2**20

#: Near rows that belong together make a block of up to so many times the planned rows.
LARGEST_BLOCK = 2

#: One of so many rows of each block is in its sample.
SAMPLE_EVERY = 16

#: K from which on a sample is searched first. Below, what it saves is not worth the pass.
MIN_SAMPLED_NEIGHBORS = 48

#: Rows of a cell of the reference at least, but for the last one of a block.
CELL_ROWS = 64

#: Queries that a kernel works on at once.
TILE_ROWS = 256

#: Blocks whose exact sums one task adds, and pieces whose parts one task counts: the client
#: adds up one array for so many.
SUMMED_BLOCKS, SUMMED_PIECES = 8, 64

#: Bytes of an edge of a neighbor graph, and of a row that a walk along it touches.
EDGE_BYTES, WALK_ROW_BYTES = 12, 60


@dataclass(frozen=True, slots=True)
class Statistic:
    """What is asked of rows: how far their K-th nearest is, or how many are near.

    Attributes
    ----------
    n_neighbors : int, optional
        K.
    radius : float, optional
        Epsilon, where ``n_neighbors`` is None.
    enough : int, optional
        A number of rows within the radius that suffices.
    """

    n_neighbors: int | None
    radius: float | None
    enough: int | None = None


@dataclass(frozen=True, slots=True)
class NeighborGraphParams:
    """The neighbor graph that geodesic distances go along.

    Attributes
    ----------
    n_neighbors : int
        K', edges from each row.
    graph : {"directed", "union"}
    """

    n_neighbors: int
    graph: str


def sample_neighbors(n_neighbors: int | None) -> int | None:
    """Return for how many neighbors a sample of the reference is searched; None: for none.

    Of the K nearest rows about ``K / SAMPLE_EVERY`` are in the sample, give or take the
    root of that. Twice as much is added, so that few rows are searched for again.

    Examples
    --------
    >>> sample_neighbors(20), sample_neighbors(250)
    (None, 26)
    """
    if n_neighbors is None or n_neighbors < MIN_SAMPLED_NEIGHBORS:
        return None
    expected = n_neighbors / SAMPLE_EVERY
    return math.ceil(expected + 2 * math.sqrt(expected)) + 2


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The cut of a search of ``n_reference`` rows.

    Attributes
    ----------
    n_reference, n_features : int
    n_neighbors : int
        Nearest rows to find, K; 0 where rows within a radius are counted.
    block_rows : int
        Rows of a reference block.
    task_rows : int
        Rows of a block that one task measures against all others.
    pass_rows : int
        Query rows that a task searches for at a time.
    threads : int
        Tasks that run at once in one worker.
    partition_rows : int
        Rows of the largest partition of the input, of which a task reads one; 0 where that
        is not known before reading.
    is_spooled : bool
        Whether the reference is in a spool, and not in the memory of each worker.
    graph_neighbors : int
        Edges from each row of a neighbor graph that distances go along; 0 without one.
    walk_rows : int
        Rows of it that one walk may touch.
    calibration_rows : int
        Rows whose statistics p-values compare with.
    reads_frame : bool
        Whether partitions of the input are those of a frame, and not of an array.
    """

    n_reference: int
    n_features: int
    n_neighbors: int
    block_rows: int
    task_rows: int
    pass_rows: int
    threads: int
    partition_rows: int = 0
    is_spooled: bool = False
    graph_neighbors: int = 0
    walk_rows: int = 0
    calibration_rows: int = 0
    reads_frame: bool = False

    @property
    def n_blocks(self) -> int:
        """Reference blocks."""
        return -(-self.n_reference // self.block_rows)

    @property
    def block_shares(self) -> int:
        """Tasks that share the rows of a block."""
        return -(-self.block_rows // self.task_rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of a reference row in its block, with its share of cells and samples."""
        return reference_row_bytes(self.n_features)

    @property
    def reference_bytes(self) -> int:
        """Bytes of all blocks."""
        return self.n_reference * self.row_bytes + self.n_blocks * self._block_rest_bytes

    @property
    def largest_block_rows(self) -> int:
        """Most rows of a block."""
        rows = min(LARGEST_BLOCK * self.block_rows, self.n_reference)
        return -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE

    @property
    def block_bytes(self) -> int:
        """Bytes of the largest block with its sample."""
        return self.largest_block_rows * self.row_bytes + self._block_rest_bytes

    @property
    def _block_rest_bytes(self) -> int:
        """Bytes of a block for partly filled groups, and for cells smaller than others."""
        partly_filled = 2 * ROW_MULTIPLE * SINGLE_BYTES * (self.n_features + 1)
        return partly_filled + 4 * (16 * self.n_features + 24)

    @property
    def join_bytes(self) -> int:
        """Bytes that a join task adds at its peak, beside its query rows and the reference.

        One pass: its rows, prepared and in the frame, and for each the K nearest; the
        reservoirs of a tile. Where blocks are read from a spool, two of them, and a copy of
        the query rows that are the task's share of one. Where it walks along a graph, the
        room for that.
        """
        n_places = 2 * max(self.n_neighbors, 64)
        tile = TILE_ROWS * (FLOAT_BYTES * n_places + 16 * self.n_features + 64)
        share = self.task_rows * (self.n_features + 1) * FLOAT_BYTES
        blocks = 2 * self.block_bytes + share if self.is_spooled else 0
        one_pass = self.pass_rows * _pass_row_bytes(
            self.n_features, self.n_neighbors, self.graph_neighbors
        )
        return one_pass + tile + blocks + self.walk_bytes

    @property
    def walk_bytes(self) -> int:
        """Bytes that a walk along the graph needs for the rows that it touches.

        Room doubles when it is full, so there may be twice as much, and that before it.
        """
        return 3 * WALK_ROW_BYTES * self.walk_rows

    @property
    def graph_bytes(self) -> int:
        """Bytes of a neighbor graph, with every edge in both directions.

        A row's first edge, and of every edge the row it leads to and its length.
        """
        if self.graph_neighbors == 0:
            return 0
        return self.n_reference * (FLOAT_BYTES + 2 * self.graph_neighbors * EDGE_BYTES)

    @property
    def pack_bytes(self) -> int:
        """Bytes that the task which prepares the largest block needs at its peak.

        The rows as they came, prepared, as points and ordered, and the block itself.
        """
        return (
            self.largest_block_rows * (6 * self.n_features + 8) * FLOAT_BYTES
            + self.block_bytes
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of the reference, and of its neighbor graph, that each worker holds.

        While blocks are gathered, the rows they are made of are there as well; while a
        graph is, the edges from each block, once more in the order of the rows, with two
        numbers for each.
        """
        graph = self.graph_bytes
        if graph > 0:
            row_edges = 2 * self.graph_neighbors * EDGE_BYTES + 2 * FLOAT_BYTES
            graph += self.n_reference * row_edges
        if self.is_spooled:
            return graph
        pieces = self.n_reference * (self.n_features + 1) * FLOAT_BYTES
        return self.reference_bytes + max(pieces, graph)

    @property
    def worker_bytes(self) -> int:
        """Bytes of a worker at its peak: the process, what it holds, and its tasks."""
        task = self.task_bytes + self.partition_bytes
        held = self.held_bytes + self.calibration_bytes
        return PROCESS_BYTES + held + self.threads * task

    @property
    def task_bytes(self) -> int:
        """Bytes that a task adds at its peak, beside what it reads of the input."""
        return max(self.join_bytes, self.pack_bytes)

    @property
    def calibration_bytes(self) -> int:
        """Bytes of the statistics that p-values compare with, of which each worker has all.

        One number a row; for a moment twice, while they arrive.
        """
        return CALIBRATION_COPIES * self.calibration_rows * FLOAT_BYTES

    @property
    def least_task_rows(self) -> int:
        """Query rows that are worth a task: where each reads a spool, a whole pass."""
        return max(MIN_TASK_ROWS, self.pass_rows) if self.is_spooled else MIN_TASK_ROWS

    @property
    def partition_bytes(self) -> int:
        """Bytes that reading one partition of the input takes at its peak."""
        column = self.partition_rows * FLOAT_BYTES
        if not self.reads_frame:
            return ARRAY_COPIES * column * self.n_features
        dictionary = min(DICTIONARY_COPIES * column, DICTIONARY_BYTES)
        return (FRAME_COPIES * column + dictionary) * self.n_features

    def fits(self, memory_limit: int) -> bool:
        """Return whether a worker of ``memory_limit`` bytes can hold this."""
        return self.worker_bytes <= int(USABLE_SHARE * memory_limit)

    def check(self, memory_limit: int) -> None:
        """Raise `MemoryError` if a worker of ``memory_limit`` bytes cannot hold this."""
        if self.fits(memory_limit):
            return
        usable = int(USABLE_SHARE * memory_limit)
        remedy = ""
        if self.graph_neighbors > 0:
            remedy = (
                " Walks take less along a graph with fewer edges, the directed one, and to "
                "the K-th neighbor rather than within a radius."
            )
        raise MemoryError(
            f"{self.n_reference} nominal rows x {self.n_features} columns need "
            f"{_mebibytes(self.worker_bytes)} on each worker ({self._parts()}), but of its "
            f"{_mebibytes(memory_limit)} a worker may use {_mebibytes(usable)}. Give each "
            f"worker more memory (memory_limit= of the cluster, --memory-limit) or fewer "
            f"threads (now {self.threads}), cut the input into smaller partitions, compare "
            f"with fewer rows (calibration_size=, --calibration-size), or use fewer "
            f"nominal rows or columns.{remedy}"
        )

    def _parts(self) -> str:
        """Return what the bytes of a worker are for."""
        nominal = f"of them the nominal rows {_mebibytes(self.held_bytes)}"
        if self.is_spooled:
            nominal = f"with the nominal rows, {_mebibytes(self.reference_bytes)}, on disk"
        if self.graph_neighbors > 0:
            nominal += (
                f", their neighbor graph {_mebibytes(self.graph_bytes)}, a walk along it "
                f"{_mebibytes(self.walk_bytes)} for each thread"
            )
        return (
            f"{nominal}, the statistics that p-values compare with "
            f"{_mebibytes(self.calibration_bytes)}, a process without data "
            f"{_mebibytes(PROCESS_BYTES)}, and for each thread "
            f"{_mebibytes(self.task_bytes)} a task and {_mebibytes(self.partition_bytes)} "
            f"a partition of the input"
        )


def plan_join(
    n_reference: int,
    n_features: int,
    n_neighbors: int,
    *,
    n_threads: int,
    threads: int,
    memory_limit: int,
    block_rows: int | None = None,
    partition_rows: int = 0,
    is_spooled: bool | None = None,
    graph_neighbors: int = 0,
    walk_rows: int = 0,
    calibration_rows: int | None = None,
    reads_frame: bool = False,
) -> JoinPlan:
    """Return the cut of a search that suits the workers at hand.

    The reference is in their memory where it fits, else in a spool, unless it is settled.

    Parameters
    ----------
    n_reference, n_features, n_neighbors : int
        As in `JoinPlan`.
    n_threads, threads : int
        Threads of all workers, and of the one with the most.
    memory_limit : int
        Bytes of the smallest worker.
    block_rows : int, optional
        Rows of a reference block where the configuration sets them.
    partition_rows : int
        As in `JoinPlan`.
    is_spooled : bool, optional
        Where the reference is, if it has been prepared.
    graph_neighbors, walk_rows : int
        As in `JoinPlan`.
    calibration_rows : int, optional
        As in `JoinPlan`; None: as many as the reference has.
    reads_frame : bool
        As in `JoinPlan`.
    """
    if calibration_rows is None:
        calibration_rows = n_reference
    if block_rows is None:
        # Few blocks: each of them is a new start for every query. One a thread, so that
        # all are busy while they are made.
        most_bytes = min(MAX_BLOCK_BYTES, memory_limit // (64 * threads))
        most = most_bytes // reference_row_bytes(n_features)
        even = max(MIN_TASK_ROWS, -(-n_reference // n_threads))
        block_rows = max(1, min(even, most))
    block_rows = -(-block_rows // ROW_MULTIPLE) * ROW_MULTIPLE
    n_tasks = TASKS_PER_THREAD * n_threads
    task_rows = min(MAX_TASK_ROWS, max(MIN_TASK_ROWS, -(-n_reference // n_tasks)))
    task_rows = -(-task_rows // ROW_MULTIPLE) * ROW_MULTIPLE
    pass_bytes = min(PASS_BYTES, memory_limit // (16 * threads))
    pass_row_bytes = _pass_row_bytes(n_features, n_neighbors, graph_neighbors)
    pass_rows = max(1, min(MAX_TASK_ROWS, pass_bytes // pass_row_bytes))
    plan = JoinPlan(
        n_reference, n_features, n_neighbors, block_rows, min(task_rows, block_rows),
        pass_rows, threads, partition_rows, False, graph_neighbors, walk_rows,
        calibration_rows, reads_frame,
    )  # fmt: skip
    if is_spooled is None:
        is_spooled = not plan.fits(memory_limit)
    return replace(plan, is_spooled=is_spooled)


def walk_rows(
    n_reference: int, n_neighbors: int | None, graph_neighbors: int, *, directed: bool
) -> int:
    """Return how many rows of a graph a walk may touch at most.

    To the K-th row reached, those that K rows and the start lead to; any number where a row
    may lead to many (in a graph of both directions), or where rows are counted.

    Examples
    --------
    >>> walk_rows(10**6, 20, 8, directed=True), walk_rows(10**6, 20, 8, directed=False)
    (168, 1000000)
    """
    if n_neighbors is None or not directed:
        return n_reference
    return min(n_reference, (n_neighbors + 1) * graph_neighbors)


def n_shares(
    n_partitions: int,
    n_threads: int,
    largest_partition: int | None = None,
    least_rows: int = MIN_TASK_ROWS,
) -> int:
    """Return into how many tasks each query partition is cut.

    Enough that all threads have work when there are few partitions; between ``least_rows``
    and `MAX_TASK_ROWS` each where the rows of the largest partition are known.

    Examples
    --------
    >>> n_shares(n_partitions=1, n_threads=2), n_shares(n_partitions=100, n_threads=2)
    (8, 1)
    >>> n_shares(n_partitions=1, n_threads=2, largest_partition=3000)
    3
    """
    shares = max(1, math.ceil(TASKS_PER_THREAD * n_threads / max(1, n_partitions)))
    if largest_partition is not None:
        shares = max(shares, math.ceil(largest_partition / MAX_TASK_ROWS))
        shares = min(shares, max(1, math.ceil(largest_partition / least_rows)))
    return shares


def share_of(n_rows: int, share: int, n_shares: int) -> slice:
    """Return the rows of a partition that are the ``share``-th of ``n_shares`` even shares.

    Examples
    --------
    >>> [share_of(10, i, 3) for i in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """
    return slice(n_rows * share // n_shares, n_rows * (share + 1) // n_shares)


def reference_row_bytes(n_features: int) -> int:
    """Return the bytes of a row in a block, with its share of the cells and samples.

    The row, its offset from the center of its cell, its number and its norm; centers and
    boxes of cells; the sample.
    """
    row = (n_features + 1) * (FLOAT_BYTES + SINGLE_BYTES)
    cell = 16 * n_features + 24
    return math.ceil((row + cell / CELL_ROWS) * (SAMPLE_EVERY + 1) / SAMPLE_EVERY)


def _pass_row_bytes(n_features: int, n_neighbors: int, graph_neighbors: int) -> int:
    # Of a sample fewer neighbors are kept beside, a quarter for the smallest K. With their
    # numbers they are put in order, which takes copies of both.
    nearest = n_neighbors + n_neighbors // 4 + 7 * graph_neighbors
    return (8 * n_features + nearest + 24) * FLOAT_BYTES


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"

"""Say how much memory a worker needs for a search, and so where the reference goes.

    ProblemSize, Workers --MemoryEstimate.of--> SearchPlan --> bytes: worker, fits, check

Tests measure that what is said here is enough, and not far too much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import dask

from lpe_dask.kernels import Block, KNearestAccumulator, PairSearch
from lpe_dask.search.approximate import Approximation
from lpe_dask.search.plan import (
    BUILD_ROW_BYTES,
    FLOAT_BYTES,
    SINGLE_BYTES,
    ProblemSize,
    SearchPlan,
    index_row_bytes,
    pass_row_bytes,
    plan_search,
    reference_row_bytes,
)
from lpe_dask.tasks import Workers

#: What a task takes for a partition of a frame that it reads, as a multiple of its size in
#: float64: what is read, decoded and made rows, and what allocators keep of that (measured,
#: `tests/system/test_worker_memory.py`). An array is there at once.
FRAME_COPIES, ARRAY_COPIES = 6, 1

#: What it takes besides for each column, as a multiple of its size, and at most. Writers of
#: Parquet keep up to 1 MiB of the numbers of a column in a dictionary, which is read and
#: decoded as well.
DICTIONARY_COPIES, DICTIONARY_BYTES = 4, 2 * 2**20

#: Copies of the statistics that p-values compare with which a worker may have at once.
#: One of local files, and of other workers (measured); some filesystems hold bytes twice.
CALIBRATION_COPIES = 2

#: Bytes of a row whose statistic a task puts in order, with others: numbers and statistics
#: as they are read, together and sorted, and the order.
ORDERED_ROW_BYTES = 60

#: What pynndescent takes in a process that builds, imported and compiled (190 to 240 MiB
#: measured).
LIBRARY_BYTES = 256 * 2**20

#: Bytes of an edge of a neighbor graph, and of a row that a walk along it touches.
EDGE_BYTES, WALK_ROW_BYTES = 12, 60


def plan_for_active_workers(shape: ProblemSize, *, wait: bool = False) -> SearchPlan:
    """Return the plan of a search for the active workers, which can hold it.

    Parameters
    ----------
    shape : ProblemSize
    wait : bool, default=False
        As in `Workers.active`. Without a worker ever seen nothing is refused.

    Raises
    ------
    MemoryError
        If a worker cannot hold what a task needs.
    """
    workers = Workers.active(wait=wait)
    estimate = MemoryEstimate.of(shape, workers)
    if workers.is_known:
        estimate.check(workers.memory_limit)
    return estimate.plan


def can_hold(shape: ProblemSize, n_bytes: int) -> bool:
    """Return whether a worker can hold so much beside what a search needs.

    Where the reference is spooled, what is beside it is so, too.
    """
    workers = Workers.active(wait=True)
    estimate = MemoryEstimate.of(shape, workers)
    is_free = estimate.plan.is_spooled or not workers.is_known
    return is_free or estimate.fits(workers.memory_limit, n_bytes)


def pair_shares(plan: SearchPlan, n_blocks: int, *, keeps_rows: bool) -> int | None:
    """Return `SearchPlan.pair_shares` for the active workers, if they can hold it."""
    workers, estimate = Workers.active(), MemoryEstimate(plan)
    n_shares = plan.pair_shares(n_blocks, workers.n_threads, keeps_rows=keeps_rows)
    if n_shares is None:
        return None
    n_workers = max(1, workers.n_threads // workers.threads)
    needed = estimate.worker + estimate.pairs(n_blocks, n_shares, n_workers)
    return n_shares if needed <= Workers.USABLE_SHARE * workers.memory_limit else None


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes that a worker needs for a search, at its peak.

    Attributes
    ----------
    plan : SearchPlan
    """

    plan: SearchPlan

    @classmethod
    def of(cls, shape: ProblemSize, workers: Workers) -> Self:
        """Return that of the plan for some workers, whether or not they can hold it.

        The reference is in their memory where it fits, else in a spool, unless it is
        settled.
        """
        if not shape.is_indexed:  # results then depend on the blocks
            configured = dask.config.get("lpe-dask.block-rows", None)
            shape = replace(shape, block_rows=shape.block_rows or configured)
        # A process takes its part first: of small workers, most of what they have.
        limit = workers.memory_limit
        for_data = max(limit - Workers.PROCESS_BYTES - Workers.KERNEL_BYTES, limit // 4)
        given = workers.n_threads, workers.threads, for_data
        estimate = cls(plan_search(shape, *given))
        if shape.is_spooled is False or estimate.fits(limit):
            return estimate
        spooled = replace(shape, is_spooled=True)
        estimate = cls(plan_search(spooled, *given))
        if estimate.fits(limit):
            return estimate
        return cls(plan_search(spooled, *given, is_tight=True))

    @property
    def reference(self) -> int:
        """Of all blocks."""
        return _blocks_bytes(self.plan, self.plan.shape.n_reference, self.plan.n_blocks)

    @property
    def graph(self) -> int:
        """Of the neighbor graph, with every edge in both directions; 0 without one."""
        # A row's first edge, and of every edge the row it leads to and its length.
        n_edges = 2 * self.plan.shape.graph_neighbors
        row_bytes = FLOAT_BYTES + n_edges * EDGE_BYTES if n_edges > 0 else 0
        return self.plan.shape.n_reference * row_bytes

    @property
    def indexes(self) -> int:
        """Of the indexes of all blocks; 0 without any."""
        shape = self.plan.shape
        if not shape.is_indexed:
            return 0
        return shape.n_reference * index_row_bytes(shape.n_features)

    @property
    def held(self) -> int:
        """Of both, as far as each worker holds them.

        While blocks are gathered, the rows they are made of are there as well; while a
        graph is, the edges from each block, once more in the order of the rows, with two
        numbers for each, and as much again for a graph of both directions.
        """
        shape, graph = self.plan.shape, self.graph
        if shape.graph_params is not None:
            copies = 4 if shape.graph_params.graph == "union" else 2
            row_edges = shape.graph_neighbors * EDGE_BYTES + FLOAT_BYTES
            graph += copies * shape.n_reference * row_edges
        if self.plan.is_spooled:
            return graph
        pieces = shape.n_reference * (shape.n_features + 1) * FLOAT_BYTES
        return self.reference + max(pieces, graph + self.indexes)

    @property
    def calibration(self) -> int:
        """Of the statistics that p-values compare with, if each worker has all of them."""
        if self.plan.shape.ordered_rows is not None:
            return 0
        n_rows = self.plan.shape.calibration_rows
        if n_rows is None:
            n_rows = self.plan.shape.n_reference
        return CALIBRATION_COPIES * n_rows * FLOAT_BYTES

    @property
    def walk(self) -> int:
        """Of the rows that a walk along the graph touches."""
        # Room doubles when it is full, so there may be twice as much, and that before it.
        return 3 * WALK_ROW_BYTES * self.plan.shape.walk_rows

    @property
    def join(self) -> int:
        """What a join task adds to its query rows and the reference.

        The rows of one pass, prepared and in the basis, and for each the K nearest; the
        reservoirs of a tile; a walk. Where blocks are read from a spool, two of them, and a
        copy of the query rows that are the task's share of one.
        """
        plan, shape = self.plan, self.plan.shape
        tile = KNearestAccumulator.tile_bytes(
            shape.n_features, shape.n_listed_neighbors, plan.largest_block_rows
        )
        share = plan.task_rows * (shape.n_features + 1) * FLOAT_BYTES
        blocks = 2 * block_bytes(plan) + share if plan.is_spooled else 0
        if plan.is_spooled and shape.is_indexed:
            blocks += 2 * plan.largest_block_rows * index_row_bytes(shape.n_features)
        return plan.pass_rows * pass_row_bytes(shape) + tile + blocks + self.walk

    def pairs(self, n_blocks: int, n_shares: int, n_workers: int) -> int:
        """Return what summing each pair of rows once adds to a worker.

        A search holds reservoirs and squares of all rows of two blocks, the task that
        merges them the squares of a block for all others, twice, and a worker its part of
        those that are not merged yet: of each row for every other block, and where it is
        the second of two, for each share.
        """
        plan, shape = self.plan, self.plan.shape
        squares = FLOAT_BYTES * shape.n_listed_neighbors
        search = 2 * PairSearch.row_bytes(shape.n_listed_neighbors)
        merge = 2 * squares * n_blocks * n_shares
        kept = shape.n_reference * squares * n_blocks * (1 + n_shares) // (2 * n_workers)
        return plan.threads * plan.largest_block_rows * max(search, merge) + kept

    @property
    def pack(self) -> int:
        """Of the task that prepares the largest block.

        The rows as they came, prepared, as points and ordered, and the block itself.
        """
        plan = self.plan
        row_bytes = (6 * plan.shape.n_features + 8) * FLOAT_BYTES
        return plan.largest_block_rows * row_bytes + block_bytes(plan)

    @property
    def build(self) -> int:
        """Of the task that builds the index of the largest block; 0 without any.

        The rows as points, also in float32, and what pynndescent takes.
        """
        shape = self.plan.shape
        if not shape.is_indexed:
            return 0
        row_bytes = (FLOAT_BYTES + SINGLE_BYTES) * shape.n_features + BUILD_ROW_BYTES
        block = block_bytes(self.plan) if self.plan.is_spooled else 0
        return self.plan.largest_block_rows * row_bytes + block

    @property
    def merge(self) -> int:
        """Of the task that merges samples, to judge a search; 0 for an exact one."""
        shape = self.plan.shape
        if not shape.is_indexed:
            return 0
        n_samples, n_sampled = Approximation.MERGED_SAMPLES, Approximation.AUDITED_ROWS
        merged_rows = (n_samples + 1) * (n_sampled + 1)
        return merged_rows * shape.n_read_features * FLOAT_BYTES

    @property
    def partition(self) -> int:
        """What reading a partition of the input takes."""
        shape = self.plan.shape
        column = shape.partition_rows * FLOAT_BYTES
        if not shape.reads_frame:
            return ARRAY_COPIES * column * shape.n_read_features
        dictionary = min(DICTIONARY_COPIES * column, DICTIONARY_BYTES)
        return (FRAME_COPIES * column + dictionary) * shape.n_read_features

    @property
    def task(self) -> int:
        """What a task adds to what it reads of the input, where all threads have one.

        No two threads have the largest block where that is more than half of all rows.
        """
        plan = self.plan
        max_rows = plan.threads * plan.largest_block_rows
        of_block = max(self.pack, self.build)
        shared = -(-of_block * plan.shape.n_reference // max_rows)
        order = ORDERED_ROW_BYTES * (plan.shape.ordered_rows or 0)
        return max(self.join, min(of_block, shared), self.merge, order)

    @property
    def process(self) -> int:
        """Of a process without data."""
        library = LIBRARY_BYTES if self.plan.shape.is_indexed else 0
        return Workers.PROCESS_BYTES + Workers.KERNEL_BYTES + library

    @property
    def worker(self) -> int:
        """All of a worker: the process, what it holds, and its tasks."""
        tasks = self.plan.threads * (self.task + self.partition)
        return self.process + self.held + self.calibration + tasks

    def fits(self, memory_limit: int, n_others: int = 0) -> bool:
        """Return whether a worker of ``memory_limit`` bytes can hold this, and others."""
        return self.worker + n_others <= int(Workers.USABLE_SHARE * memory_limit)

    def check(self, memory_limit: int) -> None:
        """Raise `MemoryError` if a worker of ``memory_limit`` bytes cannot hold this."""
        if self.fits(memory_limit):
            return
        usable, shape = int(Workers.USABLE_SHARE * memory_limit), self.plan.shape
        remedy = ""
        if self.graph > 0:
            remedy = (
                " Walks take less along a graph with fewer edges, the directed one, and to "
                "the K-th neighbor rather than within a radius."
            )
        elif shape.is_indexed:
            remedy = " An exact search takes less (algorithm='auto', --algorithm auto)."
        raise MemoryError(
            f"{shape.n_reference} nominal rows x {shape.n_read_features} columns need "
            f"{_mebibytes(self.worker)} on each worker ({self._parts()}), but of its "
            f"{_mebibytes(memory_limit)} a worker may use {_mebibytes(usable)}. Give each "
            f"worker more memory (memory_limit= of the cluster, --memory-limit) or fewer "
            f"threads (now {self.plan.threads}), cut the input into smaller partitions, "
            f"compare with fewer rows (calibration_size=, --calibration-size), or use "
            f"fewer nominal rows or columns.{remedy}"
        )

    def _parts(self) -> str:
        """Return the purposes of the bytes of a worker."""
        nominal = f"of them the nominal rows {_mebibytes(self.held)}"
        if self.plan.is_spooled:
            nominal = f"with the nominal rows, {_mebibytes(self.reference)}, on disk"
        if self.graph > 0:
            nominal += (
                f", their neighbor graph {_mebibytes(self.graph)}, a walk along it "
                f"{_mebibytes(self.walk)} for each thread"
            )
        return (
            f"{nominal}, the statistics that p-values compare with "
            f"{_mebibytes(self.calibration)}, a process without data "
            f"{_mebibytes(self.process)}, and for each thread {_mebibytes(self.task)} a "
            f"task and {_mebibytes(self.partition)} a partition of the input"
        )


def block_bytes(plan: SearchPlan) -> int:
    """Return the bytes of the largest block with its sample."""
    return _blocks_bytes(plan, plan.largest_block_rows, 1)


def _blocks_bytes(plan: SearchPlan, n_rows: int, n_blocks: int) -> int:
    """Return the bytes of blocks of so many rows."""
    n_features = plan.shape.n_features
    extra = n_blocks * Block.extra_bytes(n_features)
    return n_rows * reference_row_bytes(n_features, plan.shape.n_codes) + extra


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"

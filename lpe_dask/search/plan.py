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
from dataclasses import dataclass

from lpe_dask.kernels import BeamAccumulator, Block, Index, PairSearch, search_work

#: Bytes of a float64, and of a float32. Whether float32 holds prepared rows is not known
#: before they are read, so a plan takes float64.
FLOAT_BYTES, SINGLE_BYTES = 8, 4

#: Bytes that one pass should not exceed, unless those of a spooled block are more.
PASS_BYTES = 256 * 2**20

#: Bytes that a pass may take which lists the nearest rows, or is in no task, and those
#: that are gathered of the nearest rows at once.
LISTED_BYTES, GATHERED_BYTES = 64 * 2**20, 32 * 2**20

#: Query rows of a task: fewer are not worth a task, more make a long wait for news and for
#: what a lost worker leaves to be done again.
MIN_TASK_ROWS, MAX_TASK_ROWS = 1024, 32_768

#: Those of few columns, where there is memory, and their numbers. Each pass is sorted into
#: tiles by itself, and the nearer the rows of a tile are, the fewer pairs are left.
MAX_NARROW_ROWS, MAX_NARROW_NUMBERS = 131_072, 2**20

#: Those where each task reads a spool: one of many rows reads hardly more of it than one of
#: few. Of 43 blocks of 8 columns an eighth of one is near 17, and all of one near 22.
MAX_SPOOL_TASK_ROWS = 2**19

#: Tasks for each thread, so that the last ones to finish leave little idle.
TASKS_PER_THREAD = 4

#: Rows of a task are more where there would be more tasks than these.
MAX_TASKS = 8192

#: Blocks in memory where they can be fewer than threads: each task depends on all of them,
#: and to pack fewer in parallel saves less than that costs a scheduler.
MAX_HELD_BLOCKS = 64

#: Most bytes of one reference block.
MAX_BLOCK_BYTES = 128 * 2**20

#: Rows of a block, or numbers, where these are fewer rows: to pack fewer in parallel saves
#: less than another block to be searched costs.
MIN_BLOCK_ROWS, MIN_BLOCK_NUMBERS = 16_384, 2**19

#: Rows of a block for each neighbor where these are many, as each block is a selection of
#: K; up to so many rows.
ROWS_PER_NEIGHBOR, MAX_GROWN = 512, 131_072

#: Bytes of a row that building an index takes, beside the row itself: what pynndescent adds
#: (840 to 950 measured with 0.7.0, 760 to 1430 with 0.6.0, at 64 to 768 columns).
BUILD_ROW_BYTES = 1500

#: Most rows of a block with an index, and numbers.
MAX_INDEXED_ROWS, MAX_INDEXED_NUMBERS = 200_000, 100_000_000

#: Near rows that belong together make a block of up to so many times the planned rows.
MAX_BLOCK_RATIO = 2

#: One of so many rows of each block is in its sample.
SAMPLE_EVERY = 16

#: K from which on a sample is searched first. Below, what it saves is not worth the pass.
MIN_SAMPLED_NEIGHBORS = 48

#: Columns from which on each pair is summed once for both of its rows, and work, which has
#: to be worth another kernel: measured .8 times as fast with 32 columns, 1.1 with 62, 1.5
#: with 200 and 1.8 with 768 with AVX-512, and 1.4 with 62 with AVX2.
MIN_PAIR_FEATURES, MIN_PAIR_WORK = 48, 6e9

#: Work of a thread up to which rows need not be kept before all are known: about a minute.
MAX_UNKEPT_WORK = 1e13

#: Pieces whose regions one task counts: the client adds up one array for so many.
SUMMED_PIECES = 64


@dataclass(frozen=True, slots=True)
class Statistic:
    """What is asked of rows: how far their K nearest are, or how many are near.

    Attributes
    ----------
    n_neighbors : int, optional
        K.
    radius : float, optional
        Epsilon, where ``n_neighbors`` is None.
    enough : int, optional
        A number of rows within the radius that suffices.
    aggregation : {"kth", "mean"}
        Whether the distance to the K-th nearest is asked for, or the mean of all K.
    bound : float, optional
        Where it is only asked whether the mean is at most this: it may then be any number
        up to it where that is so.
    """

    n_neighbors: int | None
    radius: float | None
    enough: int | None = None
    aggregation: str = "kth"
    bound: float | None = None

    def sufficient_radius(self) -> float | None:
        r"""Return a radius t' so that a mean of K distances up to t' is within the bound t.

        None if there is no bound, or the K distances could add up to more than a float64.
        With u = 2^-53, a mean of K distances that are at most r is at most r (1 + u)^K
        as it is computed: the first of the K additions adds to 0 and is exact, the others
        and the division round by a factor of at most 1 + u each. The radius is

        .. math:: r \le t (1 - 2 (K + 2) u) (1 + u)

        where the factor is a float64 and the product is rounded, so the mean is at most

        .. math:: t (1 - 2 (K + 2) u) (1 + u)^{K + 1}
                  \le t \frac{1 - 2 (K + 2) u}{1 - (K + 1) u} < t.

        Distances are 0 or square roots of numbers from 2^-1074 on, and so are paths, which
        add such: nothing here is subnormal unless t is, and then only rows at distance 0
        are within. The sum does not overflow, being less than K t, which has to be finite.
        """
        if self.bound is None or self.n_neighbors is None:
            return None
        if not self.n_neighbors * self.bound < math.inf:
            return None
        return self.bound * (1 - (self.n_neighbors + 2) * 2.0**-52)


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
class ProblemSize:
    """What a plan depends on, apart from the workers.

    Attributes
    ----------
    n_reference, n_features : int
        Rows that are searched among, and their columns once they are prepared.
    statistic : Statistic
    graph_params : NeighborGraphParams, optional
        Of the neighbor graph that distances go along; None: they go straight.
    calibration_rows : int, optional
        Rows whose statistics p-values compare with; None: as many as the reference has.
    block_rows : int, optional
        Rows of a reference block, where they are settled.
    is_spooled : bool, optional
        Where the reference is, if it has been prepared.
    partition_rows : int
        Rows of the largest partition of the input, of which a task reads one; 0 where that
        is not known before reading.
    reads_frame : bool
        Whether partitions of the input are those of a frame, and not of an array.
    is_indexed : bool
        Whether blocks have indexes, along which a search may miss neighbors.
    n_input_features : int, optional
        Columns of the input; None: as many.
    n_codes : int
        How many of the prepared columns are codes.
    ordered_rows : int, optional
        Where the statistics of calibration rows are on storage, and workers look them up
        there: of how many a task puts in order. None: each worker has all of them.
    """

    n_reference: int
    n_features: int
    statistic: Statistic
    graph_params: NeighborGraphParams | None = None
    calibration_rows: int | None = None
    block_rows: int | None = None
    is_spooled: bool | None = None
    partition_rows: int = 0
    reads_frame: bool = False
    is_indexed: bool = False
    n_input_features: int | None = None
    n_codes: int = 0
    ordered_rows: int | None = None

    @property
    def n_read_features(self) -> int:
        """Columns of the rows as they are read."""
        return self.n_input_features or self.n_features

    @property
    def calibration_work(self) -> float:
        """What measuring the calibration rows takes; see `kernels.search_work`."""
        n_measured = self.calibration_rows or self.n_reference
        return search_work(n_measured * self.n_reference, self.n_features)

    @property
    def graph_neighbors(self) -> int:
        """Edges from each row of the neighbor graph; 0 without one."""
        return 0 if self.graph_params is None else self.graph_params.n_neighbors

    @property
    def n_listed_neighbors(self) -> int:
        """Nearest rows to find in space; 0 where rows within a radius are counted."""
        return self.graph_neighbors or self.statistic.n_neighbors or 0

    @property
    def walk_rows(self) -> int:
        """Rows of the neighbor graph that one walk may touch.

        To the K-th row reached, those that K rows and the start lead to; any number where a
        row may lead to many (in a graph of both directions), or where rows are counted.

        Examples
        --------
        >>> graph = NeighborGraphParams(8, "directed")
        >>> ProblemSize(10**6, 3, Statistic(20, None), graph).walk_rows
        168
        """
        if self.graph_params is None:
            return 0
        n_neighbors = self.statistic.n_neighbors
        if n_neighbors is None or self.graph_params.graph != "directed":
            return self.n_reference
        return min(self.n_reference, (n_neighbors + 1) * self.graph_neighbors)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The cut of a search.

    Attributes
    ----------
    shape : ProblemSize
    block_rows : int
        Rows of a reference block.
    task_rows : int
        Rows of a block that one task measures against all others.
    pass_rows : int
        Query rows that a task searches for at a time.
    threads : int
        Tasks that run at once in one worker.
    is_spooled : bool
        Whether the reference is in a spool, and not in the memory of each worker.
    """

    shape: ProblemSize
    block_rows: int
    task_rows: int
    pass_rows: int
    threads: int
    is_spooled: bool = False

    @property
    def n_blocks(self) -> int:
        """Reference blocks."""
        return -(-self.shape.n_reference // self.block_rows)

    @property
    def block_shares(self) -> int:
        """Tasks that share the rows of a block."""
        return -(-self.block_rows // self.task_rows)

    @property
    def largest_block_rows(self) -> int:
        """Most rows of a block."""
        largest = 1 if self.shape.is_indexed else MAX_BLOCK_RATIO
        rows = min(largest * self.block_rows, self.shape.n_reference)
        return Block.whole_groups(rows)

    def nominal_shares(self, n_measured: int) -> int:
        """Return how many tasks share a block of which a few rows are measured.

        So many of all rows. Where each task reads a spool, no more than are worth it.
        """
        if not self.is_spooled:
            return self.block_shares
        of_block = self.block_rows * n_measured / self.shape.n_reference
        worth = math.ceil(of_block / self.least_task_rows)
        return min(self.block_shares, max(1, worth))

    def query_shares(
        self, n_partitions: int, n_threads: int, largest_partition: int | None = None
    ) -> int:
        """Return into how many tasks each query partition is cut.

        Enough that all threads have work when there are few partitions; of
        ``least_task_rows`` to ``most_task_rows`` each where the rows of the largest
        partition are known.

        Examples
        --------
        >>> shape = ProblemSize(10_000, 3, Statistic(20, None))
        >>> plan = plan_search(shape, n_threads=2, threads=2, memory_limit=2**30)
        >>> plan.query_shares(1, n_threads=2), plan.query_shares(100, n_threads=2)
        (8, 1)
        >>> plan.query_shares(1, n_threads=2, largest_partition=3000)
        3
        """
        shares = max(1, math.ceil(TASKS_PER_THREAD * n_threads / max(1, n_partitions)))
        if largest_partition is not None:
            shares = max(shares, math.ceil(largest_partition / self.most_task_rows))
            worth = math.ceil(largest_partition / self.least_task_rows)
            shares = min(shares, max(1, worth))
        return shares

    def pair_shares(
        self, n_blocks: int, n_threads: int, *, keeps_rows: bool = False
    ) -> int | None:
        """Return how many tasks share the pairs of two blocks, where each is summed once.

        Of blocks in memory whose K nearest are few, if there is one for each thread or
        there are many: all threads have as many tasks, as of blocks in twos there are
        n / 2 (n - 1). None where each row is measured by itself.

        ``keeps_rows`` says whether rows are kept as soon as they are measured: of pairs
        summed once, none is before the last.

        Examples
        --------
        >>> shape = ProblemSize(100_000, 62, Statistic(20, None))
        >>> plan = plan_search(shape, n_threads=2, threads=2, memory_limit=2**32)
        >>> plan.pair_shares(plan.n_blocks, 2), plan.pair_shares(plan.n_blocks, 4)
        (2, None)
        """
        shape, n_neighbors = self.shape, self.shape.statistic.n_neighbors
        if self.is_spooled or shape.is_indexed or shape.graph_params is not None:
            return None
        if n_neighbors is None or n_neighbors > PairSearch.MAX_NEIGHBORS:
            return None
        if shape.n_features < MIN_PAIR_FEATURES or shape.calibration_work < MIN_PAIR_WORK:
            return None
        if n_blocks < min(n_threads, MAX_HELD_BLOCKS):
            return None
        if keeps_rows and shape.calibration_work > MAX_UNKEPT_WORK * n_threads:
            return None
        even = 1 if n_blocks * (n_blocks - 1) // 2 % n_threads == 0 else 2
        return even * math.ceil(self.block_rows / (even * MAX_TASK_ROWS))

    @property
    def least_task_rows(self) -> int:
        """Query rows that are worth a task: where each reads a spool, those of a pass.

        But no more than would be too many elsewhere: all threads are to have some.
        """
        if not self.is_spooled:
            return MIN_TASK_ROWS
        return max(MIN_TASK_ROWS, min(self.pass_rows, MAX_TASK_ROWS))

    @property
    def most_task_rows(self) -> int:
        """Query rows that are not too many for a task."""
        return max(MAX_TASK_ROWS, self.pass_rows)


def indexed_block_rows(n_reference: int, n_features: int) -> int:
    """Return the rows of a block with an index.

    A search begins anew in each block, so they are few; a task makes each of them as a
    whole, so they are not too large. What is found depends on them, so they depend on the
    rows alone, and on no worker or setting.

    Examples
    --------
    >>> indexed_block_rows(1000, 64), indexed_block_rows(400_000, 64)
    (1000, 200000)
    >>> indexed_block_rows(400_000, 768)
    100000
    """
    most = max(1, min(MAX_INDEXED_ROWS, MAX_INDEXED_NUMBERS // n_features))
    return -(-n_reference // -(-n_reference // most))


def plan_search(
    shape: ProblemSize,
    n_threads: int,
    threads: int,
    memory_limit: int,
    *,
    is_tight: bool = False,
) -> SearchPlan:
    """Return the cut of a search that suits some workers.

    Parameters
    ----------
    shape : ProblemSize
    n_threads, threads : int
        Threads of all workers, and of the one with the most.
    memory_limit : int
        Bytes of the smallest worker, beside those of a process without data.
    is_tight : bool, default=False
        Whether passes are short where blocks are read from a spool: they take less memory,
        and each reads about as much.
    """
    n_reference, block_rows = shape.n_reference, shape.block_rows
    if block_rows is None and shape.is_indexed:
        block_rows = indexed_block_rows(n_reference, shape.n_features)
    if block_rows is None:
        # Few blocks: each of them is a new start for every query. One a thread, so that
        # all are busy while they are made, or a divisor, so that all have as many tasks:
        # the largest of which a block has about the least rows or more.
        max_bytes = min(MAX_BLOCK_BYTES, memory_limit // (64 * threads))
        most = max_bytes // reference_row_bytes(shape.n_features, shape.n_codes)
        worth = 4 * n_reference // (3 * _least_block_rows(shape))
        counts = range(1, min(worth, n_threads) + 1)
        n_even = max((n for n in counts if n_threads % n == 0), default=1)
        if len(counts) > MAX_HELD_BLOCKS and not shape.is_spooled:
            n_even = MAX_HELD_BLOCKS
        even = -(-n_reference // n_even)
        block_rows = max(1, min(even, most))
    block_rows = Block.whole_groups(block_rows)
    row_bytes, most_rows = pass_row_bytes(shape), MAX_TASK_ROWS
    max_bytes, parts = PASS_BYTES, 16
    if shape.is_spooled:  # each pass reads all near blocks, and has two of them at a time
        row_bytes_of_block = reference_row_bytes(shape.n_features, shape.n_codes)
        max_bytes = max(max_bytes, block_rows * row_bytes_of_block)
        parts = 18
        if block_rows > MAX_TASK_ROWS and not is_tight:
            parts, most_rows = 7, min(block_rows, MAX_SPOOL_TASK_ROWS)
    pass_bytes = min(max_bytes, memory_limit // (parts * threads))
    pass_rows = max(1, min(most_rows, pass_bytes // row_bytes))
    if not (shape.is_spooled or shape.is_indexed or shape.graph_params):
        narrow_rows = min(MAX_NARROW_ROWS, MAX_NARROW_NUMBERS // shape.n_features)
        narrow_rows = min(narrow_rows, n_reference, pass_bytes // (2 * row_bytes))
        pass_rows = max(pass_rows, narrow_rows)
    if pass_rows > MIN_TASK_ROWS:  # a task of as many rows is not to have two
        pass_rows -= pass_rows % Block.whole_groups(1)
    n_tasks = min(TASKS_PER_THREAD * n_threads, -(-n_reference // MIN_TASK_ROWS))
    if n_tasks > n_threads:
        n_tasks -= n_tasks % n_threads  # as many for each thread
    most_rows = max(MAX_TASK_ROWS, pass_rows, -(-n_reference // MAX_TASKS))
    task_rows = min(most_rows, -(-n_reference // n_tasks))
    return SearchPlan(
        shape, block_rows, min(Block.whole_groups(task_rows), block_rows), pass_rows,
        threads, bool(shape.is_spooled),
    )  # fmt: skip


def _least_block_rows(shape: ProblemSize) -> int:
    """Return the rows that a block has at least, if there are so many."""
    least = min(MIN_BLOCK_ROWS, MIN_BLOCK_NUMBERS // shape.n_features)
    if sample_neighbors(shape.n_listed_neighbors) is not None:
        least = max(least, min(MAX_GROWN, ROWS_PER_NEIGHBOR * shape.n_listed_neighbors))
    return max(MIN_TASK_ROWS, least)


def share_of(n_rows: int, share: int, n_shares: int) -> slice:
    """Return the rows of a partition that are the ``share``-th of ``n_shares`` even shares.

    Examples
    --------
    >>> [share_of(10, i, 3) for i in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """
    return slice(n_rows * share // n_shares, n_rows * (share + 1) // n_shares)


def reference_row_bytes(n_features: int, n_codes: int = 0) -> int:
    """Return the bytes of a row in a block, with its share of the cells and samples."""
    row_bytes = Block.row_bytes(n_features, n_codes)
    return math.ceil(row_bytes * (SAMPLE_EVERY + 1) / SAMPLE_EVERY)


def index_row_bytes(n_features: int) -> int:
    """Return the bytes of a row in the index of its block."""
    return Index.row_bytes(reference_row_bytes(n_features))


def pass_row_bytes(shape: ProblemSize) -> int:
    """Return the bytes of a query row in a pass: prepared, in the basis, and the K nearest.

    For a sample fewer neighbors are kept as well, a quarter for the smallest K. Sorting
    them with their numbers takes copies of both. Where blocks have indexes, a query has a
    beam, and enters a block at some of its starts.
    """
    n_neighbors = shape.n_listed_neighbors
    nearest = n_neighbors + n_neighbors // 4 + 7 * shape.graph_neighbors
    beam = BeamAccumulator.query_bytes(n_neighbors) if shape.is_indexed else 0
    return (6 * shape.n_features + nearest + 32) * FLOAT_BYTES + beam


def direct_pass_rows(shape: ProblemSize) -> int:
    """Return the query rows of a pass that no task makes, of up to `MIN_TASK_ROWS`."""
    return max(1, min(MIN_TASK_ROWS, LISTED_BYTES // pass_row_bytes(shape)))


def listing_pass_rows(n_features: int, n_neighbors: int) -> int:
    """Return the query rows of a pass that lists their nearest rows.

    Examples
    --------
    >>> listing_pass_rows(10, 20), listing_pass_rows(5000, 20_000)
    (31775, 41)
    """
    row_bytes = (8 * n_features + 8 * n_neighbors + 24) * FLOAT_BYTES
    return max(1, min(MAX_TASK_ROWS, LISTED_BYTES // row_bytes))


def gather_batch(n_rows: int, n_features: int) -> int:
    """Return how many of the nearest rows of each query are gathered at once."""
    return max(1, GATHERED_BYTES // (max(1, n_rows) * n_features * FLOAT_BYTES))

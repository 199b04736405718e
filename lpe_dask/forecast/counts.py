"""Count, in whole numbers, the tasks of a run before there is a graph.

    nominal rows   read --> survey --> scale --> split --> pack --> self-join --> record
                                                               +--> save
    saved model                                       load --+
    rows to score  read --------------------------------> join --> p-value --> write
                                                                           +--> decide

Counted are the tasks that this library puts into graphs, and for each time that an input is
read to be measured one task a partition, whatever Dask makes of that. What the client
enters, such as the blocks that it holds, and Dask's own cutting of chunks are no work and
not counted.

Where near rows make a block, how many blocks there are depends on the rows, and where rows
are drawn, how many partitions they are in: these counts are upper bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lpe_dask.search import (
    MAX_TASK_ROWS,
    SUMMED_BLOCKS,
    SUMMED_PIECES,
    TASKS_PER_THREAD,
    SearchPlan,
    n_shares,
)

#: scale or metric -> how often the nominal rows are read to learn it, and for how many of
#: these times sums are added up.
LEARNT = {"minmax": (1, 0), "standard": (3, 2), "seuclidean": (3, 2), "mahalanobis": (3, 2)}


@dataclass(frozen=True, slots=True)
class FitShape:
    """What decides how many tasks a fit has.

    Attributes
    ----------
    plan : SearchPlan
        Of the rows that new rows are measured among.
    own_plan : SearchPlan, optional
        Of the part that calibration rows are measured among, if that is another one.
    n_measured : int
        Calibration rows.
    partitions : sequence of int
        Rows of the partitions of the nominal rows.
    keeps_near_rows : bool
        Whether near rows make a block.
    n_threads : int
        Of all workers.
    learnt : sequence of str
        Keys of `LEARNT`.
    is_like_new : bool
        Whether calibration rows are measured like new rows.
    is_cluster : bool
        Whether the scheduler is one of `distributed`.
    """

    plan: SearchPlan
    own_plan: SearchPlan | None
    n_measured: int
    partitions: Sequence[int]
    keeps_near_rows: bool
    n_threads: int
    learnt: Sequence[str] = ()
    is_like_new: bool = False
    is_cluster: bool = False

    @property
    def n_filled(self) -> int:
        """Partitions that are not empty."""
        return sum(n_rows > 0 for n_rows in self.partitions)

    @property
    def is_divided(self) -> bool:
        """Whether rows are measured among a part of the nominal rows."""
        return self.is_like_new or self.own_plan is not None


def fit_tasks(shape: FitShape) -> Counter[str]:
    """Return the tasks of a fit by kind."""
    n_partitions = len(shape.partitions)
    tasks = Counter({"read": n_partitions, "survey": n_partitions})
    for name in shape.learnt:
        n_reads, n_sums = LEARNT[name]
        tasks += _read_tasks(shape, n_reads, is_part=shape.is_like_new)
        tasks["scale"] += n_sums * _sum_tasks(shape.n_filled)
    if shape.own_plan is not None:
        tasks += _pack_tasks(shape, shape.own_plan)
        tasks += _measure_tasks(shape, shape.own_plan)
    tasks += _pack_tasks(shape, shape.plan)
    if shape.is_like_new:
        tasks += _like_new_tasks(shape)
    elif shape.own_plan is None:
        tasks += _measure_tasks(shape, shape.plan)
    return tasks


def most_blocks(plan: SearchPlan, *, keeps_near_rows: bool) -> int:
    """Return how many blocks there are; at most, where near rows make a block.

    Then each of up to `SearchPlan.n_blocks` parts makes as few blocks as its rows need, of
    which only one is not full.

    Examples
    --------
    >>> shape = SearchShape(1000, 2, Statistic(5, None))
    >>> plan = SearchPlan(shape, 64, 64, 64, 1)
    >>> most_blocks(plan, keeps_near_rows=False), most_blocks(plan, keeps_near_rows=True)
    (16, 23)
    """
    if not keeps_near_rows:
        return plan.n_blocks
    rest = max(0, plan.shape.n_reference - plan.n_blocks)
    return plan.n_blocks + rest // max(1, plan.largest_block_rows)


def _sum_tasks(n_chunks: int) -> int:
    """Return the tasks that add up exact sums of chunks, in a tree."""
    total, n_open = n_chunks, n_chunks
    while total == n_chunks or n_open > 1:
        n_open = -(-n_open // SUMMED_BLOCKS)
        total += n_open
    return total


def _read_tasks(shape: FitShape, n_reads: int, *, is_part: bool) -> Counter[str]:
    """Return the tasks that read the nominal rows again, or a part of them.

    Empty partitions are passed over, and rows picked out, by tasks of their own.
    """
    n_picks = int(shape.n_filled < len(shape.partitions)) + int(is_part)
    return Counter(
        {
            "read": n_reads * len(shape.partitions),
            "take": n_reads * n_picks * shape.n_filled,
        }
    )


def _pack_tasks(shape: FitShape, plan: SearchPlan) -> Counter[str]:
    """Return the tasks that put rows into blocks."""
    tasks = _read_tasks(shape, 1, is_part=shape.is_divided)
    tasks["pack"] = most_blocks(plan, keeps_near_rows=shape.keeps_near_rows)
    if shape.keeps_near_rows:
        tasks["split"] = plan.n_blocks
        if plan.is_spooled:
            tasks["split"] += -(-plan.n_blocks // SUMMED_PIECES)
        elif shape.is_cluster:
            tasks["split"] += plan.n_blocks
    return tasks


def _measure_tasks(shape: FitShape, plan: SearchPlan) -> Counter[str]:
    """Return the tasks that measure rows of blocks among all others, and record it."""
    n_blocks = most_blocks(plan, keeps_near_rows=shape.keeps_near_rows)
    n_joins = n_blocks * plan.block_shares
    if plan.shape.graph_neighbors == 0:
        return Counter({"self-join": n_joins, "record": n_joins})
    n_walks = -(-shape.n_measured // plan.task_rows)
    return Counter({"self-join": n_joins, "graph": 1, "walk": n_walks, "record": n_walks})


def _like_new_tasks(shape: FitShape) -> Counter[str]:
    """Return the most tasks that measure calibration rows as new ones, and record it.

    They come in chunks of the rows that were drawn from a partition each; the fewer chunks
    there are, the more tasks share one.
    """
    n_chunks, largest = min(shape.n_filled, shape.n_measured), max(shape.partitions)
    least_shares = -(-largest // MAX_TASK_ROWS)
    most_shares = -(-largest // shape.plan.least_task_rows)
    n_joins = max(TASKS_PER_THREAD * shape.n_threads + n_chunks, n_chunks * least_shares)
    tasks = _read_tasks(shape, 1, is_part=True)
    # Those that put the shares together, too; then they are numbered, and recorded.
    tasks["self-join"] = min(n_joins, n_chunks * most_shares) + n_chunks
    tasks["record"] = 2 * n_chunks
    if shape.plan.shape.graph_neighbors > 0:
        n_blocks = most_blocks(shape.plan, keeps_near_rows=shape.keeps_near_rows)
        tasks += Counter({"graph": 1, "self-join": n_blocks * shape.plan.block_shares})
    return tasks


def save_tasks(shape: FitShape) -> Counter[str]:
    """Return the tasks that write a model: its blocks, and a neighbor graph."""
    n_blocks = most_blocks(shape.plan, keeps_near_rows=shape.keeps_near_rows)
    return Counter({"save": n_blocks + int(shape.plan.shape.graph_neighbors > 0)})


def load_tasks(n_blocks: int, *, has_graph: bool) -> Counter[str]:
    """Return the tasks that read a saved model."""
    return Counter({"load": n_blocks + int(has_graph)})


def decide_tasks(n_partitions: int, n_merged: int) -> Counter[str]:
    """Return the tasks that decide by the p-values of all rows, once these are written.

    They read p-values, count them, merge ``n_merged`` counts at a time in a tree, and write
    the parts again.
    """
    total, n_open = 3 * n_partitions, n_partitions
    while n_open > n_merged:
        n_open = -(-n_open // n_merged)
        total += n_open
    return Counter({"decide": total + 1})


@dataclass(frozen=True, slots=True)
class ScoreShape:
    """What decides how many tasks the scoring of rows has, once there is a model.

    Attributes
    ----------
    n_partitions : int
        Of the rows to score.
    largest : int, optional
        Rows of the largest one, where that is known before reading.
    least_rows : int
        Rows that are worth a task.
    n_threads : int
        Of all workers.
    """

    n_partitions: int
    largest: int | None
    least_rows: int
    n_threads: int

    @property
    def n_shares(self) -> int:
        """Tasks that share one partition."""
        return n_shares(self.n_partitions, self.n_threads, self.largest, self.least_rows)


def score_tasks(shape: ScoreShape) -> Counter[str]:
    """Return the tasks that measure new rows and write them with their p-values."""
    n = shape.n_partitions
    return Counter(
        {
            "read": n,
            "join": n * shape.n_shares + n,  # those that put the shares together
            "p-value": n,
            "write": n,
        }
    )


def own_score_tasks(shape: ScoreShape, *, all_measured: bool) -> Counter[str]:
    """Return the tasks that write the nominal rows themselves with their p-values.

    Where not all of them are calibration rows, the others are measured as well.
    """
    n = shape.n_partitions
    # The statistic, which of the rows are calibration rows, and the p-values.
    tasks = Counter({"p-value": 3 * n, "write": n})
    if not all_measured:
        # Rows that are known are left blank, shares put together, and known ones filled in;
        # and each row has its number.
        joins = n * shape.n_shares + 3 * n
        tasks += Counter({"read": n, "p-value": 2 * n, "join": joins})
    return tasks

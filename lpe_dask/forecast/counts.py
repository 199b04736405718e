"""Count, in whole numbers, the tasks of a run before there is a graph.

    categories     read --> levels
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

from lpe_dask.forecast.planned_model import LEARNED, PlannedModel
from lpe_dask.model import MOST_SAMPLED, readings_of
from lpe_dask.search import (
    MAX_TASK_ROWS,
    SUMMED_BLOCKS,
    SUMMED_PIECES,
    TASKS_PER_THREAD,
    SearchPlan,
)
from lpe_dask.tables import MERGED_LEVELS
from lpe_dask.tasks import Workers, merge_tasks


def model_tasks(model: PlannedModel, workers: Workers, *, saves: bool) -> Counter[str]:
    """Return the tasks of a fit by kind, or those that read a model.

    Parameters
    ----------
    model : PlannedModel
    workers : Workers
    saves : bool
        Whether the model is written.
    """
    plan, has_graph = model.plan, int(model.shape.graph_neighbors > 0)
    if model.n_files > 0:
        return Counter({"load": model.n_files + has_graph})
    partitions = model.nominal.sizes
    tasks = Counter({"read": len(partitions), "survey": len(partitions)})
    if model.has_levels:  # of categories, which are read before
        merges = _merge_tasks(len(partitions), MERGED_LEVELS)
        tasks += Counter({"read": len(partitions), "levels": merges})
    for name in model.learned:
        n_reads, n_sums = LEARNED[name]
        tasks += _read_tasks(partitions, n_reads, is_part=model.is_like_new)
        tasks["scale"] += n_sums * _sum_tasks(_n_filled(partitions))
        if "quantile" in name:
            tasks += _knot_tasks(model)
    for of_search in model.plans:
        tasks += _pack_tasks(model, of_search, workers)
    if model.is_like_new:
        tasks += _like_new_tasks(model, workers)
    else:
        tasks += _measure_tasks(model, model.plans[0])
    if saves:
        tasks["save"] = _n_blocks(model, plan) + has_graph
    return tasks


def most_blocks(plan: SearchPlan, *, keeps_near_rows: bool) -> int:
    """Return how many blocks there are; at most, where near rows make a block.

    Then each of up to `SearchPlan.n_blocks` parts makes as few blocks as its rows need, of
    which only one is not full.

    Examples
    --------
    >>> from lpe_dask.search import Statistic, SearchShape
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
    return n_chunks + _merge_tasks(n_chunks, SUMMED_BLOCKS)


def _merge_tasks(n_results: int, n_merged: int) -> int:
    """Return the tasks that merge results in a tree, with the last one."""
    tree, _ = merge_tasks("count", list(range(n_results)), sum, n_merged)
    return len(tree) + 1


def _n_blocks(model: PlannedModel, plan: SearchPlan) -> int:
    return most_blocks(plan, keeps_near_rows=model.sampled.space.prunes)


def _n_filled(partitions: Sequence[int]) -> int:
    return sum(n_rows > 0 for n_rows in partitions)


def _read_tasks(partitions: Sequence[int], n_reads: int, *, is_part: bool) -> Counter[str]:
    """Return the tasks that read the nominal rows again, or a part of them.

    Empty partitions are skipped, and rows are picked, by additional tasks.
    """
    n_filled = _n_filled(partitions)
    n_picks = int(n_filled < len(partitions)) + int(is_part)
    return Counter(
        {"read": n_reads * len(partitions), "take": n_reads * n_picks * n_filled}
    )


def _knot_tasks(model: PlannedModel) -> Counter[str]:
    """Return the tasks that learn the knots of quantiles, from a sample of many rows."""
    partitions, n_rows = model.nominal.sizes, model.n_learned_from
    n_filled = _n_filled(partitions)
    n_codes = len(model.sampled.space.preparation.categorical)
    readings = readings_of(n_rows, model.shape.n_read_features - n_codes)
    n_groups = sum(map(len, readings))
    tasks = _read_tasks(partitions, len(readings), is_part=model.is_like_new)
    if n_rows > MOST_SAMPLED:
        tasks["take"] += len(readings) * n_filled
    # Where there are several groups of columns, each is cut out of each partition.
    tasks["scale"] = n_groups + (n_groups * n_filled if n_groups > 1 else 0)
    return tasks


def _pack_tasks(model: PlannedModel, plan: SearchPlan, workers: Workers) -> Counter[str]:
    """Return the tasks that put rows into blocks."""
    is_part = plan.shape.n_reference < model.n_nominal
    tasks = _read_tasks(model.nominal.sizes, 1, is_part=is_part)
    tasks["pack"] = _n_blocks(model, plan)
    if plan.shape.is_indexed:
        tasks["index"] = _n_blocks(model, plan)
    if model.sampled.space.prunes:
        tasks["split"] = plan.n_pieces
        if plan.is_spooled:
            tasks["split"] += -(-plan.n_pieces // SUMMED_PIECES)
        elif workers.is_cluster:
            tasks["split"] += plan.n_pieces
    return tasks


def _measure_tasks(model: PlannedModel, plan: SearchPlan) -> Counter[str]:
    """Return the tasks that measure rows of blocks among all others, and record it."""
    n_joins = _n_blocks(model, plan) * plan.own_shares(model.n_measured)
    if plan.shape.graph_neighbors == 0:
        return Counter({"self-join": n_joins, "record": n_joins})
    n_walks = -(-model.n_measured // plan.task_rows)
    return Counter({"self-join": n_joins, "graph": 1, "walk": n_walks, "record": n_walks})


def _like_new_tasks(model: PlannedModel, workers: Workers) -> Counter[str]:
    """Return the most tasks that measure calibration rows as new ones, and record it.

    They come in chunks of the rows that were drawn from a partition each; the fewer chunks
    there are, the more tasks share one.
    """
    plan, partitions = model.plan, model.nominal.sizes
    largest = max(partitions)
    n_chunks = min(_n_filled(partitions), model.n_measured)
    least_shares = -(-largest // MAX_TASK_ROWS)
    most_shares = -(-largest // plan.least_task_rows)
    n_joins = max(TASKS_PER_THREAD * workers.n_threads + n_chunks, n_chunks * least_shares)
    tasks = _read_tasks(partitions, 1, is_part=True)
    # Those that put the shares together, too; then they are numbered, and recorded.
    tasks["self-join"] = min(n_joins, n_chunks * most_shares) + n_chunks
    tasks["record"] = 2 * n_chunks
    if plan.shape.graph_neighbors > 0:
        n_joins = _n_blocks(model, plan) * plan.block_shares
        tasks += Counter({"graph": 1, "self-join": n_joins})
    return tasks


def decide_tasks(n_partitions: int, n_merged: int) -> Counter[str]:
    """Return the tasks that decide by the p-values of all rows, once these are written.

    They read p-values, count them, merge ``n_merged`` counts at a time in a tree, and write
    the parts again.
    """
    return Counter({"decide": 3 * n_partitions + _merge_tasks(n_partitions, n_merged)})


def score_tasks(n_partitions: int, n_shares: int) -> Counter[str]:
    """Return the tasks that measure new rows and write them with their p-values.

    Parameters
    ----------
    n_partitions : int
        Of the rows to score.
    n_shares : int
        Tasks that share one partition.
    """
    n = n_partitions
    # With those that put the shares together.
    return Counter({"read": n, "join": n * n_shares + n, "p-value": n, "write": n})


def own_score_tasks(
    n_partitions: int, n_shares: int, *, all_measured: bool
) -> Counter[str]:
    """Return the tasks that write the nominal rows themselves with their p-values.

    Where not all of them are calibration rows, the others are measured as well.
    """
    n = n_partitions
    # The statistic, which of the rows are calibration rows, and the p-values.
    tasks = Counter({"p-value": 3 * n, "write": n})
    if not all_measured:
        # Rows that are known are left blank, shares put together, and known ones filled in;
        # and each row has its number.
        tasks += Counter({"read": n, "p-value": 2 * n, "join": n * n_shares + 3 * n})
    return tasks

"""Nominal rows that others are measured against: put where tasks find them, and searched.

    sample --> algorithm, basis, split    on the client; no result depends on them
    rows --> blocks                       in memory or in a spool; computed
    blocks --> neighbor graph             where distances go along one; computed
    queries --> statistic                 lazy

What the sample says decides how long a search takes, never what it finds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS
from lpe_dask.search.choice import choose_algorithm
from lpe_dask.search.geodesic import build_graph, walk_among_rows
from lpe_dask.search.held import Results, new_entry
from lpe_dask.search.join import Search, Weight, join, join_frame, self_join
from lpe_dask.search.locality import learn_split
from lpe_dask.search.packing import Space, prepare_blocks
from lpe_dask.search.plan import (
    JoinPlan,
    NeighborGraphParams,
    Statistic,
    n_shares,
    plan_join,
    sample_neighbors,
    walk_rows,
)
from lpe_dask.search.preparation import Preparation
from lpe_dask.tables import Table
from lpe_dask.tasks import Shared, Workers, eagerly, enter, lazily, settle, workers

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reference:
    """Nominal rows, ready to be searched.

    Attributes
    ----------
    n_rows, n_features : int
    statistic : Statistic
        What they were prepared for.
    graph_params : NeighborGraphParams, optional
        Of the neighbor graph that distances go along; None: they go straight.
    space : Space
    algorithm : str
        A name of `kernels.ALGORITHMS`.
    blocks : Results
    graph : Results, optional
        The neighbor graph, as the only one.
    block_rows : int, optional
        As in `JoinPlan`, where the cut into blocks is that of a stored model.
    calibration_rows : int, optional
        As in `JoinPlan`; None: as many as there are rows.
    """

    n_rows: int
    n_features: int
    statistic: Statistic
    graph_params: NeighborGraphParams | None
    space: Space
    algorithm: str
    blocks: Results
    graph: Results | None = None
    block_rows: int | None = None
    calibration_rows: int | None = None

    @cached_property
    def _shared_space(self) -> Shared:
        return Shared(self.space, "lpe-space")

    def own_tasks(self, numbers: NDArray[np.int64]) -> list[Delayed]:
        """Return tasks that measure these rows, each without itself.

        Parameters
        ----------
        numbers : ndarray of int
            Of the rows to measure, ascending.

        Returns
        -------
        tasks : list of Delayed
            Each gives the numbers of some of them and their statistic.
        """
        plan = self._plan(wait=True)
        search = self._search(self.statistic, plan)
        if self.graph is not None:
            return walk_among_rows(self._graph_task(), numbers, search, plan.task_rows)
        is_all = len(numbers) == self.n_rows
        return self_join(
            len(self.blocks), self.blocks.tasks(), self._shared_space, search,
            plan.block_shares, None if is_all else enter(numbers, "lpe-chosen"),
        )  # fmt: skip

    def measure_rows(
        self,
        rows: da.Array,
        statistic: Statistic | None = None,
        weight: Weight | None = None,
        frame_sizes: Sequence[int] = (),
        numbers: da.Array | None = None,
    ) -> da.Array:
        """Return the statistic of rows as a dask array of shape (n,), lazily.

        In the chunks of the rows, each cut into as many tasks as workers have use for.

        Parameters
        ----------
        rows : dask array of shape (n, n_features)
            As the user gave them; chunks may be unknown.
        statistic : Statistic, optional
            None: that of the reference.
        weight : callable, optional
            See `join.join`.
        frame_sizes : sequence of int
            Rows of the partitions of a frame that they come from, about, where files tell.
        numbers : dask array of shape (n,), optional
            Of those that are rows of the reference; see `join.join`.
        """
        sizes = rows.chunks[0]
        plan = self._plan(frame_sizes or sizes, reads_frame=len(frame_sizes) > 0)
        shares = n_shares(
            len(sizes), workers().n_threads, _largest(sizes), plan.least_task_rows
        )
        search = self._search(statistic or self.statistic, plan)
        if plan.is_spooled:
            self.keep(plan)
        with lazily():
            return join(
                rows, self.blocks.tasks(), self._shared_space, search, shares,
                numbers=numbers, **self._further(weight),
            )  # fmt: skip

    def measure_table(
        self, table: Table, statistic: Statistic | None = None, weight: Weight | None = None
    ) -> Any:
        """Return the statistic of new rows in the kind that came in; lazy for Dask.

        Parameters are those of `measure_rows`, but for the table.
        """
        if not table.is_lazy:
            return eagerly(lambda: self._measure_at_once(table, statistic, weight))
        if table.frame is None:
            measured = self.measure_rows(table.rows, statistic, weight)
            return table.restore(measured, "statistic")
        plan = self._plan(table.rows.chunks[0], reads_frame=True)
        search = self._search(statistic or self.statistic, plan)
        if plan.is_spooled:
            self.keep(plan)
        with lazily():
            return join_frame(
                table.frame, self.blocks.tasks(), self._shared_space, search,
                **self._further(weight),
            )  # fmt: skip

    def _measure_at_once(
        self, table: Table, statistic: Statistic | None, weight: Weight | None
    ) -> Any:
        self.keep()
        return table.restore(self.measure_rows(table.rows, statistic, weight), "statistic")

    def keep(self, plan: JoinPlan | None = None) -> None:
        """Have blocks and graph ready for the active scheduler, if they are not; computes.

        Without this they are made, or read from the files of a model, by each search that
        does not find them. What does not fit into the memory of workers goes to a spool.
        """
        plan = plan or self._plan(wait=True)
        self.blocks.keep(in_spool=bool(plan.is_spooled))
        if self.graph is not None:
            self.graph.keep()

    def _further(self, weight: Weight | None) -> dict[str, Any]:
        """Return what some searches need besides."""
        entered = None if weight is None else enter(weight, "lpe-weight")
        return {"graph": self._graph_task(), "weight": entered}

    def _graph_task(self) -> Delayed | None:
        return None if self.graph is None else self.graph.tasks()[0]

    def _search(self, statistic: Statistic, plan: JoinPlan) -> Search:
        n_edges = None if self.graph_params is None else self.graph_params.n_neighbors
        return Search(
            self.algorithm, statistic.n_neighbors, statistic.radius, plan.pass_rows,
            statistic.enough, n_edges,
        )  # fmt: skip

    def _plan(
        self,
        partition_sizes: Sequence[int] = (),
        *,
        reads_frame: bool = False,
        wait: bool = False,
    ) -> JoinPlan:
        return plan_for_workers(
            (self.n_rows, self.n_features), self.statistic, self.graph_params,
            partition_sizes, self.blocks.is_spooled, self.block_rows,
            calibration_rows=self.calibration_rows, reads_frame=reads_frame, wait=wait,
        )  # fmt: skip


def plan_for_workers(
    shape: tuple[int, int],
    statistic: Statistic,
    graph_params: NeighborGraphParams | None,
    partition_sizes: Sequence[int],
    is_spooled: bool | None = None,
    block_rows: int | None = None,
    *,
    calibration_rows: int | None = None,
    reads_frame: bool = False,
    wait: bool = False,
) -> JoinPlan:
    """Return the plan of a search for the workers at hand, which hold it.

    Parameters
    ----------
    shape : tuple of int
        Of the reference.
    statistic : Statistic
    graph_params : NeighborGraphParams, optional
    partition_sizes : sequence of int
        Rows of the partitions of the input; NaN where not known.
    is_spooled : bool, optional
        Where the reference is, if it has been prepared.
    block_rows : int, optional
        Of its cut, if it came as blocks.
    calibration_rows, reads_frame
        As in `plan_join`.
    wait : bool
        As in `resources.workers`. Without a worker ever seen nothing is refused.

    Raises
    ------
    MemoryError
        If a worker cannot hold what a task needs.
    """
    found = workers(wait=wait)
    plan = plan_for(
        found, shape, statistic, graph_params, partition_sizes, is_spooled, block_rows,
        calibration_rows=calibration_rows, reads_frame=reads_frame,
    )  # fmt: skip
    if found.is_known:
        plan.check(found.memory_limit)
    return plan


def plan_for(
    found: Workers,
    shape: tuple[int, int],
    statistic: Statistic,
    graph_params: NeighborGraphParams | None,
    partition_sizes: Sequence[int],
    is_spooled: bool | None = None,
    block_rows: int | None = None,
    *,
    calibration_rows: int | None = None,
    reads_frame: bool = False,
) -> JoinPlan:
    """Return the plan of a search for some workers, whether or not they can hold it.

    Parameters are those of `plan_for_workers`, but for the workers.
    """
    n_neighbors, n_edges, n_walked = statistic.n_neighbors, 0, 0
    if graph_params is not None:
        n_edges = graph_params.n_neighbors
        directed = graph_params.graph == "directed"
        n_walked = walk_rows(shape[0], n_neighbors, n_edges, directed=directed)
        n_neighbors = n_edges
    return plan_join(
        *shape,
        n_neighbors or 0,
        n_threads=found.n_threads,
        threads=found.threads,
        memory_limit=found.memory_limit,
        block_rows=block_rows or dask.config.get("lpe-dask.block-rows", None),
        partition_rows=_largest(partition_sizes) or 0,
        is_spooled=is_spooled,
        graph_neighbors=n_edges,
        walk_rows=n_walked,
        calibration_rows=calibration_rows,
        reads_frame=reads_frame,
    )


def prepare_reference(
    source: Callable[[], da.Array],
    sample: NDArray[np.generic],
    preparation: Preparation,
    plan: JoinPlan,
    algorithm: str,
    statistic: Statistic,
    graph_params: NeighborGraphParams | None = None,
    n_bytes: int = 0,
) -> Reference:
    """Return nominal rows ready to be searched; computes.

    Parameters
    ----------
    source : callable
        Gives them, a dask array of shape (n_reference, n_features), finite, with known
        chunks; see `packing.prepare_blocks`.
    sample : ndarray of shape (n_sampled, n_features)
        Some of them.
    preparation : Preparation
    plan : JoinPlan
    algorithm : str
        A name of `kernels.ALGORITHMS`, or "auto".
    statistic : Statistic
    graph_params : NeighborGraphParams, optional
        As in `Reference`.
    n_bytes : int, default=0
        Bytes of the rows, if this process has them.

    Raises
    ------
    OSError
        If the rows need a spool, and none can be written that all workers see.
    """
    algorithm, space = choose_space(sample, preparation, plan, algorithm, statistic)
    entry = None
    if plan.is_spooled:
        entry = new_entry()
        logger.info(
            "%d nominal rows do not fit into the memory of each worker: they are spooled "
            "to %s", plan.n_reference, entry.url,
        )  # fmt: skip
    chunks = partial(_chunks, source, plan.block_rows)
    blocks = prepare_blocks(
        chunks, space, algorithm, entry, plan.largest_block_rows, n_bytes
    )
    reference = Reference(
        plan.n_reference, plan.n_features, statistic, graph_params, space, algorithm,
        blocks, calibration_rows=plan.calibration_rows,
    )  # fmt: skip
    if graph_params is None:
        return reference
    search = reference._search(statistic, plan)

    def make(_: Any) -> list[Delayed]:
        edges = self_join(len(blocks), blocks.tasks(), space, search, plan.block_shares)
        return [build_graph(edges, plan.n_reference, graph_params)]

    return replace(reference, graph=Results.of(make(None), None, make, n_bytes))


def _chunks(source: Callable[[], da.Array], block_rows: int) -> da.Array:
    """Return rows in chunks of so many rows, settled."""
    rows = source()
    chunks = rows.rechunk((block_rows, -1))
    return rows if chunks is rows else settle(chunks, "lpe-chunk")


def choose_space(
    sample: NDArray[np.generic],
    preparation: Preparation,
    plan: JoinPlan,
    algorithm: str,
    statistic: Statistic,
) -> tuple[str, Space]:
    """Return the algorithm to search with, and the space to search in."""
    prepared = preparation.apply(sample)
    basis = None
    if algorithm == "auto":
        # Along a graph, too, what is searched for in space are the nearest rows.
        n_neighbors = plan.n_neighbors or None
        radius = None if n_neighbors is not None else statistic.radius
        choice = choose_algorithm(prepared, plan.n_reference, n_neighbors, radius)
        algorithm, basis = choice.algorithm, choice.basis
        logger.info("algorithm=%s: %s", algorithm, choice.reason)
    kernel = ALGORITHMS[algorithm]
    if basis is None:
        basis = kernel.basis(prepared)
    split = None
    if kernel.KEEPS_NEAR_ROWS_TOGETHER:
        split = learn_split(basis.points(prepared), plan.n_blocks)
    is_sampled = sample_neighbors(plan.n_neighbors) is not None
    return algorithm, Space(preparation, basis, split, is_sampled)


def _largest(sizes: Sequence[int]) -> int | None:
    return None if len(sizes) == 0 or np.isnan(sizes[0]) else max(sizes)

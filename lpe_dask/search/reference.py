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

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.search.geodesic import build_graph, walk_among_rows
from lpe_dask.search.held import HeldBlocks
from lpe_dask.search.join import Search, Weight, join, join_frame, self_join
from lpe_dask.search.memory import plan_for_active_workers
from lpe_dask.search.packing import Space, prepare_blocks
from lpe_dask.search.plan import (
    SearchPlan,
    SearchShape,
    Statistic,
    n_shares,
)
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.spooled import SpooledBlocks, new_entry
from lpe_dask.search.stored import StoredBlocks
from lpe_dask.search.trial import choose_space
from lpe_dask.tables import Table
from lpe_dask.tasks import Shared, active_workers, eagerly, enter, lazily, settle

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reference:
    """Nominal rows, ready to be searched.

    Attributes
    ----------
    shape : SearchShape
        Of the searches that they were prepared for.
    space : Space
    algorithm : str
        A name of `kernels.ALGORITHMS`.
    blocks : HeldBlocks, SpooledBlocks or StoredBlocks
    graph : HeldBlocks or StoredBlocks, optional
        The neighbor graph, as the only one.
    """

    shape: SearchShape
    space: Space
    algorithm: str
    blocks: HeldBlocks | SpooledBlocks | StoredBlocks
    graph: HeldBlocks | StoredBlocks | None = None

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
        search = self._search(plan)
        if self.graph is not None:
            return walk_among_rows(self._graph_task(), numbers, search, plan.task_rows)
        is_all = len(numbers) == self.shape.n_reference
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
            len(sizes), active_workers().n_threads, _largest(sizes), plan.least_task_rows
        )
        search = self._search(plan, statistic)
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
        search = self._search(plan, statistic)
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

    def keep(self, plan: SearchPlan | None = None) -> None:
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

    def _search(self, plan: SearchPlan, statistic: Statistic | None = None) -> Search:
        asked, params = statistic or self.shape.statistic, self.shape.graph_params
        return Search(
            self.algorithm, asked.n_neighbors, asked.radius, plan.pass_rows, asked.enough,
            None if params is None else params.n_neighbors,
        )  # fmt: skip

    def _plan(
        self,
        partition_sizes: Sequence[int] = (),
        *,
        reads_frame: bool = False,
        wait: bool = False,
    ) -> SearchPlan:
        shape = replace(
            self.shape,
            is_spooled=self.blocks.is_spooled,
            partition_rows=_largest(partition_sizes) or 0,
            reads_frame=reads_frame,
        )
        return plan_for_active_workers(shape, wait=wait)


def prepare_reference(
    source: Callable[[], da.Array],
    sample: NDArray[np.generic],
    preparation: Preparation,
    plan: SearchPlan,
    algorithm: str,
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
    plan : SearchPlan
    algorithm : str
        A name of `kernels.ALGORITHMS`, or "auto".
    n_bytes : int, default=0
        Bytes of the rows, if this process has them.

    Raises
    ------
    OSError
        If the rows need a spool, and none can be written that all workers see.
    """
    algorithm, space = choose_space(sample, preparation, plan, algorithm)
    shape, entry = plan.shape, None
    if plan.is_spooled:
        entry = new_entry()
        logger.info(
            "%d nominal rows do not fit into the memory of each worker: they are spooled "
            "to %s", shape.n_reference, entry.url,
        )  # fmt: skip
    chunks = partial(_chunks, source, plan.block_rows)
    blocks = prepare_blocks(
        chunks, space, algorithm, entry, plan.largest_block_rows, n_bytes
    )
    reference = Reference(shape, space, algorithm, blocks)
    graph_params = shape.graph_params
    if graph_params is None:
        return reference
    search = reference._search(plan)

    def make() -> list[Delayed]:
        edges = self_join(len(blocks), blocks.tasks(), space, search, plan.block_shares)
        return [build_graph(edges, shape.n_reference, graph_params)]

    return replace(reference, graph=HeldBlocks.of(make(), make, n_bytes))


def _chunks(source: Callable[[], da.Array], block_rows: int) -> da.Array:
    """Return rows in chunks of so many rows, settled."""
    rows = source()
    chunks = rows.rechunk((block_rows, -1))
    return rows if chunks is rows else settle(chunks, "lpe-chunk")


def _largest(sizes: Sequence[int]) -> int | None:
    return None if len(sizes) == 0 or np.isnan(sizes[0]) else max(sizes)

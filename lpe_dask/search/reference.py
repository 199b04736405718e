"""Nominal rows that others are measured against: put where tasks find them, and searched.

    sample --> algorithm, basis, regions  on the client; no result depends on them
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
from itertools import chain
from typing import Any, Self

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.search.algorithm_selection import choose_space
from lpe_dask.search.approximate import Approximation
from lpe_dask.search.attribution import (
    GROUPS_AT_ONCE,
    Attribution,
    Nearest,
    Typical,
    TypicalSizes,
    attribute,
    list_nearest,
    typical_task,
    typical_tasks_of_groups,
)
from lpe_dask.search.blocks.held_rows import HeldRows
from lpe_dask.search.blocks.packing import (
    Space,
    index_blocks,
    prepare_blocks,
    rows_of_blocks,
)
from lpe_dask.search.blocks.persisted import Blocks
from lpe_dask.search.blocks.spool_blocks import SpoolFolder, new_entry
from lpe_dask.search.feature_contributions import inverse_transform
from lpe_dask.search.geodesic import build_graph, walk_among_rows
from lpe_dask.search.groups import SearchGroups
from lpe_dask.search.join import JoinInputs, JoinSpec, Weight, join, join_frame, self_join
from lpe_dask.search.locality import learn_regions
from lpe_dask.search.memory import MemoryEstimate, pair_shares, plan_for_active_workers
from lpe_dask.search.pair_join import pair_join
from lpe_dask.search.plan import (
    MIN_TASK_ROWS,
    ProblemSize,
    SearchPlan,
    Statistic,
    direct_pass_rows,
)
from lpe_dask.search.preparation import Preparation
from lpe_dask.tables import NominalRows, Table
from lpe_dask.tasks import LocalValue, Workers, compute, freeze, to_task

logger = logging.getLogger(__name__)

#: Most rows of the reference that say which share of a distance a column has typically;
#: they are some of those that say which values are usual, so many rows and numbers in them.
TYPICAL_ROWS, USUAL_ROWS, USUAL_NUMBERS = 256, 4096, 2**19


@dataclass(frozen=True)
class Reference:
    """Nominal rows, ready to be searched.

    Attributes
    ----------
    shape : ProblemSize
        Of the searches that they were prepared for.
    space : Space
    blocks : Blocks
    graph : Blocks, optional
        The neighbor graph, as the only one.
    indexes : Blocks, optional
        Of the blocks, along which a search may miss neighbors.
    """

    shape: ProblemSize
    space: Space
    blocks: Blocks
    graph: Blocks | None = None
    indexes: Blocks | None = None

    @classmethod
    def of(
        cls,
        source: Callable[[], da.Array],
        sample: NDArray[np.generic],
        preparation: Preparation,
        shape: ProblemSize,
        algorithm: str,
        groups: SearchGroups | None = None,
        beside: HeldRows | None = None,
    ) -> Self:
        """Return nominal rows ready to be searched, exactly so far; computes.

        Parameters
        ----------
        source : callable
            Gives them, a dask array of shape (n_reference, n_features), finite, with known
            chunks; see `packing.prepare_blocks`.
        sample : ndarray of shape (n_sampled, n_features)
            Some of them.
        preparation : Preparation
        shape : ProblemSize
        algorithm : str
            A name of `kernels.ALGORITHMS`, or "auto".
        groups : SearchGroups, optional
            Where groups are searched each by itself.
        beside : HeldRows, optional
            Other rows, which are kept by the reading that packs these.

        Raises
        ------
        MemoryError
            If a worker cannot hold what a task needs.
        OSError
            If the rows need a spool, and none can be written that all workers see.
        """
        plan = plan_for_active_workers(shape, wait=True)
        if shape.is_indexed:  # lists of near rows depend on the basis, that on the sample
            sample = NominalRows.systematic_sample(source())
        space = choose_space(sample, preparation, plan, algorithm, groups)
        entry = None
        if plan.is_spooled:
            entry = new_entry()
            logger.info(
                "%d nominal rows do not fit into the memory of each worker: they are "
                "spooled to %s", shape.n_reference, entry.url,
            )  # fmt: skip
        chunks = partial(_chunks, source, plan.block_rows)
        regions = None
        if space.prunes and plan.n_blocks > 1:
            points = space.basis.points(preparation.apply(sample))
            regions = learn_regions(points, plan.n_blocks)
        blocks = prepare_blocks(
            chunks, space, entry, regions, plan.largest_block_rows, beside
        )
        reference = cls(plan.shape, space, blocks)
        graph_params = shape.graph_params
        if graph_params is None:
            return reference

        def make() -> list[Delayed]:
            edges = self_join(len(blocks), reference._searched(plan), plan.block_shares)
            return [build_graph(edges, shape.n_reference, graph_params)]

        return replace(reference, graph=Blocks.of(make))

    @cached_property
    def _shared_space(self) -> LocalValue:
        return LocalValue(self.space, "lpe-space")

    def nominal_tasks(
        self, numbers: NDArray[np.int64] | None, *, keeps_rows: bool = False
    ) -> list[Delayed]:
        """Return tasks that measure these rows, each without itself, by an exact search.

        Parameters
        ----------
        numbers : ndarray of int, optional
            Of the rows to measure, ascending; None: all rows.
        keeps_rows : bool, default=False
            Whether what a task gives is kept as soon as it is known.

        Returns
        -------
        tasks : list of Delayed
            Each gives the numbers of some of them and their statistic.
        """
        plan = self._plan(wait=True)
        if self.graph is not None:
            (graph,) = self.graph.tasks()
            if numbers is None:
                numbers = np.arange(self.shape.n_reference)
            search = self._search(plan.pass_rows)
            return walk_among_rows(graph, numbers, search, plan.task_rows)
        n_measured = self.shape.n_reference if numbers is None else len(numbers)
        is_all = n_measured == self.shape.n_reference
        if is_all and self.space.sums_pairs:
            pairs = pair_shares(plan, len(self.blocks), keeps_rows=keeps_rows)
            if pairs is not None:
                blocks, search = self.blocks.tasks(), self._search(plan.pass_rows)
                return pair_join(blocks, self._shared_space, search, pairs)
        chosen = None if is_all else to_task(numbers, "lpe-chosen")
        n_shares = plan.nominal_shares(n_measured)
        return self_join(len(self.blocks), self._searched(plan), n_shares, chosen)

    def measure_rows(
        self,
        rows: da.Array | NDArray[Any],
        statistic: Statistic | None = None,
        weight: Weight | None = None,
        frame_sizes: Sequence[int] = (),
        numbers: Any = None,
        approximation: Approximation | None = None,
        max_rows: int | None = None,
    ) -> Any:
        """Return the statistic of rows, of shape (n,); lazy for Dask.

        In the chunks of the rows, each cut into as many tasks as workers have use for.

        Parameters
        ----------
        rows : array of shape (n, n_features)
            As the user gave them; of Dask, where chunks may be unknown, or up to
            `max_direct_rows` of NumPy, which are measured at once.
        statistic : Statistic, optional
            None: that of the reference.
        weight : callable, optional
            See `join.join`.
        frame_sizes : sequence of int
            Rows of the partitions of a frame that they come from, about, where known.
        numbers : array of shape (n,), optional
            Of those that are rows of the reference; see `join.join`.
        approximation : Approximation, optional
            None: all rows are compared.
        max_rows : int, optional
            Of a chunk, where chunks are unknown.
        """
        if isinstance(rows, np.ndarray):
            return join(rows, self._direct(statistic, weight), 1, numbers)
        sizes = rows.chunks[0]
        plan = self._plan(frame_sizes or sizes, reads_frame=len(frame_sizes) > 0)
        largest = _largest(sizes)
        if largest is None and plan.is_spooled:  # which each task reads as a whole
            largest = max_rows
        shares = plan.query_shares(len(sizes), Workers.active().n_threads, largest)
        if plan.is_spooled:
            self._keep(plan)
        searched = self._searched(plan, statistic, weight, approximation)
        return join(rows, searched, shares, numbers)

    def measure_table(
        self,
        table: Table,
        statistic: Statistic | None = None,
        weight: Weight | None = None,
        approximation: Approximation | None = None,
    ) -> Any:
        """Return the statistic of new rows in the kind that came in; lazy for Dask.

        Parameters are those of `measure_rows`, but for the table.
        """
        measure = partial(
            self.measure_rows, table.rows, statistic, weight, approximation=approximation
        )

        self.keep_for(table)
        if table.frame is None:
            return table.restore(measure(), "statistic")
        if approximation is not None:
            # Tasks of a frame read its rows before those that they wait for are done, and
            # hold them until then; tasks of an array can be made to wait.
            return table.restore_verified(measure(), "statistic")
        plan = self._plan(table.rows.chunks[0], reads_frame=True)
        if plan.is_spooled:
            self._keep(plan)
        return join_frame(table.frame, self._searched(plan, statistic, weight))

    def nearest(
        self,
        rows: da.Array | NDArray[Any],
        n_neighbors: int,
        numbers: NDArray[np.int64] | None = None,
    ) -> Nearest:
        """Return the nearest rows of others; computes, by an exact search.

        Parameters
        ----------
        rows : array of shape (n, n_features)
            As for `measure_rows`, but in known chunks.
        n_neighbors : int
        numbers : ndarray of shape (n,), optional
            As in `attribution.list_nearest`.
        """
        searched, shares = self._searched_in(rows)
        found = compute(*list_nearest(rows, searched, shares, n_neighbors, numbers))
        return Nearest(*map(np.concatenate, zip(*found, strict=True)))

    def attributed(
        self,
        rows: da.Array | NDArray[Any],
        numbers: NDArray[np.int64] | None = None,
        *,
        has_groups: bool = False,
    ) -> tuple[Attribution, Typical]:
        """Return the parts of the distance of rows; computes, by an exact search.

        Parameters
        ----------
        rows, numbers
            As for `nearest`.
        has_groups : bool, default=False
            Whether the last column has the numbers of groups.

        Returns
        -------
        found : Attribution
            With the nearest rows as rows of the input that they may have come from; see
            `inverse_transform`.
        typical : Typical
            Computed once.
        """
        searched, shares = self._searched_in(rows)
        tasks = attribute(rows, searched, shares, numbers, has_groups=has_groups)
        n_tasks, known = len(tasks), self._typical
        if None not in known:
            sizes = self._typical_sizes()
            chosen = sizes.drawn(self.shape.n_reference)
            tasks.append(typical_task(chosen, searched, sizes, has_groups=has_groups))
        found = compute(*tasks)
        for typical in found[n_tasks:]:
            known[None] = typical
        return self._joined(found[:n_tasks]), known[None]

    def attributed_in_groups(
        self,
        rows: da.Array | NDArray[Any],
        numbers: NDArray[np.int64] | None = None,
        *,
        with_typical: bool = True,
    ) -> tuple[Attribution, dict[int | None, Typical]]:
        """Return the same where groups are searched each by itself; computes.

        What is typical is that of each group, by its number: of the groups of the rows, and
        of others, too; not of those whose rows are not measured. It takes long for many
        groups: ``with_typical=False`` leaves out those of which it is not known yet.
        """
        searched, shares = self._searched_in(rows)
        tasks = attribute(rows, searched, shares, numbers, has_groups=True)
        found = self._joined(compute(*tasks))
        assert self.space.groups is not None
        known = self._typical
        if not with_typical:
            return found, known
        codes = np.unique(found.rows[:, -1].astype(np.float64))
        codes = codes[codes >= 0]
        _, is_measured = self.space.groups.of_rows(codes)
        usable = {*codes[is_measured].astype(int).tolist()}
        if new := sorted(usable - known.keys()):
            sizes = self._typical_sizes()
            if len(new) > GROUPS_AT_ONCE:  # worth several tasks
                searched = self._searched(self._plan())
            of_groups = compute(*typical_tasks_of_groups(new, searched, sizes))
            known.update(zip(new, chain(*of_groups), strict=True))
        return found, known

    def _joined(self, found: Sequence[Attribution]) -> Attribution:
        """Return what all tasks found, with the nearest rows as rows of the input."""
        joined = Attribution(*map(np.concatenate, zip(*found, strict=True)))
        nearest = inverse_transform(
            self.space.preparation, joined.nearest, self.shape.n_read_features
        )
        return joined._replace(nearest=nearest)

    def _typical_sizes(self) -> TypicalSizes:
        shape = self.shape
        n_columns = shape.n_features - self.space.preparation.separates
        n_usual = max(TYPICAL_ROWS, min(USUAL_ROWS, USUAL_NUMBERS // n_columns))
        return TypicalSizes(shape.n_read_features, n_usual, TYPICAL_ROWS)

    @cached_property
    def _typical(self) -> dict[int | None, Typical]:
        """What `attributed` returns as that, once it is known, by group; None: of all.

        A call reads this once: threads that are the first at the same time may each get a
        dict of their own, of which one stays.
        """
        return {}

    def _searched_in(self, rows: da.Array | NDArray[Any]) -> tuple[JoinInputs, int]:
        """Return the blocks to search exactly, kept, and how many tasks share a chunk."""
        if isinstance(rows, np.ndarray):
            return self._direct(), 1
        sizes = rows.chunks[0]
        plan = self._plan(sizes)
        n_threads = Workers.active().n_threads
        shares = plan.query_shares(len(sizes), n_threads, _largest(sizes))
        self._keep(plan)
        return self._searched(plan), shares

    def needed_bytes(self, frame_sizes: Sequence[int]) -> int:
        """Return the planned bytes of a worker that measures rows, at its peak.

        ``frame_sizes`` as in `measure_rows`.
        """
        return MemoryEstimate(self._plan(frame_sizes, reads_frame=True)).worker

    def indexed(self) -> Reference:
        """Return the reference with indexes of its blocks, to search along; computes."""
        blocks, space = self.blocks, self.space
        if blocks.is_spooled:
            entry = new_entry()
            folder = SpoolFolder(entry.url)
            tasks = index_blocks(blocks.tasks(), len(blocks), space, folder)
            return replace(self, indexes=Blocks.spooled(tasks, entry))

        def make() -> list[Delayed]:
            return index_blocks(blocks.tasks(), len(blocks), space)

        return replace(self, indexes=Blocks.of(make))

    def prepared_rows(self) -> da.Array:
        """Return all rows as searches have them, lazily, in chunks of unknown length."""
        n_features = self.shape.n_features
        return rows_of_blocks(self.blocks.tasks(), len(self.blocks), n_features)

    def keep(self, frame_sizes: Sequence[int] = ()) -> None:
        """Have blocks and graph ready for the active scheduler, if they are not; computes.

        Without this they are made, or read from the files of a model, by each search that
        does not find them. What does not fit into the memory of workers goes to a spool.

        ``frame_sizes`` as in `measure_rows`.
        """
        self._keep(self._plan(frame_sizes, reads_frame=len(frame_sizes) > 0, wait=True))

    def keep_for(self, table: Table) -> None:
        """Have them ready where rows are measured at once by tasks; computes."""
        if not (table.is_lazy or isinstance(table.rows, np.ndarray)):
            self.keep()

    def _keep(self, plan: SearchPlan) -> None:
        self.blocks.keep(in_spool=bool(plan.is_spooled))
        if self.graph is not None:
            self.graph.keep()
        if self.indexes is not None:
            self.indexes.keep(in_spool=bool(plan.is_spooled))

    @property
    def max_direct_rows(self) -> int:
        """How many rows are searched for in this thread, without tasks: those of one task.

        0 where this process does not have the blocks in memory.
        """
        needed = [self.blocks] if self.graph is None else [self.blocks, self.graph]
        return MIN_TASK_ROWS if all(of.are_local for of in needed) else 0

    def _direct(self, statistic: Statistic | None = None, weight: Any = None) -> JoinInputs:
        """Return the same as `_searched`, exactly, as values of this process."""
        blocks = self.blocks.local_values()
        assert blocks is not None
        graph = None if self.graph is None else self.graph.local_values()
        search = self._search(direct_pass_rows(self.shape), statistic)
        return JoinInputs(
            blocks, self.space, search, graph and graph[0],
            weight.value if isinstance(weight, LocalValue) else weight,
            is_weighed=weight is not None,
        )  # fmt: skip

    def _search(self, pass_rows: int, statistic: Statistic | None = None) -> JoinSpec:
        graph_neighbors = self.shape.graph_neighbors or None
        work = self.shape.calibration_work
        asked = statistic or self.shape.statistic
        return JoinSpec(asked, pass_rows, graph_neighbors, work=work)

    def _searched(
        self,
        plan: SearchPlan,
        statistic: Statistic | None = None,
        weight: Weight | None = None,
        approximation: Approximation | None = None,
    ) -> JoinInputs:
        search = self._search(plan.pass_rows, statistic)
        searched = JoinInputs(
            self.blocks.tasks(), self._shared_space, search,
            None if self.graph is None else self.graph.tasks()[0],
            None if weight is None else to_task(weight, "lpe-weight"),
            is_weighed=weight is not None,
        )  # fmt: skip
        if approximation is None:
            return searched
        assert self.indexes is not None
        judged = approximation.weight
        return replace(
            searched,
            search=replace(searched.search, beyond=approximation.beyond),
            weight=None if judged is None else to_task(judged, "lpe-weight"),
            indexes=self.indexes.tasks(),
            is_exact=approximation.is_exact,
        )

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


def _chunks(source: Callable[[], da.Array], chunk_rows: int) -> da.Array:
    """Return rows in chunks of so many rows, settled."""
    rows = source()
    chunks = rows.rechunk((chunk_rows, -1))
    return rows if chunks is rows else freeze(chunks, "lpe-chunk")


def _largest(sizes: Sequence[int]) -> int | None:
    return None if len(sizes) == 0 or np.isnan(sizes[0]) else max(sizes)

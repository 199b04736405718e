r"""Build the Dask graph that measures rows against the reference.

    blocks      b0   b1   b2      handles of the packed reference
                 +----+----+
                 /    |    \
    queries     q0    q1    q2    one join task a share of queries: reads what it needs
                |     |     |
    statistic   s0    s1    s2    (rows,) K-th distances, means of K or counts

Where distances go along a neighbor graph, the join finds the rows through which a query
enters it, and walks on from there.

A join goes through its queries in passes, and in each through the blocks, nearest box
first, folding them into a running state; blocks too far to change it are never read. What
it adds to a worker's memory is one pass and one block, however many rows there are on
either side. The number of tasks is that of the shares and of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.kernels import (
    CountAccumulator,
    KNearestAccumulator,
    QueryTiles,
    compiler,
)
from lpe_dask.search.approximate import beam_search
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.blocks.spool_blocks import SpooledBlock, handles_of
from lpe_dask.search.locality import by_box
from lpe_dask.search.plan import Statistic, sample_neighbors, share_of
from lpe_dask.tables import float_rows
from lpe_dask.tasks import (
    map_partitions,
    new_array,
    new_tasks,
    notify,
    to_task,
)

#: Rows, as they came, and their statistic -> what p-values compare instead of it.
Weight = Callable[[NDArray[np.generic], NDArray[np.float64]], NDArray[np.float64]]

compiler.announce = notify  # also by workers, which import this for their tasks

#: A method of `NeighborGraph` that walks along it.
Walk = Callable[..., tuple[NDArray[np.float64], NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """What is asked of the reference.

    Attributes
    ----------
    statistic : Statistic
    pass_rows : int
        Queries that a task measures at a time.
    graph_neighbors : int, optional
        K', where distances go along a neighbor graph: the nearest rows that a query is
        joined to it by.
    beyond : float
        Where the search may miss neighbors: queries of which what p-values compare is found
        to be more than this are measured again, among all rows.
    work : float
        What calibration takes in all, in the unit of `kernels.search_work`; 0 if not known.
    """

    statistic: Statistic
    pass_rows: int
    graph_neighbors: int | None = None
    beyond: float = math.inf
    work: float = 0.0

    @property
    def n_listed_neighbors(self) -> int | None:
        """How many nearest rows are searched for in space; None where they are counted."""
        return self.graph_neighbors or self.statistic.n_neighbors

    def expect(self) -> None:
        """Have kernels compiled at once if calibration is too much work without."""
        compiler.expect(self._kernel, self.work)

    def runs_compiled(self) -> bool:
        """Return whether kernels run compiled for what is expected."""
        return compiler.runs_compiled(self._kernel)

    @property
    def _kernel(self) -> str:
        return "fold_counts" if self.n_listed_neighbors is None else "fold_nearest"

    def state(
        self, queries: QueryTiles, space: Space
    ) -> KNearestAccumulator | CountAccumulator:
        """Return the empty state of some queries; see `kernels.accumulators`."""
        wanted: Any = self.n_listed_neighbors
        if wanted is None:
            wanted = self.statistic.radius or 0.0
        if space.groups is not None and self.graph_neighbors is None:
            wanted, _ = space.groups.of_rows(
                queries.to_input_order(queries.arrays.rows[:, -1])
            )
        if self.n_listed_neighbors is None:
            return CountAccumulator(queries, space.basis, wanted, self.statistic.enough)
        return KNearestAccumulator(
            queries, space.basis, wanted, aggregation=self.statistic.aggregation,
            with_numbers=self.graph_neighbors is not None,
        )  # fmt: skip

    def walked(self, walk: Walk, *start: Any) -> NDArray[np.float64]:
        """Return the statistic that a walk finds, of shape (n_queries,).

        ``start`` are its first arguments: where to begin.
        """
        statistic = self.statistic
        if statistic.n_neighbors is None:
            _, counts = walk(*start, radius=statistic.radius, most=statistic.enough)
            return counts.astype(np.float64)
        distances, _ = walk(
            *start, most=statistic.n_neighbors, aggregation=statistic.aggregation
        )
        return distances


@dataclass(frozen=True, slots=True)
class JoinInputs:
    """A reference and what is asked of it: on the client as tasks, in tasks as values.

    As values also on the client, where few rows are searched for without tasks.

    Attributes
    ----------
    blocks : list of Delayed
        Of handles, as `Blocks.tasks` gives.
    space : Space or LocalValue
    search : JoinSpec
    graph : Delayed, optional
        Of the `NeighborGraph` of the reference, where distances go along it.
    weight : Delayed, optional
        Of a function from rows, as they came, and their statistic to what p-values compare.
    indexes : list of Delayed, optional
        Of handles of the indexes of the blocks, which the search goes along; None: all rows
        are compared.
    is_exact : Delayed, optional
        As in `Approximation`.
    is_weighed : bool, default=False
        Whether what p-values compare is returned in the place of the statistic.
    """

    blocks: list[Any]
    space: Any
    search: JoinSpec
    graph: Any = None
    weight: Any = None
    indexes: Any = None
    is_exact: Any = None
    is_weighed: bool = False

    def named(self) -> tuple[list[Any], list[Any]]:
        """Return the attributes as tasks name them, and the collections they name."""
        space = to_task(self.space, "lpe-space")
        named = [
            _keys(self.blocks), space.key, self.search, _key(self.graph),
            _key(self.weight), _keys(self.indexes), _key(self.is_exact), self.is_weighed,
        ]  # fmt: skip
        one_each = [self.graph, self.weight, self.is_exact]
        return named, _given([space, *self.blocks, *one_each, *(self.indexes or [])])

    @property
    def are_values(self) -> bool:
        """Whether the attributes are values, also outside of tasks."""
        return not isinstance(self.blocks[0], Delayed)

    def values(self) -> list[Any]:
        """Return the attributes, where they are values, as tasks get them."""
        return [getattr(self, attribute.name) for attribute in fields(self)]

    @property
    def handles(self) -> list[Any]:
        """The handles of the blocks, within a task."""
        return handles_of(self.blocks)

    @property
    def reads_for_all(self) -> bool:
        """Whether blocks are read from a spool by plain searches, which can share them."""
        search, is_plain = self.search, self.indexes is None
        is_plain &= search.graph_neighbors is None and search.statistic.bound is None
        if self.space.with_samples and sample_neighbors(search.n_listed_neighbors):
            return False
        return is_plain and isinstance(self.handles[0], SpooledBlock)


def join(
    queries: da.Array | NDArray[Any],
    searched: JoinInputs,
    n_shares: int,
    numbers: Any = None,
) -> da.Array | NDArray[np.float64]:
    """Return the statistic of rows against the reference, lazily.

    Parameters
    ----------
    queries : array of shape (n_queries, n_features)
        As the user gave them; of Dask, where chunks may be unknown, with one chunk of
        features; or of NumPy, which is measured at once, in this thread.
    searched : JoinInputs
    n_shares : int
        Tasks that share one chunk of queries.
    numbers : array of shape (n_queries,), optional
        Of the same kind, in the same chunks: which row of the reference a query is itself,
        and so no neighbor of; -1 for a new row. None: all rows are new.

    Returns
    -------
    statistic : array of shape (n_queries,)
        Of the kind of ``queries``, and chunked like them; NaN for a row with NaN or inf.
    """
    if isinstance(queries, np.ndarray):
        return in_shares("join", _join, queries, searched, 1, [numbers])[0]
    sizes = queries.chunks[0]
    own = [None if numbers is None else (numbers.name, i) for i in range(len(sizes))]
    entered = _given([numbers])
    shares = in_shares("join", _join, queries, searched, n_shares, own, entered)
    keys = [share.key for share in shares]
    blocks = (
        (np.concatenate, keys[i : i + n_shares]) for i in range(0, len(keys), n_shares)
    )
    return new_array("statistic", blocks, shares, (sizes,), np.empty(0))


def in_shares(
    name: str,
    function: Callable[..., Any],
    queries: da.Array | NDArray[Any],
    searched: JoinInputs,
    n_shares: int,
    of_chunks: Sequence[Any],
    entered: Sequence[Delayed] = (),
) -> list[Any]:
    """Return a task for each share of each chunk: of its rows, and what belongs to it.

    Of an array of NumPy: what the only task would give, found at once, in this thread.

    Parameters
    ----------
    name, queries, searched, n_shares
        As for `new_tasks`, and for `join`.
    function : callable
        Of the rows of a chunk, the number of the share and of shares, what belongs to the
        chunk, and what `JoinInputs.named` names.
    of_chunks : sequence
        What belongs to each chunk.
    entered : sequence of Delayed
        That ``of_chunks`` names.
    """
    if isinstance(queries, np.ndarray):
        return [function(queries, 0, 1, *of_chunks, *searched.values())]
    named, collections = searched.named()
    tasks = (
        (function, (queries.name, i, 0), share, n_shares, of_chunk, *named)
        for i, of_chunk in enumerate(of_chunks)
        for share in range(n_shares)
    )
    return new_tasks(name, tasks, [queries, *collections, *entered])


def join_frame(frame: Any, searched: JoinInputs) -> Any:
    """Return the exact statistic of the rows of a dask DataFrame, lazily, as a dask Series.

    One task for each partition: the result is made of the frame by Dask's own operations,
    so Dask knows the two to be aligned, also where it reads fewer columns or merges
    partitions later.
    """
    meta = pd.Series(dtype=np.float64, name="statistic")
    space = to_task(searched.space, "lpe-space")
    one_each = [space, searched.graph, searched.weight]
    given = searched.search, searched.is_weighed, *one_each, *searched.blocks
    return map_partitions(frame, _join_frame, *given, meta=meta)


def self_join(
    n_blocks: int, searched: JoinInputs, n_shares: int = 1, chosen: Delayed | None = None
) -> list[Delayed]:
    """Return tasks for all blocks of the reference: what is found for their rows.

    Each row is measured against all rows but itself, which is found by its number. A task
    gives the numbers of its rows and their statistic, both of shape (n_rows,); or, where
    distances go along a neighbor graph, the numbers of their nearest rows and how far these
    are, of shape (n_rows, graph_neighbors): the edges of the graph.

    Parameters
    ----------
    n_blocks : int
    searched : JoinInputs
    n_shares : int
        Tasks that share one block.
    chosen : Delayed, optional
        Of the numbers of the rows to measure, ascending; None: all.
    """
    named, collections = searched.named()
    tasks = (
        (_join_self, i, share, n_shares, _key(chosen), *named)
        for i in range(n_blocks)
        for share in range(n_shares)
    )
    return new_tasks("join", tasks, _given([*collections, chosen]))


def _key(task: Delayed | None) -> Any:
    return None if task is None else task.key


def _keys(tasks: list[Delayed] | None) -> Any:
    return None if tasks is None else [task.key for task in tasks]


def _given(collections: list[Any]) -> list[Any]:
    return [collection for collection in collections if collection is not None]


# The functions below run inside tasks: NumPy in, NumPy out.


def _join(
    rows: NDArray[np.generic],
    share: int,
    n_shares: int,
    numbers: NDArray[np.int64] | None,
    *named: Any,
) -> NDArray[np.float64]:
    searched, which = JoinInputs(*named), share_of(len(rows), share, n_shares)
    exactly, rows = replace(searched, indexes=None), rows[which]
    own = np.full(len(rows), -1) if numbers is None else numbers[which]
    if searched.indexes is None or searched.is_exact:
        statistic = _in_passes(rows, own, exactly)
    else:
        statistic = _in_passes(rows, own, searched)
        # All at once: blocks that are spooled are read for each pass.
        again = _to_measure_again(rows, statistic, searched)
        statistic[again] = _in_passes(rows, own, exactly, again)
    return searched.weight(rows, statistic) if searched.is_weighed else statistic


def _in_passes(
    rows: NDArray[np.generic],
    own: NDArray[np.int64],
    searched: JoinInputs,
    which: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the statistic of some rows, or of all; ``own`` as ``numbers`` in `join`."""
    space, pass_rows = searched.space, searched.search.pass_rows
    statistic = np.empty(len(rows) if which is None else len(which))
    for start in range(0, len(statistic), pass_rows):
        part = slice(start, start + pass_rows)
        taken = part if which is None else which[part]
        prepared, numbers = space.preparation.apply(rows[taken]), own[taken]
        of_pass = statistic[part]
        groups = list(_groups(prepared, searched))
        if searched.reads_for_all:
            _measure_by_blocks(prepared, numbers, groups, searched, of_pass)
            continue
        for group in groups:
            of_pass[group] = _label_or_measure(prepared[group], numbers[group], searched)
    return statistic


def _measure_by_blocks(
    prepared: NDArray[np.float64],
    numbers: NDArray[np.int64],
    groups: list[NDArray[np.int64]],
    searched: JoinInputs,
    statistic: NDArray[np.float64],
) -> None:
    """Fill the statistic of groups of rows; each block is read for all of them at once.

    The block that a group is nearest to comes first: it says how far others may be.
    """
    space, handles = searched.space, searched.handles
    tiles = [space.tiles(prepared[group], numbers[group]) for group in groups]
    states = [searched.search.state(queries, space) for queries in tiles]
    firsts = [next(iter(_nearest_first(of, handles, 0)), None) for of in tiles]
    pairs = list(zip(states, firsts, strict=True))
    for state, first in pairs:
        if first is not None:
            _fold(state, [first])
    for handle in handles:
        left = [state for state, first in pairs if first is not handle]
        near = [state for state in left if state.may_need(handle.low, handle.high)]
        if near:
            block = handle.load()
            for state in near:
                state.fold(block)
    for group, state in zip(groups, states, strict=True):
        statistic[group] = state.finish()


def _label_or_measure(
    prepared: NDArray[np.float64], numbers: NDArray[np.int64], searched: JoinInputs
) -> NDArray[np.float64]:
    """Return the statistic of some rows; 0 where rows within a radius say enough.

    Where they do not, that says nothing: the mean may still be within its bound.
    """
    search, space = searched.search, searched.space
    radius, enough = search.statistic.sufficient_radius(), search.statistic.n_neighbors
    # A walk to K rows measures them: to count them first would be the same walk.
    if radius is None or enough is None or search.graph_neighbors is not None:
        return _statistic_of(space.tiles(prepared, numbers), searched)
    counted = replace(search, statistic=Statistic(None, radius, enough))
    counts = _statistic_of(
        space.tiles(prepared, numbers), replace(searched, search=counted)
    )
    left = np.flatnonzero(counts < enough)
    statistic = np.where(np.isnan(counts), np.nan, 0.0)
    statistic[left] = _statistic_of(space.tiles(prepared[left], numbers[left]), searched)
    return statistic


def _to_measure_again(
    rows: NDArray[np.generic], found: NDArray[np.float64], searched: JoinInputs
) -> NDArray[np.int64]:
    """Return which rows have to be measured among all: see `approximate`."""
    compared = found if searched.weight is None else searched.weight(rows, found)
    return np.flatnonzero((compared > searched.search.beyond) | np.isposinf(found))


def _join_frame(
    frame: pd.DataFrame,
    search: JoinSpec,
    is_weighed: bool,
    space: Space,
    graph: Any,
    weight: Any,
    *blocks: Any,
) -> pd.Series:
    named = list(blocks), space, search, graph, weight, None, None, is_weighed
    statistic = _join(float_rows(frame), 0, 1, None, *named)
    return pd.Series(statistic, frame.index, name="statistic")


def _join_self(
    i: int, share: int, n_shares: int, chosen: NDArray[np.int64] | None, *named: Any
) -> tuple[NDArray[Any], ...]:
    searched = JoinInputs(*named)
    handles, space, search = searched.handles, searched.space, searched.search
    search.expect()
    rows, numbers = _own_rows(handles[i], share, n_shares, chosen)
    found: list[tuple[NDArray[Any], ...]] = []
    for start in range(0, max(1, len(rows)), search.pass_rows):
        part = slice(start, start + search.pass_rows)
        queries = space.tiles(rows[part], numbers[part], of_block=True)
        state = search_blocks(queries, handles, space, search, i)
        if search.graph_neighbors is None:
            found.append((state.finish(),))
        else:
            distances, neighbors = neighbors_of(state)
            found.append((neighbors.astype(np.int32), distances))
    return numbers, *map(np.concatenate, zip(*found, strict=True))


def _own_rows(
    handle: Any, share: int, n_shares: int, chosen: NDArray[np.int64] | None
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return the rows of a block's share that are to be measured, and their numbers."""
    own = handle.load()
    which = share_of(own.n_rows, share, n_shares)
    rows, numbers = own.rows[which], own.numbers[which]
    if chosen is not None:
        is_chosen = np.isin(numbers, chosen, assume_unique=True)
        return rows[is_chosen], numbers[is_chosen]
    if isinstance(handle, SpooledBlock):  # not kept: it is read again among the others
        return rows.copy(), numbers.copy()
    return rows, numbers


def _groups(
    prepared: NDArray[np.float64], searched: JoinInputs
) -> Iterator[NDArray[np.int64]]:
    """Yield which queries to measure together: those near one block of the reference."""
    space, handles = searched.space, searched.handles
    if not space.prunes or len(handles) == 1:
        yield np.arange(len(prepared))
        return
    # A row with NaN is not measured, whatever block it falls to.
    points = np.nan_to_num(space.basis.points(prepared))
    lows, highs = zip(*((handle.low, handle.high) for handle in handles), strict=True)
    order, starts = by_box(points, (np.array(lows), np.array(highs)))
    for start, stop in pairwise(starts):
        if start < stop:
            yield order[start:stop]


def _statistic_of(queries: QueryTiles, searched: JoinInputs) -> NDArray[np.float64]:
    """Return the statistic of some queries; their state is gone afterwards."""
    search, graph = searched.search, searched.graph
    if searched.indexes is not None:
        handles, indexes = searched.handles, handles_of(searched.indexes)
        return beam_search(queries, handles, indexes, searched.space, search.statistic)
    state = search_blocks(queries, searched.handles, searched.space, search)
    if search.graph_neighbors is None:
        return state.finish()
    distances, neighbors = neighbors_of(state)
    statistic = search.walked(graph.walk_from_points, neighbors, distances)
    own = queries.to_input_order(queries.arrays.numbers)
    is_own = own >= 0  # a row of the graph walks from itself
    statistic[is_own] = search.walked(graph.walk_from_rows, own[is_own])
    statistic[~queries.to_input_order(queries.is_measured)] = np.nan
    return statistic


def search_blocks(
    queries: QueryTiles, handles: list[Any], space: Space, search: JoinSpec, own: int = 0
) -> KNearestAccumulator | CountAccumulator:
    """Return the state of some queries after all blocks that may matter.

    Where K is large, a search among a sample of the reference first says about how far the
    K nearest are, so that few other pairs are collected; rows for which that was too near
    are searched for again.
    """
    order = _nearest_first(queries, handles, own)
    state = search.state(queries, space)
    n_sampled = sample_neighbors(search.n_listed_neighbors)
    if n_sampled is None or not space.with_samples or isinstance(state, CountAccumulator):
        _fold(state, order)
        return state
    sampled = KNearestAccumulator(queries, space.basis, n_sampled)
    for handle in order:
        if sampled.may_need(handle.low, handle.high):
            sampled.fold(handle.load_sample())
    state.guess(sampled)
    _fold(state, order)
    if state.missed():
        _fold(state, order)
    return state


def neighbors_of(
    state: KNearestAccumulator | CountAccumulator,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return `KNearestAccumulator.neighbors` of a search along a neighbor graph."""
    assert isinstance(state, KNearestAccumulator)
    return state.neighbors()


def _fold(state: KNearestAccumulator | CountAccumulator, handles: list[Any]) -> None:
    for handle in handles:
        if state.may_need(handle.low, handle.high):
            state.fold(handle.load())


def _nearest_first(queries: QueryTiles, handles: list[Any], own: int) -> list[Any]:
    """Return handles by the distance of their boxes, from number ``own`` on where equal."""
    if len(queries.order) == 0:
        return []
    low, high = queries.arrays.lows.min(axis=0), queries.arrays.highs.max(axis=0)
    lows = np.array([handle.low for handle in handles])
    highs = np.array([handle.high for handle in handles])
    with np.errstate(invalid="ignore"):
        gaps = np.maximum(np.maximum(lows - high, low - highs), 0)
        centers = np.nan_to_num((lows + highs - low - high) / 2, posinf=0, neginf=0)
    turn = (np.arange(len(handles)) - own) % len(handles)
    nearness = (centers * centers).sum(axis=1)
    order = np.lexsort((turn, nearness, (gaps * gaps).sum(axis=1)))
    return [handles[i] for i in order]

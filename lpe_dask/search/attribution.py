r"""Build the Dask graph that finds the nearest nominal rows, and why they are so far.

    blocks      b0   b1   b2      handles of the packed reference
                 \    |    /
    queries      q0       q1      one task a share of queries
                  |        |
    nearest       numbers of the nearest rows, and how far they are
    shares        what each column adds to the distance, on average over the nearest rows

    typical       shares of some rows of the reference, quantiles and frequent categories of
                  its columns: one task, or one for some groups each where these are
                  searched each by itself

Neighbors are exact here, also where p-values are not. For few rows: a task keeps which rows
its neighbors are, and gathers these from the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.search.feature_contributions import (
    TypicalValues,
    directions,
    squared_parts,
    typical_values,
)
from lpe_dask.search.join import (
    JoinInputs,
    JoinSpec,
    in_shares,
    neighbors_of,
    search_blocks,
)
from lpe_dask.search.plan import (
    Statistic,
    gather_batch,
    listing_pass_rows,
    share_of,
)
from lpe_dask.tasks import LocalValue, new_tasks, to_task

#: Of how many groups a task finds what is typical: it reads all blocks, and holds the rows
#: that say so.
GROUPS_AT_ONCE = 16

#: The last bits of the number of a row: those of few rows leave out nearly all others, in a
#: twentieth of the time that it takes to search for each number among a few.
_LAST_BITS = 2**16 - 1

#: Pairs of rows whose parts are computed together, where rows are few.
_PAIRS_AT_ONCE = 4096

#: Of how many nearest rows shares are, where what is asked of a row names no K.
_NEAREST_ROWS = 20


class Nearest(NamedTuple):
    """The nearest rows of some queries.

    Attributes
    ----------
    distances : ndarray of shape (n_queries, n_neighbors)
        In prepared units, ascending; ``inf`` where there are no more, or the distance
        overflows, and for a query that was not measured.
    numbers : ndarray of shape (n_queries, n_neighbors)
        Of these rows in the reference; -1 where there is none.
    """

    distances: NDArray[np.float64]
    numbers: NDArray[np.int64]


class Attribution(NamedTuple):
    """What the distance of some queries consists of.

    Attributes
    ----------
    rows : ndarray of shape (n_queries, n_features)
        The queries, as numbers and codes of categories.
    shares : ndarray of shape (n_queries, n_columns)
        Of each column of the input but one of groups, 1 together; NaN where all distances
        are 0 or ``inf``, or the query was not measured.
    directions : ndarray of shape (n_queries, n_columns)
        1 where the numbers of all nearest rows are smaller than that of the query, -1 where
        they are larger, or between, as rows on either side add to the share; 0 for
        categories, NaN where there is no share.
    nearest : ndarray of shape (n_queries, n_prepared)
        The nearest row, prepared; NaN where there is none.
    distances : ndarray of shape (n_queries,)
        To that row.
    """

    rows: NDArray[np.generic]
    shares: NDArray[np.float64]
    directions: NDArray[np.float64]
    nearest: NDArray[np.float64]
    distances: NDArray[np.float64]


class Typical(NamedTuple):
    """What is typical of the rows of a reference.

    Attributes
    ----------
    shares : ndarray of shape (n_columns,)
        The mean shares of `Attribution` for some of them, each without itself. As if there
        was one row more, with the same share of each column: a column that is the same in
        almost all rows has a small share, and not 0.
    usual : TypicalValues
    """

    shares: NDArray[np.float64]
    usual: TypicalValues


@dataclass(frozen=True, slots=True)
class TypicalSizes:
    """How many rows of a reference, or of a group, say what is typical.

    Attributes
    ----------
    n_features : int
        Columns of the input.
    n_usual : int
        Most rows that say what is usual, drawn.
    n_measured : int
        Most of these, at even steps, that say which shares are typical.
    """

    n_features: int
    n_usual: int
    n_measured: int

    def drawn(self, n_rows: int) -> NDArray[np.int64]:
        """Return which of so many rows say what is usual, ascending."""
        rng, n_chosen = np.random.default_rng(0), min(n_rows, self.n_usual)
        return np.sort(rng.choice(n_rows, n_chosen, replace=False))

    def measured(self, n_chosen: int) -> slice:
        """Return which of so many chosen rows say which shares are typical."""
        return slice(None, None, -(-n_chosen // self.n_measured))


def list_nearest(
    queries: da.Array | NDArray[Any],
    searched: JoinInputs,
    n_shares: int,
    n_neighbors: int,
    numbers: NDArray[np.int64] | None = None,
) -> list[Any]:
    """Return tasks that give the `Nearest` of the rows of a share each, in their order.

    Parameters
    ----------
    queries : array of shape (n_queries, n_features)
        As the user gave them; of Dask, or of NumPy: see `in_shares`.
    searched : JoinInputs
    n_shares : int
        Tasks that share one chunk of queries.
    n_neighbors : int
        How many to list.
    numbers : ndarray of shape (n_queries,), optional
        Which row of the reference a query is itself, and so no neighbor of; -1 for a new
        row. None: all rows are new.
    """
    function = partial(_nearest, n_neighbors=n_neighbors)
    own = _cut(numbers, queries)
    return in_shares("nearest", function, queries, searched, n_shares, *own)


def attribute(
    queries: da.Array | NDArray[Any],
    searched: JoinInputs,
    n_shares: int,
    numbers: NDArray[np.int64] | None = None,
    *,
    has_groups: bool = False,
) -> list[Any]:
    """Return tasks that give the `Attribution` of the rows of a share each, in their order.

    Parameters
    ----------
    queries, searched, n_shares, numbers
        As for `list_nearest`.
    has_groups : bool, default=False
        Whether the last column has the numbers of groups, and so no share.
    """
    own, function = _cut(numbers, queries), partial(_attribute, has_groups=has_groups)
    return in_shares("attribute", function, queries, searched, n_shares, *own)


def typical_task(
    numbers: NDArray[np.int64],
    searched: JoinInputs,
    sizes: TypicalSizes,
    *,
    has_groups: bool = False,
) -> Any:
    """Return the task that gives what is `Typical` of some rows of the reference.

    By inputs that are values: what it gives, found at once.

    Parameters
    ----------
    numbers : ndarray of shape (n_rows,)
        Of these rows, ascending; all of them say what is usual.
    searched : JoinInputs
    sizes : TypicalSizes
    has_groups : bool, default=False
        As for `attribute`.
    """
    if searched.are_values:
        return _typical(numbers, sizes, has_groups, *searched.values())
    named, collections = searched.named()
    chosen = to_task(numbers, "lpe-chosen")
    task = (_typical, chosen.key, sizes, has_groups, *named)
    return new_tasks("typical", [task], [chosen, *collections])[0]


def typical_tasks_of_groups(
    groups: Sequence[int], searched: JoinInputs, sizes: TypicalSizes
) -> list[Any]:
    """Return tasks that give what is `Typical` of the rows of groups, by their numbers.

    It is what a reference of the rows of a group alone would give. By inputs that are
    values: what the only task would give, found at once.

    Parameters
    ----------
    groups : sequence of int
        Of the groups, each of which has rows that are measured.
    searched : JoinInputs
        Where groups are searched each by itself.
    sizes : TypicalSizes
    """
    if searched.are_values:
        return [_typical_of_groups([*groups], sizes, *searched.values())]
    named, collections = searched.named()
    tasks = (
        (_typical_of_groups, [*groups[start : start + GROUPS_AT_ONCE]], sizes, *named)
        for start in range(0, len(groups), GROUPS_AT_ONCE)
    )
    return new_tasks("typical", tasks, collections)


def _cut(
    numbers: NDArray[np.int64] | None, queries: da.Array | NDArray[Any]
) -> tuple[list[Any], list[Delayed]]:
    """Return tasks for the numbers of each chunk, and what they depend on."""
    if isinstance(queries, np.ndarray):
        return [numbers], []
    if numbers is None:
        return [None] * queries.numblocks[0], []
    edges = np.cumsum([0, *queries.chunks[0]]).tolist()
    return LocalValue.of(numbers, "lpe-own").slices(edges)


# The functions below run inside tasks: NumPy in, NumPy out.


def _nearest(
    rows: NDArray[np.generic],
    share: int,
    n_shares: int,
    numbers: NDArray[np.int64] | None,
    *named: Any,
    n_neighbors: int,
) -> Nearest:
    searched, which = JoinInputs(*named), share_of(len(rows), share, n_shares)
    rows, own = rows[which], None if numbers is None else numbers[which]
    pass_rows = listing_pass_rows(searched.space.basis.n_columns, n_neighbors)
    found = []
    for start in range(0, max(1, len(rows)), pass_rows):
        part = slice(start, start + pass_rows)
        prepared = searched.space.preparation.apply(rows[part])
        own_rows = None if own is None else own[part]
        found.append(_listed(prepared, own_rows, searched, n_neighbors))
    return Nearest(*map(np.concatenate, zip(*found, strict=True)))


def _attribute(
    rows: NDArray[np.generic],
    share: int,
    n_shares: int,
    numbers: NDArray[np.int64] | None,
    *named: Any,
    has_groups: bool,
) -> Attribution:
    searched, which = JoinInputs(*named), share_of(len(rows), share, n_shares)
    prepared = searched.space.preparation.apply(rows[which])
    own = None if numbers is None else numbers[which]
    found = _attributed(prepared, own, searched, rows.shape[1], has_groups=has_groups)
    return Attribution(rows[which], *found)


def _typical(
    numbers: NDArray[np.int64], sizes: TypicalSizes, has_groups: bool, *named: Any
) -> Typical:
    searched, n_features = JoinInputs(*named), sizes.n_features
    rows, some = _gathered(searched, numbers), sizes.measured(len(numbers))
    shares, *_ = _attributed(
        rows[some], numbers[some], searched, n_features, has_groups=has_groups
    )
    return _typical_of(shares, rows, searched, n_features)


def _typical_of_groups(
    groups: list[int], sizes: TypicalSizes, *named: Any
) -> list[Typical]:
    searched, n_features = JoinInputs(*named), sizes.n_features
    of_groups = [of[sizes.drawn(len(of))] for of in _numbers_of(searched, groups)]
    edges = np.cumsum(list(map(len, of_groups)))[:-1]
    rows = np.split(_gathered(searched, np.concatenate(of_groups)), edges)
    some = [sizes.measured(len(of)) for of in of_groups]
    # Those of all groups at once: each reading of the blocks is expensive.
    measured = [of[which] for of, which in zip(rows, some, strict=True)]
    numbers = [of[which] for of, which in zip(of_groups, some, strict=True)]
    shares, *_ = _attributed(
        np.concatenate(measured), np.concatenate(numbers), searched, n_features,
        has_groups=True,
    )  # fmt: skip
    ends = np.cumsum(list(map(len, numbers)))[:-1]
    return [
        _typical_of(of_shares, of_rows, searched, n_features)
        for of_shares, of_rows in zip(np.split(shares, ends), rows, strict=True)
    ]


def _numbers_of(searched: JoinInputs, groups: list[int]) -> list[NDArray[np.int64]]:
    """Return the numbers of the rows of each group in the reference, ascending."""
    found: list[list[NDArray[np.int64]]] = [[] for _ in groups]
    for handle in searched.handles:
        block = handle.load()
        codes = block.rows[:, -1]
        for of_group, group in zip(found, groups, strict=True):
            of_group.append(block.numbers[codes == group])
    return [np.sort(np.concatenate(of_group)) for of_group in found]


def _typical_of(
    shares: NDArray[np.float64],
    rows: NDArray[np.float64],
    searched: JoinInputs,
    n_features: int,
) -> Typical:
    """Return what is typical by the shares of some rows, and these and others, prepared."""
    n_columns, shares = shares.shape[1], shares[~np.isnan(shares).any(axis=1)]
    even = np.full((1, n_columns), 1 / n_columns)
    usual = typical_values(searched.space.preparation, rows, n_features)
    return Typical(np.concatenate([shares, even]).mean(axis=0), usual)


def _wanted(
    prepared: NDArray[np.float64], searched: JoinInputs
) -> tuple[NDArray[np.int64], int]:
    """Return of how many nearest rows the shares of each row are, and the most of these."""
    groups, n_neighbors = searched.space.groups, searched.search.statistic.n_neighbors
    if groups is None or n_neighbors is None:
        most = n_neighbors or _NEAREST_ROWS
        return np.full(len(prepared), most), most
    wanted, _ = groups.of_rows(prepared[:, -1])
    return wanted, int(wanted.max(initial=1))


def _attributed(
    prepared: NDArray[np.float64],
    own: NDArray[np.int64] | None,
    searched: JoinInputs,
    n_features: int,
    *,
    has_groups: bool,
) -> tuple[NDArray[np.float64], ...]:
    """Return the columns of `Attribution` beside the rows, some rows at a time."""
    wanted, n_neighbors = _wanted(prepared, searched)
    pass_rows = listing_pass_rows(prepared.shape[1], n_neighbors)
    n_columns = n_features - has_groups
    shares, nearest = np.empty((len(prepared), n_columns)), np.empty(prepared.shape)
    signs, distances = np.empty(shares.shape), np.empty(len(prepared))
    for start in range(0, len(prepared), pass_rows):
        part = slice(start, start + pass_rows)
        numbers = None if own is None else own[part]
        found = _listed(prepared[part], numbers, searched, n_neighbors)
        distances[part] = found.distances[:, 0]
        total, signed, nearest[part] = _parts(
            prepared[part], found, wanted[part], searched, n_features
        )
        of_columns = np.ascontiguousarray(total[:, :n_columns])
        with np.errstate(invalid="ignore"):
            shares[part] = of_columns / of_columns.sum(axis=1, keepdims=True)
            signs[part] = signed[:, :n_columns] / np.abs(of_columns)
    return shares, signs, nearest, distances


def _parts(
    prepared: NDArray[np.float64],
    found: Nearest,
    wanted: NDArray[np.int64],
    searched: JoinInputs,
    n_features: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    r"""Return :math:`\sum_k \delta_{kc}^2 / d_k` of each column c.

    Beside it the same with the sign of :math:`\delta_{kc}`, and the nearest row, as each
    reading of the blocks is expensive. Rows at no finite
    distance have no part in it, nor has one beyond so many as are wanted.
    """
    total, nearest = np.zeros((len(prepared), n_features)), np.empty(prepared.shape)
    signed = np.zeros(total.shape)
    n_neighbors, n_at_once = found.distances.shape[1], gather_batch(*prepared.shape)
    counts = np.isfinite(found.distances) & (found.distances > 0)
    counts &= np.arange(n_neighbors) < wanted[:, None]
    for start in range(0, n_neighbors, n_at_once):
        some = range(start, min(start + n_at_once, n_neighbors))
        others = _gathered(searched, found.numbers[:, some])
        if start == 0:
            nearest = others[:, 0]
        step = max(1, _PAIRS_AT_ONCE // max(1, len(prepared)))
        for first in range(0, len(some), step):
            ranks = some[first : first + step]
            rows = others[:, first : first + step].reshape(-1, prepared.shape[1])
            is_one = len(ranks) == 1  # then it needs no copy
            queries = prepared if is_one else np.repeat(prepared, len(ranks), axis=0)
            pairs = queries, rows
            parts, signs = (
                function(searched.space.preparation, *pairs, n_features).reshape(
                    len(prepared), len(ranks), n_features
                )
                for function in (squared_parts, directions)
            )
            is_counted, distances = counts[:, ranks, None], found.distances[:, ranks, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                added = np.where(is_counted, parts / distances, 0)
                towards = np.where(is_counted, np.abs(added) * signs, 0)
            for rank in range(len(ranks)):  # one by one, however many at once
                total += added[:, rank]
                signed += towards[:, rank]
    return total, signed, nearest


def _listed(
    prepared: NDArray[np.float64],
    own: NDArray[np.int64] | None,
    searched: JoinInputs,
    n_neighbors: int,
) -> Nearest:
    """Return the nearest rows of prepared ones, by an exact search."""
    space = searched.space
    statistic = Statistic(n_neighbors, None)
    search = JoinSpec(statistic, len(prepared), graph_neighbors=n_neighbors)
    queries = space.tiles(prepared, own)
    return Nearest(*neighbors_of(search_blocks(queries, searched.handles, space, search)))


def _gathered(searched: JoinInputs, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return prepared rows of the reference by their numbers, of one more dimension.

    NaN for the number -1.
    """
    wanted, copies = np.unique(np.append(numbers, -1), return_inverse=True)
    rows = np.full((len(wanted), searched.space.basis.n_columns), np.nan)
    may_be_wanted = np.zeros(_LAST_BITS + 1, bool)
    may_be_wanted[wanted[1:] & _LAST_BITS] = True
    for handle in searched.handles:
        block = handle.load()  # whose numbers are in no order, and many
        near = np.flatnonzero(may_be_wanted[block.numbers & _LAST_BITS])
        numbers_near = block.numbers[near]
        places = np.minimum(np.searchsorted(wanted, numbers_near), len(wanted) - 1)
        is_wanted = wanted[places] == numbers_near
        rows[places[is_wanted]] = block.rows[near[is_wanted]]
    return rows[copies[:-1]].reshape(*numbers.shape, rows.shape[1])

r"""Build the Dask graph that tells which nominal rows are nearest, and why they are so far.

    blocks      b0   b1   b2      handles of the packed reference
                 \    |    /
    queries      q0       q1      one task a share of queries
                  |        |
    nearest       numbers of the nearest rows, and how far they are
    shares        what each column adds to the distance

Neighbors are exact here, also where p-values are not. For few rows: a task keeps which rows
its neighbors are, and gathers these from the blocks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.search.columns import squared_parts
from lpe_dask.search.join import Search, Searched, neighbors_of, search_blocks
from lpe_dask.search.plan import Statistic, gathered_ranks, listed_rows, share_of
from lpe_dask.tasks import enter, new_tasks


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


class Attributed(NamedTuple):
    """What the distance of some queries consists of.

    Attributes
    ----------
    shares : ndarray of shape (n_queries, n_features)
        Of each column of the input, 1 together; NaN where the distance is 0 or ``inf``, or
        the query was not measured.
    nearest : ndarray of shape (n_queries, n_prepared)
        The nearest row, prepared; NaN where there is none.
    """

    shares: NDArray[np.float64]
    nearest: NDArray[np.float64]


def list_nearest(
    queries: da.Array, searched: Searched, n_shares: int, n_neighbors: int
) -> list[Delayed]:
    """Return tasks that give the `Nearest` of the rows of a share each, in their order.

    Parameters
    ----------
    queries : dask array of shape (n_queries, n_features)
        As the user gave them.
    searched : Searched
    n_shares : int
        Tasks that share one chunk of queries.
    n_neighbors : int
        How many to list.
    """
    named, collections = searched.named()
    tasks = (
        (_nearest, (queries.name, i, 0), share, n_shares, n_neighbors, *named)
        for i in range(queries.numblocks[0])
        for share in range(n_shares)
    )
    return new_tasks("nearest", tasks, [queries, *collections])


def attribute(
    queries: da.Array,
    searched: Searched,
    n_shares: int,
    numbers: NDArray[np.int64] | None = None,
) -> list[Delayed]:
    """Return tasks that give the `Attributed` of the rows of a share each, in their order.

    Parameters
    ----------
    queries, searched, n_shares
        As for `list_nearest`.
    numbers : ndarray of shape (n_queries,), optional
        Which row of the reference a query is itself, and so no neighbor of; -1 for a new
        row. None: all rows are new.
    """
    named, collections = searched.named()
    edges = np.cumsum([0, *queries.chunks[0]]).astype(np.int64)
    tasks = (
        (_attribute, (queries.name, i, 0), share, n_shares, own, *named)
        for i, own in enumerate(_cut(numbers, edges))
        for share in range(n_shares)
    )
    return new_tasks("attribute", tasks, [queries, *collections])


def attribute_own(
    numbers: NDArray[np.int64], searched: Searched, n_features: int, n_shares: int
) -> list[Delayed]:
    """Return tasks that give the shares of rows of the reference, each without itself.

    Parameters
    ----------
    numbers : ndarray of shape (n_rows,)
        Of these rows.
    searched : Searched
    n_features : int
        Columns of the input.
    n_shares : int
        Tasks that share the rows.
    """
    named, collections = searched.named()
    chosen = enter(numbers, "lpe-chosen")
    tasks = (
        (_attribute_own, chosen.key, share, n_shares, n_features, *named)
        for share in range(n_shares)
    )
    return new_tasks("attribute", tasks, [chosen, *collections])


def _cut(numbers: NDArray[np.int64] | None, edges: NDArray[np.int64]) -> list[Any]:
    if numbers is None:
        return [None] * (len(edges) - 1)
    return [numbers[start:stop] for start, stop in pairwise(edges)]


# The functions below run inside tasks: NumPy in, NumPy out.


def _nearest(
    rows: NDArray[np.generic], share: int, n_shares: int, n_neighbors: int, *named: Any
) -> Nearest:
    searched = Searched(*named)
    rows = rows[share_of(len(rows), share, n_shares)]
    pass_rows = listed_rows(searched.space.basis.n_columns, n_neighbors)
    found = []
    for start in range(0, max(1, len(rows)), pass_rows):
        prepared = searched.space.preparation.apply(rows[start : start + pass_rows])
        found.append(_listed(prepared, None, searched, n_neighbors))
    return Nearest(*map(np.concatenate, zip(*found, strict=True)))


def _attribute(
    rows: NDArray[np.generic],
    share: int,
    n_shares: int,
    numbers: NDArray[np.int64] | None,
    *named: Any,
) -> Attributed:
    searched, which = Searched(*named), share_of(len(rows), share, n_shares)
    prepared = searched.space.preparation.apply(rows[which])
    own = None if numbers is None else numbers[which]
    return _attributed(prepared, own, searched, rows.shape[1])


def _attribute_own(
    chosen: NDArray[np.int64], share: int, n_shares: int, n_features: int, *named: Any
) -> NDArray[np.float64]:
    searched = Searched(*named)
    numbers = chosen[share_of(len(chosen), share, n_shares)]
    rows = _gathered(searched, numbers)
    return _attributed(rows, numbers, searched, n_features).shares


def _attributed(
    prepared: NDArray[np.float64],
    own: NDArray[np.int64] | None,
    searched: Searched,
    n_features: int,
) -> Attributed:
    """Return what the distances of prepared rows consist of, some rows at a time."""
    statistic, n_neighbors = searched.search.statistic, 1
    # Counts have no distance, and a walk begins at the nearest row.
    if searched.search.graph_neighbors is None:
        n_neighbors = statistic.n_neighbors or 1
    is_mean = statistic.aggregation == "mean"
    ranks = np.arange(n_neighbors) if is_mean else np.array([n_neighbors - 1])
    pass_rows = listed_rows(prepared.shape[1], n_neighbors)
    shares, nearest = np.empty((len(prepared), n_features)), np.empty(prepared.shape)
    for start in range(0, len(prepared), pass_rows):
        part = slice(start, start + pass_rows)
        numbers = None if own is None else own[part]
        found = _listed(prepared[part], numbers, searched, n_neighbors)
        nearest[part] = _gathered(searched, found.numbers[:, :1])[:, 0]
        shares[part] = _shares(prepared[part], found, ranks, searched, n_features)
    return Attributed(shares, nearest)


def _shares(
    prepared: NDArray[np.float64],
    found: Nearest,
    ranks: NDArray[np.int64],
    searched: Searched,
    n_features: int,
) -> NDArray[np.float64]:
    r"""Return :math:`\sum_k \delta_{kc}^2 / d_k` as a share of the sum of all columns c."""
    total = np.zeros((len(prepared), n_features))
    at_once = gathered_ranks(*prepared.shape)
    for start in range(0, len(ranks), at_once):
        some = ranks[start : start + at_once]
        others = _gathered(searched, found.numbers[:, some])
        for place, rank in enumerate(some):  # added rank by rank, however many at once
            parts = squared_parts(
                searched.space.preparation, prepared, others[:, place], n_features
            )
            length = found.distances[:, rank, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                total += np.where(length == 0, 0, parts / length)
    total[~np.isfinite(found.distances[:, ranks]).all(axis=1)] = np.nan
    with np.errstate(invalid="ignore"):
        return total / total.sum(axis=1, keepdims=True)


def _listed(
    prepared: NDArray[np.float64],
    own: NDArray[np.int64] | None,
    searched: Searched,
    n_neighbors: int,
) -> Nearest:
    """Return the nearest rows of prepared ones, by an exact search."""
    space = searched.space
    statistic = Statistic(n_neighbors, None)
    search = Search(statistic, len(prepared), graph_neighbors=n_neighbors)
    queries = space.tiles(prepared, own)
    state = search_blocks(queries, searched.handles, space.basis, search)
    return Nearest(*neighbors_of(state))


def _gathered(searched: Searched, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return prepared rows of the reference by their numbers, of one more dimension.

    NaN for the number -1.
    """
    wanted = numbers.ravel()
    rows = np.full((len(wanted), searched.space.basis.n_columns), np.nan)
    for handle in searched.handles:
        block = handle.load()
        order = np.argsort(block.numbers)
        places = np.searchsorted(block.numbers, wanted, sorter=order)
        places = order[np.minimum(places, len(order) - 1)]
        is_here = block.numbers[places] == wanted
        rows[is_here] = block.rows[places[is_here]]
    return rows.reshape(*numbers.shape, -1)

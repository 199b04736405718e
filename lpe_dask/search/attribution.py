r"""Build the Dask graph that finds the nearest nominal rows, and why they are so far.

    blocks      b0   b1   b2      handles of the packed reference
                 \    |    /
    queries      q0       q1      one task a share of queries
                  |        |
    nearest       numbers of the nearest rows, and how far they are
    shares        what each column adds to the distance, on average over the nearest rows

    typical       shares of some rows of the reference, quantiles and frequent categories of
                  its columns: one task

Neighbors are exact here, also where p-values are not. For few rows: a task keeps which rows
its neighbors are, and gathers these from the blocks.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.search.feature_contributions import (
    TypicalValues,
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
    shares : ndarray of shape (n_queries, n_features)
        Of each column of the input, 1 together; NaN where all distances are 0 or ``inf``,
        or the query was not measured.
    nearest : ndarray of shape (n_queries, n_prepared)
        The nearest row, prepared; NaN where there is none.
    distances : ndarray of shape (n_queries,)
        To that row.
    """

    rows: NDArray[np.generic]
    shares: NDArray[np.float64]
    nearest: NDArray[np.float64]
    distances: NDArray[np.float64]


class Typical(NamedTuple):
    """What is typical of the rows of a reference.

    Attributes
    ----------
    shares : ndarray of shape (n_features,)
        The mean shares of `Attribution` for some of them, each without itself. As if there
        was one row more, with the same share of each column: a column that is the same in
        almost all rows has a small share, and not 0.
    usual : TypicalValues
    """

    shares: NDArray[np.float64]
    usual: TypicalValues


def list_nearest(
    queries: da.Array,
    searched: JoinInputs,
    n_shares: int,
    n_neighbors: int,
    numbers: NDArray[np.int64] | None = None,
) -> list[Delayed]:
    """Return tasks that give the `Nearest` of the rows of a share each, in their order.

    Parameters
    ----------
    queries : dask array of shape (n_queries, n_features)
        As the user gave them.
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
    queries: da.Array,
    searched: JoinInputs,
    n_shares: int,
    numbers: NDArray[np.int64] | None = None,
) -> list[Delayed]:
    """Return tasks that give the `Attribution` of the rows of a share each, in their order.

    Parameters
    ----------
    queries, searched, n_shares, numbers
        As for `list_nearest`.
    """
    own = _cut(numbers, queries)
    return in_shares("attribute", _attribute, queries, searched, n_shares, *own)


def typical_task(
    numbers: NDArray[np.int64], searched: JoinInputs, n_features: int, n_measured: int
) -> Delayed:
    """Return the task that gives what is `Typical` of some rows of the reference.

    Parameters
    ----------
    numbers : ndarray of shape (n_rows,)
        Of these rows, ascending; all of them say what is usual.
    searched : JoinInputs
    n_features : int
        Columns of the input.
    n_measured : int
        Most rows, at even steps, that say which shares are typical.
    """
    named, collections = searched.named()
    chosen = to_task(numbers, "lpe-chosen")
    task = (_typical, chosen.key, n_features, n_measured, *named)
    return new_tasks("typical", [task], [chosen, *collections])[0]


def _cut(
    numbers: NDArray[np.int64] | None, queries: da.Array
) -> tuple[list[Any], list[Delayed]]:
    """Return tasks for the numbers of each chunk, and what they depend on."""
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
) -> Attribution:
    searched, which = JoinInputs(*named), share_of(len(rows), share, n_shares)
    prepared = searched.space.preparation.apply(rows[which])
    own = None if numbers is None else numbers[which]
    return Attribution(rows[which], *_attributed(prepared, own, searched, rows.shape[1]))


def _typical(
    numbers: NDArray[np.int64], n_features: int, n_measured: int, *named: Any
) -> Typical:
    searched = JoinInputs(*named)
    rows = _gathered(searched, numbers)
    some = slice(None, None, -(-len(rows) // n_measured))
    shares, *_ = _attributed(rows[some], numbers[some], searched, n_features)
    shares = shares[~np.isnan(shares).any(axis=1)]
    even = np.full((1, n_features), 1 / n_features)
    usual = typical_values(searched.space.preparation, rows, n_features)
    return Typical(np.concatenate([shares, even]).mean(axis=0), usual)


def _attributed(
    prepared: NDArray[np.float64],
    own: NDArray[np.int64] | None,
    searched: JoinInputs,
    n_features: int,
) -> tuple[NDArray[np.float64], ...]:
    """Return the columns of `Attribution` beside the rows, some rows at a time."""
    n_neighbors = searched.search.statistic.n_neighbors or _NEAREST_ROWS
    pass_rows = listing_pass_rows(prepared.shape[1], n_neighbors)
    shares, nearest = np.empty((len(prepared), n_features)), np.empty(prepared.shape)
    distances = np.empty(len(prepared))
    for start in range(0, len(prepared), pass_rows):
        part = slice(start, start + pass_rows)
        numbers = None if own is None else own[part]
        found = _listed(prepared[part], numbers, searched, n_neighbors)
        distances[part] = found.distances[:, 0]
        shares[part], nearest[part] = _shares(prepared[part], found, searched, n_features)
    return shares, nearest, distances


def _shares(
    prepared: NDArray[np.float64], found: Nearest, searched: JoinInputs, n_features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return :math:`\sum_k \delta_{kc}^2 / d_k` as a share of the sum of all columns c.

    Beside it the nearest row, as each reading of the blocks is expensive. Rows at no finite
    distance have no part in it.
    """
    total, nearest = np.zeros((len(prepared), n_features)), np.empty(prepared.shape)
    n_neighbors, n_at_once = found.distances.shape[1], gather_batch(*prepared.shape)
    counts = np.isfinite(found.distances) & (found.distances > 0)
    for start in range(0, n_neighbors, n_at_once):
        some = range(start, min(start + n_at_once, n_neighbors))
        others = _gathered(searched, found.numbers[:, some])
        if start == 0:
            nearest = others[:, 0]
        for place, rank in enumerate(some):  # added rank by rank, however many at once
            parts = squared_parts(
                searched.space.preparation, prepared, others[:, place], n_features
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                added = parts / found.distances[:, rank, None]
            total += np.where(counts[:, rank, None], added, 0)
    with np.errstate(invalid="ignore"):
        return total / total.sum(axis=1, keepdims=True), nearest


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
    for handle in searched.handles:
        block = handle.load()  # whose numbers are in no order, and many
        places = np.minimum(np.searchsorted(wanted, block.numbers), len(wanted) - 1)
        is_wanted = wanted[places] == block.numbers
        rows[places[is_wanted]] = block.rows[is_wanted]
    return rows[copies[:-1]].reshape(*numbers.shape, rows.shape[1])

r"""Build the Dask graph that measures rows against the reference.

    queries         q0        q1        q2
                   / \       / \       / \          one join task for each share of a block
    blocks ==>   j00 j01   j10 j11   j20 j21        each reads all blocks of the reference
                   \ /       \ /       \ /
    statistic       s0        s1        s2          (rows,) K-th distances or counts

A join goes through its queries in passes and through the blocks in any order, folding each
into a running state, so that what it adds to a worker's memory is one pass, however many
rows there are on either side. The number of tasks is that of the shares plus, where a block
has more than one, that of the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import pandas as pd
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.inputs import float_rows
from lpe_dask.kernels import ALGORITHMS
from lpe_dask.literals import enter
from lpe_dask.plan import share_of
from lpe_dask.preparation import Preparation


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked of the reference.

    Attributes
    ----------
    algorithm : str
        A name of `kernels.ALGORITHMS`.
    n_neighbors : int, optional
        K, for the distance to the K-th nearest row.
    radius : float, optional
        Epsilon, for the number of rows within it, where ``n_neighbors`` is None.
    pass_rows : int
        Queries that a task measures at a time.
    """

    algorithm: str
    n_neighbors: int | None
    radius: float | None
    pass_rows: int

    def state(self, queries: NDArray[np.float64]) -> Any:
        """Return the empty state of some queries; see `kernels` for what it offers."""
        kernel = ALGORITHMS[self.algorithm]
        if self.n_neighbors is None:
            return kernel.CountState(queries, self.radius)
        return kernel.NearestState(queries, self.n_neighbors)


def pack_blocks(rows: da.Array, preparation: Preparation, algorithm: str) -> list[Delayed]:
    """Return one task for each row chunk of the reference, which prepares and packs it.

    Parameters
    ----------
    rows : dask array of shape (n_reference, n_features)
        Finite, with known chunks, all of one size but the last.
    """
    prepared_by = enter(preparation, "lpe-preparation")
    name = f"lpe-pack-{uuid4().hex}"
    tasks = {
        f"{name}-{i}": (_pack, (rows.name, i, 0), prepared_by.key, algorithm)
        for i in range(rows.numblocks[0])
    }
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[rows, prepared_by])
    return [Delayed(key, graph, layer=name) for key in tasks]


def join(
    queries: da.Array,
    blocks: list[Delayed],
    preparation: Preparation,
    search: Search,
    n_shares: int,
) -> da.Array:
    """Return the statistic of new rows against the reference, lazily.

    Parameters
    ----------
    queries : dask array of shape (n_queries, n_features)
        As the user gave them; chunks may be unknown; one chunk of features.
    blocks : list of Delayed
        The packed reference.
    preparation : Preparation
    search : Search
    n_shares : int
        Tasks that share one chunk of queries.

    Returns
    -------
    statistic : dask array of shape (n_queries,)
        Chunked like ``queries``; NaN for a row with NaN or inf.
    """
    prepared_by = enter(preparation, "lpe-preparation")
    keys = [block.key for block in blocks]
    joined, name = f"lpe-join-{uuid4().hex}", f"lpe-statistic-{uuid4().hex}"
    tasks: dict[Any, Any] = {}
    for i in range(queries.numblocks[0]):
        shares = [(joined, i, share) for share in range(n_shares)]
        for share, key in enumerate(shares):
            rows = (queries.name, i, 0)
            tasks[key] = (_join, rows, share, n_shares, prepared_by.key, search, keys)
        tasks[(name, i)] = (np.concatenate, shares)
    dependencies = [queries, prepared_by, *blocks]
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=dependencies)
    return da.Array(graph, name, (queries.chunks[0],), meta=np.empty(0))


def join_frame(
    frame: Any, blocks: list[Delayed], preparation: Preparation, search: Search
) -> Any:
    """Return the statistic of the rows of a dask DataFrame, lazily, as a dask Series.

    One task for each partition: the result is made of the frame by Dask's own operations,
    so Dask knows the two to be aligned, also where it reads fewer columns or merges
    partitions later. Arguments are those of `join`.
    """
    meta = pd.Series(dtype=np.float64, name="statistic")
    prepared_by = enter(preparation, "lpe-preparation")
    return frame.map_partitions(_join_frame, prepared_by, search, *blocks, meta=meta)


def self_join(blocks: list[Delayed], block_rows: int, search: Search) -> list[Delayed]:
    """Return one task for each block of the reference: the statistic of its rows.

    Each row is measured against all rows but itself, which is told by its number.

    Parameters
    ----------
    blocks : list of Delayed
        The packed reference, of ``block_rows`` rows each but the last.
    """
    keys = [block.key for block in blocks]
    name = f"lpe-join-{uuid4().hex}"
    tasks = {
        f"{name}-{i}": (_join_self, i, block_rows, search, keys) for i in range(len(blocks))
    }
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=blocks)
    return [Delayed(key, graph, layer=name) for key in tasks]


# The functions below run inside tasks: NumPy in, NumPy out.


def _pack(rows: NDArray[np.generic], preparation: Preparation, algorithm: str) -> Any:
    return ALGORITHMS[algorithm].pack(preparation.apply(rows))


def _join(
    rows: NDArray[np.generic],
    share: int,
    n_shares: int,
    preparation: Preparation,
    search: Search,
    blocks: list[Any],
) -> NDArray[np.float64]:
    rows = rows[share_of(len(rows), share, n_shares)]
    statistic = np.empty(len(rows))
    for start in range(0, len(rows), search.pass_rows):
        part = slice(start, start + search.pass_rows)
        statistic[part] = _measure(preparation.apply(rows[part]), blocks, search)
    return statistic


def _join_frame(
    frame: pd.DataFrame, preparation: Preparation, search: Search, *blocks: Any
) -> pd.Series:
    statistic = _join(float_rows(frame), 0, 1, preparation, search, list(blocks))
    return pd.Series(statistic, frame.index, name="statistic")


def _join_self(
    i: int, block_rows: int, search: Search, blocks: list[Any]
) -> NDArray[np.float64]:
    own = blocks[i]
    statistic = np.empty(own.n_rows)
    for start in range(0, own.n_rows, search.pass_rows):
        stop = min(start + search.pass_rows, own.n_rows)
        offsets = [start + (i - j) * block_rows for j in range(len(blocks))]
        statistic[start:stop] = _measure(own.rows(start, stop), blocks, search, offsets)
    return statistic


def _measure(
    queries: NDArray[np.float64],
    blocks: list[Any],
    search: Search,
    self_offsets: list[int] | None = None,
) -> NDArray[np.float64]:
    """Return the statistic of one pass; its state is gone before the next one begins."""
    state = search.state(queries)
    for j, block in enumerate(blocks):
        if self_offsets is None:
            state.fold(block)
        else:
            state.fold(block, self_offsets[j])
    statistic: NDArray[np.float64] = state.finish()
    return statistic

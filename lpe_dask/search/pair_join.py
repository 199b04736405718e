r"""Build the Dask graph that measures all rows of the reference, each pair of rows once.

    blocks      b0       b1       b2      handles, in memory
                |        |        |
    within      w0       w1       w2      squares (n, K) of pairs of one block
                |        |        |
    limits      l0       l1       l2      (n,): pairs further than these change nothing
                 \      /  \      /
    between       (b0, b1)  (b1, b2) ...  squares of either's rows, in shares of one's
                 /      \  /      \
    statistic   s0       s1       s2      numbers of rows and statistic, merged

Half the work of `join.self_join`, which meets each pair from either side. What it takes for
that are squares of rows, K of each for every other block, which are there until all pairs
of a block are known; and what a lost worker had of them is computed again.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray

from lpe_dask.kernels import PairSearch, compiler, merged
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.join import JoinSpec
from lpe_dask.search.plan import share_of
from lpe_dask.tasks import LocalValue, new_tasks, to_task


def pair_join(
    blocks: list[Delayed], space: LocalValue, search: JoinSpec, n_shares: int
) -> list[Delayed]:
    """Return tasks for all blocks: the numbers of their rows and their statistic.

    Parameters
    ----------
    blocks : list of Delayed
        Of handles of blocks of brute force, in memory.
    space : LocalValue
        Of their `Space`.
    search : JoinSpec
    n_shares : int
        Tasks that share the pairs of two blocks.
    """
    shared, n_blocks = to_task(space, "lpe-space"), len(blocks)
    keys = [block.key for block in blocks]
    given = shared.key, search
    every = [shared, *blocks]
    within = new_tasks("within", ((_within, key, *given) for key in keys), every)
    limits = new_tasks(
        "limits", ((_limits, task.key, *given) for task in within), every + within
    )
    pairs = [
        (i, j, share)
        for i, j in combinations(range(n_blocks), 2)
        for share in range(n_shares)
    ]
    between = new_tasks(
        "between",
        (
            (
                _between,
                keys[i],
                keys[j],
                limits[i].key,
                limits[j].key,
                share,
                n_shares,
                *given,
            )
            for i, j, share in pairs
        ),
        [*every, *limits],
    )
    # Which parts a block has as the first of two, whose rows are shared, and as the second.
    firsts: list[list[Any]] = [[] for _ in blocks]
    seconds: list[list[Any]] = [[] for _ in blocks]
    for (i, j, share), task in zip(pairs, between, strict=True):
        if share == 0:
            firsts[i].append([])
        firsts[i][-1].append(task.key)
        seconds[j].append(task.key)
    joined = (
        (_joined, keys[i], within[i].key, firsts[i], seconds[i], search)
        for i in range(n_blocks)
    )
    return new_tasks("join", joined, [*blocks, *within, *between])


# The functions below run inside tasks: NumPy in, NumPy out.

_Squares = NDArray[np.float64]


def _search(space: Space, search: JoinSpec) -> PairSearch:
    assert search.statistic.n_neighbors is not None
    return PairSearch(space.basis, search.statistic.n_neighbors)


def _within(handle: Any, space: Space, search: JoinSpec) -> _Squares:
    compiler.expect("fold_pairs", search.work)
    return _search(space, search).within(handle.load())


def _limits(squares: _Squares, space: Space, search: JoinSpec) -> NDArray[np.float64]:
    return _search(space, search).limits(squares)


def _between(
    first: Any,
    second: Any,
    limits: NDArray[np.float64],
    other_limits: NDArray[np.float64],
    share: int,
    n_shares: int,
    space: Space,
    search: JoinSpec,
) -> tuple[_Squares, _Squares]:
    own, others = first.load(), second.load()
    which = share_of(own.n_rows, share, n_shares)
    return _search(space, search).between(own, others, which, limits, other_limits)


def _joined(
    handle: Any,
    within: _Squares,
    as_first: list[list[tuple[_Squares, _Squares]]],
    as_second: list[tuple[_Squares, _Squares]],
    search: JoinSpec,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    n_neighbors = search.statistic.n_neighbors
    assert n_neighbors is not None
    parts = [within, *(squares for _, squares in as_second)]
    parts += [np.concatenate([squares for squares, _ in shares]) for shares in as_first]
    statistic = merged(parts, n_neighbors, search.statistic.aggregation)
    return handle.load().numbers, statistic

"""First limits of queries of which nothing is known, from the first rows they meet.

    active queries x some groups --the smallest sum of each lane--> 64 rows at most
                                 --the K + 1 smallest of these--> limit

Without a limit all pairs are kept until there are too many of them, again and again; sums
of which only the smallest are kept cost a fraction of that. The rows of 64 lanes differ,
and one of them may be the query itself, so K others are within the limit.
"""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.bounds import rise_of, rounded_up, spread_of, threshold_of
from lpe_dask.kernels.compiled import borrowing
from lpe_dask.kernels.filters import FEATURES_AT_ONCE, QUERIES, sum_parts
from lpe_dask.kernels.selection import keep_smallest
from lpe_dask.kernels.simd import LANES

#: Groups whose rows are looked at, and of many features, which cost more than they save.
SEED_GROUPS, WIDE_SEED_GROUPS = 16, 4

#: Neighbors up to which 64 lanes tell a limit that is close.
MOST_SEEDED = 40


@borrowing
def seed_limits(n_active, cell, first, block, errors, found, tile):  # type: ignore[no-untyped-def]
    """Lower the limits of active queries that have none, and their thresholds.

    Parameters
    ----------
    n_active : int
    cell : int
        The first one that the tile meets.
    first : int
        Number of the first query of the tile.
    block : BlockArrays
    errors : Errors
    found : Found
        Its limits are changed.
    tile : Tile
        Its thresholds are changed, and its sums.
    """
    n_neighbors, n_features = found.squares.shape[1], len(tile.columns)
    start, stop = block.starts[cell] // LANES, block.starts[cell + 1] // LANES
    n_groups = WIDE_SEED_GROUPS if n_features > FEATURES_AT_ONCE else SEED_GROUPS
    stop = min(stop, start + n_groups)
    highest = -np.inf
    for a in range(n_active):
        highest = max(highest, found.limits[first + tile.active[a]])
    if highest < np.inf or n_neighbors > MOST_SEEDED or stop == start:
        return
    n_packs = -(-n_active // QUERIES)
    n_parts = -(-n_features // FEATURES_AT_ONCE)
    n_sums = n_packs * QUERIES * LANES
    sums, least = tile.sums, tile.least
    least[:n_sums] = np.inf
    spread = 0.0
    for g in range(start, stop):
        spread = max(spread, spread_of(g, block, errors))
        sum_parts(g, n_packs, n_parts, n_features, block, tile)
        for m in range(n_sums):
            least[m] = sums[m] if sums[m] < least[m] else least[m]  # noqa: FURB136 - NaN
    for a in range(n_active):
        i = first + tile.active[a]
        if found.limits[i] < np.inf:
            continue
        own = least[a * LANES : (a + 1) * LANES]
        kth = keep_smallest(own, LANES, n_neighbors + 1)
        limit = rounded_up(np.float64(kth) + rise_of(a, spread, errors, tile))
        if limit < np.inf:
            found.limits[i] = max(limit, 0.0)
            tile.thresholds[a] = threshold_of(a, found.limits[i], errors, tile)

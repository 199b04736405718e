"""Brute force: rows stay about where they came, and every pair is filtered.

Cells are runs of rows without a box, so that no pair is ruled out by where its rows are.
That is what pays where the rows have many independent columns and everything is about as
near to everything.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.basis import Basis, learn_basis
from lpe_dask.kernels.blocks import Arrangement

#: Whether a reference is divided into regions of near rows before it is cut into blocks.
KEEPS_NEAR_ROWS_TOGETHER = False

#: Whether all cells have their center in the origin, as `pairs` needs it.
SUMS_PAIRS = True

#: Rows of a cell: so many that moving the queries to its center costs nothing beside. So
#: many are arranged at a time.
CELL_ROWS = SLAB_ROWS = 4096

#: Queries that fill packs, whatever the form (see `simd_profiles`): a multiple of how many
#: queries are in each.
PACKED_ROWS = 30

#: All rows near a query are found: no lists of them are needed.
neighbor_lists = None


def basis(
    sample: NDArray[np.floating],
    weights: NDArray[np.float64] | None = None,
    n_codes: int = 0,
    *,
    separates: bool = False,
) -> Basis:
    """Return the basis that rows like those of ``sample`` are searched in."""
    return learn_basis(sample, weights, n_codes, rotate=False, separates=separates)


def arrange(points: NDArray[np.float64], cell_rows: int = CELL_ROWS) -> Arrangement:
    """Return points of shape (n_rows, n_features) in runs as they came, short ones first.

    What the filter may get wrong grows with the longest row of a group.
    """
    starts = _starts_of_runs(len(points), cell_rows)
    with np.errstate(invalid="ignore"):
        lengths = np.einsum("ij,ij->i", points, points)
    runs = [slice(*run) for run in pairwise(starts.tolist())]
    order = [run.start + np.argsort(lengths[run], kind="stable") for run in runs]
    return Arrangement(np.concatenate([starts[:0], *order]), starts, bounded=False)


def tile(
    points: NDArray[np.float64], tile_rows: int, *, of_block: bool = False
) -> Arrangement:
    """Return queries of shape (n_rows, n_features) as they came, cut into tiles.

    Of so many rows that packs of queries are full, as all of them are compared.
    """
    starts = _starts_of_runs(len(points), tile_rows - tile_rows % PACKED_ROWS)
    return Arrangement(np.arange(len(points)), starts, bounded=False)


def _starts_of_runs(n_rows: int, run_rows: int) -> NDArray[np.int64]:
    return np.append(np.arange(0, n_rows, run_rows), n_rows)

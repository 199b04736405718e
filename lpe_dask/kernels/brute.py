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

#: Rows of a cell: so many that moving the queries to its center costs nothing beside.
CELL_ROWS = 4096


def basis(sample: NDArray[np.floating]) -> Basis:
    """Return the basis that rows like those of ``sample`` are searched in."""
    return learn_basis(sample, rotate=False)


#: Rows that are arranged at a time.
SLAB_ROWS = 512


def arrange(points: NDArray[np.float64], cell_rows: int = CELL_ROWS) -> Arrangement:
    """Return points of shape (n_rows, n_features) in runs as they came, short ones first.

    What the filter may get wrong grows with the longest row of a group.
    """
    starts = tile(points, cell_rows).starts
    with np.errstate(invalid="ignore"):
        lengths = np.einsum("ij,ij->i", points, points)
    runs = [slice(*run) for run in pairwise(starts.tolist())]
    order = [run.start + np.argsort(lengths[run], kind="stable") for run in runs]
    return Arrangement(np.concatenate([starts[:0], *order]), starts, bounded=False)


def tile(points: NDArray[np.float64], tile_rows: int) -> Arrangement:
    """Return queries of shape (n_rows, n_features) as they came, cut into tiles."""
    n_rows = len(points)
    starts = np.append(np.arange(0, n_rows, tile_rows), n_rows)
    return Arrangement(np.arange(n_rows), starts, bounded=False)

"""Brute force: rows stay in the order they came, and every pair is filtered.

Cells are runs of rows without a box, so that no pair is ruled out by where its rows are.
That is what pays where the rows have many independent columns and everything is about as
near to everything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.basis import Basis, learn_basis
from lpe_dask.kernels.blocks import Arrangement

#: Whether a reference is divided into regions of near rows before it is cut into blocks.
KEEPS_NEAR_ROWS_TOGETHER = False

#: Rows of a cell: few enough to stay in a core's cache while a tile of queries passes, many
#: enough that moving the queries to its center costs nothing beside.
CELL_ROWS = 1024


def basis(sample: NDArray[np.floating]) -> Basis:
    """Return the basis that rows like those of ``sample`` are searched in."""
    return learn_basis(sample, rotate=False)


def arrange(points: NDArray[np.float64], cell_rows: int = CELL_ROWS) -> Arrangement:
    """Return points of shape (n_rows, n_features) in the order they came, in runs."""
    n_rows = len(points)
    starts = np.append(np.arange(0, n_rows, cell_rows), n_rows)
    return Arrangement(np.arange(n_rows), starts, bounded=False)

"""Exact pruning: rows are ordered into cells of a kd tree, in the basis of their axes.

A cell whose box is further from a query than its K-th neighbor so far holds nothing of
interest, so most cells are never looked at where the rows have few independent columns.
Boxes are narrow along principal axes, not along the columns that came.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.basis import Basis, learn_basis
from lpe_dask.kernels.blocks import Arrangement
from lpe_dask.kernels.compiled import compiled
from lpe_dask.kernels.selection import keep_smallest_pairs
from lpe_dask.kernels.simd import LANES

#: Whether a reference is divided into regions of near rows before it is cut into blocks.
KEEPS_NEAR_ROWS_TOGETHER = True

#: Most rows of a cell; of one with up to three features, where a pair costs so little that
#: fewer pairs are worth more boxes.
CELL_ROWS, FLAT_CELL_ROWS, FLAT_FEATURES = 256, 64, 3

#: All rows are arranged together.
SLAB_ROWS = None

#: Rows that tell which axis a cell is longest along.
SAMPLE_ROWS = 512

#: All rows near a query are found: no lists of them are needed.
neighbor_lists = None


def basis(
    sample: NDArray[np.floating],
    weights: NDArray[np.float64] | None = None,
    n_codes: int = 0,
) -> Basis:
    """Return the basis that rows like those of ``sample`` are searched in."""
    return learn_basis(sample, weights, n_codes, rotate=sample.shape[1] > 1)


def arrange(points: NDArray[np.float64], cell_rows: int = CELL_ROWS) -> Arrangement:
    """Return points of shape (n_rows, n_features) ordered into cells of near ones.

    Each region is cut in the middle along the axis on which its points vary most, at a
    multiple of 64, until none has more than ``cell_rows``.
    """
    n_rows, n_features = points.shape
    if n_features <= FLAT_FEATURES:
        cell_rows = min(cell_rows, FLAT_CELL_ROWS)
    order = np.arange(n_rows)
    starts = np.empty(n_rows // LANES + 2, np.int64)
    n_cells = _order_cells(points, max(cell_rows, LANES), order, starts)
    return Arrangement(order, np.append(np.sort(starts[:n_cells]), n_rows), bounded=True)


def tile(points: NDArray[np.float64], tile_rows: int) -> Arrangement:
    """Return queries of shape (n_rows, n_features) in tiles of near ones."""
    return arrange(points, tile_rows)


@compiled
def _order_cells(points, cell_rows, order, starts):  # type: ignore[no-untyped-def]
    """Order the rows and list where cells start, in any order; return their number."""
    values = np.empty(len(order))
    n_cells = 0
    regions = [(0, len(order))]
    while len(regions) > 0:
        start, stop = regions.pop()
        size = stop - start
        if size <= cell_rows:
            if size > 0:
                starts[n_cells] = start
                n_cells += 1
            continue
        axis = _longest_axis(points, order[start:stop])
        for i in range(start, stop):
            values[i] = points[order[i], axis]
            if np.isnan(values[i]):  # a query that is not measured, wherever it goes
                values[i] = np.inf
        middle = max(1, round(size / 2 / LANES)) * LANES
        keep_smallest_pairs(values[start:stop], order[start:stop], size, middle)
        regions.append((start, start + middle))
        regions.append((start + middle, stop))
    return n_cells


@compiled
def _longest_axis(points, rows):  # type: ignore[no-untyped-def]
    """Return the axis along which some of these points vary most."""
    step = max(1, len(rows) // SAMPLE_ROWS)
    longest = 0
    largest = -1.0
    for k in range(points.shape[1]):
        n_values = 0
        total = 0.0
        total_square = 0.0
        first = points[rows[0], k]
        for m in range(0, len(rows), step):
            value = points[rows[m], k] - first
            total += value
            total_square += value * value
            n_values += 1
        variance = total_square - total * total / n_values
        if variance > largest:
            largest = variance
            longest = k
    return longest

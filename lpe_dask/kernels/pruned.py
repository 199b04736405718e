"""Exact pruning: rows are ordered into cells of a kd tree, in the basis of their axes.

A cell whose box is further from a query than its K-th neighbor so far holds nothing of
interest, so most cells are never looked at where the rows have few independent columns.
Boxes are narrow along principal axes, not along the columns that came.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.arrays import LANES
from lpe_dask.kernels.basis import Basis, learn_basis
from lpe_dask.kernels.blocks import Arrangement

#: Whether a reference is divided into regions of near rows before it is cut into blocks.
KEEPS_NEAR_ROWS_TOGETHER = True

#: Whether all cells have their center in the origin, as `pairs` needs it.
SUMS_PAIRS = False

#: Most rows of a cell; of one with up to three features, where a pair costs so little that
#: fewer pairs are worth more boxes.
CELL_ROWS, FLAT_CELL_ROWS, FLAT_FEATURES = 512, 64, 3

#: All rows are arranged together.
SLAB_ROWS = None

#: Rows by which the longest axis of a cell is chosen.
SAMPLE_ROWS = 128

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
    rotate = sample.shape[1] > 1
    return learn_basis(sample, weights, n_codes, rotate=rotate, separates=separates)


def arrange(points: NDArray[np.float64], cell_rows: int = CELL_ROWS) -> Arrangement:
    """Return points of shape (n_rows, n_features) ordered into cells of near ones.

    Each region is cut in the middle along the axis on which its points vary most, at a
    multiple of 64, until none has more than ``cell_rows``, and on within cells, so that
    each group of 64 rows is of near ones as well.
    """
    n_rows, n_features = points.shape
    if n_features <= FLAT_FEATURES:
        cell_rows = min(cell_rows, FLAT_CELL_ROWS)
    if not np.isfinite(points).all():  # a query that is not measured, wherever it goes
        points = np.nan_to_num(points, posinf=0.0, neginf=0.0)
    order, starts = _order_cells(points, max(cell_rows, LANES))
    return Arrangement(order, np.append(np.sort(starts), n_rows), bounded=True)


def tile(points: NDArray[np.float64], tile_rows: int) -> Arrangement:
    """Return queries of shape (n_rows, n_features) in tiles of near ones."""
    return arrange(points, tile_rows)


def _order_cells(
    points: NDArray[np.float64], cell_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of the rows, and where cells start, in any order."""
    order = np.arange(len(points))
    everything = {len(points): np.zeros(min(1, len(points)), np.int64)}
    cells = _divide(points, order, everything, cell_rows)
    _divide(points, order, cells, LANES)
    return order, np.concatenate([order[:0], *cells.values()])


def _divide(
    points: NDArray[np.float64],
    order: NDArray[np.int64],
    regions: dict[int, NDArray[np.int64]],
    most: int,
) -> dict[int, NDArray[np.int64]]:
    """Divide regions until none has more than so many rows; return where the parts start.

    Parameters
    ----------
    points : ndarray of shape (n_rows, n_features)
    order : ndarray of shape (n_rows,)
        Changed within the regions.
    regions : dict from int to ndarray
        Where those of so many rows start. These are cut together: there may be thousands.
    most : int
    """
    open_regions, divided = dict(regions), {}
    while open_regions:
        size = max(open_regions)
        firsts = open_regions.pop(size)
        if size <= most:
            divided[size] = firsts
            continue
        places = firsts[:, None] + np.arange(size)
        rows = order[places]
        sampled = points[rows[:, :: max(1, size // SAMPLE_ROWS)]]
        axes = sampled.var(axis=1).argmax(axis=1)
        middle = max(1, round(size / 2 / LANES)) * LANES
        ranks = np.argpartition(points[rows, axes[:, None]], middle - 1, axis=1)
        order[places] = np.take_along_axis(rows, ranks, axis=1)
        for part, shift in ((middle, 0), (size - middle, middle)):
            known = open_regions.get(part, firsts[:0])
            open_regions[part] = np.concatenate([known, firsts + shift])
    return divided

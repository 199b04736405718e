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
CELL_ROWS, FLAT_CELL_ROWS, FLAT_FEATURES = 1024, 64, 3

#: Most rows of a cell where a block has at least so many rows of at least so many features:
#: there a query is near more than a hundred cells, and to move it to the center of each
#: takes longer than the few more pairs.
LARGE_CELL_ROWS, MANY_ROWS, MANY_FEATURES = 2048, 2**18, 8

#: Numbers of rows that are cut on by themselves, as a copy: it stays in a core's cache.
CUT_NUMBERS = 2**18

#: All rows are arranged together.
SLAB_ROWS = None

#: Rows by which the longest axis of a region is chosen, and of a part of a cell.
SAMPLE_ROWS, CELL_SAMPLE_ROWS = 128, 32

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


def arrange(
    points: NDArray[np.float64], cell_rows: int | None = None, *, grouped: bool = True
) -> Arrangement:
    """Return points of shape (n_rows, n_features) ordered into cells of near ones.

    Each region is cut in the middle along the axis on which its points vary most, at a
    multiple of 64, until none has more than ``cell_rows``; where they are to be grouped, on
    within cells, so that each group of 64 rows is of near ones as well.
    """
    n_rows, n_features = points.shape
    if cell_rows is None:
        is_large = n_rows >= MANY_ROWS and n_features >= MANY_FEATURES
        cell_rows = LARGE_CELL_ROWS if is_large else CELL_ROWS
    cell_rows = max(_most_rows(n_features, cell_rows), LANES)
    if not np.isfinite(points).all():  # a query that is not measured, wherever it goes
        points = np.nan_to_num(points, posinf=0.0, neginf=0.0)
    order, starts = _order_cells(points, cell_rows, LANES if grouped else cell_rows)
    return Arrangement(order, np.append(np.sort(starts), n_rows), bounded=True)


def tile(
    points: NDArray[np.float64], tile_rows: int, *, of_block: bool = False
) -> Arrangement:
    """Return queries of shape (n_rows, n_features) in tiles of near ones.

    ``of_block`` says that they come as `arrange` has ordered them, and so are.
    """
    if not of_block:
        return arrange(points, tile_rows, grouped=False)
    n_rows, n_features = points.shape
    tile_rows = _most_rows(n_features, tile_rows)
    starts = np.append(np.arange(0, n_rows, tile_rows), n_rows)
    return Arrangement(np.arange(n_rows), starts, bounded=True)


def _most_rows(n_features: int, cell_rows: int) -> int:
    """Return the rows of a cell or tile of few features, of which all cells are small."""
    return min(cell_rows, FLAT_CELL_ROWS) if n_features <= FLAT_FEATURES else cell_rows


def _order_cells(
    points: NDArray[np.float64], cell_rows: int, group_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order of the rows, and where cells start, in any order."""
    order = np.arange(len(points))
    starts = [order[:0]]
    everything = {len(points): np.zeros(min(1, len(points)), np.int64)}
    most = max(CUT_NUMBERS // points.shape[1], cell_rows)
    for size, firsts in _divide(points, order, everything, most).items():
        for first in firsts.tolist():
            rows = order[first : first + size].copy()
            own = points if size == len(points) else points[rows]
            places = np.arange(size)
            cells = _divide(own, places, {size: np.zeros(1, np.int64)}, cell_rows)
            _divide(own, places, cells, group_rows, CELL_SAMPLE_ROWS)
            order[first : first + size] = rows[places]
            starts += [first + of_size for of_size in cells.values()]
    return order, np.concatenate(starts)


def _divide(
    points: NDArray[np.float64],
    order: NDArray[np.int64],
    regions: dict[int, NDArray[np.int64]],
    most: int,
    sample_rows: int = SAMPLE_ROWS,
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
    sample_rows : int
        By which the axis is chosen.
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
        sampled = points[rows[:, :: max(1, size // sample_rows)]]
        axes = sampled.var(axis=1).argmax(axis=1)
        middle = max(1, round(size / 2 / LANES)) * LANES
        ranks = np.argpartition(points[rows, axes[:, None]], middle - 1, axis=1)
        order[places] = np.take_along_axis(rows, ranks, axis=1)
        for part, shift in ((middle, 0), (size - middle, middle)):
            known = open_regions.get(part, firsts[:0])
            open_regions[part] = np.concatenate([known, firsts + shift])
    return divided

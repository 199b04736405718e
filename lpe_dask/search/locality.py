"""Divide rows into regions of near ones, by boxes that a sample is cut into.

    sample points --learn_regions--> boxes
    points, boxes --by_nearest_box--> points in the order of their regions

Queries are divided in the same way, by the boxes of blocks.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

#: Boxes that are compared one by one, if there are no more.
LEAST_RUN = 8

#: Where boxes begin and end, both of shape (n_boxes, n_features).
Boxes = tuple[NDArray[np.float64], NDArray[np.float64]]


def learn_regions(points: NDArray[np.float64], n_regions: int) -> Boxes:
    """Return boxes that hold about as many of such points each.

    All space is cut along the axis on which the points vary most, about in proportion and
    between values that differ, again and again. What lies between boxes is in none.

    Parameters
    ----------
    points : ndarray of shape (n_points, n_features)
        A sample, at least one point.
    n_regions : int
        Of fewer different points there are as many.

    Examples
    --------
    >>> lows, highs = learn_regions(np.arange(10.0)[:, None], 2)
    >>> lows.ravel().tolist(), highs.ravel().tolist()
    ([-inf, 5.0], [4.0, inf])
    """
    everywhere = np.full(points.shape[1], np.inf)
    open_parts, boxes = [(points, n_regions, -everywhere, everywhere)], []
    while open_parts:
        part, n_below, low, high = open_parts.pop()
        axis = int(np.argmax(part.var(axis=0)))
        order = np.argsort(part[:, axis])
        column = part[order, axis]
        # Boxes that share a value would give all its rows to the first of them.
        cuts = np.flatnonzero(np.diff(column)) + 1
        if n_below == 1 or len(cuts) == 0:
            boxes.append((low, high))
            continue
        cut = cuts[np.argmin(np.abs(cuts - len(part) * (n_below // 2) / n_below))]
        n_left = min(n_below - 1, max(1, round(n_below * cut / len(part))))
        left_high, right_low = high.copy(), low.copy()
        left_high[axis], right_low[axis] = column[cut - 1 : cut + 1]
        open_parts.append((part[order[cut:]], n_below - n_left, right_low, high))
        open_parts.append((part[order[:cut]], n_left, low, left_high))
    lows, highs = map(np.array, zip(*boxes, strict=True))
    return lows, highs


def by_nearest_box(
    points: NDArray[np.float64], boxes: Boxes
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order that sorts points by their nearest box, and where each box begins.

    Of boxes that are as near it is the first: equal points come to the same one. Boxes that
    follow each other are mostly near each other, so a point is compared with boxes around
    runs of them first, and with those of few runs: of n about ``sqrt(n)`` a few times.

    Parameters
    ----------
    points : ndarray of shape (n_points, n_features)
        Finite.
    boxes : tuple of ndarray

    Returns
    -------
    order : ndarray of shape (n_points,)
    starts : ndarray of shape (n_boxes + 1,)
    """
    lows, highs = boxes
    n_boxes = len(lows)
    edges = _runs_apart(lows, highs)
    firsts, runs = edges[:-1], list(pairwise(edges))
    around = np.minimum.reduceat(lows, firsts), np.maximum.reduceat(highs, firsts)
    best, nearest = np.full(len(points), np.inf), np.zeros(len(points), np.int64)

    def look(rows: NDArray[np.int64], run: tuple[int, int]) -> None:
        """Compare some points with the boxes of a run."""
        own, square, number = points[rows], best[rows], nearest[rows]
        for i in range(*run):
            of_box = _squares_to(own, lows[i], highs[i])
            is_nearer = (of_box < square) | ((of_box == square) & (i < number))
            square[is_nearer], number[is_nearer] = of_box[is_nearer], i
        best[rows], nearest[rows] = square, number

    home, to_home = np.zeros(len(points), np.int64), np.full(len(points), np.inf)
    for i, around_run in enumerate(zip(*around, strict=True)):
        gaps = _squares_to(points, *around_run)
        home[gaps < to_home] = i
        np.minimum(to_home, gaps, out=to_home)
    for i, run in enumerate(runs):
        look(np.flatnonzero(home == i), run)
    for i, around_run in enumerate(zip(*around, strict=True)):
        may_be_nearer = _squares_to(points, *around_run) <= best
        look(np.flatnonzero(may_be_nearer & (home != i)), runs[i])
    nearest = nearest.astype(np.min_scalar_type(n_boxes))  # small ones sort fast
    order = np.argsort(nearest, kind="stable")
    return order, np.searchsorted(nearest[order], np.arange(n_boxes + 1))


def _runs_apart(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> list[int]:
    """Return where runs of about ``sqrt(n)`` boxes begin and end, which overlap little.

    They are cut where an axis parts those before from those after, in the middle if it can
    be; boxes as `learn_regions` gives them can be.
    """
    most = max(LEAST_RUN, math.ceil(math.sqrt(len(lows))))
    edges, waiting = [0], [(0, len(lows))]
    while waiting:
        start, stop = waiting.pop()
        n = stop - start
        if n <= most:
            edges.append(stop)
            continue
        highest = np.maximum.accumulate(highs[start:stop])[:-1]
        lowest = np.minimum.accumulate(lows[start:stop][::-1])[::-1][1:]
        apart = np.minimum((lowest - highest).max(axis=1), 0.0)
        from_middle = np.abs(np.arange(1, n) - n / 2)
        apart[from_middle > n / 4] = -np.inf
        cut = start + 1 + int(np.lexsort((from_middle, -apart))[0])
        waiting += [(cut, stop), (start, cut)]
    return edges


def _squares_to(
    points: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the squared distances from points to a box."""
    gaps = points - np.clip(points, low, high)
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", gaps, gaps)
    return squares

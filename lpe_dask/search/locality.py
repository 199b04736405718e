"""Divide rows into regions of near ones, by boxes that a sample is cut into.

    sample points --learn_regions--> boxes
    points, boxes --by_nearest_box--> points in the order of their regions

Queries are divided in the same way, by the boxes of blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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

    Of boxes that are as near it is the first: equal points come to the same one.

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
    n_boxes = len(boxes[0])
    squares = np.full(len(points), np.inf)
    nearest = np.zeros(len(points), np.min_scalar_type(n_boxes))  # small ones sort fast
    gaps = np.empty_like(points)  # new memory takes longer to get than to fill
    for i, (low, high) in enumerate(zip(*boxes, strict=True)):
        np.clip(points, low, high, out=gaps)
        np.subtract(points, gaps, out=gaps)
        of_box = np.einsum("ij,ij->i", gaps, gaps)
        nearest[of_box < squares] = i
        np.minimum(squares, of_box, out=squares)
    order = np.argsort(nearest, kind="stable")
    return order, np.searchsorted(nearest[order], np.arange(n_boxes + 1))

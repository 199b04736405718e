"""Divide rows into regions of near ones, by boxes that a sample is cut into.

    sample points --learn_regions--> boxes
    points, boxes --by_nearest_box--> points in the order of their regions

Queries are divided in the same way, by the boxes of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Self

import numpy as np
from numpy.typing import NDArray

#: Numbers of points that are compared with boxes at a time: memory for more takes longer
#: to get than these take to compare.
COMPARED_NUMBERS = 2**15

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

    Of boxes that are as near it is the first: equal points come to the same one. A point
    within a box is found by what parts the boxes; others are compared with all of them.

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
    n_boxes, cuts = len(boxes[0]), _Cuts.between(*boxes)
    nearest = np.empty(len(points), np.min_scalar_type(n_boxes))  # small ones sort fast
    outside = [np.empty(0, np.int64)]
    n_compared = max(1, COMPARED_NUMBERS // points.shape[1])
    for start in range(0, len(points), n_compared):
        some = slice(start, start + n_compared)
        nearest[some], is_within = cuts.box_around(points[some], boxes)
        outside.append(start + np.flatnonzero(~is_within))
    left = np.concatenate(outside)
    for start in range(0, len(left), n_compared):
        which = left[start : start + n_compared]
        nearest[which] = _nearest_of_all(points[which], boxes)
    order = np.argsort(nearest, kind="stable")
    return order, np.searchsorted(nearest[order], np.arange(n_boxes + 1))


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Cuts between boxes that follow each other, in a tree; no box reaches across one.

    Attributes
    ----------
    axes, values : ndarray of shape (n_nodes,)
        A point with a larger number on that axis is on the second side. Where nothing is
        cut, none is.
    sides : ndarray of shape (n_nodes, 2)
        The nodes of both sides; where nothing is cut, the node itself.
    boxes : ndarray of shape (n_nodes, 2)
        The first box of a node, and the first after it.
    depth : int
        Cuts from the root to where nothing is cut, at most.
    """

    axes: NDArray[np.int64]
    values: NDArray[np.float64]
    sides: NDArray[np.int64]
    boxes: NDArray[np.int64]
    depth: int

    @classmethod
    def between(cls, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> Self:
        """Return cuts between boxes, each as near to the middle as can be."""
        axes, values, sides = [0], [math.inf], [(0, 0)]
        boxes, depths = [(0, len(lows))], [0]
        for node in count():
            if node == len(boxes):
                break
            start, stop = boxes[node]
            highest = np.maximum.accumulate(highs[start:stop])[:-1]
            lowest = np.minimum.accumulate(lows[start:stop][::-1])[::-1][1:]
            are_apart = lowest > highest
            cuts = np.flatnonzero(are_apart.any(axis=1))
            if len(cuts) == 0:
                continue
            cut = cuts[np.abs(cuts + 1 - (stop - start) / 2).argmin()]
            axes[node] = int(are_apart[cut].argmax())
            values[node] = highest[cut, axes[node]]
            sides[node] = len(boxes), len(boxes) + 1
            for side in ((start, start + int(cut) + 1), (start + int(cut) + 1, stop)):
                sides.append((len(boxes), len(boxes)))
                boxes.append(side)
                axes.append(0)
                values.append(math.inf)
                depths.append(depths[node] + 1)
        return cls(
            np.array(axes), np.array(values), np.array(sides), np.array(boxes), max(depths)
        )

    def box_around(
        self, points: NDArray[np.float64], boxes: Boxes
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the box that each point may be in, and whether it is in no other one."""
        rows, nodes = np.arange(len(points)), np.zeros(len(points), np.int64)
        for _ in range(self.depth):
            is_second = points[rows, self.axes[nodes]] > self.values[nodes]
            nodes = self.sides[nodes, is_second.astype(np.int64)]
        around, stops = self.boxes[nodes].T
        squares = _squares_to(points, *(corner[around] for corner in boxes))
        return around, (squares == 0.0) & (stops - around == 1)


def _nearest_of_all(points: NDArray[np.float64], boxes: Boxes) -> NDArray[np.int64]:
    """Return the number of the nearest box of each point."""
    best, nearest = np.full(len(points), np.inf), np.zeros(len(points), np.int64)
    for i, box in enumerate(zip(*boxes, strict=True)):
        squares = _squares_to(points, *box)
        nearest[squares < best] = i
        np.minimum(best, squares, out=best)
    return nearest


def _squares_to(
    points: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the squared distances from points to a box, or each to its own."""
    gaps = np.maximum(np.maximum(low - points, points - high), 0.0)
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", gaps, gaps)
    return squares

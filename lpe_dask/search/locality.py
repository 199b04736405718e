"""Divide rows into regions of near ones, by boxes that a sample is cut into.

    sample points --learn_regions--> boxes
    points, boxes --by_box--> points in the order of their regions

Queries are divided in the same way, by the boxes of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Self

import numpy as np
from numpy.typing import NDArray

#: Points that are compared with cuts at a time: they stay in a core's cache.
COMPARED_POINTS = 4096

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


def by_box(
    points: NDArray[np.float64], boxes: Boxes
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order that sorts points by boxes near them, and where each box begins.

    Cuts part the boxes, again and again, and a point comes to the one on its side of all
    cuts: to that which it is in, if no box reaches across a cut. Equal points come to the
    same one.

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
    own = np.empty(len(points), np.min_scalar_type(n_boxes))  # small ones sort fast
    for start in range(0, len(points), COMPARED_POINTS):
        some = slice(start, start + COMPARED_POINTS)
        own[some] = cuts.box_of(points[some])
    order = np.argsort(own, kind="stable")
    return order, np.searchsorted(own[order], np.arange(n_boxes + 1))


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Cuts between boxes that follow each other, in a tree.

    Attributes
    ----------
    axes, values : ndarray of shape (n_nodes,)
        A point with a larger number on that axis is on the second side; none is at a leaf.
    sides : ndarray of shape (n_nodes, 2)
        The nodes of both sides; at a leaf, the node itself.
    boxes : ndarray of shape (n_nodes,)
        The first box of a node, which is the only one of a leaf.
    depth : int
        Cuts from the root to a leaf, at most.
    """

    axes: NDArray[np.int64]
    values: NDArray[np.float64]
    sides: NDArray[np.int64]
    boxes: NDArray[np.int64]
    depth: int

    @classmethod
    def between(cls, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> Self:
        """Return cuts between boxes, which reach across them as little as can be."""
        axes, values, sides = [0], [math.inf], [(0, 0)]
        parts, depths = [(0, len(lows))], [0]
        for node in count():
            if node == len(parts):
                break
            start, stop = parts[node]
            if stop - start == 1:
                continue
            n_first, axes[node], values[node] = _cut(lows[start:stop], highs[start:stop])
            sides[node] = len(parts), len(parts) + 1
            for part in ((start, start + n_first), (start + n_first, stop)):
                sides.append((len(parts), len(parts)))
                parts.append(part)
                axes.append(0)
                values.append(math.inf)
                depths.append(depths[node] + 1)
        return cls(
            np.array(axes), np.array(values), np.array(sides), np.array(parts)[:, 0],
            max(depths),
        )  # fmt: skip

    def box_of(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the box on whose side of all cuts each point is."""
        rows, nodes = np.arange(len(points)), np.zeros(len(points), np.int64)
        for _ in range(self.depth):
            is_second = points[rows, self.axes[nodes]] > self.values[nodes]
            nodes = self.sides[nodes, is_second.astype(np.int64)]
        return self.boxes[nodes]


def _cut(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> tuple[int, int, float]:
    """Return how many boxes come before the best cut, its axis and its value.

    Of cuts that no box reaches across it is the one nearest to the middle; if there is
    none, of those not far from the middle the one that boxes reach across the least.
    """
    n_boxes = len(lows)
    highest = np.maximum.accumulate(highs)[:-1]
    lowest = np.minimum.accumulate(lows[::-1])[::-1][1:]
    apart = lowest - highest
    axes = apart.argmax(axis=1)
    apart = np.take_along_axis(apart, axes[:, None], axis=1)[:, 0]
    from_middle = np.abs(np.arange(1, n_boxes) - n_boxes / 2)
    is_far = (apart <= 0) & (from_middle > max(1.0, n_boxes / 4))
    rank = np.where(is_far, -np.inf, np.minimum(apart, 0.0))
    rank[apart > 0] = np.inf
    cut = int(np.lexsort((from_middle, -rank))[0])
    axis = int(axes[cut])
    # Above all that is before, or amid what is on both sides.
    value = highest[cut, axis]
    if apart[cut] <= 0:
        value = value / 2 + lowest[cut, axis] / 2
    return cut + 1, axis, float(value)

"""Divide rows into regions of near ones: a kd split, learned from a sample.

    sample points --learn_split--> Split --regions--> the region of each point

A threshold that many equal points share puts all of them on one side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Split:
    """A kd tree whose leaves are the regions.

    Attributes
    ----------
    axes : tuple of int
        Of each node; -1 for a leaf.
    thresholds : tuple of float
        A point is on the left of a node if its coordinate is below this.
    children : tuple of int
        The left child of each node, the right one follows it; the region of a leaf.
    """

    axes: tuple[int, ...]
    thresholds: tuple[float, ...]
    children: tuple[int, ...]

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        return sum(axis < 0 for axis in self.axes)

    def regions(self, points: NDArray[np.float64]) -> NDArray[np.integer]:
        """Return the number of the region of each point, as whole numbers (n_points,).

        They are of the smallest type that holds them, which NumPy sorts fastest.

        Parameters
        ----------
        points : ndarray of shape (n_points, n_features)
            Finite.
        """
        regions = np.zeros(len(points), np.min_scalar_type(self.n_regions))
        open_nodes = [(0, np.arange(len(points)))]
        while open_nodes:
            node, rows = open_nodes.pop()
            child = self.children[node]
            if self.axes[node] < 0:
                regions[rows] = child
                continue
            is_left = points[rows, self.axes[node]] < self.thresholds[node]
            open_nodes += [(child, rows[is_left]), (child + 1, rows[~is_left])]
        return regions

    def sorted(
        self, points: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the order that sorts points by region, and where each region starts."""
        regions = self.regions(points)
        order = np.argsort(regions, kind="stable")
        return order, np.searchsorted(regions[order], np.arange(self.n_regions + 1))


def learn_split(points: NDArray[np.float64], n_regions: int) -> Split:
    """Return a split into regions that hold about as many of such points each.

    Cut in proportion along the axis on which the points vary most, again and again.

    Parameters
    ----------
    points : ndarray of shape (n_points, n_features)
        A sample, at least one point.
    n_regions : int

    Examples
    --------
    >>> split = learn_split(np.arange(10.0)[:, None], 2)
    >>> split.regions(np.array([[0.0], [4.0], [7.0]])).tolist()
    [0, 0, 1]
    """
    axes, thresholds, children = [-1], [0.0], [0]
    open_nodes = [(0, np.arange(len(points)), n_regions)]
    next_region = 0
    while open_nodes:
        node, rows, n_below = open_nodes.pop()
        if n_below == 1 or len(rows) < 2:
            children[node] = next_region
            next_region += 1
            continue
        axis = int(np.argmax(points[rows].var(axis=0)))
        n_left = n_below // 2
        cut = min(len(rows) - 1, max(1, round(len(rows) * n_left / n_below)))
        threshold = float(np.partition(points[rows, axis], cut)[cut])
        axes[node], thresholds[node], children[node] = axis, threshold, len(axes)
        axes += [-1, -1]
        thresholds += [0.0, 0.0]
        children += [0, 0]
        is_left = points[rows, axis] < threshold
        open_nodes.append((children[node] + 1, rows[~is_left], n_below - n_left))
        open_nodes.append((children[node], rows[is_left], n_left))
    return Split(tuple(axes), tuple(thresholds), tuple(children))

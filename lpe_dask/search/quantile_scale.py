r"""Take numbers to about the share of nominal rows below them: a line through knots.

    knots       v_0 < ... < v_m     values of nominal rows, the least and the largest too
    heights     y_j = G(v_j)        share below, and half of the share that is equal
    number x    y_j + (y_j+1 - y_j) ((x - v_j) / (v_j+1 - v_j))    from v_j to v_j+1
                y_end + (x - v_end) / (v_m - v_0)                  beyond an end

A share does not grow beyond the ends, and anomalies there would look nominal. So numbers
are there as far from the end as they are away, in units of the range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lpe_dask.json_arrays import Floats, Wholes


@dataclass(frozen=True, slots=True)
class QuantileKnots:
    """The knots of each column.

    Attributes
    ----------
    values : tuple of ndarray of shape (n_knots,)
        Of each column, ascending, finite, no two equal; the first and the last are the
        least and the largest of all nominal rows. A constant column has one.
    ranks : tuple of ndarray of shape (n_knots,)
        How many of the sampled rows are less than the knot, and how many at most as large,
        added: whole numbers up to twice ``n_sampled``.
    n_sampled : int
        Nominal rows of which the shares are.
    """

    values: tuple[Floats, ...]
    ranks: tuple[Wholes, ...]
    n_sampled: int

    def __sizeof__(self) -> int:
        """Return about the bytes of the arrays."""
        return sum(column.nbytes for column in (*self.values, *self.ranks))

    def apply(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return rows of shape (n_rows, n_features) as their heights, of the same shape.

        Monotone in each column, and finite for finite numbers; NaN and inf stay. Numbers of
        a constant column go to their difference from it.
        """
        heights = np.empty(rows.shape)
        for k, (values, ranks) in enumerate(zip(self.values, self.ranks, strict=True)):
            column = rows[:, k].astype(np.float64)
            if len(values) == 1:
                with np.errstate(over="ignore"):
                    heights[:, k] = kept_finite(column - values[0], column)
            else:
                heights[:, k] = _heights(column, values, ranks / (2 * self.n_sampled))
        return heights


def _heights(
    column: NDArray[np.float64], values: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the heights of numbers: the order of the arithmetic is part of the result."""
    n_below = np.searchsorted(values, column, side="right")  # NaN is beyond the last
    j = np.clip(n_below - 1, 0, len(values) - 2)
    with np.errstate(over="ignore", invalid="ignore"):
        heights = column - values[j]
        heights /= np.diff(values)[j]
        heights *= np.diff(shares)[j]
        heights += shares[j]
        # Rounding may lead above the next knot.
        np.minimum(heights, shares[j + 1], out=heights)
        for end, exceeds_float64 in ((0, n_below == 0), (-1, n_below == len(values))):
            beyond = column[exceeds_float64]
            steps = (beyond - values[end]) / (values[-1] - values[0])
            heights[exceeds_float64] = kept_finite(shares[end] + steps, beyond)
    return heights


def kept_finite(
    heights: NDArray[np.float64], column: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return heights, those of finite numbers that overflow as the largest float64."""
    largest = np.finfo(np.float64).max
    return np.where(np.isfinite(column), np.clip(heights, -largest, largest), heights)

"""The lines of quantile scales of many groups: `QuantileKnots` of each, in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ranks_in_runs
from lpe_dask.search.quantile_scale import QuantileKnots, kept_finite


@dataclass(frozen=True, slots=True, eq=False)
class GroupKnots:
    """The knots of quantile scales of groups, one after another.

    Attributes
    ----------
    values : ndarray of shape (n_knots,)
    ranks : ndarray of shape (n_knots,)
        As in `QuantileKnots`, of the columns of the first group, then of the next.
    starts : ndarray of shape (n_groups * n_columns + 1,)
        Where the knots of a column begin.
    n_sampled : ndarray of shape (n_groups,)
        Rows of which the shares are; 0 where nothing was learned.
    """

    values: NDArray[np.float64]
    ranks: NDArray[np.int64]
    starts: NDArray[np.int64]
    n_sampled: NDArray[np.int64]

    @classmethod
    def stack(cls, knots: Sequence[QuantileKnots | None]) -> Self:
        """Return the knots of groups; None: nothing was learned of this one."""
        n_columns = next(len(of.values) for of in knots if of is not None)
        empty = [np.empty(0)] * n_columns
        values = [v for of in knots for v in (empty if of is None else of.values)]
        ranks = [r for of in knots for r in (empty if of is None else of.ranks)]
        starts = np.append(0, np.cumsum(list(map(len, values))))
        n_sampled = np.array([0 if of is None else of.n_sampled for of in knots])
        every = np.concatenate(ranks).astype(np.int64)
        return cls(np.concatenate(values), every, starts, n_sampled)

    @property
    def n_columns(self) -> int:
        """Of each group."""
        return (len(self.starts) - 1) // len(self.n_sampled)

    def without(self, n_groups: int) -> GroupKnots:
        """Return those of so many groups of which nothing was learned."""
        starts = np.zeros(n_groups * self.n_columns + 1, np.int64)
        return GroupKnots(self.values[:0], self.ranks[:0], starts, starts[:n_groups])

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the knots of the groups of all parts."""
        before = np.cumsum([0, *(len(part.values) for part in parts)])
        starts = [part.starts[:-1] + n for part, n in zip(parts, before, strict=False)]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.ranks for part in parts]),
            np.append(np.concatenate(starts), before[-1]),
            np.concatenate([part.n_sampled for part in parts]),
        )

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return sum(getattr(self, of.name).nbytes for of in fields(self))

    def of(self, group: int) -> QuantileKnots:
        """Return the knots of a group."""
        first, n = group * self.n_columns, self.n_columns
        parts = [slice(a, b) for a, b in pairwise(self.starts[first : first + n + 1])]
        return QuantileKnots(
            tuple(self.values[part] for part in parts),
            tuple(self.ranks[part] for part in parts), int(self.n_sampled[group]),
        )  # fmt: skip

    def apply(
        self, numbers: NDArray[np.generic], codes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return `QuantileKnots.apply` of each row, by its group."""
        heights = np.zeros(numbers.shape)
        for k in range(self.n_columns):
            run = codes * self.n_columns + k
            first, stop = self.starts[run], self.starts[run + 1]
            for is_one, function in ((True, self._from_one), (False, self._heights)):
                which = np.flatnonzero((stop - first == 1) == is_one)
                which = which[stop[which] > first[which]]
                column = numbers[which, k].astype(np.float64)
                given = column, first[which], stop[which], codes[which]
                heights[which, k] = function(*given)
        return heights

    def _from_one(
        self, column: NDArray[np.float64], first: NDArray[np.int64], *_: Any
    ) -> NDArray[np.float64]:
        """Return numbers of constant columns."""
        with np.errstate(over="ignore"):
            return kept_finite(column - self.values[first], column)

    def _heights(
        self,
        column: NDArray[np.float64],
        first: NDArray[np.int64],
        stop: NDArray[np.int64],
        codes: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return heights of numbers, by the arithmetic of `quantile_scale`."""
        if len(column) == 0:
            return column
        values, n_twice = self.values, 2 * self.n_sampled[codes]

        def share(place: NDArray[np.int64]) -> NDArray[np.float64]:
            return self.ranks[place] / n_twice

        n_below = ranks_in_runs(values, first, stop, column, "right")
        j = first + np.clip(n_below - 1, 0, stop - first - 2)
        last = stop - 1
        with np.errstate(over="ignore", invalid="ignore"):
            heights = column - values[j]
            heights /= values[j + 1] - values[j]
            heights *= share(j + 1) - share(j)
            heights += share(j)
            np.minimum(heights, share(j + 1), out=heights)
            for end, is_beyond in ((first, n_below == 0), (last, n_below == stop - first)):
                steps = (column - values[end]) / (values[last] - values[first])
                beyond = kept_finite(share(end) + steps, column)
                heights = np.where(is_beyond, beyond, heights)
        return heights

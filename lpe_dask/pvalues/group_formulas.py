"""Turn statistics into p-values against those of the calibration rows of their groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ranks_in_runs
from lpe_dask.pvalues.density import LikelihoodRatio


@dataclass(frozen=True, slots=True, eq=False)
class GroupStatistics:
    """The statistics of the calibration rows of each group, one group after the other.

    Attributes
    ----------
    values : ndarray of shape (m,)
        Ascending within each group.
    starts : ndarray of shape (n_groups + 1,)
        The values of group ``g`` are those from ``starts[g]`` to ``starts[g + 1]``.
    """

    values: NDArray[np.float64]
    starts: NDArray[np.int64]

    @classmethod
    def of(
        cls, values: NDArray[np.float64], codes: NDArray[np.integer], n_groups: int
    ) -> Self:
        """Return the statistics of rows of these groups, in any order."""
        if n_groups == 1:
            return cls(np.sort(values), np.array([0, len(values)]))
        sizes = np.bincount(codes, minlength=n_groups)
        return cls(values[np.lexsort((values, codes))], np.append(0, np.cumsum(sizes)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many calibration rows each group has."""
        return np.diff(self.starts)

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return self.values.nbytes + self.starts.nbytes

    def p_values(
        self,
        statistic: NDArray[np.float64],
        codes: NDArray[np.floating],
        is_own: NDArray[np.bool_] | None = None,
        *,
        graph: str = "knn",
        includes_self: int = 0,
    ) -> NDArray[np.float64]:
        """Return the p-values of rows, each against the calibration rows of its group.

        Parameters
        ----------
        statistic, is_own, graph, includes_self
            As for `formulas.p_values`, which it is for each group.
        codes : ndarray of shape (n_queries,)
            Of the groups of the rows; NaN or below 0 where there is none.

        Returns
        -------
        p_values : ndarray of shape (n_queries,)
            NaN for rows without a statistic, or whose group has no calibration rows.

        Examples
        --------
        >>> known = GroupStatistics.of(np.array([3.0, 1.0, 9.0]), np.array([0, 0, 2]), 3)
        >>> known.p_values(np.array([2.0, 2.0, 2.0]), np.array([0.0, 1.0, 2.0]))
        array([0.5, nan, 1. ])
        """
        found = np.full(len(statistic), np.nan)
        is_measured = ~np.isnan(statistic) & (codes >= 0)
        order = np.flatnonzero(is_measured)
        of_rows = codes[order].astype(np.int64)
        sizes = self.sizes[of_rows]
        order, of_rows, sizes = (of[sizes > 0] for of in (order, of_rows, sizes))
        side: Literal["left", "right"] = "left" if graph == "knn" else "right"
        ranks = self._ranks(statistic[order], of_rows, side)
        counts = sizes - ranks if graph == "knn" else ranks
        if includes_self:
            counts = counts + (1 if is_own is None else ~is_own[order])
        found[order] = counts / (sizes + includes_self)
        return found

    def _ranks(
        self,
        statistic: NDArray[np.float64],
        codes: NDArray[np.int64],
        side: Literal["left", "right"],
    ) -> NDArray[np.int64]:
        """Return where statistics would be in the values of their groups, from 0."""
        if len(self.starts) == 2:
            return np.searchsorted(self.values, statistic, side)
        edges = self.starts[codes], self.starts[codes + 1]
        return ranks_in_runs(self.values, *edges, statistic, side)


@dataclass(frozen=True, slots=True, eq=False)
class GroupWeight:
    """Makes p-values of rows with the numbers of their groups, and their statistic.

    Attributes
    ----------
    known : GroupStatistics
    graph, includes_self
        As for `formulas.p_values`.
    weight : LikelihoodRatio, optional
        How the statistic is weighed before it is compared; of rows with groups.
    """

    known: GroupStatistics
    graph: str
    includes_self: int
    weight: LikelihoodRatio | None = None

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        return self.known.__sizeof__()

    def __call__(
        self,
        rows: NDArray[np.generic],
        statistic: NDArray[np.float64],
        is_own: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Return the p-values, of shape (n_rows,); the last column has the numbers."""
        compared = statistic
        if self.weight is not None:
            compared = self.weight(rows, statistic)
        return self.p_values(compared, rows[:, -1].astype(np.float64), is_own)

    def p_values(
        self,
        compared: NDArray[np.float64],
        codes: NDArray[np.float64],
        is_own: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Return the p-values of rows of these groups; see `GroupStatistics.p_values`."""
        return self.known.p_values(
            compared, codes, is_own, graph=self.graph, includes_self=self.includes_self
        )

r"""Count p-values in bins, so that the counts of partitions and of runs add up.

    p-value --> j, how many calibration rows are at least as anomalous
    j   0 .. flag | .. edges[0] | .. edges[1] | ... | .. m
        flagged   | tail        | bulk bins: rows that are not anomalous

Edges are ranks that occur among the calibration rows, so equal values share a bin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model import flagged_places
from lpe_dask.pvalues import Calibration, checked_p_values
from lpe_dask.storage import SortedVector

#: About the p-values up to which the bins go that follow the first one.
_UPPER = (
    0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98,
)  # fmt: skip

#: The bulk begins above this, and above so many times alpha.
_MIN_BULK, _ALPHAS = 0.1, 2

#: The most bulk bins.
MAX_BULK: int = 1 + len(_UPPER)

#: Numbers before those of the bulk bins: rows, rows_nan, flagged, tail.
N_TOTALS = 4


@dataclass(frozen=True, slots=True)
class BinCounts:
    """How many of some rows are where.

    Attributes
    ----------
    rows, rows_nan : int
        All, and those without a p-value.
    flagged, tail : int
        Those with p <= alpha, and all that are in no bulk bin.
    bulk : ndarray of shape (n_bulk,)
        Those in each bulk bin.
    """

    rows: int
    rows_nan: int
    flagged: int
    tail: int
    bulk: NDArray[np.int64]

    @classmethod
    def of(cls, numbers: Any) -> BinCounts:
        """Return the counts of `PValueBins.count`, or of a sum of them."""
        rows, rows_nan, flagged, tail = map(int, numbers[:N_TOTALS])
        bulk = np.asarray(numbers[N_TOTALS:], np.int64)
        return cls(rows, rows_nan, flagged, tail, bulk)

    @property
    def measured(self) -> int:
        """Rows with a p-value."""
        return self.rows - self.rows_nan


@dataclass(frozen=True, slots=True)
class PValueBins:
    """Bins of j, how many calibration rows are at least as anomalous as a row.

    The p-value is ``(j + includes_self) / (n_calibration + includes_self)``.

    Attributes
    ----------
    n_calibration : int
        m.
    includes_self : {0, 1}
    alpha : float
    flag : int
        The largest j with a p-value of at most alpha; -1 if there is none.
    above : int
        Calibration rows whose own j is at most that: fewer where others equal them.
    edges : tuple of int
        The largest j of the tail, and of each bulk bin; the last is m.
    """

    n_calibration: int
    includes_self: int
    alpha: float
    flag: int
    above: int
    edges: tuple[int, ...]

    @classmethod
    def of(cls, ranks: NDArray[np.integer], alpha: float, includes_self: int) -> PValueBins:
        """Return the bins for a calibration.

        Parameters
        ----------
        ranks : ndarray of shape (m,)
            The j of each calibration row: how many are at least as anomalous, with itself.
        alpha : float
            Level of flagged rows.
        includes_self : {0, 1}

        Examples
        --------
        >>> PValueBins.of(np.arange(1, 101), 0.05, 0).edges[:3]
        (10, 12, 15)
        """
        return cls._of_occurring(len(ranks), np.unique(ranks), alpha, includes_self)

    @classmethod
    def _of_occurring(
        cls, m: int, occurring: NDArray[np.integer], alpha: float, includes_self: int
    ) -> PValueBins:
        """Return the same by those j that occur, ascending, each once."""
        flag = int(flagged_places(alpha, m, includes_self=bool(includes_self))) - 1
        above = int(max(occurring[occurring <= flag], default=0))
        edges: list[int] = []
        for nearest in _nearest(m, occurring, alpha):
            if not edges or nearest > edges[-1]:
                edges.append(nearest)
        return cls(m, includes_self, alpha, flag, above, (*edges, m))

    @classmethod
    def of_calibration(cls, calibration: Calibration, alpha: float) -> PValueBins:
        """Return the bins of the p-values of a calibration, to test them for drift."""
        includes_self, values = calibration.includes_self, calibration.values
        if isinstance(values, SortedVector):
            m = len(values)
            flag = int(flagged_places(alpha, m, includes_self=bool(includes_self))) - 1
            telling: set[int] = set()  # no others are edges, or the next one to the flag
            for occurring in _occurring(values, calibration.graph):
                telling.update(_nearest(m, occurring, alpha))
                telling.update(occurring[occurring <= flag][-1:].tolist())
            return cls._of_occurring(
                m, np.array(sorted(telling), np.int64), alpha, includes_self
            )
        p_values = calibration.function()(values, values)
        ranks = np.rint(p_values * (len(p_values) + includes_self)).astype(np.int64)
        return cls.of(ranks - includes_self, alpha, includes_self)

    @property
    def widths(self) -> NDArray[np.int64]:
        """Calibration rows of each bulk bin, of shape (n_bulk,)."""
        return np.diff(self.edges)

    def count(self, p_values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of a `BinCounts`, which add up over any parts of the rows.

        Parameters
        ----------
        p_values : ndarray of shape (n,)
            Of this calibration; NaN for rows without one.

        Returns
        -------
        numbers : ndarray of shape (4 + n_bulk,)

        Raises
        ------
        ValueError
            For numbers that are no p-values, or not one for each row.

        Examples
        --------
        >>> bins = PValueBins.of(np.arange(1, 11), 0.1, 0)
        >>> bins.count(np.array([0.0, 0.1, 0.5, 1.0, np.nan]))
        array([5, 1, 2, 2, 0, 0, 1, 0, 0, 0, 0, 1])
        """
        p_values = checked_p_values(p_values)
        known = p_values[~np.isnan(p_values)]
        n_places = self.n_calibration + self.includes_self
        ranks = np.rint(known * n_places).astype(np.int64) - self.includes_self
        which = np.searchsorted(self.edges, ranks)
        in_bins = np.bincount(which, minlength=len(self.edges))
        n_nan, n_flagged = len(p_values) - len(known), (ranks <= self.flag).sum()
        return np.concatenate([[len(p_values), n_nan, n_flagged], in_bins]).astype(np.int64)

    def histogram(self, numbers: NDArray[np.int64]) -> dict[str, list[Any]]:
        """Return the counts beside what the calibration promises, as values of JSON.

        Parameters
        ----------
        numbers : ndarray of shape (4 + n_bulk,)
            As `count` gives them.

        Returns
        -------
        histogram : dict
            Lists of equal length: "upper", the largest p-value of each bin; "promised",
            the share of nominal rows there; "rows". The first bin is that of the flagged
            rows, if a row can be flagged.
        """
        counts, m = BinCounts.of(numbers), self.n_calibration
        ends = np.array([self.flag, *self.edges])
        # m calibration rows cut new rows into m + 1 gaps with equal chances.
        gaps = np.diff([-1, self.above if self.flag >= 0 else -1, *self.edges])
        rows = [counts.flagged, counts.tail - counts.flagged, *counts.bulk.tolist()]
        first = 0 if self.flag >= 0 else 1
        upper = (ends + self.includes_self) / (m + self.includes_self)
        return {
            "upper": upper[first:].tolist(),
            "promised": (gaps / (m + 1))[first:].tolist(),
            "rows": rows[first:],
        }


def _nearest(m: int, occurring: NDArray[np.integer], alpha: float) -> list[int]:
    """Return for each edge that bins should have which j comes nearest; none if none."""
    least = max(_MIN_BULK, _ALPHAS * alpha)
    inner = occurring[(occurring >= least * m) & (occurring < m)]
    if len(inner) == 0:
        return []
    targets = (least, *(p for p in _UPPER if p > least))
    return [int(inner[np.argmin(np.abs(inner - target * m))]) for target in targets]


def _occurring(values: SortedVector, graph: str) -> Iterator[NDArray[np.int64]]:
    """Yield those j that occur, of one file of calibration values after another.

    Of each file ascending; of equal values in several files once.
    """
    before, afterwards = np.nan, [*values.firsts[1:].tolist(), np.nan]
    for start, after, part in zip(
        values.starts[:-1].tolist(), afterwards, values.each_file(), strict=True
    ):
        if graph == "knn":  # all from the first of equal values on
            is_first = part != np.append(before, part[:-1])
            yield len(values) - start - np.flatnonzero(is_first)[::-1]
        else:
            is_last = part != np.append(part[1:], after)
            yield start + np.flatnonzero(is_last) + 1
        before = part[-1]

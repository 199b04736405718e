"""Bounds at a false-alarm level, and decisions at a false discovery rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask.storage import SortedVector


def check_level(name: str, level: Any) -> None:
    """Raise ValueError if ``level``, the argument ``name``, is not a number in (0, 1)."""
    is_number = isinstance(level, Real) and not isinstance(level, bool)
    if not is_number or not 0 < level < 1:
        raise ValueError(
            f"{name}={level!r} must be a number between 0 and 1, both excluded."
        )


def checked_p_values(values: Any) -> NDArray[np.float64]:
    """Return p-values as float64, if each row has one, or NaN; else raise ValueError."""
    p_values = np.asarray(values, np.float64)
    known = p_values[~np.isnan(p_values)]
    if p_values.ndim != 1 or not ((known >= 0) & (known <= 1)).all():
        raise ValueError(
            f"p-values of shape {p_values.shape} from {known.min(initial=np.inf):g} to "
            f"{known.max(initial=-np.inf):g} were given, but they are between 0 and 1, or "
            f"NaN, and one for each row. Give those of model.score_samples."
        )
    return p_values


def nominal_bound(
    graph: str,
    calibration: NDArray[np.float64] | SortedVector,
    needed: int,
) -> float:
    """Return the statistic up to which, or from which on, a row is nominal.

    Parameters
    ----------
    graph : {"knn", "radius"}
        For "knn" a row is nominal if its distance is at most the bound; for "radius" if its
        count is at least that.
    calibration : ndarray or SortedVector of shape (n_reference,)
        The statistics of the nominal rows, ascending.
    needed : int
        How many of these are at least as anomalous as a nominal row, at least; see
        `formulas.needed_count`.

    Returns
    -------
    bound : float
        ``inf`` for "knn", or 0 for "radius", if every row is nominal.

    Examples
    --------
    >>> calibration = np.array([1.0, 2.0, 2.0, 3.0])
    >>> nominal_bound("knn", calibration, 2), nominal_bound("radius", calibration, 2)
    (2.0, 2.0)
    """
    if needed == 0:
        return math.inf if graph == "knn" else 0.0
    place = len(calibration) - needed if graph == "knn" else needed - 1
    return float(calibration[place])


# False discovery control: the decision on each row depends on the p-values of all rows.


class Histogram(NamedTuple):
    """How often each p-value occurs.

    Attributes
    ----------
    values : ndarray of shape (n_values,)
        The p-values without NaN, ascending, each once.
    counts : ndarray of int64 of shape (n_values,)
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]


def histogram_of(p_values: NDArray[np.number]) -> Histogram:
    """Return the histogram of some p-values, compared as float64; NaN does not count."""
    numbers = np.asarray(p_values, np.float64)
    values, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    return Histogram(values, counts.astype(np.int64, copy=False))


def merge_histograms(parts: Sequence[Histogram]) -> Histogram:
    """Return the histogram of all p-values in ``parts``, whose values may be unsorted.

    Counts are added as whole numbers, so parts may be merged by a tree of any shape.

    Examples
    --------
    >>> some, others = histogram_of(np.array([0.5, 0.0])), histogram_of(np.array([0.5]))
    >>> merge_histograms([some, others])
    Histogram(values=array([0. , 0.5]), counts=array([1, 2]))
    """
    values, places = np.unique(
        np.concatenate([part.values for part in parts]), return_inverse=True
    )
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, places, np.concatenate([part.counts for part in parts]))
    return Histogram(values, counts)


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """The adjusted p-value of Benjamini and Hochberg, as a step function of the p-value.

    Attributes
    ----------
    p_values : ndarray of shape (n_steps,)
        The largest p-value of each step, ascending.
    adjusted : ndarray of shape (n_steps,)
        What all p-values of a step become, ascending, each once.
    """

    p_values: NDArray[np.float64]
    adjusted: NDArray[np.float64]

    @classmethod
    def of(cls, histogram: Histogram) -> Adjustment:
        r"""Return the adjusted p-values for the false discovery rate.

        Of m p-values, of which c(u) are at most u, v becomes

        .. math:: \min \{u \cdot (m / c(u)) : u \ge v\}

        It is computed in float64 and in this order, as by
        `scipy.stats.false_discovery_control`. Of equal p-values the last decides, as its
        rank is the highest.

        Parameters
        ----------
        histogram : Histogram
            Of all p-values.

        Examples
        --------
        >>> Adjustment.of(histogram_of(np.array([0.02, 0.5, 0.03, 0.5])))
        Adjustment(p_values=array([0.03, 0.5 ]), adjusted=array([0.06, 0.5 ]))
        """
        values, counts = histogram
        scaled = values * (counts.sum() / np.cumsum(counts))
        adjusted = np.minimum.accumulate(scaled[::-1])[::-1]
        is_last = np.diff(adjusted, append=math.inf) > 0
        return cls(values[is_last], adjusted[is_last])

    def __sizeof__(self) -> int:
        """Return the bytes of the steps."""
        return self.p_values.nbytes + self.adjusted.nbytes

    def q_values(self, p_values: NDArray[np.number]) -> NDArray[np.float64]:
        """Return the adjusted p-values of some of the p-values; NaN for NaN.

        Parameters
        ----------
        p_values : ndarray of shape (n,)
            Among those of the histogram.

        Returns
        -------
        q_values : ndarray of shape (n,)
        """
        numbers = np.asarray(p_values, np.float64)
        steps = np.searchsorted(self.p_values, numbers)  # NaN comes after all others
        return np.append(self.adjusted, math.nan)[steps]

    def cut_off(self, q: float) -> float:
        """Return the largest p-value that is flagged at the false discovery rate ``q``.

        Parameters
        ----------
        q : float
            In (0, 1).

        Returns
        -------
        cut_off : float
            The largest p-value that becomes at most ``q``; NaN if there is none: no p-value
            is at most NaN.

        Examples
        --------
        >>> p_values = np.array([0.01, 0.5, 0.04, 0.9])
        >>> Adjustment.of(histogram_of(p_values)).cut_off(q=0.1)
        0.04
        """
        n_reached = int(np.searchsorted(self.adjusted, q, side="right"))
        return float(self.p_values[n_reached - 1]) if n_reached else math.nan


def discoveries(p_values: NDArray[np.number], cut_off: float) -> NDArray[np.bool_]:
    """Return whether each p-value, as float64, is at most ``cut_off``; False for NaN."""
    return np.asarray(p_values, np.float64) <= cut_off


def fdr_caveat(
    q: float,
    n_rows: int,
    n_flagged: int,
    n_calibration: int | NDArray[np.int64],
    *,
    includes_self: int,
) -> str | None:
    """Return the reason why a false discovery rate does not hold, or flags nothing.

    Where a row does not count itself, a nominal one has p = 0 with probability
    1 / (m + 1), and 0 is flagged for every q. Of N rows, R of them flagged, about
    (N - R) / (m + 1) are such rows, in addition to the share q (1 - R / N) that q allows.
    Where a row counts itself, no p-value is below 1 / (m + 1), so N / (q (m + 1)) rows must
    have this p-value for one to be flagged. Of groups, the largest has the smallest
    p-values; and of N rows each is taken to have as many as of the calibration rows.

    Parameters
    ----------
    q : float
    n_rows, n_flagged : int
        N, the rows that have a p-value, and R.
    n_calibration : int or ndarray of shape (n_groups,)
        m, at least 1; of each group, where rows are compared with those of theirs.
    includes_self : {0, 1}
        1 for the conformal form.

    Returns
    -------
    doubt : str, optional
        None where the sum is at most 1.1 q or nothing was flagged; in the conformal form
        where a row was flagged, or a single row could be.
    """
    enough, sizes = math.ceil(n_rows / q), np.atleast_1d(n_calibration)
    most, in_group = int(sizes.max()), " of a group" if len(sizes) > 1 else ""
    if includes_self:
        needed = math.ceil(n_rows / (q * (most + 1)))
        if n_flagged or needed <= 1:
            return None
        return (
            f"fdr={q:g} flags nothing: with {most} calibration rows{in_group} the smallest "
            f"p-value is {1 / (most + 1):.3g}, which at least {needed} of the {n_rows} "
            f"rows must have for one to be flagged. To flag k rows it takes about {enough} "
            f"/ k calibration rows{in_group}: give more nominal rows, or decide by alpha."
        )
    shares = sizes / sizes.sum()
    n_zeros = float(((n_rows - n_flagged) * shares / (sizes + 1)).sum())
    if not n_flagged or n_zeros <= n_flagged * q * (0.1 + n_flagged / n_rows):
        return None
    one_in = f"one in {most + 1}"
    if in_group:
        one_in = "one in m + 1, in a group of m calibration rows"
    return (
        f"fdr={q:g} does not hold: about {n_zeros:.3g} of the {n_rows} rows have p = 0 "
        f"although they are nominal ({one_in}), and such are flagged whatever fdr is; "
        f"{n_flagged} are flagged in all. Use calibration='conformal', which keeps the "
        f"rate; to flag k rows it takes about {enough} / k calibration rows{in_group}."
    )

r"""The groups of a model that are tested for drift, each in bins of its own.

    the largest groups, their calibration rows --WatchedGroups.of--> bins of each
    p-values and groups of rows --GroupBins.count--> rows of each group in each bin

The rows of a group are counted by how they rank among the calibration rows of this group
alone, whatever else p-values compare with: of m of these, m + 1 gaps have equal chances.
So what is expected of a group does not depend on which others there are in a run. Where
p-values compare with all nominal rows, ranks in the group follow from the p-values:

    p-value --> j, how many calibration rows of all groups are at least as anomalous
            --> how many of these are of the group
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model import flagged_places
from lpe_dask.monitoring.bins import MAX_BULK, PValueBins
from lpe_dask.pvalues import Calibration

if TYPE_CHECKING:
    from lpe_dask.model import Fitted

#: The most groups that are watched.
MAX_WATCHED = 1000

#: Characters of a value of a group in its name.
MAX_CHARACTERS = 60

#: Numbers of a group: flagged rows, the others of the tail, and those of each bulk bin.
N_GROUP_BINS: int = 2 + MAX_BULK

#: Above all p-values.
_END = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class GroupBins:
    """The bins in which p-values of watched groups are counted.

    Attributes
    ----------
    codes : ndarray of shape (n_watched,)
        The numbers of these groups, ascending.
    limits : ndarray of shape (n_watched, N_GROUP_BINS)
        Above the largest p-value of each bin; ``inf`` for the last one of a group, and for
        those that it does not have.
    """

    codes: NDArray[np.int64]
    limits: NDArray[np.float64]

    @property
    def n_bulk(self) -> NDArray[np.int64]:
        """Bulk bins that each group has, of shape (n_watched,)."""
        return np.isfinite(self.limits[:, 1:]).sum(axis=1)

    def count(
        self, p_values: NDArray[np.float64], codes: NDArray[np.floating | np.integer]
    ) -> NDArray[np.int64]:
        """Return the rows of each group in each bin, which add up over any parts.

        Parameters
        ----------
        p_values : ndarray of shape (n_rows,)
            NaN for rows without one, which are not counted.
        codes : ndarray of shape (n_rows,)
            Of the groups of the rows; NaN or below 0 for none.

        Returns
        -------
        counts : ndarray of shape (n_watched, N_GROUP_BINS)
        """
        n_watched = len(self.codes)
        places = np.searchsorted(self.codes, codes)
        is_counted = ~np.isnan(p_values) & (places < n_watched)
        is_counted[is_counted] = self.codes[places[is_counted]] == codes[is_counted]
        # The p-values of group i lie from i to i + 1/2, so that all are looked up at once.
        firsts = np.arange(n_watched)[:, None]
        limits = (firsts + self.limits.clip(max=_END) / 2).ravel()
        values = places[is_counted] + p_values[is_counted] / 2
        counts = np.bincount(np.searchsorted(limits, values), minlength=limits.size)
        return counts.reshape(n_watched, N_GROUP_BINS)


@dataclass(frozen=True, slots=True, eq=False)
class WatchedGroups:
    """The groups of a model that are tested for drift: the largest ones.

    Attributes
    ----------
    bins : GroupBins
    names : list of str
        What they are called.
    n_groups : int
        All groups of the model.
    widths : ndarray of shape (n_watched, N_GROUP_BINS)
        Calibration rows of each group in each bin.
    is_exact : bool
        Whether calibration rows are measured as new ones are, so that runs can be tested
        against them. Otherwise against the first rows of each group.
    """

    bins: GroupBins
    names: list[str]
    n_groups: int
    widths: NDArray[np.int64]
    is_exact: bool

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.names)

    @property
    def identifier(self) -> str:
        """A hash of the groups and their bins: 16 hexadecimal digits."""
        arrays = (self.bins.codes, self.bins.limits, self.widths)
        content = hashlib.sha256(b"".join(np.ascontiguousarray(a).data for a in arrays))
        return content.hexdigest()[:16]

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        codes: NDArray[np.integer] | None,
        sizes: NDArray[np.integer],
        names: Callable[[NDArray[np.int64]], list[str]],
        alpha: float,
        most: int = MAX_WATCHED,
    ) -> WatchedGroups:
        """Return the largest groups by their nominal rows.

        Parameters
        ----------
        calibration : Calibration
        codes : ndarray of shape (m,), optional
            Where groups have no calibration of their own, the group of each calibration
            row, in the order of the values. None: they have, or that is not known.
        sizes : ndarray of shape (n_groups,)
            Nominal rows of each group; 0 for groups that have no p-values.
        names : callable
            Gives the names of an array of numbers of groups, as a list.
        alpha : float
            Level of flagged rows.
        most : int
            How many at most.
        """
        order = np.argsort(-sizes, kind="stable")[:most]
        watched = np.sort(order[sizes[order] > 0]).astype(np.int64)
        is_known = calibration.groups is not None or codes is not None
        found = [
            _bins_of(own, among, calibration, alpha)
            for own, among in _calibration_rows(calibration, codes, watched)
        ]
        found *= 1 if is_known else len(watched)  # all have the bins of all rows
        limits = np.array([of for of, _ in found]).reshape(-1, N_GROUP_BINS)
        widths = np.array([of for _, of in found], np.int64).reshape(-1, N_GROUP_BINS)
        return cls(
            GroupBins(watched, limits), names(watched), len(sizes), widths * is_known,
            is_known and bool(calibration.includes_self),
        )  # fmt: skip

    @classmethod
    def of_model(
        cls, model: Fitted, alpha: float, private: Collection[str] = ()
    ) -> WatchedGroups | None:
        """Return the watched groups of a model; None if rows are not divided.

        Parameters
        ----------
        model : Fitted
        alpha : float
        private : collection of str
            Columns whose values are not shown: groups are then called by their numbers.
        """
        groups, categories = model.groups, model.categories
        if groups is None or categories is None or categories.groups is None:
            return None
        values, by = categories.groups.values, list(map(str, model.by))

        def names(codes: NDArray[np.int64]) -> list[str]:
            if not {*by}.isdisjoint(private):
                return [f"group {code}" for code in codes]
            rows = values.iloc[codes].itertuples(index=False)
            return [
                ", ".join(f"{n}={_shown(v)}" for n, v in zip(by, row, strict=True))
                for row in rows
            ]

        sizes = np.where(groups.small.value, 0, groups.n_rows)
        codes = groups.calibration_codes
        return cls.of(model.calibration, codes, sizes, names, alpha)


def _shown(value: Any) -> str:
    """Return a value of a group as text that fits into sentences and files."""
    text = str(value).encode(errors="replace").decode()
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[: MAX_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _calibration_rows(
    calibration: Calibration,
    codes: NDArray[np.integer] | None,
    watched: NDArray[np.int64],
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield the calibration values of each group, and those that p-values compare with.

    Once for all groups, where it is not known which values are of which group.
    """
    values = np.asarray(calibration.values)
    if calibration.groups is not None:
        known = calibration.groups.value.known
        for code in watched.tolist():
            own = known.values[known.starts[code] : known.starts[code + 1]]
            yield own, own
    elif codes is None:
        yield values, values
    else:
        order = np.argsort(codes, kind="stable")
        ends = [np.searchsorted(codes[order], watched, side) for side in ("left", "right")]
        for start, stop in zip(*ends, strict=True):
            yield values[order[start:stop]], values


def _bins_of(
    own: NDArray[np.float64],
    among: NDArray[np.float64],
    calibration: Calibration,
    alpha: float,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return limits of p-values and calibration rows of the bins of a group.

    Parameters
    ----------
    own : ndarray of shape (m,)
        Values of its calibration rows.
    among : ndarray of shape (n,)
        Ascending, those that p-values compare with.
    calibration : Calibration
    alpha : float
    """
    n, itself = len(among), calibration.includes_self
    # How many values are at least as anomalous as each of the group, with itself.
    if calibration.graph == "knn":
        ranks = np.sort(n - np.searchsorted(among, own, "left"))
    else:
        ranks = np.sort(np.searchsorted(among, own, "right"))
    flag = int(flagged_places(alpha, n, includes_self=bool(itself))) - 1
    above = int(np.searchsorted(ranks, flag, "right"))
    # Where groups share a calibration, more of some are flagged than of others.
    level = max(alpha, above / len(own))
    edges = PValueBins.of(np.searchsorted(ranks, ranks, "right"), level, itself).edges
    # A row has so many rows of the group before it as are in a bin, up to the next one.
    largest = np.array([flag, *(ranks[edge] - 1 for edge in edges[:-1])])
    limits, widths = np.full(N_GROUP_BINS, np.inf), np.zeros(N_GROUP_BINS, np.int64)
    limits[: len(largest)] = (largest + itself + 0.5) / (n + itself)
    widths[: len(edges) + 1] = np.diff([0, above, *edges])
    return limits, widths

"""Statistics of the rows of a part: counts, and which rows are the most anomalous.

Both are in the metadata of the part, so that a run that resumes need not read its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.batch.group_counts import GroupCounts
from lpe_dask.batch.watched_counts import WatchedCounts
from lpe_dask.monitoring import GroupBins, PValueBins

#: The most anomalous rows of an output that its summary explains.
N_EXPLAINED = 50

#: Of rows that are scored against each other, whose model is not saved: those of the list
#: for a person to confirm, beside the reasons in the summary.
N_EXPLAINED_NOMINAL = 200

#: The columns of the most anomalous rows.
_TOP_TYPES = {
    "part": int, "place": int, "p_value": float, "statistic": float, "is_flagged": bool,
    "row": int,
}  # fmt: skip

#: Counts over all rows of a part.
_COUNTS = ("rows", "rows_nan", "flagged")

#: Attributes of `PartStats` that are arrays of counts.
_COUNTED = ("bins", "missing", "unseen", "statuses")


def top_anomalies(
    rows: pd.DataFrame, graph: str, n_rows: int = N_EXPLAINED
) -> pd.DataFrame:
    """Return the most anomalous rows first, by p-value, statistic and place.

    Parameters
    ----------
    rows : DataFrame
        Columns part and place, the numbers of the part and of the row in it; p_value,
        statistic and is_flagged. Rows without a p-value are not anomalous.
    graph : {"knn", "radius"}
        Whether a large or a small statistic is anomalous.
    n_rows : int
        How many rows.
    """
    first = rows["p_value"].dropna().nsmallest(n_rows, keep="all")  # with all equal to it
    by, is_ascending = ["p_value", "statistic", "part", "place"], [True] * 4
    is_ascending[1] = graph == "radius"
    ordered = rows.loc[first.index].sort_values(by, ascending=is_ascending)
    return ordered[:n_rows].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class PartStats:
    """Statistics of the rows of a part, or of several.

    Attributes
    ----------
    counts : dict
        "rows", "rows_nan" and "flagged".
    bins : ndarray of shape (n_counts,)
        As `PValueBins.count` gives them.
    missing, unseen : ndarray of shape (n_columns,)
        How many values of each measured column are missing, and how many no nominal row
        has; empty where rows are the nominal ones.
    statuses : ndarray of shape (n_statuses,)
        How many rows have each of `RowStatus.NAMES`.
    top : DataFrame
        As `top_anomalies` gives them, of rows that are written; ``row`` is the place in
        the file of the part, where ``place`` is that in the input.
    groups : GroupCounts, optional
        Where rows are divided into groups, and only until a part is written: its metadata
        has them then, and `PartFolder.group_counts` adds them up.
    watched : WatchedCounts, optional
        Where groups are tested for drift.
    """

    counts: dict[str, int]
    bins: NDArray[np.int64]
    missing: NDArray[np.int64]
    unseen: NDArray[np.int64]
    statuses: NDArray[np.int64]
    top: pd.DataFrame
    groups: GroupCounts | None = None
    watched: WatchedCounts | None = None

    @classmethod
    def of(
        cls,
        bins: PValueBins,
        graph: str,
        part: int,
        p_values: NDArray[np.float64],
        statistic: NDArray[np.float64],
        is_flagged: NDArray[np.bool_],
        values: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
        codes: NDArray[np.integer] | None = None,
        *,
        watched: GroupBins | None = None,
        only_flagged: bool = False,
        n_top: int = N_EXPLAINED,
    ) -> PartStats:
        """Return the statistics of the rows of a part.

        Parameters
        ----------
        bins : PValueBins
            In which p-values are counted.
        graph : {"knn", "radius"}
            Of the model.
        part : int
            Number of the part.
        p_values, statistic, is_flagged : ndarray of shape (n_rows,)
        values : tuple of ndarray
            ``missing``, ``unseen`` and ``statuses``.
        codes : ndarray of shape (n_rows,), optional
            Of the groups of the rows, below 0 where there is none. None: rows are not
            divided into groups.
        watched : GroupBins, optional
            In which p-values of groups are counted to test these for drift.
        only_flagged : bool, default=False
            Whether only flagged rows, and those without a p-value, are written.
        n_top : int
            How many of the most anomalous rows.
        """
        counts = {
            "rows": len(p_values),
            "rows_nan": int(np.isnan(p_values).sum()),
            "flagged": int(is_flagged.sum()),
        }
        places = np.arange(len(p_values))
        rows = np.cumsum(is_flagged | np.isnan(p_values)) - 1 if only_flagged else places
        of_rows = (part, places, p_values, statistic, is_flagged, rows)
        written = pd.DataFrame(dict(zip(_TOP_TYPES, of_rows, strict=True)))
        top = top_anomalies(written[is_flagged] if only_flagged else written, graph, n_top)
        groups = None
        if codes is not None:
            groups = GroupCounts.of(codes, p_values, is_flagged, bins.alpha)
        of_watched = None
        if codes is not None and watched is not None:
            of_watched = WatchedCounts.of(watched.count(p_values, codes))
        return cls(counts, bins.count(p_values), *values, top, groups, of_watched)

    @classmethod
    def merge(
        cls, some: Sequence[PartStats], graph: str, n_top: int = N_EXPLAINED
    ) -> PartStats:
        """Return the statistics of all rows of some parts, at least one, but for groups."""
        counts = {name: sum(of.counts[name] for of in some) for name in some[0].counts}
        arrays = {n: np.sum([getattr(of, n) for of in some], axis=0) for n in _COUNTED}
        rows = pd.concat([of.top for of in some], ignore_index=True)
        of_watched = [of.watched for of in some if of.watched is not None]
        watched = WatchedCounts.merge(of_watched) if of_watched else None
        top = top_anomalies(rows, graph, n_top)
        return cls(counts, **arrays, top=top, watched=watched)

    def without_groups(self) -> PartStats:
        """Return these without what is large where there are many groups."""
        return replace(self, groups=None)

    def as_json(self) -> dict[str, Any]:
        """Return this as values of JSON, for the metadata of a part."""
        arrays = {name: getattr(self, name).tolist() for name in _COUNTED}
        groups = None if self.groups is None else self.groups.as_json()
        watched = None if self.watched is None else self.watched.as_json()
        more = {"top": self.top.to_dict("list"), "groups": groups, "watched": watched}
        return {"counts": self.counts, **arrays, **more}

    @classmethod
    def from_json(cls, content: Any) -> PartStats:
        """Return the object of `as_json`, by the keys that are known; or raise."""
        counts = {name: int(content["counts"][name]) for name in _COUNTS}
        arrays = {name: np.array(content[name], np.int64) for name in _COUNTED}
        top = pd.DataFrame({name: content["top"][name] for name in _TOP_TYPES})
        known = content.get("groups")
        groups = None if known is None else GroupCounts.from_json(known)
        known = content.get("watched")
        watched = None if known is None else WatchedCounts.from_json(known)
        top = top.astype(_TOP_TYPES)
        return cls(counts, **arrays, top=top, groups=groups, watched=watched)

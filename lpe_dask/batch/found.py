"""What a run has found in a part: counts of its rows, and which are the most anomalous.

Both are in the metadata of the part, so that a run that resumes need not read its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.pvalues import PValueBins

#: The most anomalous rows of an output that its summary gives reasons for.
MOST_EXPLAINED = 50


@dataclass(frozen=True, slots=True)
class Extremes:
    """The most anomalous rows of some parts, the most anomalous one first.

    Attributes
    ----------
    parts, places : ndarray of shape (n,)
        Number of the part, and of the row in it.
    p_values, statistic : ndarray of shape (n,)
    """

    parts: NDArray[np.int64]
    places: NDArray[np.int64]
    p_values: NDArray[np.float64]
    statistic: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        p_values: NDArray[np.float64],
        statistic: NDArray[np.float64],
        graph: str,
        number: int,
        most: int = MOST_EXPLAINED,
    ) -> Extremes:
        """Return the most anomalous rows of a part; those without a p-value are none.

        Parameters
        ----------
        p_values, statistic : ndarray of shape (n_rows,)
        graph : {"knn", "radius"}
            Whether a large or a small statistic is anomalous.
        number : int
            Of the part.
        most : int
            How many rows.
        """
        measured = np.flatnonzero(~np.isnan(p_values))
        if len(measured) > most:  # many may be equal to the last one
            bound = np.partition(p_values[measured], most - 1)[most - 1]
            measured = measured[p_values[measured] <= bound]
        found = cls(
            np.full(len(measured), number), measured, p_values[measured],
            statistic[measured],
        )  # fmt: skip
        return found.first(graph, most)

    def first(self, graph: str, most: int = MOST_EXPLAINED) -> Extremes:
        """Return the most anomalous of these, by p-value, statistic and place."""
        sign = -1 if graph == "knn" else 1
        order = np.lexsort((self.places, self.parts, sign * self.statistic, self.p_values))
        return Extremes(*(values[order[:most]] for values in self.columns()))

    @classmethod
    def joined(
        cls, some: Iterable[Extremes], graph: str, most: int = MOST_EXPLAINED
    ) -> Extremes:
        """Return the most anomalous rows of all."""
        columns = zip(*(each.columns() for each in some), strict=True)
        return cls(*map(np.concatenate, columns)).first(graph, most)

    def columns(self) -> tuple[NDArray[Any], ...]:
        """Return the attributes in their order."""
        return self.parts, self.places, self.p_values, self.statistic


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a part, or in several.

    Attributes
    ----------
    counts : dict
        "rows", "rows_nan" and "flagged".
    bins : ndarray of shape (n_counts,)
        As `PValueBins.count` gives them.
    extremes : Extremes
    missing, unseen : ndarray of shape (n_columns,)
        How many values of each measured column are missing, and how many no nominal row
        has; empty where rows are the nominal ones.
    """

    counts: dict[str, int]
    bins: NDArray[np.int64]
    extremes: Extremes
    missing: NDArray[np.int64]
    unseen: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        p_values: NDArray[np.float64],
        statistic: NDArray[np.float64],
        is_flagged: NDArray[np.bool_],
        bins: PValueBins,
        graph: str,
        number: int,
        values: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> Found:
        """Return what is found in the rows of a part; parameters as for `Extremes.of`.

        ``values`` are those that are missing, and unseen, in each column.
        """
        counts = {
            "rows": len(p_values),
            "rows_nan": int(np.isnan(p_values).sum()),
            "flagged": int(is_flagged.sum()),
        }
        extremes = Extremes.of(p_values, statistic, graph, number)
        return cls(counts, bins.count(p_values), extremes, *values)

    @classmethod
    def joined(cls, some: Sequence[Found], graph: str) -> Found:
        """Return what was found in all of some parts, at least one."""
        counts = {
            name: sum(of_part.counts[name] for of_part in some) for name in some[0].counts
        }
        bins = np.sum([of_part.bins for of_part in some], axis=0)
        extremes = Extremes.joined((of_part.extremes for of_part in some), graph)
        missing, unseen = (
            np.array([getattr(of_part, name) for of_part in some]).sum(axis=0)
            for name in ("missing", "unseen")
        )
        return cls(counts, bins, extremes, missing, unseen)

    def as_json(self) -> dict[str, Any]:
        """Return this as values of JSON, for the metadata of a part."""
        _, *columns = (values.tolist() for values in self.extremes.columns())
        return {
            "counts": self.counts,
            "bins": self.bins.tolist(),
            "most_anomalous": columns,
            "missing": self.missing.tolist(),
            "unseen": self.unseen.tolist(),
        }

    @classmethod
    def from_json(cls, content: Any, number: int) -> Found:
        """Return what `as_json` has converted; raises for anything else."""
        places, p_values, statistic = content["most_anomalous"]
        extremes = Extremes(
            np.full(len(places), number), np.array(places, np.int64),
            np.array(p_values, np.float64), np.array(statistic, np.float64),
        )  # fmt: skip
        counts = {name: int(n) for name, n in content["counts"].items()}
        others = (np.array(content[name], np.int64) for name in ("missing", "unseen"))
        return cls(counts, np.array(content["bins"], np.int64), extremes, *others)

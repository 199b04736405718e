"""Turn statistics into p-values, by those of the calibration rows.

    statistic, rows --weight--> what is compared --calibration--> p-values

Changing the parameters of a model after its fit does not change its calibration.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.pvalues import decisions
from lpe_dask.pvalues.density import LikelihoodRatio
from lpe_dask.pvalues.formulas import needed_count, p_values
from lpe_dask.pvalues.group_formulas import GroupStatistics, GroupWeight
from lpe_dask.storage import SortedVector
from lpe_dask.tables import map_blocks, map_values
from lpe_dask.tasks import LocalValue


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The values that statistics are compared with to get p-values, and how.

    Attributes
    ----------
    graph : {"knn", "radius"}
    includes_self : {0, 1}
        See `formulas.p_values`.
    weight : LikelihoodRatio, optional
        How the statistic is weighed before it is compared.
    shared : LocalValue
        The values of the calibration rows, of shape (m,): an ascending array, or a
        `SortedVector`, where there are many.
    groups : LocalValue, optional
        Where rows are compared with those of their group: `GroupStatistics` of the same
        values. What is compared is then the p-value itself.
    """

    graph: str
    includes_self: int
    weight: LikelihoodRatio | None
    shared: LocalValue
    groups: LocalValue | None = None

    @classmethod
    def of(
        cls,
        graph: str,
        includes_self: int,
        weight: LikelihoodRatio | None,
        values: NDArray[np.float64] | SortedVector,
    ) -> Calibration:
        """Return the calibration by ascending values."""
        return cls(graph, includes_self, weight, LocalValue(values, "lpe-calibration"))

    @classmethod
    def of_groups(
        cls,
        graph: str,
        includes_self: int,
        weight: LikelihoodRatio | None,
        statistics: GroupStatistics,
    ) -> Calibration:
        """Return the calibration of each group by itself."""
        values = LocalValue(np.sort(statistics.values), "lpe-calibration")
        weighing = GroupWeight(statistics, graph, includes_self, weight)
        shared = LocalValue(weighing, "lpe-group-calibration")
        return cls(graph, includes_self, weight, values, shared)

    @property
    def weigher(self) -> Any:
        """What makes of rows and their statistic what is compared; None: the statistic."""
        return self.weight if self.groups is None else self.groups

    def with_weight(self, weight: LikelihoodRatio) -> Calibration:
        """Return the same calibration of statistics that are weighed."""
        if self.groups is None:
            return replace(self, weight=weight)
        known: GroupStatistics = self.groups.value.known
        return Calibration.of_groups(self.graph, self.includes_self, weight, known)

    def with_values(self, values: NDArray[np.float64] | SortedVector) -> Calibration:
        """Return the same calibration by other ascending values."""
        if values is self.values:
            return self  # what was shared for graphs is not shared again
        return replace(self, shared=LocalValue(values, "lpe-calibration"))

    @property
    def values(self) -> NDArray[np.float64] | SortedVector:
        """The values of the calibration rows, ascending, of shape (m,)."""
        values: NDArray[np.float64] | SortedVector = self.shared.value
        return values

    @property
    def stored_values(self) -> NDArray[np.float64] | SortedVector:
        """The values as a model keeps them: those of one group after the other."""
        if self.groups is None:
            return self.values
        known: GroupStatistics = self.groups.value.known
        return known.values

    @property
    def identifier(self) -> str:
        """A hash of values, ``graph`` and ``includes_self``: 16 hexadecimal digits."""
        content, values = hashlib.sha256(), self.values
        for part in values.each_file() if isinstance(values, SortedVector) else [values]:
            content.update(np.ascontiguousarray(part).data)
        content.update(f"{self.graph} {self.includes_self}".encode())
        return content.hexdigest()[:16]

    def compared(self, rows: da.Array, statistic: da.Array) -> da.Array:
        """Return the values to compare, of rows in the user's units and their statistic."""
        if self.weigher is None:
            return statistic
        return map_blocks(
            [rows, statistic], _weighed, self.weigher, name="weighed", dtype=np.float64
        )

    def p_values(self, compared: Any) -> Any:
        """Return the p-values of new rows, of the kind of ``compared``."""
        if self.groups is not None:
            return map_values(compared, np.asarray, name="p_value", dtype=np.float64)
        function = self.function()
        return map_values(compared, function, self.shared, name="p_value", dtype=np.float64)

    def own_p_values(self, compared: da.Array, is_own: da.Array) -> da.Array:
        """Return the p-values of rows some of which are calibration rows."""
        if self.groups is not None:
            return compared
        function = partial(_own_p_values, function=self.function())
        return map_blocks(
            [compared, is_own], function, self.shared, name="p_value", dtype=np.float64
        )

    def function(self) -> Any:
        """Return `formulas.p_values` with the arguments of this calibration."""
        return partial(p_values, graph=self.graph, includes_self=self.includes_self)

    def least_p_value(self) -> float:
        """Return the p-value of the most anomalous row possible, of any group."""
        is_high = self.graph == "knn"
        most = np.inf if is_high else -np.inf if self.weight is not None else 0.0
        if self.groups is None:
            return float(self.function()(np.array([most]), self.values)[0])
        weighing: GroupWeight = self.groups.value
        groups = np.flatnonzero(weighing.known.sizes)
        compared = np.full(len(groups), most)
        return float(weighing.p_values(compared, groups.astype(np.float64)).min())

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many calibration rows there are: in all, or in each group that has some."""
        if self.groups is None:
            return np.array([len(self.values)])
        sizes: NDArray[np.int64] = self.groups.value.known.sizes
        return sizes[sizes > 0]

    def bound(self, offset: float) -> float:
        """Return the value above which a row's p-value is below ``offset``.

        Of a distance, or of what is compared in its place. ``inf`` where none is.
        """
        needed = needed_count(offset, len(self.values), self.includes_self)
        return decisions.nominal_bound(self.graph, self.values, needed)

    def nominal_bound(self, offset: float) -> float | None:
        """Return the statistic that separates nominal rows from anomalies, or None.

        See `decisions.nominal_bound`.
        """
        bound = self.bound(offset)
        return bound if self.weigher is None and 0 < bound < np.inf else None

    def fdr_caveat(self, q: float, n_rows: int, n_flagged: int) -> str | None:
        """Return why a false discovery rate does not hold; see `decisions.fdr_caveat`."""
        return decisions.fdr_caveat(
            q, n_rows, n_flagged, self.sizes, includes_self=self.includes_self
        )


# The functions below run inside tasks: NumPy in, NumPy out.


def _weighed(
    rows: NDArray[np.generic], statistic: NDArray[np.float64], weight: LikelihoodRatio
) -> NDArray[np.float64]:
    return weight(rows, statistic)


def _own_p_values(
    compared: NDArray[np.float64],
    is_own: NDArray[np.bool_],
    calibration: NDArray[np.float64],
    *,
    function: Any,
) -> NDArray[np.float64]:
    p: NDArray[np.float64] = function(compared, calibration, is_own)
    return p

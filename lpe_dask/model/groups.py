"""What a fit has found about the groups of its rows, as users see it.

GroupPlan, GroupLevels --FittedGroups--> LPE.groups_; which groups are small
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.model.calibration_split import INCLUDES_SELF
from lpe_dask.model.group_plan import GroupPlan
from lpe_dask.model.labels import limits, threshold
from lpe_dask.model.validity import decisive_places
from lpe_dask.tables import Categories
from lpe_dask.tasks import LocalValue


@dataclass(frozen=True, slots=True, eq=False)
class FittedGroups:
    """The groups of nominal rows, by the numbers that `GroupLevels` gives them.

    Attributes
    ----------
    by : list
        The columns that divide rows into groups.
    kind : {"loo", "split", "conformal"}
    own : frozenset of str
        What each group has for itself: of "scale", "neighbors" and "calibration".
    n_rows, n_calibration : ndarray of shape (n_groups,)
        Nominal rows in use, and those whose statistics p-values compare with.
    n_neighbors : ndarray of shape (n_groups,), optional
        K of each group, 0 for small ones, where it has its own.
    radii : ndarray of shape (n_groups,), optional
        Epsilon, NaN for small groups, likewise.
    why_small : ndarray of shape (n_groups,)
        Text; "" for groups that are not small.
    small : LocalValue
        Of an array of shape (n_groups,): which groups are small.
    calibration_codes : ndarray of shape (m,), optional
        Where groups do not have their own calibration, the group of each calibration row,
        in the order of the values. None: they have, or it is not known.
    """

    by: list[Any]
    kind: str
    own: frozenset[str]
    n_rows: NDArray[np.int64]
    n_calibration: NDArray[np.int64]
    n_neighbors: NDArray[np.int64] | None
    radii: NDArray[np.float64] | None
    why_small: NDArray[np.object_]
    small: LocalValue
    calibration_codes: NDArray[np.int32] | None = None

    @classmethod
    def of(
        cls, plan: GroupPlan, graph: str, by: Sequence[Any], compared: NDArray[np.float64]
    ) -> Self:
        """Return the groups of a plan, with what calibration rows are compared by."""
        has_own, codes = "neighbors" in plan.own, None
        if "calibration" not in plan.own:
            codes = plan.measured_codes
            is_known = ~plan.is_small[codes]
            codes = codes[is_known][np.argsort(compared[is_known], kind="stable")]
        return cls(
            list(by), plan.kind, plan.own, plan.n_rows, plan.n_calibration,
            plan.n_neighbors if has_own and graph == "knn" else None,
            plan.radii if has_own and graph == "radius" else None,
            plan.why_small, LocalValue(plan.is_small, "lpe-small-groups"), codes,
        )  # fmt: skip

    def flagged_places(
        self, alpha: float, confidence: float | None = None
    ) -> NDArray[np.int64]:
        """Return k of each group: so many of the m + 1 places of its rows are flagged."""
        includes_self = bool(INCLUDES_SELF[self.kind])
        return decisive_places(
            alpha, self.n_calibration, confidence, includes_self=includes_self
        )

    def limits(self, alpha: float, confidence: float | None) -> NDArray[np.float64]:
        """Return below which p-value a row of each group is flagged."""
        if confidence is None:
            return np.full(len(self.n_rows), threshold(alpha))
        return limits(self.flagged_places(alpha, confidence), self.n_calibration)

    def n_reference(self) -> NDArray[np.int64]:
        """Return among how many rows new ones are measured; 0 for small groups.

        Of shape (n_groups,), for groups that have their own neighbors.
        """
        left_out: NDArray[np.int64] = {
            "loo": 0 * self.n_rows,
            "split": (self.n_rows + 1) // 2,
            "conformal": self.n_calibration,
        }[self.kind]
        return np.where(self.small.value, 0, self.n_rows - left_out)

    def measures_all(self) -> bool:
        """Return whether all rows of groups that are not small are calibration rows."""
        is_all = (self.n_calibration == self.n_rows) | self.small.value
        return self.kind == "loo" and bool(is_all.all())

    def table(
        self,
        values: pd.DataFrame,
        names: Sequence[Any],
        alpha: float,
        confidence: float | None,
        n_neighbors: int | None,
        radius: float | None,
    ) -> pd.DataFrame:
        """Return the attribute ``LPE.groups_``.

        Parameters
        ----------
        values : DataFrame of shape (n_groups, n_columns)
            Of the groups, in the columns that divide rows.
        names : sequence
            Of these columns.
        alpha, confidence : float
            The level that decides, and how sure it is for each group; None: on average.
        n_neighbors, radius
            Of all groups together, where these do not have their own.
        """
        promised = pd.array([pd.NA] * len(values), "Float64")
        places = self.flagged_places(alpha, confidence)
        if "calibration" in self.own:
            rates = places / (self.n_calibration + 1)
            promised = pd.arrays.FloatingArray(rates, self.small.value.copy())
        columns = {
            "nominal_rows": self.n_rows,
            "calibration_rows": self.n_calibration,
            "n_neighbors": self._known(self.n_neighbors, n_neighbors, "Int64"),
            "radius": self._known(self.radii, radius, "Float64"),
            "calibration": self.kind,
            "flagged_places": self._known(
                places if "calibration" in self.own else None, None, "Int64"
            ),
            "offset": self.limits(alpha, confidence),
            "largest_false_alarm_rate": promised,
            "why_small": self.why_small,
        }
        keys = values.set_axis(pd.Index(list(names), tupleize_cols=False), axis=1)
        return pd.concat([keys, pd.DataFrame(columns)], axis=1)

    def _known(self, of_groups: Any, of_all: Any, dtype: Any) -> pd.Series:
        """Return what groups have, missing for small ones, or what they have together."""
        if of_groups is None:
            return pd.Series([of_all] * len(self.n_rows), dtype=dtype)
        return pd.Series(of_groups, dtype=dtype).mask(self.small.value)


def refuse_unknown_groups(
    categories: Categories | None, small_groups: str
) -> Categories | None:
    """Return categories whose groups refuse rows of others, if that is asked for."""
    if categories is None or categories.groups is None or small_groups != "error":
        return categories
    return replace(categories, groups=replace(categories.groups, refuses_unknown=True))

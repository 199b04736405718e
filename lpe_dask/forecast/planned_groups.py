"""What a forecast makes of groups, whose sizes it knows from some partitions.

    rows of groups in some partitions --in proportion--> sizes --> K, rows to compare with

Groups that are in no partition that was read are not known, so those that are stand for all
of them: too large ones where each partition has its own groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model import FitPlan, least_group
from lpe_dask.search import Preparation


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGroups:
    """The groups of nominal rows, before they are counted.

    Attributes
    ----------
    parameters : dict
        The arguments of `LPE`.
    shares : ndarray of shape (n_groups,)
        Share of the nominal rows that each group has.
    """

    parameters: Mapping[str, Any]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, parameters: Mapping[str, Any], sizes: NDArray[np.int64]) -> Self:
        """Return groups of these sizes in some partitions."""
        return cls(parameters, sizes / sizes.sum())

    @property
    def are_searched_apart(self) -> bool:
        """Whether rows are compared with those of their group only."""
        return "neighbors" in self.parameters["own"]

    @property
    def share(self) -> float:
        """The share of all rows that a row is compared with, on average at most."""
        return float((self.shares**2).sum()) if self.are_searched_apart else 1.0

    @property
    def algorithm(self) -> str:
        """How neighbors are searched: as a fit settles it."""
        algorithm = str(self.parameters["algorithm"])
        is_settled = algorithm == "auto" and self.are_searched_apart
        return "pruned" if is_settled else algorithm

    def plan(self, n_rows: int, n_features: int, n_categorical: int) -> FitPlan:
        """Return the plan of a fit of so many rows; parameters as for `FitPlan.of`.

        How rows are divided is that of a model without groups; K is that of the largest
        group.
        """
        sizes = np.maximum(1, np.round(self.shares * n_rows)).astype(np.int64)
        largest = int(sizes.max())
        given = n_features, n_categorical
        parameters = {**self.parameters, "by": None}
        if parameters["calibration"] == "auto":
            is_scaled = "scale" in self.parameters["own"]
            n_learned = least_group(sizes, parameters["alpha"]) if is_scaled else n_rows
            kind = FitPlan.of(parameters, max(2, n_learned), *given).division.kind
            parameters["calibration"] = kind
        whole = FitPlan.of(parameters, n_rows, *given)
        if not self.are_searched_apart:
            return whole
        statistic = FitPlan.of(parameters, max(2, largest), *given).statistic
        return replace(whole, statistic=statistic)

    def prepared(self, preparation: Preparation, n_features: int) -> Preparation:
        """Return the preparation of rows that have the numbers of groups, too."""
        codes = (*preparation.categorical, n_features)
        return replace(preparation, categorical=codes, weights=None)

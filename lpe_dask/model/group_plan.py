"""Plan the groups of a fit: how the rows of each are divided, its K, and which are small.

    group of each row, arguments --GroupPlan.of--> rows to search, rows to measure; K, m

A group is planned as a model of its rows alone would be; groups of equal size are planned
at once. Whole numbers only, but for radii.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.calibration_split import (
    CalibrationSplit,
    GroupedSplit,
    split_calibration,
)
from lpe_dask.model.lpe_parameters import neighbors_by_rule, radius_by_rule
from lpe_dask.model.validity import confident_places, rows_for_confidence

#: Why a group is small.
TOO_FEW = "too few calibration rows for alpha"
NO_NEIGHBOR = "no K-th neighbor"
NOT_DIVIDED = "too few rows to divide"


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """The groups of nominal rows, and how each is divided.

    Attributes
    ----------
    kind : {"loo", "split", "conformal"}
    own : frozenset of str
        What each group has for itself: of "scale", "neighbors" and "calibration".
    codes : ndarray of shape (n_rows,)
        Of the group of each row.
    n_rows, n_calibration, n_reference : ndarray of shape (n_groups,)
        Rows of each group, those that are measured, and those that new ones are measured
        among.
    n_neighbors : ndarray of shape (n_groups,)
        K; 0 for a small group, and where counts within a radius are asked for.
    radii : ndarray of shape (n_groups,)
        Epsilon; NaN for a small group, and where distances are asked for.
    why_small : ndarray of shape (n_groups,)
        Text; "" for groups that are not small.
    calibration, calibration_pool, reference : ndarray, optional
        Numbers of rows, ascending, as those of `CalibrationSplit`, also of small groups,
        but for ``calibration`` where that is not None.
    """

    kind: str
    own: frozenset[str]
    codes: NDArray[np.int32]
    n_rows: NDArray[np.int64]
    n_calibration: NDArray[np.int64]
    n_reference: NDArray[np.int64]
    n_neighbors: NDArray[np.int64]
    radii: NDArray[np.float64]
    why_small: NDArray[np.object_]
    calibration: NDArray[np.int64] | None
    calibration_pool: NDArray[np.int64] | None
    reference: NDArray[np.int64] | None

    @property
    def is_small(self) -> NDArray[np.bool_]:
        """Which groups are small, of shape (n_groups,)."""
        return np.asarray(self.why_small != "")

    @property
    def are_apart(self) -> bool:
        """Whether groups are searched each by itself: there are several."""
        return "neighbors" in self.own and len(self.n_rows) > 1

    @property
    def measured_codes(self) -> NDArray[np.int32]:
        """The codes of the rows that are measured, of shape (m,)."""
        measured = self.division().calibration
        return self.codes if measured is None else self.codes[measured]

    def division(self) -> GroupedSplit:
        """Return which rows are measured, and which are searched.

        Groups that are searched each by itself are without those that are small, of which
        nothing may be known: none of their rows is asked for.
        """
        parts = [self.calibration, self.calibration_pool, self.reference]
        if "neighbors" in self.own and self.is_small.any():
            every = np.arange(len(self.codes))
            is_split = self.kind == "split"
            parts = [
                self._of_large(every if of is None else of)
                if i != 1 or is_split else None
                for i, of in enumerate(parts)
            ]  # fmt: skip
        return GroupedSplit(self.kind, len(self.codes), *parts)

    def _of_large(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[~self.is_small[self.codes[rows]]]

    def without(self, why: Mapping[int, str]) -> GroupPlan:
        """Return the plan in which some more groups are small, for these reasons."""
        if not why:
            return self
        groups, why_small = list(why), self.why_small.copy()
        why_small[groups] = [f"not learned: {of}" for of in why.values()]
        n_calibration, radii = self.n_calibration.copy(), self.radii.copy()
        n_neighbors = self.n_neighbors.copy()
        n_calibration[groups], n_neighbors[groups], radii[groups] = 0, 0, np.nan
        is_left = np.ones(len(self.n_rows), bool)
        is_left[groups] = False
        left = [
            None if of is None else of[is_left[self.codes[of]]]
            for of in (self.calibration, self.calibration_pool)
        ]
        reference = self.reference
        if "neighbors" not in self.own:  # others are not measured among these rows
            reference = np.arange(len(self.codes)) if reference is None else reference
            reference = reference[is_left[self.codes[reference]]]
        return replace(
            self, n_calibration=n_calibration, n_neighbors=n_neighbors, radii=radii,
            why_small=why_small, calibration=left[0], calibration_pool=left[1],
            reference=reference,
        )  # fmt: skip

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        kind: str,
        codes: NDArray[np.int32],
        n_groups: int,
        n_features: int,
        seed: int | None,
    ) -> GroupPlan:
        """Return the plan of the groups of some rows.

        Parameters
        ----------
        parameters : dict
            The arguments of `LPE`, checked.
        kind : {"loo", "split", "conformal"}
            Of the calibration of all groups.
        codes : ndarray of shape (n_rows,)
        n_groups, n_features : int
        seed : int, optional
            Of the draws.
        """
        own = frozenset(parameters["own"])
        sizes = np.bincount(codes, minlength=n_groups)
        order = np.argsort(codes, kind="stable")
        starts = np.cumsum(sizes) - sizes
        shape = (n_groups,)
        n_calibration, n_reference = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        n_neighbors, radii = np.zeros(shape, np.int64), np.full(shape, np.nan)
        why_small = np.full(shape, "", object)
        drawn: dict[str, list[NDArray[np.int64]]] = {
            "calibration": [], "calibration_pool": [], "reference": []
        }  # fmt: skip
        for size in np.unique(sizes).tolist():
            which = np.flatnonzero(sizes == size)
            planned = _Planned.of(parameters, kind, size, n_features, seed)
            why_small[which] = planned.why_small
            if planned.division is None:
                continue
            division = planned.division
            n_calibration[which] = division.n_calibration
            n_reference[which] = division.n_reference
            n_neighbors[which], radii[which] = planned.n_neighbors, planned.radius
            if planned.why_small:
                n_calibration[which] = 0
            for name, of_name in drawn.items():
                numbers = getattr(division, name)
                # Rows of small groups stay among those that others are measured among.
                if planned.why_small and name == "calibration":
                    continue
                numbers = np.arange(size) if numbers is None else numbers
                of_name.append(order[starts[which][:, None] + numbers].ravel())
        found = {name: _sorted(of_name) for name, of_name in drawn.items()}
        is_split, is_whole = kind == "split", parameters["calibration_size"] is None
        return cls(
            kind, own, codes, sizes, n_calibration, n_reference, n_neighbors, radii,
            why_small,
            None if kind == "loo" and is_whole else found["calibration"],
            found["calibration_pool"] if is_split else None,
            # Rows of groups that are not divided are in no part.
            None if len(found["reference"]) == len(codes) else found["reference"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan of all groups of one size.

    Attributes
    ----------
    division : CalibrationSplit, optional
        None: a model of so few rows would raise.
    n_neighbors : int
    radius : float
    why_small : str
    """

    division: CalibrationSplit | None
    n_neighbors: int = 0
    radius: float = np.nan
    why_small: str = ""

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        kind: str,
        size: int,
        n_features: int,
        seed: int | None,
    ) -> _Planned:
        own = parameters["own"]
        try:
            division = split_calibration(kind, size, parameters["calibration_size"], seed)
        except ValueError:
            return cls(None, why_small=NOT_DIVIDED)
        if size == 0:
            return cls(None, why_small=NOT_DIVIDED)
        why = ""
        if "calibration" in own:
            why = _too_few(division.n_calibration, parameters)
        n_neighbors, radius = 0, np.nan
        if "neighbors" in own and parameters["graph"] == "knn":
            given = parameters["n_neighbors"]
            n_neighbors = int(given or neighbors_by_rule(division.n_reference))
            if n_neighbors > division.max_neighbors:
                why = why or NO_NEIGHBOR
        if "neighbors" in own and parameters["graph"] == "radius":
            radius = parameters["radius"]
            if radius is None:
                radius = radius_by_rule(division.n_reference, n_features)
        return cls(division, 0 if why else n_neighbors, np.nan if why else radius, why)


def _too_few(m: int, parameters: Mapping[str, Any]) -> str:
    """Return why a group of m calibration rows is small; "" if a row can be flagged."""
    alpha, confidence = parameters["alpha"], parameters["confidence"]
    if confidence is None:
        return TOO_FEW if 1 / (m + 1) > alpha else ""
    if m > 0 and confident_places(alpha, m, confidence) > 0:
        return ""
    least = rows_for_confidence(alpha, confidence)
    return f"{TOO_FEW} and confidence, which take {least}"


def _sorted(numbers: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.sort(np.concatenate(numbers)) if numbers else np.empty(0, np.int64)

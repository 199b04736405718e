"""Take the rows of each group to the units that were learned from that group alone.

    Preparation of each group --stack--> GroupPreparations: arrays, of all groups
    numbers, codes of groups --apply--> prepared numbers, bit for bit those of each group

Where what was learned is linear in each column all rows are prepared at once, else the rows
of a group at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import GroupPoints
from lpe_dask.search.preparation import Preparation, Scaling
from lpe_dask.search.quantile_scale import QuantileKnots


@dataclass(frozen=True, slots=True, eq=False)
class GroupPreparations:
    """What was learned of each group; zeros for groups of which nothing was.

    Attributes
    ----------
    is_known : ndarray of shape (n_groups,)
        Of which groups it was.
    has_both : bool
        As in `Scaling`.
    vectors : dict of str to ndarray of shape (n_groups, n)
        "shift", "factor" and "divisor" of scalings, "powers", the factor of preparations,
        and "fill", as far as there are any.
    weights : ndarray of shape (n_groups, n_numbers)
        By which squared differences of prepared numbers are multiplied.
    matrix : ndarray of shape (n_groups, n_scaled, n_scaled), optional
    knots : tuple of ndarray, optional
        Values and ranks of all columns of all groups, where each begins, and of how many
        rows of each group they are.
    centers : ndarray of shape (n_groups, n_numbers)
        A prepared row of each group.
    """

    is_known: NDArray[np.bool_]
    has_both: bool
    vectors: dict[str, NDArray[np.float64]]
    weights: NDArray[np.float64]
    matrix: NDArray[np.float64] | None
    knots: tuple[NDArray[Any], ...] | None
    centers: NDArray[np.float64]

    @classmethod
    def stack(
        cls,
        learned: Sequence[Preparation | None],
        rows: Sequence[NDArray[np.float64]],
    ) -> Self:
        """Return what was learned of groups, of at least one; None: of this one nothing.

        Parameters
        ----------
        learned : sequence of Preparation or None
            Without categories, all of the same kind.
        rows : sequence of ndarray of shape (n_features,)
            The numbers of a row of each group, which may have gaps.
        """
        first = next(of for of in learned if of is not None)
        n_numbers = first.n_numbers(len(rows[0]))

        def stacked(take: Any, unknown: float = 0.0) -> NDArray[np.float64]:
            like = np.full_like(take(first), unknown)
            return np.array([like if of is None else take(of) for of in learned])

        vectors = {
            "shift": lambda of: of.scaling.shift, "factor": lambda of: of.scaling.factor,
            "divisor": lambda of: of.scaling.divisor, "powers": lambda of: of.factor,
            "fill": lambda of: of.fill,
        }  # fmt: skip
        # Powers of one group may all be 1, and are then left out.
        if any(of is not None and of.factor is not None for of in learned):
            vectors["powers"] = lambda of: _ones_if_none(
                of.factor, of.scaling, len(rows[0])
            )
            has_powers = True
        else:
            has_powers = False
        kept = {
            name: stacked(take, 1.0 if name == "divisor" else 0.0)
            for name, take in vectors.items()
            if (has_powers if name == "powers" else take(first) is not None)
        }
        weights = stacked(lambda of: of.weights_of(of.n_prepared(len(rows[0])))[:n_numbers])
        matrix = None if first.matrix is None else stacked(lambda of: of.matrix)
        knots = None
        if first.scaling.knots is not None:
            knots = _stacked_knots(
                [None if of is None else of.scaling.knots for of in learned]
            )
        centers = np.array([
            np.zeros(n_numbers) if of is None else _prepared_numbers(of, row)
            for of, row in zip(learned, rows, strict=True)
        ])  # fmt: skip
        is_known = np.array([of is not None for of in learned])
        return cls(is_known, first.scaling.has_both, kept, weights, matrix, knots, centers)

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        arrays = [*self.vectors.values(), self.weights, self.centers, *(self.knots or ())]
        return sum(
            of.nbytes for of in [*arrays, *([] if self.matrix is None else [self.matrix])]
        )

    @property
    def is_linear(self) -> bool:
        """Whether prepared numbers are those of the input, each moved and multiplied."""
        return self.matrix is None and self.knots is None

    def points(self) -> GroupPoints:
        """Return where the points of groups are."""
        return GroupPoints(self.centers, self.weights)

    def of(self, group: int) -> Preparation:
        """Return the preparation of the numbers of a group."""
        vectors = {name: of[group] for name, of in self.vectors.items()}
        knots = (
            None if self.knots is None else _knots_of(self.knots, group, len(self.is_known))
        )
        scaling = Scaling(
            vectors.get("shift"), vectors.get("factor"), vectors.get("divisor"), knots,
            self.has_both,
        )  # fmt: skip
        matrix = None if self.matrix is None else self.matrix[group]
        return Preparation(scaling, matrix, vectors.get("powers"))

    def filled(
        self, numbers: NDArray[np.generic], codes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return numbers without gaps, by those of their groups."""
        return np.where(np.isnan(numbers), self.vectors["fill"][codes], numbers)

    def apply(
        self, numbers: NDArray[np.generic], codes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return prepared numbers; NaN for rows of groups of which nothing was learned.

        Parameters
        ----------
        numbers : ndarray of shape (n_rows, n_features)
        codes : ndarray of shape (n_rows,)
            Of their groups.
        """
        if self.is_linear and "powers" not in self.vectors:
            names = {"shift", "factor", "divisor"} & set(self.vectors)
            of_rows: Any = {name: self.vectors[name][codes] for name in names}
            scaling = Scaling(**of_rows)
            prepared = Preparation(scaling).apply_to_numbers(numbers)
        elif self.is_linear:
            prepared = self._times_powers(numbers, codes)
        else:
            prepared = np.empty((len(numbers), self.weights.shape[1]))
            order = np.argsort(codes, kind="stable")
            starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
            for which in np.split(order, starts[1:]) if len(order) else []:
                group = int(codes[which[0]])
                if self.is_known[group]:
                    prepared[which] = self.of(group).apply_to_numbers(numbers[which])
        prepared[~self.is_known[codes]] = np.nan
        return prepared

    def _times_powers(
        self, numbers: NDArray[np.generic], codes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return `Preparation.apply_to_numbers` of groups that differ in powers alone."""
        powers = self.vectors["powers"]
        is_left_out = (powers[self.is_known] == 0).all(axis=0)
        kept = Preparation(factor=np.where(is_left_out, 0.0, 1.0))
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = numbers.astype(np.float64) * powers[codes]
        overflown = ~np.isfinite(scaled) & np.isfinite(numbers).all(axis=1)[:, None]
        scaled[overflown] = np.finfo(np.float64).max
        return kept.apply_to_numbers(scaled)


def _ones_if_none(factor: Any, scaling: Scaling, n_features: int) -> NDArray[np.float64]:
    return np.ones(scaling.n_scaled(n_features)) if factor is None else factor


def _prepared_numbers(
    learned: Preparation, row: NDArray[np.float64]
) -> NDArray[np.float64]:
    row = row if learned.fill is None else np.where(np.isnan(row), learned.fill, row)
    prepared: NDArray[np.float64] = learned.apply_to_numbers(row[None])[0]
    return prepared


def _stacked_knots(knots: Sequence[QuantileKnots | None]) -> tuple[NDArray[Any], ...]:
    n_columns = next(len(of.values) for of in knots if of is not None)
    empty = [np.empty(0)] * n_columns
    values = [v for of in knots for v in (empty if of is None else of.values)]
    ranks = [r for of in knots for r in (empty if of is None else of.ranks)]
    starts = np.append(0, np.cumsum(list(map(len, values))))
    n_sampled = np.array([0 if of is None else of.n_sampled for of in knots])
    return np.concatenate(values), np.concatenate(ranks).astype(np.int64), starts, n_sampled


def _knots_of(knots: tuple[NDArray[Any], ...], group: int, n_groups: int) -> QuantileKnots:
    values, ranks, starts, n_sampled = knots
    n_columns = (len(starts) - 1) // n_groups
    bounds = starts[group * n_columns : (group + 1) * n_columns + 1]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    return QuantileKnots(
        tuple(values[part] for part in parts), tuple(ranks[part] for part in parts),
        int(n_sampled[group]),
    )  # fmt: skip

"""Take the rows of each group to the units that were learned from that group alone.

Preparation of each group --stack--> GroupPreparations: arrays, of some groups
those of some groups each --join--> of all groups
numbers, codes of groups --apply--> prepared numbers, bit for bit those of each group
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import GroupPoints
from lpe_dask.search.group_knots import GroupKnots
from lpe_dask.search.preparation import Preparation, Scaling, clip_overflow

#: Vectors of which a group has ones where nothing was learned of it; zeros for others.
_FACTORS = ("divisor", "powers")


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
    knots : GroupKnots, optional
    centers : ndarray of shape (n_groups, n_numbers)
        A prepared row of each group.
    """

    is_known: NDArray[np.bool_]
    has_both: bool
    vectors: dict[str, NDArray[np.float64]]
    weights: NDArray[np.float64]
    matrix: NDArray[np.float64] | None
    knots: GroupKnots | None
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
        n_features = len(rows[0])
        n_numbers = first.n_numbers(n_features)

        def stacked(take: Any, unknown: float = 0.0) -> NDArray[np.float64]:
            like = np.full_like(take(first), unknown)
            return np.array([like if of is None else take(of) for of in learned])

        found = {
            "shift": lambda of: of.scaling.shift, "factor": lambda of: of.scaling.factor,
            "divisor": lambda of: of.scaling.divisor, "powers": _powers(n_features),
            "fill": lambda of: of.fill,
        }  # fmt: skip
        vectors = {
            name: stacked(take, 1.0 if name in _FACTORS else 0.0)
            for name, take in found.items()
            if take(first) is not None
        }
        weights = stacked(lambda of: of.weights_of(of.n_prepared(n_features))[:n_numbers])
        matrix = None if first.matrix is None else stacked(lambda of: of.matrix)
        knots = None
        if first.scaling.knots is not None:
            knots = GroupKnots.stack(
                [None if of is None else of.scaling.knots for of in learned]
            )
        centers = np.array([
            np.zeros(n_numbers) if of is None else _prepared_numbers(of, row)
            for of, row in zip(learned, rows, strict=True)
        ])  # fmt: skip
        is_known = np.array([of is not None for of in learned])
        has_both = first.scaling.has_both
        return cls(is_known, has_both, vectors, weights, matrix, knots, centers)

    @classmethod
    def join(cls, parts: Sequence[Self | int]) -> Self:
        """Return what was learned of the groups of all parts, of at least one.

        Parameters
        ----------
        parts : sequence of GroupPreparations or int
            A number stands for so many groups of which nothing was learned.
        """
        first = next(part for part in parts if not isinstance(part, int))
        whole = [first._without(of) if isinstance(of, int) else of for of in parts]

        def joined(take: Any) -> NDArray[Any]:
            return np.concatenate([take(part) for part in whole])

        vectors = {
            name: np.concatenate([part.vectors[name] for part in whole])
            for name in first.vectors
        }
        if (vectors.get("powers", np.zeros(1)) == 1).all():
            del vectors["powers"]
        knots = [part.knots for part in whole if part.knots is not None]
        return cls(
            joined(lambda of: of.is_known), first.has_both, vectors,
            joined(lambda of: of.weights),
            None if first.matrix is None else joined(lambda of: of.matrix),
            GroupKnots.join(knots) if knots else None,
            joined(lambda of: of.centers),
        )  # fmt: skip

    def _without(self, n_groups: int) -> GroupPreparations:
        """Return the same for so many groups of which nothing was learned."""

        def like(array: NDArray[Any], value: float = 0.0) -> NDArray[Any]:
            return np.full((n_groups, *array.shape[1:]), value, array.dtype)

        vectors = {
            name: like(array, 1.0 if name in _FACTORS else 0.0)
            for name, array in self.vectors.items()
        }
        return GroupPreparations(
            like(self.is_known), self.has_both, vectors, like(self.weights),
            None if self.matrix is None else like(self.matrix),
            None if self.knots is None else self.knots.without(n_groups),
            like(self.centers),
        )  # fmt: skip

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays."""
        arrays = [*self.vectors.values(), self.weights, self.centers]
        arrays += [] if self.matrix is None else [self.matrix]
        of_knots = 0 if self.knots is None else self.knots.__sizeof__()
        return sum(of.nbytes for of in arrays) + of_knots

    def points(self) -> GroupPoints:
        """Return where the points of groups are."""
        return GroupPoints(self.centers, self.weights)

    def of(self, group: int) -> Preparation:
        """Return the preparation of the numbers of a group."""
        vectors = {name: of[group] for name, of in self.vectors.items()}
        scaling = Scaling(
            vectors.get("shift"), vectors.get("factor"), vectors.get("divisor"),
            None if self.knots is None else self.knots.of(group), self.has_both,
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
        leaves_out = False
        with np.errstate(over="ignore", invalid="ignore"):
            prepared = self._scaled(numbers, codes)
            if self.matrix is not None:  # added in the order of the columns
                total = np.zeros_like(prepared)
                for k in range(prepared.shape[1]):
                    total += prepared[:, k, None] * self.matrix[codes, k]
                prepared = total
            if (powers := self.vectors.get("powers")) is not None:
                is_kept = (powers[self.is_known] != 0).any(axis=0)
                prepared = prepared[:, is_kept] * powers[codes][:, is_kept]
                leaves_out = not is_kept.all()
        prepared = clip_overflow(prepared, numbers, leaves_out=leaves_out)
        prepared[~self.is_known[codes]] = np.nan
        return prepared

    def _scaled(
        self, numbers: NDArray[np.generic], codes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return `Scaling.apply` of each row, by its group."""
        names = {"shift", "factor", "divisor"} & set(self.vectors)
        of_rows: Any = {name: self.vectors[name][codes] for name in names}
        linear = Scaling(**of_rows)
        if self.knots is None:
            return linear.apply(numbers)
        heights = self.knots.apply(numbers, codes)
        return np.hstack([linear.apply(numbers), heights]) if self.has_both else heights


def _powers(n_features: int) -> Any:
    """Return what takes the factor of a preparation, which may be left out if it is 1."""

    def take(of: Preparation) -> NDArray[np.float64] | None:
        if of.factor is None and of.matrix is None:
            return np.ones(of.scaling.n_scaled(n_features))
        return of.factor

    return take


def _prepared_numbers(
    learned: Preparation, row: NDArray[np.float64]
) -> NDArray[np.float64]:
    row = row if learned.fill is None else np.where(np.isnan(row), learned.fill, row)
    prepared: NDArray[np.float64] = learned.apply_to_numbers(row[None])[0]
    return prepared

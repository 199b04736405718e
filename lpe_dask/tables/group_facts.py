"""What the rows of each group have, as far as few numbers say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import Moments

#: Most exact sums of all groups together: about as many bytes as a result may have. Of more
#: groups nothing is gathered.
MAX_GROUP_SUMS = 2**13


class GroupFact(NamedTuple):
    """What the rows of one group have in their columns of numbers.

    Attributes
    ----------
    first : ndarray of shape (n_columns,)
        The first row.
    low, high : ndarray of shape (n_columns,)
    moments : Moments
    """

    first: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    moments: Moments

    def joined(self, after: GroupFact) -> GroupFact:
        """Return that of these rows and of others of the group, which come after them."""
        low, high = np.minimum(self.low, after.low), np.maximum(self.high, after.high)
        moments = Moments.add([self.moments, after.moments])
        return GroupFact(self.first, low, high, moments)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the rows of each group have.

    Attributes
    ----------
    of_groups : mapping of int to GroupFact, optional
        By the number of the group; None if there are too many groups.
    """

    of_groups: Mapping[int, GroupFact] | None

    @classmethod
    def of(
        cls, numbers: NDArray[np.generic], codes: NDArray[np.int32], *, has_products: bool
    ) -> Self:
        """Return those of rows without gaps, of the groups of these numbers."""
        order = np.argsort(codes, kind="stable")
        groups, starts = np.unique(codes[order], return_index=True)
        n_columns = numbers.shape[1]
        n_sums = n_columns * (n_columns + 3 if has_products else 4) // 2
        if len(groups) * n_sums > MAX_GROUP_SUMS:
            return cls(None)
        found = {}
        for group, which in zip(groups.tolist(), np.split(order, starts[1:]), strict=False):
            rows = numbers[which].astype(np.float64)
            moments = Moments.of(rows, has_products=has_products)
            found[group] = GroupFact(rows[0], rows.min(axis=0), rows.max(axis=0), moments)
        return cls(found)

    @classmethod
    def add(cls, parts: Iterable[GroupFacts]) -> Self:
        """Return those of the rows of all parts, in their order."""
        found: dict[int, GroupFact] = {}
        for part in parts:
            if part.of_groups is None:
                return cls(None)
            for group, of in part.of_groups.items():
                found[group] = found[group].joined(of) if group in found else of
        n_sums = sum(
            len(of.moments.sums) + len(of.moments.products) for of in found.values()
        )
        return cls(found if n_sums <= MAX_GROUP_SUMS else None)

    def recoded(self, codes: NDArray[np.int64]) -> Self:
        """Return the same with other numbers of groups."""
        if self.of_groups is None:
            return self
        return type(self)({int(codes[group]): of for group, of in self.of_groups.items()})

"""Count the rows of each group in the parts of an output, and how many are flagged.

    rows of a part --GroupCounts.of--> groups that it has --merge--> those of all parts

There may be a million groups, of which a part has some only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class GroupCounts:
    """How many rows with a p-value the groups have that have any.

    Attributes
    ----------
    codes : ndarray of shape (n_groups,)
        Numbers of these groups, ascending.
    rows, flagged, up_to_alpha : ndarray of shape (n_groups,)
        Rows with a p-value; those that are flagged; and those with a p-value of at most
        alpha, which are the same where no false discovery rate decides.
    """

    codes: NDArray[np.int64]
    rows: NDArray[np.int64]
    flagged: NDArray[np.int64]
    up_to_alpha: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        codes: NDArray[np.integer],
        p_values: NDArray[np.float64],
        is_flagged: NDArray[np.bool_],
        alpha: float,
    ) -> Self:
        """Return the counts of some rows.

        Parameters
        ----------
        codes : ndarray of shape (n_rows,)
            Of the groups of the rows; below 0 where there is none.
        p_values, is_flagged : ndarray of shape (n_rows,)
        alpha : float
        """
        counted = ~np.isnan(p_values) & (codes >= 0)
        ones = np.ones(int(counted.sum()), np.int64)
        marks = is_flagged[counted], p_values[counted] <= alpha
        return cls._summed(codes[counted], ones, *marks)

    @classmethod
    def merge(cls, some: Sequence[GroupCounts]) -> Self:
        """Return the counts of all rows of some parts, at least one."""
        arrays = ([getattr(of, each.name) for of in some] for each in fields(cls))
        return cls._summed(*map(np.concatenate, arrays))

    @classmethod
    def _summed(cls, codes: NDArray[Any], *counts: NDArray[Any]) -> Self:
        """Return the sums of numbers of each group."""
        found, inverse = np.unique(codes.astype(np.int64), return_inverse=True)
        # Floats hold the sums exactly: there are fewer than 2**53 rows.
        sums = (np.bincount(inverse, of, len(found)).astype(np.int64) for of in counts)
        return cls(found, *sums)

    def as_json(self) -> dict[str, Any]:
        """Return this as values of JSON."""
        return {each.name: getattr(self, each.name).tolist() for each in fields(self)}

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """Return the object of `as_json`, by the keys that are known; or raise."""
        return cls(*(np.array(content[each.name], np.int64) for each in fields(cls)))

"""Count the rows of each group in the parts of an output, and how many are flagged.

    rows of a part --GroupCounts.of--> its metadata --merge, one by one--> of all parts

There may be a million groups, of which a part has some only: nobody holds the counts of
more parts than one, and in metadata they are packed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.monitoring import pack, unpack


@dataclass(frozen=True, slots=True, eq=False)
class GroupCounts:
    """How many rows with a p-value the groups have that have any.

    Attributes
    ----------
    codes : ndarray of shape (n_groups,)
        Numbers of these groups, ascending.
    rows, flagged, up_to_alpha : ndarray of shape (n_groups,)
        Rows with a p-value; those that are flagged; and those with a p-value of at most
        alpha: ``flagged`` itself where they are equal, as they are unless a false discovery
        rate decides.
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
        found, inverse = np.unique(codes[counted].astype(np.int64), return_inverse=True)
        marks = is_flagged[counted], p_values[counted] <= alpha
        sums = (np.bincount(inverse[of], minlength=len(found)) for of in marks)
        return cls._of(found, np.bincount(inverse, minlength=len(found)), *sums)

    @classmethod
    def merge(cls, some: Iterable[GroupCounts], n_groups: int) -> Self:
        """Return the counts of all rows of some parts, of which one is held at a time.

        Parameters
        ----------
        some : iterable of GroupCounts
        n_groups : int
            How many groups there are, with rows or without.
        """
        sums = np.zeros((3, n_groups), np.int64)
        for of in some:
            for total, counts in zip(
                sums, (of.rows, of.flagged, of.up_to_alpha), strict=True
            ):
                total[of.codes] += counts
        codes = np.flatnonzero(sums[0])
        return cls._of(codes, *sums[:, codes])

    @classmethod
    def _of(
        cls,
        codes: NDArray[np.int64],
        rows: NDArray[np.int64],
        flagged: NDArray[np.int64],
        up_to_alpha: NDArray[np.int64],
    ) -> Self:
        """Return these, with one array in two places where two would be equal."""
        is_same = np.array_equal(flagged, up_to_alpha)
        return cls(codes, rows, flagged, flagged if is_same else up_to_alpha)

    def as_json(self) -> dict[str, Any]:
        """Return this as values of JSON."""
        steps = np.diff(self.codes, prepend=0)  # small numbers, which pack well
        has_both = self.up_to_alpha is not self.flagged
        return {
            "n_groups": len(self.codes),
            "packed": pack(np.stack([steps, self.rows, self.flagged])),
            "up_to_alpha": pack(self.up_to_alpha) if has_both else None,
        }

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """Return the object of `as_json`, by the keys that are known; or raise."""
        n_groups, text = int(content["n_groups"]), content["up_to_alpha"]
        steps, rows, flagged = unpack(content["packed"], (3, n_groups))
        up_to_alpha = flagged if text is None else unpack(text, (n_groups,))
        least = [steps[:1], steps[1:] - 1, rows - 1, flagged, up_to_alpha]
        if min(of.min(initial=0) for of in least) < 0:
            raise ValueError("counts of groups that no rows have")
        return cls(np.cumsum(steps), rows, flagged, up_to_alpha)

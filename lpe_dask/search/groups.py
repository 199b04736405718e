"""K or the radius of each group, where groups are searched each by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SearchGroups:
    """K or the radius of each group, by the code that is the last column of its rows.

    Attributes
    ----------
    n_neighbors : ndarray of shape (n_groups,), optional
        K; 0 where rows of the group are not measured.
    radii : ndarray of shape (n_groups,), optional
        Epsilon, where ``n_neighbors`` is None; NaN where they are not measured.
    """

    n_neighbors: NDArray[np.int64] | None = None
    radii: NDArray[np.float64] | None = None

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        known = (of for of in (self.n_neighbors, self.radii) if of is not None)
        return len(next(known))

    def of_rows(
        self, codes: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64] | NDArray[np.float64], NDArray[np.bool_]]:
        """Return K or the radius of rows, and which of them are measured.

        Parameters
        ----------
        codes : ndarray of shape (n_rows,)
            Of their groups; NaN where there is none.
        """
        is_known = np.isfinite(codes)
        which = np.where(is_known, codes, 0).astype(np.int64)
        if self.n_neighbors is not None:
            wanted = self.n_neighbors[which]
            return np.maximum(wanted, 1), is_known & (wanted > 0)
        assert self.radii is not None
        radii = self.radii[which]
        return np.nan_to_num(radii), is_known & ~np.isnan(radii)

    def __sizeof__(self) -> int:
        """Return about the bytes of the arrays."""
        return sum(of.nbytes for of in (self.n_neighbors, self.radii) if of is not None)

"""What the parts of an output are, all together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lpe_dask.batch.found import Found
from lpe_dask.batch.parts import Asked
from lpe_dask.pvalues import Adjustment, discovery_cut_off, threshold


@dataclass(frozen=True, slots=True)
class Written:
    """What was found in all parts of an output.

    Attributes
    ----------
    found : Found
    sizes : list of int
        Rows of each part.
    asked : Asked
    first_unseen : dict of int to int
        Of each column with values that no nominal row has, the first part that has some.
    adjustment : Adjustment, optional
        Of all p-values, where a false discovery rate decides.
    cut_off : float, optional
        The largest p-value that is flagged then; None if none is.
    """

    found: Found
    sizes: list[int]
    asked: Asked
    first_unseen: dict[int, int]
    adjustment: Adjustment | None = None
    cut_off: float | None = None

    @property
    def offset(self) -> float:
        """What p-values of rows are below that a false discovery rate flags."""
        return 0.0 if self.cut_off is None else threshold(self.cut_off)

    @classmethod
    def of(
        cls,
        of_parts: Sequence[Found],
        asked: Asked,
        adjustment: Adjustment | None = None,
        fdr: float | None = None,
    ) -> Written:
        """Return what was found in some parts, in their order."""
        cut_off = None
        if adjustment is not None and fdr is not None:
            cut = discovery_cut_off(adjustment, fdr)
            cut_off = None if math.isnan(cut) else cut
        found = Found.joined(of_parts, asked.graph)
        sizes = [of_part.counts["rows"] for of_part in of_parts]
        first_unseen: dict[int, int] = {}
        for number, of_part in enumerate(of_parts):
            for place in map(int, np.flatnonzero(of_part.unseen)):
                first_unseen.setdefault(place, number)
        return cls(found, sizes, asked, first_unseen, adjustment, cut_off)

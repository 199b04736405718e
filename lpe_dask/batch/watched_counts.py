"""Count the rows of watched groups in bins of p-values, for the drift test of a run.

rows of a part --GroupBins.count--> WatchedCounts --merge--> those of all parts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.monitoring import N_GROUP_BINS, pack, unpack


@dataclass(frozen=True, slots=True)
class WatchedCounts:
    """How many rows of each watched group are in each bin, as a short text.

    The client holds those of all parts: of 1,000 groups they are some 20 kB a part.

    Attributes
    ----------
    n_groups : int
    packed : str
    """

    n_groups: int
    packed: str

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Self:
        """Return the counts of some rows, as `GroupBins.count` gives them."""
        return cls(len(counts), pack(counts))

    def array(self) -> NDArray[np.int64]:
        """Return the counts, of shape (n_groups, N_GROUP_BINS)."""
        return unpack(self.packed, (self.n_groups, N_GROUP_BINS))

    @classmethod
    def merge(cls, some: Sequence[WatchedCounts]) -> Self:
        """Return the counts of all rows of some parts, at least one."""
        total = some[0].array()
        for of in some[1:]:
            total += of.array()
        return cls.of(total)

    def as_json(self) -> dict[str, Any]:
        """Return this as values of JSON."""
        return {"n_groups": self.n_groups, "packed": self.packed}

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """Return the object of `as_json`, by the keys that are known; or raise."""
        found = cls(int(content["n_groups"]), str(content["packed"]))
        if found.array().min(initial=0) < 0:
            raise ValueError("counts below 0")
        return found

"""The state of a drift test of groups: what is known of the rows of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from lpe_dask.monitoring.bins import MAX_BULK
from lpe_dask.monitoring.eprocess import MAX_BETS
from lpe_dask.monitoring.packed_arrays import pack, unpack
from lpe_dask.monitoring.watched_groups import N_GROUP_BINS, WatchedGroups

#: Rows of the first runs that a group needs before others are tested against them, where
#: calibration rows are no reference.
GROUP_CALIBRATION_ROWS = 200

#: Runs of a group after which the recent rows become earlier ones: the size of a shift is
#: that of so many runs, or of up to twice as many.
BLOCK = 4

#: Logarithms are stored as whole numbers, rounded down: evidence is never more than it was.
_UNITS, _NONE = 256, -(2**15)


class GroupsSection(BaseModel):
    """The groups in a `DriftState`: which, and what `GroupStates` has, packed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    watched: str
    reference: str | None
    sums: str
    recent: str
    runs: str
    wealth: str
    evidence: str


@dataclass(frozen=True, slots=True, eq=False)
class GroupStates:
    """What is known of watched groups.

    Attributes
    ----------
    reference : ndarray of shape (n_watched, N_GROUP_BINS), optional
        Rows of the first runs, where these are what later ones are tested against.
    sums : ndarray of shape (n_watched, MAX_BULK)
        Rows of tested runs in each bulk bin, but for
    recent : ndarray of shape (n_watched, 2, MAX_BULK)
        those of the last `BLOCK` to twice as many, in two blocks of runs.
    runs : ndarray of shape (n_watched, 2)
        Runs that were tested, and those in the second block.
    wealth : ndarray of shape (n_watched, MAX_BETS)
        Logarithm of what each bet has; ``-inf`` for nothing.
    evidence : ndarray of shape (n_watched, 2)
        Logarithm of that of a change, now and at most so far.
    """

    reference: NDArray[np.int64] | None
    sums: NDArray[np.int64]
    recent: NDArray[np.int64]
    runs: NDArray[np.int64]
    wealth: NDArray[np.float64]
    evidence: NDArray[np.float64]

    _SHAPES: ClassVar[dict[str, tuple[int, ...]]] = {
        "reference": (N_GROUP_BINS,), "sums": (MAX_BULK,), "recent": (2, MAX_BULK),
        "runs": (2,), "wealth": (MAX_BETS,), "evidence": (2,),
    }  # fmt: skip

    @classmethod
    def new(cls, watched: WatchedGroups) -> GroupStates:
        """Return the state before the first run."""
        zeros = {
            name: np.zeros((len(watched), *shape), np.int64)
            for name, shape in cls._SHAPES.items()
        }
        return cls(
            None if watched.is_exact else zeros["reference"],
            zeros["sums"], zeros["recent"], zeros["runs"],
            np.full(zeros["wealth"].shape, -np.inf), np.zeros(zeros["evidence"].shape),
        )  # fmt: skip

    @property
    def is_ready(self) -> NDArray[np.bool_]:
        """Which groups can be tested, of shape (n_watched,)."""
        if self.reference is None:
            return np.ones(len(self.sums), bool)
        return np.asarray(self.reference.sum(axis=1) >= GROUP_CALIBRATION_ROWS)

    @classmethod
    def read(cls, section: GroupsSection, watched: WatchedGroups) -> GroupStates:
        """Return the state that a section has.

        Raises
        ------
        ValueError
            If it is damaged, or of other groups.
        """
        if section.watched != watched.identifier:
            raise ValueError("it is of other groups")
        if (section.reference is None) != watched.is_exact:
            raise ValueError("groups are tested against other rows")
        arrays = {
            name: unpack(getattr(section, name), (len(watched), *shape))
            for name, shape in cls._SHAPES.items()
            if name != "reference" or not watched.is_exact
        }
        for name in arrays.keys() - {"wealth", "evidence"}:
            if not ((arrays[name] >= 0) & (arrays[name] <= 2**53)).all():
                raise ValueError(f"numbers of rows or runs out of range ({name})")
        evidence = _read_log(arrays["evidence"])
        if not np.isfinite(evidence).all():
            raise ValueError("evidence out of range")
        return cls(
            arrays.get("reference"), arrays["sums"], arrays["recent"], arrays["runs"],
            _read_log(arrays["wealth"]), evidence,
        )  # fmt: skip

    def section(self, watched: WatchedGroups) -> GroupsSection:
        """Return what a `DriftState` has of this."""
        return GroupsSection(
            watched=watched.identifier,
            reference=None if self.reference is None else pack(self.reference),
            sums=pack(self.sums), recent=pack(self.recent), runs=pack(self.runs),
            wealth=pack(_whole(self.wealth)), evidence=pack(_whole(self.evidence)),
        )  # fmt: skip


def rounded_down(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return logarithms as they are read again once they were stored."""
    return _read_log(_whole(logs))


def _whole(logs: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.floor(_UNITS * logs.clip(_NONE / _UNITS, 1e9)).astype(np.int64)


def _read_log(whole: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(whole > _NONE, whole / _UNITS, -np.inf)

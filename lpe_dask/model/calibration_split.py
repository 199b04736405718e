"""Divide nominal rows into those that are measured and those they are measured among.

    calibration   measured rows            among                       new rows among
    loo           all, or m of them        all others                  all
    split         half S1, or m of it      the others of S1            the other half S2
    conformal     m                        all but these m             all but these m

The rows are drawn without replacement, by their number: neither chunks nor workers matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: calibration -> how often a new row counts itself among the nominal rows.
INCLUDES_SELF = {"loo": 0, "split": 0, "conformal": 1}

#: Calibration rows of an approximate search, unless ``calibration_size`` is given.
APPROXIMATE_SIZE = 20_000


class _Split(ABC):
    """What both divisions of nominal rows have."""

    kind: str
    n_rows: int

    @property
    @abstractmethod
    def n_pool(self) -> int:
        """Rows among which those are measured, if they belong to these; 0 if not."""

    @property
    @abstractmethod
    def n_reference(self) -> int:
        """Rows that new rows are measured among."""

    @property
    def is_disjoint(self) -> bool:
        """Whether calibration and reference have no row in common."""
        return self.kind != "loo"

    @property
    def is_held_out(self) -> bool:
        """Whether calibration rows are measured like new ones, among the reference."""
        return self.kind == "conformal"

    @property
    def max_neighbors(self) -> int:
        """The largest K for which every row has a K-th neighbor."""
        return min(self.n_reference, self.n_pool or self.n_reference) - 1

    def check_neighbors(self, n_neighbors: int) -> None:
        """Raise ValueError if a row has no K-th neighbor."""
        n, most = self.n_rows, self.max_neighbors
        if n_neighbors <= most:
            return
        if not self.is_disjoint:
            raise ValueError(
                f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} nominal rows, "
                f"because a row is not its own neighbor; there are n_samples = {n}. Lower "
                f"n_neighbors, or give more rows."
            )
        remedy = "Give more rows, or another calibration."
        if most > 0:
            remedy = f"Lower n_neighbors to {most} or less, or give more rows."
        raise ValueError(
            f"n_neighbors={n_neighbors} is too many for calibration={self.kind!r}, which "
            f"measures new rows among {self.n_reference} of n_samples = {n} nominal rows. "
            f"{remedy}"
        )


@dataclass(frozen=True)
class CalibrationSplit(_Split):
    """How many nominal rows are measured, and among how many; which ones is drawn later.

    Attributes
    ----------
    kind : {"loo", "split", "conformal"}
    n_rows : int
        Nominal rows.
    n_drawn : int, optional
        Rows that are drawn to be measured; None: all rows are measured.
    random_state : int, optional
        Of the draw.
    """

    kind: str
    n_rows: int
    n_drawn: int | None = None
    random_state: int | None = None

    @property
    def n_calibration(self) -> int:
        """Rows whose statistics p-values compare with."""
        return self.n_rows if self.n_drawn is None else self.n_drawn

    @property
    def n_pool(self) -> int:
        """Rows among which those are measured, if they belong to these; 0 if not."""
        return {"loo": self.n_rows, "split": (self.n_rows + 1) // 2, "conformal": 0}[
            self.kind
        ]

    @property
    def n_reference(self) -> int:
        """Rows that new rows are measured among."""
        if self.kind == "conformal":
            return self.n_rows - self.n_calibration
        return self.n_rows if self.kind == "loo" else self.n_rows - self.n_pool

    @property
    def calibration(self) -> NDArray[Any] | None:
        """Numbers of the rows whose statistics p-values compare with; None: of all."""
        return self._numbers[0]

    @property
    def calibration_pool(self) -> NDArray[Any] | None:
        """Numbers of the rows that only those are measured among, each without itself."""
        return self._numbers[1]

    @property
    def reference(self) -> NDArray[Any] | None:
        """Numbers of the rows that new rows are measured among; None: of all."""
        return self._numbers[2]

    @cached_property
    def _numbers(self) -> tuple[NDArray[Any] | None, ...]:
        """Drawn when they are asked for, and ascending."""
        if self.n_drawn is None:
            return None, None, None
        # The same draw, whatever the type.
        rows = np.arange(self.n_rows, dtype=np.int32 if self.n_rows < 2**31 else np.int64)
        order = np.random.default_rng(self.random_state).permutation(rows)
        chosen = np.sort(order[: self.n_drawn])
        if self.kind == "loo":
            return chosen, None, None
        if self.kind == "split":
            return chosen, np.sort(order[: self.n_pool]), np.sort(order[self.n_pool :])
        return chosen, None, np.sort(order[self.n_drawn :])

    def kept(self) -> CalibrationSplit:
        """Return what a model keeps: a copy, without what it has drawn."""
        return replace(self)


@dataclass(frozen=True, eq=False)
class GroupedSplit(_Split):
    """The division of rows in groups, each of which is divided by itself.

    Attributes
    ----------
    kind : {"loo", "split", "conformal"}
    n_rows : int
        Nominal rows.
    calibration, calibration_pool, reference : ndarray, optional
        As those of `CalibrationSplit`.
    """

    kind: str
    n_rows: int
    calibration: NDArray[np.int64] | None
    calibration_pool: NDArray[np.int64] | None
    reference: NDArray[np.int64] | None

    @property
    def n_calibration(self) -> int:
        """Rows that are measured."""
        return self.n_rows if self.calibration is None else len(self.calibration)

    @property
    def n_pool(self) -> int:
        """As that of `CalibrationSplit`."""
        if self.is_held_out:
            return 0
        pool = self.calibration_pool
        return self.n_reference if pool is None else len(pool)

    @property
    def n_reference(self) -> int:
        """Rows that new rows are measured among."""
        return self.n_rows if self.reference is None else len(self.reference)

    def kept(self) -> GroupedSize:
        """Return what a model keeps of it."""
        return GroupedSize(
            self.kind, self.n_rows, self.n_calibration, self.n_pool, self.n_reference
        )


@dataclass(frozen=True, slots=True)
class GroupedSize:
    """How many rows a `GroupedSplit` has in its parts; which ones is not kept.

    Attributes
    ----------
    kind, n_rows, n_calibration, n_pool, n_reference
        As those of `CalibrationSplit`.
    """

    kind: str
    n_rows: int
    n_calibration: int
    n_pool: int
    n_reference: int


def split_calibration(
    calibration: str, n_rows: int, calibration_size: int | None, random_state: int | None
) -> CalibrationSplit:
    """Return the division for a kind of calibration.

    Parameters
    ----------
    calibration : {"loo", "split", "conformal"}
    n_rows : int
        Nominal rows.
    calibration_size : int, optional
        m. None: all (loo), or half of them, rounded up.
    random_state : int, optional
        None: another draw each time.

    Raises
    ------
    ValueError
        If there are not so many rows, or too few to be divided.

    Examples
    --------
    >>> parts = split_calibration("conformal", 5, 2, random_state=0)
    >>> len(parts.calibration), len(parts.reference)
    (2, 3)
    >>> parts = split_calibration("split", 10**12, None, random_state=0)  # drawn later
    >>> parts.n_reference, parts.max_neighbors
    (500000000000, 499999999999)
    """
    if calibration == "loo" and calibration_size is None:
        return CalibrationSplit(calibration, n_rows)
    half = (n_rows + 1) // 2
    most = {"loo": n_rows, "split": half, "conformal": n_rows - 1}[calibration]
    size = half if calibration_size is None else int(calibration_size)
    if size > most or (calibration != "loo" and n_rows < 2):
        raise ValueError(_too_few(calibration, n_rows, calibration_size, most))
    return CalibrationSplit(calibration, n_rows, size, random_state)


def default_calibration_size(calibration: str, n_rows: int) -> int | None:
    """Return the m of an approximate search, which measures calibration rows exactly.

    None: as many as otherwise, as these are not more.

    Examples
    --------
    >>> default_calibration_size("loo", 10**6)
    20000
    >>> default_calibration_size("conformal", 30_000) is None
    True
    """
    most = n_rows if calibration == "loo" else (n_rows + 1) // 2
    return APPROXIMATE_SIZE if most > APPROXIMATE_SIZE else None


def _too_few(calibration: str, n_rows: int, calibration_size: int | None, most: int) -> str:
    if calibration != "loo" and n_rows < 2:
        return (
            f"calibration={calibration!r} divides the nominal rows, but there are "
            f"n_samples = {n_rows}. Give at least 2."
        )
    return (
        f"calibration_size={calibration_size} is more than the {most} rows that "
        f"calibration={calibration!r} can draw from among {n_rows} nominal rows. Lower it, "
        f"or give more rows."
    )

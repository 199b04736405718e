"""Divide nominal rows into those that are measured and those they are measured among.

    calibration   measured rows            among                       new rows among
    loo           all, or m of them        all others                  all
    split         half S1, or m of it      the others of S1            the other half S2
    conformal     m                        all but these m             all but these m

The rows are drawn without replacement, by their number: neither chunks nor workers matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Division:
    """Numbers of nominal rows, ascending; None stands for all.

    Attributes
    ----------
    n_rows : int
        Nominal rows.
    calibration : ndarray of int, optional
        Whose statistics p-values compare with.
    own_part : ndarray of int, optional
        What those are measured among, if they belong to it, each without itself.
    reference : ndarray of int, optional
        What new rows are measured among; those of ``calibration``, too, if there is no
        ``own_part``.
    is_disjoint : bool
        Whether calibration and reference have no row in common.
    """

    n_rows: int
    calibration: NDArray[np.int64] | None = None
    own_part: NDArray[np.int64] | None = None
    reference: NDArray[np.int64] | None = None
    is_disjoint: bool = False

    @property
    def n_reference(self) -> int:
        """Rows that new rows are measured among."""
        return self.n_rows if self.reference is None else len(self.reference)

    @property
    def n_calibration(self) -> int:
        """Rows whose statistics p-values compare with."""
        return self.n_rows if self.calibration is None else len(self.calibration)

    @property
    def most_neighbors(self) -> int:
        """The largest K for which every row has a K-th neighbor."""
        n_searched = self.n_reference
        if self.own_part is not None:
            n_searched = min(n_searched, len(self.own_part))
        return n_searched - 1

    def check_neighbors(self, n_neighbors: int, calibration: str) -> None:
        """Raise ValueError if a row has no K-th neighbor."""
        n, most = self.n_rows, self.most_neighbors
        if n_neighbors <= most:
            return
        if not self.is_disjoint:
            raise ValueError(
                f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} nominal rows, "
                f"because a row is no neighbor of itself; there are n_samples = {n}. Lower "
                f"n_neighbors, or give more rows."
            )
        remedy = "Give more rows, or another calibration."
        if most > 0:
            remedy = f"Lower n_neighbors to {most} or less, or give more rows."
        raise ValueError(
            f"n_neighbors={n_neighbors} is too many for calibration={calibration!r}, which "
            f"measures new rows among {self.n_reference} of n_samples = {n} nominal rows. "
            f"{remedy}"
        )


def divide(
    calibration: str, n_rows: int, calibration_size: int | None, random_state: int | None
) -> Division:
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
    >>> parts = divide("conformal", 5, 2, random_state=0)
    >>> len(parts.calibration), len(parts.reference)
    (2, 3)
    """
    if calibration == "loo" and calibration_size is None:
        return Division(n_rows)
    size, half = _calibration_rows(calibration, n_rows, calibration_size), (n_rows + 1) // 2
    order = np.random.default_rng(random_state).permutation(n_rows)
    chosen = np.sort(order[:size])
    if calibration == "loo":
        return Division(n_rows, chosen)
    if calibration == "split":
        own, others = np.sort(order[:half]), np.sort(order[half:])
        return Division(n_rows, chosen, own, others, is_disjoint=True)
    return Division(n_rows, chosen, None, np.sort(order[size:]), is_disjoint=True)


def divide_in_size(
    calibration: str,
    n_rows: int,
    calibration_size: int | None,
    random_state: int | None = None,
) -> Division:
    """Return a division as large as that of `divide`, for plans: no rows are drawn.

    In place of numbers it has zeros, which take no memory. Parameters and errors are those
    of `divide`.

    Examples
    --------
    >>> parts = divide_in_size("split", 10**12, None)
    >>> parts.n_reference, parts.most_neighbors
    (500000000000, 499999999999)
    """
    if calibration == "loo" and calibration_size is None:
        return Division(n_rows)
    size, half = _calibration_rows(calibration, n_rows, calibration_size), (n_rows + 1) // 2
    chosen = _zeros(size)
    if calibration == "loo":
        return Division(n_rows, chosen)
    if calibration == "split":
        return Division(n_rows, chosen, _zeros(half), _zeros(n_rows - half), True)
    return Division(n_rows, chosen, None, _zeros(n_rows - size), True)


def _zeros(n_rows: int) -> NDArray[np.int64]:
    return np.broadcast_to(np.int64(0), n_rows)


def _calibration_rows(calibration: str, n_rows: int, calibration_size: int | None) -> int:
    """Return how many rows are calibration rows, where that is not all."""
    half = (n_rows + 1) // 2
    most = {"loo": n_rows, "split": half, "conformal": n_rows - 1}[calibration]
    size = half if calibration_size is None else int(calibration_size)
    if size > most or (calibration != "loo" and n_rows < 2):
        raise ValueError(_too_few(calibration, n_rows, calibration_size, most))
    return size


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

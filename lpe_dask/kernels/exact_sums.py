r"""Sums of products whose bits do not depend on how the rows are cut.

Floating-point sums change with their order, and p-values compare distances for equality, so
a mean learned from other chunks would move them. Here every product is split into its bits
and added to whole numbers, which is exact and commutative; the total is rounded once.

    left, right (n,) -> sum_of_products -> limbs (N_LIMBS,), one total -> as_float
    totals of a block -> Totals, without limbs that are 0 in all -> added -> as_floats

A total is ``sum(limbs[i] * 2**(32 i)) * 2**-2148``: 2**-2148 is the square of the smallest
float64, so that every product of two finite numbers fits without overflow or underflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import iadd

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels.compilation import run

#: Bits a limb stands for; the other half of its 64 takes carries and signs.
LIMB_BITS = 32
LIMB_MASK = 0xFFFFFFFF

#: The exponent of the smallest product: two numbers of 2**-1074.
LOWEST_EXPONENT = -2148

#: Whole numbers in a total: 4,196 bits of product and two limbs for carries.
N_LIMBS = 134

#: Rows that may be added before carries must be moved on; a limb grows by less than 2**33
#: a row.
ROWS_BETWEEN_CARRIES = 2**29

#: Numbers that are added up by `math.fsum`, and between which they have to be: products and
#: their parts then neither overflow nor underflow.
FEW, LEAST_SPLIT, MOST_SPLIT = 2**14, 2.0**-400, 2.0**400

#: What a product takes without compilation, in units of work.
PRODUCT_WORK = 600


def sum_of_products(
    left: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the exact sum of ``left * right`` as limbs of shape (N_LIMBS,).

    Parameters
    ----------
    left, right : ndarray of shape (n,)
        Finite. A sum of plain numbers is the sum of their products with 1.

    Returns
    -------
    limbs : ndarray of shape (N_LIMBS,)
        Limbs add up: those of parts, added elementwise, are those of the whole (for up to
        2**30 parts).

    Examples
    --------
    >>> numbers = np.array([1e100, 1.0, -1e100])
    >>> as_float(sum_of_products(numbers, np.ones(3)))
    1.0
    """
    limbs = np.zeros(N_LIMBS, np.int64)
    for start in range(0, len(left), ROWS_BETWEEN_CARRIES):
        part = slice(start, start + ROWS_BETWEEN_CARRIES)
        bits = _bits(left[part]), _bits(right[part])
        run("add_products", len(bits[0]) * PRODUCT_WORK, *bits, limbs)
        _carry(limbs)
    return limbs


def rounded_sum_of_products(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return ``as_float(sum_of_products(left, right))``, faster for few numbers.

    Each product is taken apart into two float64 (Dekker's product, of Veltkamp's halves),
    which `math.fsum` adds up and rounds once.

    Examples
    --------
    >>> numbers = np.array([1e100, 1.0, -1e100])
    >>> rounded_sum_of_products(numbers, np.ones(3))
    1.0
    """
    sizes = np.abs(np.concatenate([left, right]))
    is_moderate = ((sizes == 0) | ((sizes > LEAST_SPLIT) & (sizes < MOST_SPLIT))).all()
    if len(left) > FEW or not is_moderate:
        return as_float(sum_of_products(left, right))
    high, of_high = _halves(left), _halves(right)
    products = left * right
    errors = high[0] * of_high[0] - products
    errors += high[0] * of_high[1]
    errors += high[1] * of_high[0]
    errors += high[1] * of_high[1]
    return math.fsum([*products.tolist(), *errors.tolist()])


def _halves(
    numbers: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numbers of 26 bits each whose sums these are."""
    moved = numbers * 134217729.0  # 2**27 + 1
    high = moved - (moved - numbers)
    return high, numbers - high


def as_float(limbs: NDArray[np.int64]) -> float:
    """Return the total that ``limbs`` hold, rounded once to float64; inf past its range."""
    total = sum(int(limb) << (LIMB_BITS * i) for i, limb in enumerate(limbs))
    try:
        return float(Fraction(total, 2**-LOWEST_EXPONENT))
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


@dataclass(frozen=True, slots=True)
class Totals:
    """Several totals, without the limbs that none of them needs.

    Ordinary numbers need 6 to 8 limbs of the 134, and there are d (d + 1) / 2 totals for d
    columns.

    Attributes
    ----------
    first : int
        The limb that ``limbs[:, 0]`` is.
    limbs : ndarray of shape (n_totals, n_limbs)
        Of the sign of their total.
    """

    first: int
    limbs: NDArray[np.int64]

    @classmethod
    def of_products(
        cls, pairs: Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]]
    ) -> Totals:
        """Return the `sum_of_products` of each pair."""
        limbs = np.stack([sum_of_products(left, right) for left, right in pairs])
        # Whole numbers below 0 have ones all the way up; without their sign they end.
        is_negative = limbs[:, -1] < 0
        positive = -limbs[is_negative]
        for total in positive:
            _carry(total)
        limbs[is_negative] = -positive
        return _trimmed(0, limbs)

    @classmethod
    def add(cls, parts: Iterable[Totals]) -> Totals:
        """Return the sums of totals that belong together, for up to 2**30 parts in all."""
        parts = list(parts)
        return cls(min(part.first for part in parts), reduce(iadd, _aligned(parts)))

    @classmethod
    def join(cls, parts: Sequence[Totals]) -> Totals:
        """Return the totals of all parts, one after another."""
        return cls(min(part.first for part in parts), np.concatenate([*_aligned(parts)]))

    def __sizeof__(self) -> int:
        """Return the bytes of the limbs."""
        return self.limbs.nbytes

    def as_floats(self) -> NDArray[np.float64]:
        """Return each total rounded once to float64."""
        room = np.zeros(N_LIMBS, np.int64)
        floats = np.empty(len(self.limbs))
        for i, limbs in enumerate(self.limbs):
            room[self.first : self.first + len(limbs)] = limbs
            floats[i] = as_float(room)
        return floats


def _aligned(parts: Sequence[Totals]) -> Iterator[NDArray[np.int64]]:
    """Give copies of the limbs of each part, from the first limb of all to the last."""
    first = min(part.first for part in parts)
    stop = max(part.first + part.limbs.shape[1] for part in parts)
    for part in parts:
        start = part.first - first
        width = start, stop - first - start - part.limbs.shape[1]
        yield np.pad(part.limbs, ((0, 0), width))


def _trimmed(first: int, limbs: NDArray[np.int64]) -> Totals:
    used = np.flatnonzero((limbs != 0).any(axis=0))
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
    return Totals(first + low, limbs[:, low:high].copy())


def _bits(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(numbers, dtype=np.float64).view(np.int64)


def _carry(limbs: NDArray[np.int64]) -> None:
    """Bring all limbs but the last into [0, 2**32) without changing the total."""
    carried = 0
    for i, limb in enumerate(limbs[:-1].tolist()):
        total = limb + carried
        limbs[i] = total & LIMB_MASK
        carried = total >> LIMB_BITS
    limbs[-1] += carried

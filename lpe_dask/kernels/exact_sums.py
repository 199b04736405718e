r"""Sums of products whose bits do not depend on how the rows are cut.

Floating-point sums change with their order, and p-values compare distances for equality, so
a mean learned from other chunks would move them. Here every product is split into its bits
and added to whole numbers, which is exact and commutative.

    left, right (n,) -> sum_of_products -> limbs (N_LIMBS,), one total -> as_whole_number

A total is ``sum(limbs[i] * 2**(32 i)) * 2**-2148``: 2**-2148 is the square of the smallest
float64, so that every product of two finite numbers fits without overflow or underflow.
"""

from __future__ import annotations

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
    >>> as_whole_number(sum_of_products(numbers, np.ones(3))) == 2**-LOWEST_EXPONENT
    True
    """
    limbs = np.zeros(N_LIMBS, np.int64)
    for start in range(0, len(left), ROWS_BETWEEN_CARRIES):
        part = slice(start, start + ROWS_BETWEEN_CARRIES)
        bits = _bits(left[part]), _bits(right[part])
        run("add_products", len(bits[0]) * PRODUCT_WORK, *bits, limbs)
        _carry(limbs)
    return limbs


def as_whole_number(limbs: NDArray[np.int64]) -> int:
    """Return the total that ``limbs`` hold, in units of ``2**LOWEST_EXPONENT``."""
    used = np.flatnonzero(limbs).tolist()
    return sum(int(limbs[i]) << (LIMB_BITS * i) for i in used)


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

"""Products of float64 numbers, added exactly to whole numbers: see `exact_sums`."""

from __future__ import annotations

import numpy as np

from lpe_dask.kernels.compiled import compiled


@compiled
def _mantissa_and_exponent(bits):  # type: ignore[no-untyped-def]
    """Return m and e such that the number is m * 2**(e - 1074), without its sign."""
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent == 0:  # subnormal: no hidden bit
        return mantissa, 0
    return mantissa | 0x10000000000000, exponent - 1


@compiled
def add_products(left, right, limbs):  # type: ignore[no-untyped-def]
    """Add the products of some numbers to a total.

    Parameters
    ----------
    left, right : ndarray of shape (n,)
        The bits of finite float64 numbers.
    limbs : ndarray of shape (N_LIMBS,)
        Changed in place; carries are not moved on.
    """
    low_half = 0xFFFFFFFF
    for i in range(len(left)):
        a, exponent_a = _mantissa_and_exponent(left[i])
        b, exponent_b = _mantissa_and_exponent(right[i])
        if a == 0 or b == 0:
            continue
        # The 106-bit product of two 53-bit numbers, as four pieces of 32 bits.
        low = np.uint64(a & low_half) * np.uint64(b & low_half)
        middle = (a & low_half) * (b >> 32) + (a >> 32) * (b & low_half)
        high = (a >> 32) * (b >> 32)
        piece_0 = np.int64(low & np.uint64(low_half))
        rest = np.int64(low >> np.uint64(32)) + (middle & low_half)
        piece_1 = rest & low_half
        rest = (rest >> 32) + (middle >> 32) + (high & low_half)
        piece_2 = rest & low_half
        piece_3 = (rest >> 32) + (high >> 32)

        position = exponent_a + exponent_b
        first = position >> 5
        shift = position & 31
        sign = -1 if (left[i] ^ right[i]) < 0 else 1
        for piece in (piece_0, piece_1, piece_2, piece_3):
            shifted = piece << shift  # below 2**63
            limbs[first] += sign * (shifted & low_half)
            limbs[first + 1] += sign * (shifted >> 32)
            first += 1

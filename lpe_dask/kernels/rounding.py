r"""Offsets as whole numbers of 16 bits: what a filter multiplies.

    offset a (d,), float32 --/ step s, a power of 2, rounded--> A (d,)
    a.b = s_a s_b A.B +- (|a| rho_b + rho_a |b| + rho_a rho_b)

A is as long as 16 bits allow, so ``rho = |a - s A|`` is a small share of ``|a|``. Sums of
products are exact in 32 bits: each is at most ``|A| |B|``, and a length is at most
``2**15 + sqrt(d) / 2``. A whole number beyond 16 bits becomes the largest: no more than one
of a point is, which is then off by a step and not by half of one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Of a step: the length of what is rounded is below so many of them, but for small ones.
MAX_LENGTH, MIN_STEP = 2.0**15, 2.0**-60

#: The largest whole number.
LARGEST = 32767


def steps_of(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the steps of offsets of these squared lengths, powers of 2.

    Examples
    --------
    >>> steps_of(np.array([1.0, 4.0, 3.9])) * 2.0**14
    array([1., 2., 1.])
    """
    _, exponents = np.frexp(np.sqrt(squares))
    powers = np.where(squares > 0, np.ldexp(1.0, exponents), 0.0)
    return np.maximum(powers / MAX_LENGTH, MIN_STEP)


def worst_rounding(n_numbers: int) -> float:
    """Return how far offsets may be from their whole numbers, in steps, rounded up."""
    return 0.5 * math.sqrt(n_numbers + 3) * (1 + 2.0**-40)


def rounded_offsets(
    offsets: NDArray[np.float32], steps: NDArray[np.float64]
) -> tuple[NDArray[np.int16], NDArray[np.float64]]:
    """Return offsets of shape (n, n_numbers) as whole numbers, and how far these are off.

    Parameters
    ----------
    offsets : ndarray of shape (n, n_numbers)
    steps : ndarray of shape (n,)
    """
    wide = offsets.astype(np.float64)
    whole = np.clip(np.rint(wide / steps[:, None]), -LARGEST, LARGEST)
    off = wide - whole * steps[:, None]
    return whole.astype(np.int16), np.sqrt(np.einsum("ij,ij->i", off, off))

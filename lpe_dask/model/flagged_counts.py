r"""How many new nominal rows are flagged: in a group, and in all groups together.

    h new rows, m calibration rows, k places --> X ~ BetaBinomial(h, k, m + 1 - k)
    groups of equal h, m, k --power--> sums --convolved--> the sum over all groups

Given the rows that are searched, groups are independent of each other. Of each distribution
there are the numbers only that are not next to impossible, so that sums stay short.
The tails in each group are those of `pvalues.excess_p_values`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, betaln

#: Probability that is left out at either end of a sum.
NEGLIGIBLE = 1e-16

#: Most probabilities of a distribution: of more numbers several are one, the largest.
MAX_SHARES = 2**16

#: Numbers whose probabilities are computed at a time.
_AT_A_TIME = 2**20

#: Products of numbers from which on sums are convolved by Fourier transforms.
_MANY = 10**6


@dataclass(frozen=True, slots=True)
class Counts:
    """A distribution of whole numbers.

    Attributes
    ----------
    first : int
        The least number.
    shares : ndarray of shape (n_numbers,)
        The probabilities of this one and those that follow.
    step : int
        By how much each is larger than the one before, for which it stands, too, and for
        the numbers between: so sums are never too small.
    """

    first: int
    shares: NDArray[np.float64]
    step: int = 1

    @classmethod
    def flagged(cls, n_new: int, places: int, n_calibration: int) -> Self:
        """Return the distribution in a group; see `calibration_check`."""
        others = n_calibration + 1 - places
        if places == 0 or n_new == 0:
            return cls(0, np.ones(1))
        first, last = _likely(n_new, places, others)
        step = 1 << max(0, ((last - first) // MAX_SHARES).bit_length())
        shares = []
        at_a_time = max(_AT_A_TIME, step)  # both are powers of 2
        for start in range(first, last + 1, at_a_time):
            numbers = np.arange(start, min(start + at_a_time, last + 1))
            ways = -np.log(n_new + 1) - betaln(n_new - numbers + 1, numbers + 1)
            odds = betaln(numbers + places, n_new - numbers + others)
            of_each = np.exp(ways + odds - betaln(places, others))
            shares.append(np.add.reduceat(of_each, np.arange(0, len(of_each), step)))
        joined = np.concatenate(shares)
        return cls(first + step - 1, joined / joined.sum(), step)

    @classmethod
    def in_groups(
        cls,
        n_new: NDArray[np.int64],
        places: NDArray[np.int64],
        n_calibration: NDArray[np.int64],
    ) -> Counts:
        """Return that of the sum over groups, at least one."""
        # Groups of equal sizes have the same law.
        of_groups = np.stack([n_new, places, n_calibration], axis=1)
        different, counts = np.unique(of_groups, axis=0, return_counts=True)
        laws = (cls.flagged(*of) for of in different.tolist())
        parts = [of.times(n) for of, n in zip(laws, counts.tolist(), strict=True)]
        return total(sorted(parts, key=lambda of: of.step))  # fine ones are added first

    def __add__(self, other: Counts) -> Counts:
        """Return the distribution of the sum of independent numbers."""
        if self.step != other.step:
            fine, coarse = sorted((self, other), key=lambda of: of.step)
            return fine.coarser() + coarse
        n_shares = len(self.shares) + len(other.shares) - 1
        if len(self.shares) * len(other.shares) < _MANY:
            shares = np.convolve(self.shares, other.shares)
        else:
            size = 1 << (n_shares - 1).bit_length()
            waves = (np.fft.rfft(of.shares, size) for of in (self, other))
            shares = np.fft.irfft(next(waves) * next(waves), size)[:n_shares]
            shares = np.maximum(shares, 0.0)
        added = Counts(self.first + other.first, shares, self.step).trimmed()
        return added if len(added.shares) <= MAX_SHARES else added.coarser()

    def coarser(self) -> Counts:
        """Return the same with steps twice as large."""
        shares = np.append(self.shares, [0.0] * (len(self.shares) % 2))
        pairs = shares.reshape(-1, 2).sum(axis=1)
        return Counts(self.first + self.step, pairs, 2 * self.step)

    def times(self, n: int) -> Counts:
        """Return that of the sum of n, at least 1, such numbers."""
        if n == 1:
            return self.trimmed()
        half = self.times(n // 2)
        even = half + half
        return even + self if n % 2 else even

    def trimmed(self) -> Counts:
        """Return the same without what is next to impossible."""
        below, above = np.cumsum(self.shares), np.cumsum(self.shares[::-1])
        start = int(np.searchsorted(below, NEGLIGIBLE))
        stop = len(above) - int(np.searchsorted(above, NEGLIGIBLE))
        first = self.first + start * self.step
        return Counts(first, self.shares[start:stop], self.step)

    def quantile(self, level: float) -> int:
        """Return the least number up to which there is at least this probability."""
        place = int(np.searchsorted(np.cumsum(self.shares), level))
        return self.first + min(place, len(self.shares) - 1) * self.step


def _likely(n_new: int, places: int, others: int) -> tuple[int, int]:
    """Return from where to where numbers are that are not next to impossible.

    By quantiles of the rate, and Bernstein's inequality for the numbers at these rates.
    """
    tail = NEGLIGIBLE / 10
    low, high = betaincinv(places, others, tail), betainccinv(places, others, tail)
    far = -np.log(tail)
    first = n_new * low - np.sqrt(2 * far * n_new * low)
    last = n_new * high + np.sqrt(2 * far * n_new * high) + far
    return max(0, math.floor(first)), min(n_new, math.ceil(last))


def total(parts: list[Counts]) -> Counts:
    """Return the distribution of the sum of independent numbers, at least one."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [a + b for a, b in pairs] + parts[len(parts) // 2 * 2 :]
    return parts[0]

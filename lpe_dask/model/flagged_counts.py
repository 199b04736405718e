r"""How many held-out nominal rows are flagged: in a group, and in all groups together.

    h held-out, m calibration rows, k places --> X ~ BetaBinomial(h, k, m + 1 - k)
    groups of equal h, m, k --power--> sums --convolved--> the sum over all groups

Given the rows that are searched, groups are independent of each other. Of each distribution
there are the numbers only that are not next to impossible, so that sums stay short.
The tails in each group are those of `pvalues.excess_p_values`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

#: Probability that is left out at either end of a sum.
NEGLIGIBLE = 1e-16


@dataclass(frozen=True, slots=True)
class Counts:
    """A distribution of whole numbers.

    Attributes
    ----------
    first : int
        The least number.
    shares : ndarray of shape (n_numbers,)
        The probabilities of this one and those that follow.
    """

    first: int
    shares: NDArray[np.float64]

    @classmethod
    def flagged(cls, n_held_out: int, places: int, n_calibration: int) -> Self:
        """Return the distribution in a group; see `calibration_check`."""
        if places == 0:
            return cls(0, np.ones(1))
        numbers, others = np.arange(n_held_out + 1), n_calibration + 1 - places
        ways = -np.log(n_held_out + 1) - betaln(n_held_out - numbers + 1, numbers + 1)
        odds = betaln(numbers + places, n_held_out - numbers + others)
        return cls(0, np.exp(ways + odds - betaln(places, others)))

    def __add__(self, other: Counts) -> Counts:
        """Return the distribution of the sum of independent numbers."""
        shares = np.convolve(self.shares, other.shares)
        return Counts(self.first + other.first, shares).trimmed()

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
        return Counts(self.first + start, self.shares[start:stop])

    def quantile(self, level: float) -> int:
        """Return the least number up to which there is at least this probability."""
        place = int(np.searchsorted(np.cumsum(self.shares), level))
        return self.first + min(place, len(self.shares) - 1)


def total(parts: list[Counts]) -> Counts:
    """Return the distribution of the sum of independent numbers, at least one."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [a + b for a, b in pairs] + parts[len(parts) // 2 * 2 :]
    return parts[0]

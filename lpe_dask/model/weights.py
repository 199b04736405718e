"""Weights of columns, as mantissas and exponents that no range is too large for.

Given ones, and learned ones that they are multiplied with, become powers of two for the
columns and weights from 1 to 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Significant bits of a learned weight, and the largest exponent of a factor.
LEARNED_BITS, MOST_EXPONENT = 24, 1022


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights ``mantissas * 2**exponents`` of squared differences.

    A learned weight is rounded to `LEARNED_BITS` significant bits. The square of a whole
    number times such a weight, and sums of such products, are then exact as long as they
    are below ``2**(53 - LEARNED_BITS)`` weights: columns of one range tie wherever they tie
    without a scale.

    Attributes
    ----------
    mantissas : ndarray of shape (n_columns,)
    exponents : ndarray of int of shape (n_columns,)
    """

    mantissas: NDArray[np.float64]
    exponents: NDArray[np.int64]

    @classmethod
    def ones(cls, n_columns: int) -> Weights:
        """Return weights of 1."""
        return cls(np.ones(n_columns), np.zeros(n_columns, np.int64))

    @classmethod
    def learned_from_variances(cls, variances: NDArray[np.float64]) -> Weights:
        """Return ``1 / variances``, rounded."""
        mantissas, exponents = np.frexp(variances)
        return cls(_rounded(1.0 / mantissas), -exponents.astype(np.int64))

    @classmethod
    def learned_from_ranges(cls, ranges: NDArray[np.float64]) -> Weights:
        """Return ``1 / ranges**2``, rounded."""
        mantissas, exponents = np.frexp(ranges)
        squares = mantissas * mantissas
        return cls(_rounded(1.0 / squares), -2 * exponents.astype(np.int64))

    def times(self, weights: NDArray[np.float64]) -> Weights:
        """Return the product with given weights, rounded once."""
        mantissas, exponents = np.frexp(weights)
        return Weights(self.mantissas * mantissas, self.exponents + exponents)

    def divided_by(self, variances: NDArray[np.float64]) -> Weights:
        """Return the quotient by given variances, rounded once."""
        mantissas, exponents = np.frexp(variances)
        return Weights(self.mantissas / mantissas, self.exponents - exponents)

    def joined(self, others: Weights) -> Weights:
        """Return these weights and those of further columns."""
        mantissas = np.append(self.mantissas, others.mantissas)
        return Weights(mantissas, np.append(self.exponents, others.exponents))

    def as_factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return powers of two for the columns, and the weights that are left then.

        A column times ``2**p`` with its weight times ``2**(-2 p)`` makes the same
        distances, bit for bit, where nothing overflows or underflows. With weights from 1
        to 4, a square overflows only if the distance does. Others are left of weights that
        no power of two is large or small enough for. A weight of 0 gives the factor 0.
        """
        mantissas, exponents = np.frexp(self.mantissas)
        exponents = exponents + self.exponents
        powers = np.clip((exponents - 1) // 2, -MOST_EXPONENT, MOST_EXPONENT)
        factors = np.where(mantissas == 0, 0.0, np.ldexp(1.0, powers))
        with np.errstate(over="ignore"):
            return factors, np.ldexp(mantissas, exponents - 2 * powers)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    mantissas, exponents = np.frexp(values)
    wholes = np.rint(np.ldexp(mantissas, LEARNED_BITS))
    rounded: NDArray[np.float64] = np.ldexp(wholes, exponents - LEARNED_BITS)
    return rounded

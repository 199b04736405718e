r"""Certify the p-values of a search that may miss neighbors, by a random sample of rows.

    sampled rows --approximately, exactly--> |p - p_exact| --Clopper, Pearson--> bound

What is bounded is the share of all rows whose p-value is off by more than allowed. If that
share is s, a sample of N rows has x or fewer of them with probability at most
:math:`\sum_{i \le x} \binom{N}{i} s^i (1 - s)^{N - i}`, less if it is drawn without
replacement; the bound is the s at which that falls to what may go wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.lpe_parameters import exact_level

#: The probability, over the seed of the sample, that a certificate is wrong.
FAILURE_PROBABILITY = 1e-4

#: The largest share of the rows that may have a p-value off by more than allowed. Of the
#: `Approximation.AUDITED_ROWS` of a sample 11 may be: a search of which one row in a
#: thousand is off fails 7 times in 100,000.
MAX_ERROR_SHARE = 0.01

#: Which draws of `draws` select the sample of nominal rows, and that of a table's rows.
NOMINAL_DRAW, TABLE_DRAW = 0, 1


@dataclass(frozen=True, slots=True)
class ApproximationSettings:
    """What is asked of p-values.

    Attributes
    ----------
    max_p_error : float
        What a p-value may be off.
    recheck : float
        P-values up to this are those of the exact search.
    seed : int
        Of the samples.
    """

    max_p_error: float
    recheck: float
    seed: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the settings by the arguments of `LPE`."""
        return cls(  # they may be numbers of NumPy
            float(parameters["max_p_error"]),
            exact_level(parameters),
            int(parameters["random_state"] or 0),
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of the p-values of some rows.

    Attributes
    ----------
    max_p_error : float
        What a p-value may be off.
    bound : float
        With probability 1 - risk, at most this share of the rows is off by more.
    risk : float
        The probability that ``bound`` is wrong.
    n_audited : int
        Rows of the sample; 0 where all rows were measured exactly.
    n_exceeding : int
        Of these, rows that were off by more.
    largest_error : float
        Among these.
    """

    max_p_error: float
    bound: float
    risk: float
    n_audited: int
    n_exceeding: int
    largest_error: float

    @property
    def is_exact(self) -> bool:
        """Whether all rows were measured exactly."""
        return self.n_audited == 0

    def check(self) -> None:
        """Raise RuntimeError if more than 1 % of the rows may be off."""
        if self.bound > MAX_ERROR_SHARE:
            raise RuntimeError(
                f"the approximate search misses too many neighbors: {self}. No more than "
                f"{MAX_ERROR_SHARE:.0%} may be. Use an exact algorithm (algorithm='auto', "
                f"--algorithm auto), or allow larger errors (max_p_error=, --max-p-error)."
            )

    def as_json(self) -> dict[str, Any]:
        """Return it for a summary or a manifest."""
        return asdict(self)

    def __str__(self) -> str:
        """Return it in words."""
        if self.is_exact:
            return "every row was measured exactly"
        return (
            f"with probability 1 - {self.risk:g}, at most {self.bound:.2%} of the rows "
            f"have a p-value off by more than {self.max_p_error:g} ({self.n_exceeding} of "
            f"{self.n_audited} sampled rows, the largest error {self.largest_error:.2g})"
        )


def certificate_of(errors: NDArray[np.float64], max_p_error: float) -> Certificate:
    """Return the certificate by the errors of a sample of p-values; NaN is none.

    Without any, as where all rows are measured exactly, no row is off.
    """
    errors = errors[~np.isnan(errors)]
    n_exceeding = int((errors > max_p_error).sum())
    bound = clopper_pearson_upper(n_exceeding, len(errors), FAILURE_PROBABILITY)
    return Certificate(
        max_p_error, bound, FAILURE_PROBABILITY, len(errors),
        n_exceeding, float(errors.max(initial=0.0)),
    )  # fmt: skip


def clopper_pearson_upper(n_found: int, n_sampled: int, risk: float) -> float:
    """Return the one-sided bound of Clopper and Pearson for a share; 0 without a sample.

    Examples
    --------
    >>> round(clopper_pearson_upper(11, 3000, 1e-4), 5), clopper_pearson_upper(5, 5, 1e-4)
    (0.00974, 1.0)
    """
    if n_found == n_sampled:
        return 1.0 if n_sampled > 0 else 0.0
    # Not for workers; and `scipy.stats` would take half a second.
    from scipy.special import betaincinv

    return float(betaincinv(n_found + 1, n_sampled - n_found, 1 - risk))


def draws(numbers: NDArray[np.int64], seed: int, draw: int) -> NDArray[np.uint64]:
    """Return a random number for each row, by seed, draw and row number alone.

    The rows with the smallest are a simple random sample, and those of different draws are
    drawn independently. (The finalizer of splitmix64.)

    Examples
    --------
    >>> int(draws(np.array([7]), 0, 1)[0]) == int(draws(np.array([3, 7]), 0, 1)[1])
    True
    """
    key = _scrambled(_scrambled(np.array([seed % 2**64], np.uint64)) + np.uint64(draw))
    return _scrambled(_scrambled(numbers.astype(np.uint64) + key) ^ key)


def _scrambled(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

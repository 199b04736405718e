r"""Certify the p-values of a search that may miss neighbors, by a random sample of rows.

    sampled rows --approximately, exactly--> |p - p_exact| --Clopper, Pearson--> bound

What is bounded is the share of all rows whose p-value is off by more than allowed. If that
share is s, a sample of N rows holds x or fewer of them with probability at most
:math:`\sum_{i \le x} \binom{N}{i} s^i (1 - s)^{N - i}`, less if it is drawn without
replacement; the bound is the s at which that falls to what may go wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from lpe_dask.model.parameters import recheck_level

#: The probability, over the seed of the sample, that a certificate is wrong.
RISK = 1e-4

#: Rows of the first sample, at least, and how much larger each sample is than that. The
#: first can certify only if hardly any row is off, which good searches may fail by chance.
LEAST_SAMPLE, SAMPLE_FACTORS = 1100, (1, 2, 2)

#: Samples that are drawn at most: one more after each that certifies nothing. They share
#: the risk.
ROUNDS = len(SAMPLE_FACTORS)

#: Which draws of `draws` tell the samples of nominal rows, one a round, those of rows of
#: a table, the rows that guides are tried on, and those that a quantile scale is learned
#: from. What one of them finds decides how to search for rows that another one judges, so
#: no two are the same.
NOMINAL_DRAWS = range(ROUNDS)
TABLE_DRAWS = range(ROUNDS, 2 * ROUNDS)
TUNING_DRAW = 2 * ROUNDS
SCALE_DRAW = TUNING_DRAW + 1

#: How much larger the first is than the smallest that may certify, with no row off.
RESERVE = 1.07


@dataclass(frozen=True, slots=True)
class Quality:
    """What is asked of p-values.

    Attributes
    ----------
    max_p_error : float
        What a p-value may be off.
    max_error_share : float
        The share of rows that may be off by more.
    on_low_quality : {"repair", "error"}
    recheck : float
        P-values up to this are those of the exact search.
    seed : int
        Of the samples.
    """

    max_p_error: float
    max_error_share: float
    on_low_quality: str
    recheck: float
    seed: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return what the arguments of `LPE` ask."""
        return cls(  # they may be numbers of NumPy
            float(parameters["max_p_error"]),
            float(parameters["max_error_share"]),
            parameters["on_low_quality"],
            recheck_level(parameters),
            int(parameters["random_state"] or 0),
        )

    @property
    def sample_rows(self) -> tuple[int, ...]:
        """Rows of each sample: if none of them is off, the share is as small as asked."""
        needed = math.log(RISK / ROUNDS) / math.log1p(-self.max_error_share)
        first = max(LEAST_SAMPLE, math.ceil(RESERVE * needed))
        return tuple(first * factor for factor in SAMPLE_FACTORS)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of the p-values of some rows.

    Attributes
    ----------
    max_p_error, max_error_share : float
        As asked: see `Quality`.
    bound : float
        With probability 1 - risk, at most this share of the rows is off by more than
        ``max_p_error``.
    risk : float
    audited : int
        Rows of the last sample; 0 where all rows were measured exactly.
    beyond : int
        Of these, rows that were off by more.
    largest_error : float
        Among these.
    rounds : int
        Samples that were drawn.
    blocks, exact_blocks : int
        Of the nominal rows; and those of them that were compared as a whole.
    """

    max_p_error: float
    max_error_share: float
    bound: float
    risk: float
    audited: int
    beyond: int
    largest_error: float
    rounds: int
    blocks: int
    exact_blocks: int

    @property
    def is_met(self) -> bool:
        """Whether p-values are as good as asked."""
        return self.bound <= self.max_error_share

    def as_json(self) -> dict[str, Any]:
        """Return it for a summary or a manifest."""
        return asdict(self)

    def __str__(self) -> str:
        """Return it in words."""
        exactly = f"{self.exact_blocks} of {self.blocks} blocks were compared as a whole"
        if self.audited == 0:
            after = f", after {self.rounds} samples" if self.rounds > 0 else ""
            return f"every row was measured exactly{after}"
        return (
            f"{'met' if self.is_met else 'not met'}: with probability 1 - {self.risk:g}, "
            f"at most {self.bound:.2%} of the rows have a p-value off by more than "
            f"{self.max_p_error:g} ({self.beyond} of {self.audited} sampled rows, the "
            f"largest error {self.largest_error:.2g}; {exactly})"
        )


def certificate_of(
    errors: NDArray[np.float64], quality: Quality, rounds: int, blocks: int, exact: int
) -> Certificate:
    """Return the certificate by the errors of a sample of p-values; NaN is none."""
    errors = errors[~np.isnan(errors)]
    beyond = int((errors > quality.max_p_error).sum())
    return Certificate(
        quality.max_p_error, quality.max_error_share,
        upper_bound(beyond, len(errors), RISK / ROUNDS), RISK, len(errors), beyond,
        float(errors.max(initial=0.0)), rounds, blocks, exact,
    )  # fmt: skip


def exact_certificate(quality: Quality, rounds: int, blocks: int) -> Certificate:
    """Return the certificate of rows that are all measured exactly."""
    return Certificate(
        quality.max_p_error, quality.max_error_share, 0.0, RISK, 0, 0, 0.0, rounds, blocks,
        blocks,
    )  # fmt: skip


def upper_bound(n_found: int, n_sampled: int, risk: float) -> float:
    """Return the one-sided bound of Clopper and Pearson for a share.

    Examples
    --------
    >>> round(upper_bound(0, 1100, 1e-4 / 3), 5), upper_bound(5, 5, 1e-4)
    (0.00933, 1.0)
    """
    if n_found == n_sampled:
        return 1.0
    return float(beta.ppf(1 - risk, n_found + 1, n_sampled - n_found))


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

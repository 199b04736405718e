r"""Accumulate evidence that rows have changed, against one reference, over many runs.

    counts of runs in bulk bins --likelihood ratios of bets--> wealth --> evidence

The m calibration rows cut new rows into m + 1 gaps, whose probabilities were drawn once, by
a uniform Dirichlet law. Given the calibration and the runs before, the counts n of a run
are therefore Dirichlet-multinomial, as drawn from Polya's urn that holds

.. math:: a_b = c_b + \text{rows of earlier runs in bin } b

for c_b calibration rows there. Where the first runs of a series are the reference, c_b is
their count and 1/2 (Jeffreys' prior, as these bins were given). A bet tilts the urn in a
direction h, to :math:`q_b \propto a_b e^{\theta h_b}` of the same sum, and multiplies its
money by the likelihood ratio

.. math:: L = \sum_b \log\frac{\Gamma(q_b + n_b)}{\Gamma(q_b)}
          - \log\frac{\Gamma(a_b + n_b)}{\Gamma(a_b)}

whose mean is 1 while nothing has changed. So all money together is a martingale that begins
at 1, and ever reaches 1 / delta with a probability of at most delta (Ville's inequality).

All functions take leading axes, for several series of runs at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

#: How strongly bets tilt, in standard deviations of their direction, to either side.
_TILTS = (0.025, 0.0625, 0.156, 0.39, 0.98)

#: The most bets: either way in each of four directions.
MAX_BETS = 2 * 4 * len(_TILTS)

#: Width of the directions at either end, as a share of the rows of the bulk.
_END = 0.1

#: Larger exponents count as this. Only bins that ties left hardly any calibration rows
#: have such: a bet would put all rows there, or be no finite number.
_MAX_TILT = 6.0

#: Squared lengths below this are those of directions that rounding made.
_NO_LENGTH = 1e-12


def bet_exponents(widths: NDArray[np.floating | np.integer]) -> NDArray[np.float64]:
    """Return the exponents by which bets tilt the bins, of shape (n_bets, n_bulk).

    Directions are location, spread, and either end, each of mean 0 and variance 1 under
    the reference.

    Parameters
    ----------
    widths : ndarray of shape (n_bulk,)
        Rows of the reference in each bulk bin.
    """
    shares = widths / max(1, widths.sum())
    u = np.cumsum(shares) - shares / 2
    shapes = [u, (u - 0.5) ** 2, np.exp(-u / _END), np.exp(-(1 - u) / _END)]
    centered = [shape - shares @ shape for shape in shapes]
    lengths = [float(shares @ shape**2) for shape in centered]
    directions = [
        shape / math.sqrt(length)
        for shape, length in zip(centered, lengths, strict=True)
        if length > _NO_LENGTH
    ]
    tilts = [sign * tilt for tilt in _TILTS for sign in (1, -1)]
    exponents = [tilt * direction for tilt in tilts for direction in directions]
    return np.array(exponents).reshape(len(exponents), len(widths))


def log_ratios(
    urn: NDArray[np.float64], counts: NDArray[np.float64], exponents: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return L of each bet, of shape (..., n_bets).

    Parameters
    ----------
    urn : ndarray of shape (..., n_bulk)
        a, all above 0.
    counts : ndarray of shape (..., n_bulk)
        n of the run.
    exponents : ndarray of shape (n_bets, n_bulk)
    """
    tilted = urn[..., None, :] * np.exp(exponents.clip(-_MAX_TILT, _MAX_TILT))
    tilted *= urn.sum(-1)[..., None, None] / tilted.sum(-1, keepdims=True)
    n = counts[..., None, :]
    alternative = (gammaln(tilted + n) - gammaln(tilted)).sum(-1)
    null = (gammaln(urn + counts) - gammaln(urn)).sum(-1)
    return np.asarray(alternative - null[..., None])


def update_log_wealth(
    log_wealth: NDArray[np.float64], ratios: NDArray[np.float64], run: int
) -> NDArray[np.float64]:
    """Return the logarithm of what each bet has after a run, of shape (..., n_bets).

    Each run some of what is left is put on all bets, so that late changes are found, too.

    Parameters
    ----------
    log_wealth : ndarray of shape (..., n_bets)
        Before; ``-inf`` before the first run.
    ratios : ndarray of shape (..., n_bets)
        As `log_ratios` gives them.
    run : int
        Its number, from 1.
    """
    if ratios.shape[-1] == 0:
        return ratios
    put = (_left(run - 1) - _left(run)) / ratios.shape[-1]
    return np.logaddexp(log_wealth, math.log(put)) + ratios


def log_evidence(log_wealth: NDArray[np.float64], run: int) -> NDArray[np.float64]:
    """Return the logarithm of all money after a run: bets, and what is left.

    0 where there is nothing to bet on.
    """
    if log_wealth.shape[-1] == 0:
        return np.zeros(log_wealth.shape[:-1])
    left = np.full((*log_wealth.shape[:-1], 1), math.log(_left(run)))
    all_money = np.concatenate([log_wealth, left], axis=-1)
    return np.asarray(np.logaddexp.reduce(all_money, axis=-1))


def _left(run: int) -> float:
    """Return how much was not put on any bet yet, after so many runs."""
    return 1 / math.log2(run + 2)

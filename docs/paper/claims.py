"""The table: each claim of the paper, the result here, and whether the claim holds.

A claim is judged once, under the settings that the paper gives it. Other numbers are shown
but not judged. Results are averages over draws: a number with its standard error, or a ROC
curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from paper.roc import Curve, detection_at

HOLDS, FAILS, UNDECIDED, OPEN = "holds", "does not hold", "undecided", "not judged"

#: False-alarm rates at which ROC curves are averaged.
LEVELS: NDArray[np.float64] = np.linspace(0.0, 1.0, 201)

#: An average is known up to this many standard errors, in both directions.
STANDARD_ERRORS = 2.0

#: A number of the paper, which comes from one draw or an unknown number of them, agrees if
#: it is at most this many standard deviations of single draws from the average here.
DEVIATIONS = 2.0

#: A rate of false alarms is about its level if it is at least this share of it.
MIN_SHARE = 0.5

#: Two rates that a figure shows by eye are close if they differ by no more than this.
CLOSE = 0.02

#: A number that tends to 0 falls at least like n to the power of minus this: by the paper's
#: lemma on K-LPE, m rows allow deviations of m^(-1/10).
SLOWEST_RATE = 0.1

#: Claims of the paper that no row judges, and why.
NOT_JUDGED = (
    (
        "Computing is linear in the dimension and quadratic in the number of rows",
        "the definition compares all n^2 pairs in d columns: to count them would only "
        "confirm the formula, and seconds are those of this library, which skips pairs",
    ),
    (
        "Thresholding p-values is uniformly most powerful",
        "it is proven, for the p-values of the exact densities",
    ),
    (
        "K-LPE is preferable to epsilon-LPE, as K is easier to choose",
        "the paper says neither what is easy nor how epsilon would be chosen",
    ),
    (
        "A good K is relatively independent of the dimension",
        "no range of dimensions and no measure is given",
    ),
)


class Average(NamedTuple):
    """The mean of one number over draws.

    Attributes
    ----------
    mean : float
    deviation : float
        Standard deviation of single draws (ddof 1).
    n_draws : int
    """

    mean: float
    deviation: float
    n_draws: int

    @property
    def standard_error(self) -> float:
        """The standard deviation of the mean."""
        return float(self.deviation / np.sqrt(self.n_draws))

    def __str__(self) -> str:
        """Return the mean with its standard error."""
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"

    def minus(self, other: Average) -> Average:
        """Return the difference to the mean of other draws, over as many draws as here."""
        error = np.hypot(self.standard_error, other.standard_error)
        deviation = float(error * np.sqrt(self.n_draws))
        return Average(self.mean - other.mean, deviation, self.n_draws)


def average(values: Iterable[float]) -> Average:
    """Return the average of a number that was found in each draw, at least two.

    Examples
    --------
    >>> average([1.0, 2.0, 3.0])
    Average(mean=2.0, deviation=1.0, n_draws=3)
    """
    array = np.fromiter(values, dtype=np.float64)
    return Average(float(array.mean()), float(array.std(ddof=1)), len(array))


def average_lead(ours: Iterable[float], others: Iterable[float]) -> Average:
    """Return the average by which one number is ahead of another, draw by draw."""
    return average(a - b for a, b in zip(ours, others, strict=True))


def at_levels(curve: Curve) -> Curve:
    """Return a curve at `LEVELS` only, to draw it; its area is that of the curve itself."""
    return Curve(LEVELS, detection_at(curve, LEVELS))


def average_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean detection rate of the curves at each of `LEVELS`."""
    return Curve(LEVELS, np.mean([at_levels(curve).detection for curve in curves], axis=0))


class Verdict(NamedTuple):
    """Whether a claim holds, and why."""

    verdict: str
    reason: str


#: A number, and the verdict on it.
Judged = tuple[Average, Verdict]


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes
    ----------
    key : str
        A short name, unique in the table.
    place : str
        Figure or section of the paper.
    claim : str
    paper : str
        The paper's value; "-" where it gives none, or words.
    here : Average
    procedure : str
        How ``here`` was obtained.
    verdict, reason : str
    """

    key: str
    place: str
    claim: str
    paper: str
    here: Average
    procedure: str
    verdict: str
    reason: str


class Experiment(NamedTuple):
    """The result of one experiment: a figure, and its rows of the table."""

    figure: Figure
    rows: Sequence[Row]


def false_alarm_bound(alpha: float, n: int) -> float:
    """Return the largest average rate of false alarms that n nominal rows allow."""
    return (math.floor(alpha * n + 1e-9) + 1) / (n + 1)


def is_within(here: Average, low: float, high: float, reason: str) -> Verdict:
    """Judge whether a number lies between two bounds.

    It does if the whole interval of `STANDARD_ERRORS` around it does, it does not if no
    part of that interval does, and else it is undecided.
    """
    error = STANDARD_ERRORS * here.standard_error
    if low <= here.mean - error and here.mean + error <= high:
        return Verdict(HOLDS, reason)
    is_outside = here.mean + error < low or here.mean - error > high
    return Verdict(FAILS if is_outside else UNDECIDED, reason)


def is_controlled(here: Average, level: float, bound: float) -> Verdict:
    """Judge whether false alarms are at most a bound, and of the order of their level.

    A test that never alarms controls nothing.
    """
    least = MIN_SHARE * level
    reason = (
        f"the bound (floor(a n) + 1) / (n + 1) is {bound:.4f}; about the level means at "
        f"least {least:.4f}"
    )
    return is_within(here, least, bound, reason)


def is_close(gap: Average, reason: str) -> Verdict:
    """Judge whether a difference is at most `CLOSE`."""
    return is_within(gap, -np.inf, CLOSE, f"{reason}; close means within {CLOSE:g}")


def is_greater(difference: Average, named: str) -> Verdict:
    """Judge whether an average difference is positive."""
    positive = np.nextafter(0.0, 1.0)
    return is_within(difference, positive, np.inf, f"{named}: {with_error(difference)}")


def vanishes(all_values: Sequence[Sequence[float]], sizes: Sequence[int]) -> Verdict:
    """Judge whether a difference tends to 0 with n.

    It does if it is positive at first and falls with each step to a larger n at least like
    n^(-1/10), the rate of the paper's lemma on K-LPE.

    Parameters
    ----------
    all_values : sequence of sequence of float
        The difference in each draw, for each of ``sizes``.
    sizes : sequence of int
        n, increasing.
    """
    gaps = [average(values) for values in all_values]
    steps = [
        average(
            (before / after) ** SLOWEST_RATE * a - b for a, b in zip(*pair, strict=True)
        )
        for (before, after), pair in zip(pairwise(sizes), pairwise(all_values), strict=True)
    ]
    named = ", ".join(f"n={n}: {gap}" for n, gap in zip(sizes, gaps, strict=True))
    verdicts = [is_greater(number, "") for number in (gaps[0], *steps)]
    return all_of(verdicts, f"{named}; each step has to fall at least like n^(-1/10)")


def all_of(verdicts: Sequence[Verdict], reason: str) -> Verdict:
    """Judge a claim of several parts: it holds if all hold, and fails if one fails."""
    names = {HOLDS, *(verdict.verdict for verdict in verdicts)}
    return Verdict(next(n for n in (FAILS, UNDECIDED, HOLDS) if n in names), reason)


def over_choices(judged: Mapping[str, Judged], chosen: str, named: str) -> Verdict:
    """Judge a claim under each of several choices that the paper leaves open.

    Where the verdicts differ, the claim is undecided. The reason begins with that of
    ``chosen``.
    """
    verdicts = {verdict.verdict for _, verdict in judged.values()}
    listed = ", ".join(
        f"{name} {here.mean:.4f} {verdict.verdict}"
        for name, (here, verdict) in judged.items()
    )
    return Verdict(
        verdicts.pop() if len(verdicts) == 1 else UNDECIDED,
        f"{judged[chosen][1].reason}; {named}: {listed}",
    )


def agrees_with_one_draw(here: Average, paper: float) -> Verdict:
    """Judge whether a number of the paper may be one of the draws, within `DEVIATIONS`."""
    off = abs(here.mean - paper)
    return Verdict(
        HOLDS if off <= DEVIATIONS * here.deviation else FAILS,
        f"the paper's number is {off:.3f} off; draws scatter by {here.deviation:.3f}",
    )


def not_judged(reason: str) -> Verdict:
    """Return the verdict on a number that is shown, but not judged."""
    return Verdict(OPEN, reason)


def with_error(here: Average) -> str:
    """Return a difference as text, with its standard error."""
    return f"{here.mean:+.4f} ± {here.standard_error:.4f}"

"""The table: each claim of the paper, what comes out here, and whether the claim holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lpe_dask.paper.averages import Average

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be compared"

#: What is known of an average is known up to so many standard errors.
STANDARD_ERRORS = 3.0

#: A number of the paper, which comes from one draw or an unknown number of them, agrees if
#: it lies at most so many standard deviations of single draws from the average here.
DEVIATIONS = 2.0

#: A rate of false alarms is about its level if it is at least this share of it.
LEAST_SHARE = 0.5

#: Two rates that a figure shows by eye are close if they differ by no more than this.
CLOSE = 0.02


class Verdict(NamedTuple):
    """Whether a claim holds, and by what that is judged."""

    verdict: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes
    ----------
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

    place: str
    claim: str
    paper: str
    here: Average
    procedure: str
    verdict: str
    reason: str

    def shown(self) -> str:
        """Return the number with its standard error, as the page shows it."""
        return f"{self.here.mean:.4f} ± {self.here.standard_error:.4f}"


@dataclass(frozen=True)
class Experiment:
    """What one experiment gives: a figure, its rows of the table, and what to know.

    Attributes
    ----------
    number : int
        Of the figure.
    title, caption : str
    figure : matplotlib Figure
    rows : sequence of Row
    sources : sequence of str
        Where the data are from; empty for random rows.
    skipped : sequence of str
        What could not be had, and why.
    remarks : sequence of str
        How the text was read where it cannot be taken as it stands.
    """

    number: int
    title: str
    caption: str
    figure: Figure
    rows: Sequence[Row]
    sources: Sequence[str] = ()
    skipped: Sequence[str] = ()
    remarks: Sequence[str] = ()


def judged(is_true: bool, reason: str) -> Verdict:
    """Return the verdict on a claim that is true or not."""
    return Verdict(HOLDS if is_true else FAILS, reason)


def is_controlled(here: Average, level: float, bound: float, named: str) -> Verdict:
    """Judge whether a rate is controlled: at most a bound, and of the order of its level.

    Both within `STANDARD_ERRORS`; a test that never alarms controls nothing.
    """
    error = STANDARD_ERRORS * here.standard_error
    least = LEAST_SHARE * level
    return judged(
        here.mean - error <= bound and here.mean + error >= least,
        f"{named} is {bound:.4f}; about the level means at least {least:.4f}",
    )


def agrees_with_one_draw(here: Average, paper: float) -> Verdict:
    """Judge whether a number of the paper may be one of the draws, within `DEVIATIONS`."""
    off = abs(here.mean - paper)
    return judged(
        off <= DEVIATIONS * here.deviation,
        f"the paper's number is {off:.3f} off; draws scatter by {here.deviation:.3f}",
    )


def is_greater(difference: Average, named: str) -> Verdict:
    """Judge whether an average difference is positive by more than `STANDARD_ERRORS`."""
    error = STANDARD_ERRORS * difference.standard_error
    return judged(
        difference.mean > error,
        f"{named}: {difference.mean:+.4f} with a standard error of "
        f"{difference.standard_error:.4f}",
    )


def not_comparable(reason: str) -> Verdict:
    """Return the verdict on a number that the paper does not give."""
    return Verdict(OPEN, reason)

r"""Count values that no nominal row has, and judge whether there are more than by chance.

    columns of nominal rows --upper bound--> probability of values like none of them
    rows of a run           --lower bound--> probability of such values there

Of n exchangeable values, a new one is beyond the least or the largest with a probability
that is distributed as Beta(2, n - 1), or less with ties. The probability M of categories
that none of n rows has is bounded by the numbers f_1 that occur once, and f_2 that occur
twice or more (Good and Turing; the variance of n M is at most 2 E f_2, and deviations are
those of Poisson variables). With upper bounds E_1, E_2 of what they are expected to be,

.. math:: n M \le E_1 + 2 \sqrt{t E_2} + t, \quad
          E_i = (\sqrt{f_i + t / 2} + \sqrt{t / 2})^2, \quad t = \log(3 / \text{level})

Both probabilities are the same for all runs. So half of the error goes to their bounds, and
half to the shares that are seen: in each run, as changes come late, and in all runs
together, as runs may be small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv


@dataclass(frozen=True, slots=True)
class NominalColumn:
    """What nominal rows have in a column.

    Attributes
    ----------
    name : str
    rows : int
        How many there are.
    rare : tuple of int, optional
        Of a column of categories: how many occur once, and twice or more. None: numbers.
    """

    name: str
    rows: int
    rare: tuple[int, int] | None = None

    def unseen_bound(self, level: float) -> float:
        """Return an upper bound of the probability of new values, but for an error.

        Examples
        --------
        >>> round(NominalColumn("x", 1000).unseen_bound(0.01), 4)
        0.0066
        >>> round(NominalColumn("x", 10_000, (0, 0)).unseen_bound(0.01), 4)
        0.0033
        """
        if self.rare is None:
            return clopper_pearson_upper(1, self.rows, level)
        t = math.log(3 / level)
        once, twice = ((math.sqrt(f + t / 2) + math.sqrt(t / 2)) ** 2 for f in self.rare)
        return min(1.0, (once + 2 * math.sqrt(t * twice) + t) / max(1, self.rows))


@dataclass(frozen=True, slots=True)
class NewValueCounts:
    """What some rows have in each column, in the order of the columns.

    Attributes
    ----------
    rows : int
        How many there are.
    missing, unseen : ndarray of shape (n_columns,)
        Those without a value, and with one that no nominal row has.
    """

    rows: int
    missing: NDArray[np.int64]
    unseen: NDArray[np.int64]

    @property
    def known(self) -> NDArray[np.int64]:
        """Rows with a value, of each column."""
        return self.rows - self.missing


def columns_in_excess(
    columns: Sequence[NominalColumn],
    counts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    run: int,
    error: float,
) -> list[int]:
    """Return the places of the columns with more unseen values than by chance.

    Parameters
    ----------
    columns : sequence of NominalColumn
    counts : sequence of tuple of ndarray
        Of a run, and of all runs so far: known values and unseen ones, of each column.
    run : int
        Number of the run, from 1.
    error : float
        The probability that any column is ever returned without cause, in all runs.
    """
    of_column = error / 2 / max(1, len(columns))
    # Over all runs, and all counts, these add up to that of the column.
    of_run = of_column / len(counts) * 6 / (math.pi * run) ** 2
    found = {
        place
        for known, unseen in counts
        for place in map(int, np.flatnonzero(unseen))
        if clopper_pearson_lower(int(unseen[place]), int(known[place]), of_run)
        > columns[place].unseen_bound(of_column)
    }
    return sorted(found)


def clopper_pearson_lower(x: int, n: int, error: float) -> float:
    """Return the lower limit of a share of which x of n were seen (Clopper, Pearson)."""
    return float(betaincinv(x, n - x + 1, error)) if x > 0 else 0.0


def clopper_pearson_upper(x: int, n: int, error: float) -> float:
    """Return the upper limit of a share of which x of n were seen (Clopper, Pearson)."""
    return float(betainccinv(x + 1, n - x, error)) if x < n else 1.0

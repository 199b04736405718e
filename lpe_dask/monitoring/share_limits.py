r"""How many rows of groups may be anomalous, and what is proven to be more or fewer.

Of m rows of the reference of a group k are so. The share of new rows is then drawn once, by
a Beta law or, for first runs, k by a binomial law. For each group its quantiles are limits.
The share of all rows of a run is a mean of those of the groups, whose deviation, with
weights w, is sub-Gaussian with a variance of at most

.. math:: \sum_g w_g^2 / (4 m_g)

(Hoeffding for binomial laws; Marchal and Arbel, 2017, for Beta laws), and the rows that are
so are no more often far from their mean than binomial ones (Hoeffding, 1956).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

from lpe_dask.monitoring.config import DriftConfig
from lpe_dask.monitoring.new_values import clopper_pearson_lower, clopper_pearson_upper


def mean_limits(n: Any, k: Any, m: Any, error: float) -> tuple[float, float]:
    """Return the limits of the share of all rows, each but for an error.

    Parameters
    ----------
    n, k, m : ndarray of shape (n_groups,)
        Rows of a run; rows of the reference that are so, and all of them, above 0.
    error : float
    """
    weights = n / n.sum()
    deviation = math.sqrt(weights**2 @ (1 / m) * -math.log(error) / 2)
    low = float(weights @ (k / (m + 1))) - deviation
    high = float(weights @ ((k + 1) / (m + 1))) + deviation
    return max(0.0, low), min(1.0, high)


@dataclass(frozen=True, slots=True, eq=False)
class ShareLimits:
    """Shares of rows, and what is explained of them; arrays, of all rows or of each group.

    Attributes
    ----------
    share, least, most : ndarray of shape (n,)
        That which is seen, and between which it may be.
    is_few, is_many : ndarray of shape (n,)
        Whether it is proven to be below or above.
    """

    share: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    is_few: NDArray[np.bool_]
    is_many: NDArray[np.bool_]

    @property
    def is_odd(self) -> NDArray[np.bool_]:
        """Whether it is below or above."""
        return self.is_few | self.is_many

    @classmethod
    def of_each(
        cls, x: Any, n: Any, k: Any, m: Any, config: DriftConfig, error: float, spent: float
    ) -> ShareLimits:
        """Return those of groups, of which x of n rows and k of m of the reference are so.

        ``error`` is that of the reference, ``spent`` that of the run.
        """
        low, high = _lower(k, m, error), _upper(k, m, error)
        return cls._by(x / n, low, high, _lower(x, n, spent), _upper(x, n, spent), config)

    @classmethod
    def of_all(
        cls, x: Any, n: Any, k: Any, m: Any, config: DriftConfig, spent: float
    ) -> ShareLimits:
        """Return those of all groups together."""
        n_all, x_all = int(n.sum()), int(x.sum())
        low, high = mean_limits(n, k, m, spent)
        at_least = clopper_pearson_lower(x_all, n_all, spent)
        at_most = clopper_pearson_upper(x_all, n_all, spent)
        ends = map(np.atleast_1d, (x_all / n_all, low, high, at_least, at_most))
        return cls._by(*ends, config)

    @classmethod
    def _by(cls, *of_rows: Any) -> ShareLimits:
        """Return them by what `of_each` knows of rows."""
        share, low, high, at_least, at_most, config = of_rows
        least = low * (1 - config.tolerance)
        most = high * (1 + config.tolerance) + config.anomalies
        return cls(share, least, most, at_most < least, at_least > most)

    def in_words(self, name: str, rows: str, place: int = 0) -> str | None:
        """Return what is proven of a group, or of all; None for nothing."""
        text = f"{self.share[place]:.2%} of {rows} {name}"
        if self.is_many[place]:
            most = self.most[place]
            return f"{text}: false alarms and anomalies explain up to {most:.2%}"
        if self.is_few[place]:
            return f"{text}: at least {self.least[place]:.2%} were expected"
        return None


def _lower(x: Any, n: Any, error: float) -> NDArray[np.float64]:
    return np.where(x > 0, betaincinv(np.maximum(x, 1), n - x + 1, error), 0.0)


def _upper(x: Any, n: Any, error: float) -> NDArray[np.float64]:
    return np.where(x < n, betainccinv(x + 1, np.maximum(n - x, 1), error), 1.0)

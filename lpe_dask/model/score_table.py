"""Make a table of what is found for rows: p-value, statistic, label, status.

    statistic, status, log density --RowScorer--> DataFrame (n_rows,)

These run in tasks: NumPy in, pandas out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.pvalues import LikelihoodRatio
from lpe_dask.tables import RowStatus


@dataclass(frozen=True, slots=True)
class RowScorer:
    """Makes the table of new rows.

    Attributes
    ----------
    p_values : callable
        As `Calibration.function` gives it.
    weigh : callable, optional
        `LikelihoodRatio.weigh`, where the statistic is weighed.
    has_groups : bool
        Whether rows are compared with those of their group.
    has_pool : bool
        Whether some are measured by another model.
    limit : float, optional
        A row is an anomaly if its p-value is below this; None: each row has a limit.
    """

    p_values: Callable[..., NDArray[np.float64]]
    weigh: Callable[..., NDArray[np.float64]] | None
    has_groups: bool
    has_pool: bool
    limit: float | None

    def __call__(
        self, statistic: NDArray[np.float64], codes: NDArray[np.number[Any]], *given: Any
    ) -> pd.DataFrame:
        """Return the table.

        Parameters
        ----------
        statistic, codes : ndarray of shape (n_rows,)
            NaN for rows that are not measured; the numbers of their statuses.
        given : ndarray of shape (n_rows,)
            As the attributes say: the logarithms of the density; the numbers of groups; the
            limits; the statistic and the p-value by the other model. The last one is the
            values of `Calibration.shared`, or of its groups.
        """
        *more, known = given
        compared = statistic
        if self.weigh is not None:
            weighed = self.weigh(more.pop(0), statistic)
            compared = np.where(np.isnan(statistic), statistic, weighed)
        if self.has_groups:
            p_values = known.p_values(compared, more.pop(0))
        else:
            p_values = self.p_values(compared, known)
        limit = more.pop(0) if self.limit is None else self.limit
        if self.has_pool:
            of_pool, p_values_of_pool = more
            statistic = replaced(statistic, of_pool)
            p_values = replaced(p_values, p_values_of_pool)
        return score_table(p_values, statistic, codes, limit)


def replaced(
    values: NDArray[np.float64], others: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return values, in whose place are others where these are known."""
    return np.where(np.isnan(others), values, others)


def score_table(
    p_values: NDArray[np.float64],
    statistic: NDArray[np.float64],
    codes: NDArray[np.number[Any]],
    limit: NDArray[np.float64] | float,
) -> pd.DataFrame:
    """Return the columns p_value, statistic, is_anomaly (NA without a p-value), status."""
    is_anomaly = pd.arrays.BooleanArray(p_values < limit, np.isnan(p_values))
    columns = {
        "p_value": p_values, "statistic": statistic, "is_anomaly": is_anomaly,
        RowStatus.COLUMN: RowStatus.column(codes.astype(np.int8)),
    }  # fmt: skip
    return pd.DataFrame(columns)


def group_codes(rows: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the last column of rows, with the numbers of their groups."""
    return rows[:, -1].astype(np.float64)


def log_densities(
    rows: NDArray[np.generic], weight: LikelihoodRatio
) -> NDArray[np.float64]:
    """Return the logarithm of the density of each row; NaN for one that is not finite."""
    is_finite = np.isfinite(rows).all(axis=1)
    logs = np.full(len(rows), np.nan)
    logs[is_finite] = weight.log_densities(rows[is_finite])
    return logs

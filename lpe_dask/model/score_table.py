"""Make a table of what is found for rows: p-value, statistic, label, status.

    statistic, status, log density --score_rows--> DataFrame (n_rows,)

These run in tasks: NumPy in, pandas out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.pvalues import LikelihoodRatio
from lpe_dask.tables import RowStatus


def score_rows(
    statistic: NDArray[np.float64],
    codes: NDArray[np.number[Any]],
    *given: NDArray[np.float64],
    p_values: Callable[..., NDArray[np.float64]],
    weigh: Callable[..., NDArray[np.float64]] | None,
    offset: float,
) -> pd.DataFrame:
    """Return the table of new rows.

    Parameters
    ----------
    statistic, codes : ndarray of shape (n_rows,)
        NaN for rows that are not measured; the numbers of their statuses.
    given : ndarray
        The logarithms of the density, where the statistic is weighed, and the values of the
        calibration rows.
    p_values : callable
        As `Calibration.function` gives it.
    weigh : callable, optional
        `LikelihoodRatio.weigh`.
    offset : float
        A row is an anomaly if its p-value is below this.
    """
    *logs, calibration = given
    compared = statistic if weigh is None else weigh(*logs, statistic)
    return score_table(p_values(compared, calibration), statistic, codes, offset=offset)


def score_table(
    p_values: NDArray[np.float64],
    statistic: NDArray[np.float64],
    codes: NDArray[np.number[Any]],
    *,
    offset: float,
) -> pd.DataFrame:
    """Return the columns p_value, statistic, is_anomaly (NA without a p-value), status."""
    is_anomaly = pd.arrays.BooleanArray(p_values < offset, np.isnan(p_values))
    columns = {
        "p_value": p_values, "statistic": statistic, "is_anomaly": is_anomaly,
        RowStatus.COLUMN: RowStatus.column(codes.astype(np.int8)),
    }  # fmt: skip
    return pd.DataFrame(columns)


def log_densities(
    rows: NDArray[np.generic], weight: LikelihoodRatio
) -> NDArray[np.float64]:
    """Return the logarithm of the density of each row; NaN for one that is not finite."""
    is_finite = np.isfinite(rows).all(axis=1)
    logs = np.full(len(rows), np.nan)
    logs[is_finite] = weight.log_densities(rows[is_finite])
    return logs

r"""Weigh a statistic by a known density of anomalies: footnote 1 of the paper, corrected.

    K-LPE          f1(x) R(x)**d    compared as  log f1(x) + d log R(x)    large: anomalous
    epsilon-LPE    N(x) / f1(x)     compared as  log N(x) - log f1(x)      small: anomalous

R**d is the volume that holds K rows, so the first is about f1 / f0, the likelihood ratio;
the paper's printed form is reversed and omits the dimension. R**d could overflow, so
logarithms are compared, also for ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Rows of shape (n_rows, n_features), in the units of the user -> log f1 of each.
LogDensity = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Weighs the statistic of rows.

    Attributes
    ----------
    log_density : callable
    graph : {"knn", "radius"}
    """

    log_density: LogDensity
    graph: str

    def __call__(
        self, rows: NDArray[np.generic], statistic: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the weighed statistics, of shape (n_rows,); NaN for rows not measured.

        Where the density is 0 a row is as nominal as possible, for every statistic.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            As the user gave them.
        statistic : ndarray of shape (n_rows,)
            Distances or counts; NaN for a row that was not measured.
        """
        is_measured = ~np.isnan(statistic)
        weighed = np.full(len(rows), np.nan)
        measured = np.ascontiguousarray(rows[is_measured], dtype=np.float64)
        logs = log_densities(self.log_density, measured)
        weighed[is_measured] = log_likelihood_ratio(
            self.graph, logs, statistic[is_measured], rows.shape[1]
        )
        return weighed


def log_likelihood_ratio(
    graph: str,
    logs: NDArray[np.float64],
    statistic: NDArray[np.float64],
    n_features: int,
) -> NDArray[np.float64]:
    """Return the weighed statistics, of shape (n_rows,).

    Parameters
    ----------
    graph : {"knn", "radius"}
    logs : ndarray of shape (n_rows,)
        Logarithms of the anomaly density.
    statistic : ndarray of shape (n_rows,)
    n_features : int

    Examples
    --------
    >>> statistic = np.array([1.0, np.inf])
    >>> log_likelihood_ratio("knn", np.array([0.0, -np.inf]), statistic, n_features=2)
    array([  0., -inf])
    """
    from scipy.special import xlogy  # few runs need it, and not before this

    # xlogy takes the logarithm of one number at a time, so not one bit depends on how rows
    # are divided into blocks. NumPy does not promise that.
    with np.errstate(invalid="ignore"):
        if graph == "knn":
            return np.where(logs == -np.inf, logs, logs + xlogy(n_features, statistic))
        return np.where(logs == -np.inf, np.inf, xlogy(1.0, statistic) - logs)


def log_densities(
    log_density: LogDensity, rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the logarithm of the anomaly density at each row, checked.

    Raises
    ------
    ValueError
        If the function does not give one number for each row, or gives inf or NaN.
    """
    if len(rows) == 0:
        return np.empty(0)
    found = np.asarray(log_density(rows))
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"anomaly_log_density gave an array of dtype {found.dtype}; it must give "
            f"real numbers."
        )
    values = found.astype(np.float64)
    if values.shape != (len(rows),):
        raise ValueError(
            f"anomaly_log_density gave an array of shape {values.shape} for rows of shape "
            f"{rows.shape}; it must give one logarithm for each row, shape "
            f"({len(rows)},)."
        )
    is_bad = np.isnan(values) | (values == np.inf)
    if is_bad.any():
        raise ValueError(
            f"anomaly_log_density gave {values[is_bad][0]} for the row "
            f"{rows[is_bad][0].tolist()}; it must give the logarithm of a density: a "
            f"finite number, or -inf where the density is 0."
        )
    return values

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


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Weighs the statistic of rows.

    Attributes
    ----------
    log_density : callable
        Of rows of shape (n_rows, n_features), in the units of the user: log f1 of each.
    graph : {"knn", "radius"}
    has_groups : bool, default=False
        Whether the last column of rows has the numbers of groups, and is not measured.
    """

    log_density: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    graph: str
    has_groups: bool = False

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
        logs = self.log_densities(rows[is_measured])
        n_features = rows.shape[1] - self.has_groups
        weighed[is_measured] = self.weigh(logs, statistic[is_measured], n_features)
        return weighed

    def without_groups(self) -> LikelihoodRatio:
        """Return the same for rows without the numbers of groups."""
        return LikelihoodRatio(self.log_density, self.graph)

    def weigh(
        self, logs: NDArray[np.float64], statistic: NDArray[np.float64], n_features: int
    ) -> NDArray[np.float64]:
        """Return the weighed statistics of measured rows, of shape (n_rows,).

        Parameters
        ----------
        logs : ndarray of shape (n_rows,)
            Of the density, as `log_densities` gives them.
        statistic : ndarray of shape (n_rows,)
        n_features : int

        Examples
        --------
        >>> weight = LikelihoodRatio(lambda rows: rows[:, 0], "knn")
        >>> weight.weigh(np.array([0.0, -np.inf]), np.array([1.0, np.inf]), n_features=2)
        array([  0., -inf])
        """
        from scipy.special import xlogy  # few runs need it, and not before this

        # xlogy takes the logarithm of one number at a time, so not one bit depends on how
        # rows are divided into blocks. NumPy does not promise that.
        with np.errstate(invalid="ignore"):
            if self.graph == "knn":
                return np.where(logs == -np.inf, logs, logs + xlogy(n_features, statistic))
            return np.where(logs == -np.inf, np.inf, xlogy(1.0, statistic) - logs)

    def log_densities(self, rows: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the logarithm of the density at each row, checked.

        Raises
        ------
        ValueError
            If the function does not give one number for each row, or gives inf or NaN.
        """
        if len(rows) == 0:
            return np.empty(0)
        measured = rows[:, : rows.shape[1] - self.has_groups]
        numbers = np.ascontiguousarray(measured, dtype=np.float64)
        found = np.asarray(self.log_density(numbers))
        if found.dtype.kind not in "biuf":
            raise ValueError(
                f"anomaly_log_density gave an array of dtype {found.dtype}; it must give "
                f"real numbers."
            )
        values = found.astype(np.float64)
        if values.shape != (len(rows),):
            raise ValueError(
                f"anomaly_log_density gave an array of shape {values.shape} for rows of "
                f"shape {numbers.shape}; it must give one logarithm for each row, shape "
                f"({len(rows)},)."
            )
        is_bad = np.isnan(values) | (values == np.inf)
        if is_bad.any():
            raise ValueError(
                f"anomaly_log_density gave {values[is_bad][0]} for the row "
                f"{numbers[is_bad][0].tolist()}; it must give the logarithm of a density: "
                f"a finite number, or -inf where the density is 0."
            )
        return values

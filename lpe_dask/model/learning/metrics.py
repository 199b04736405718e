"""Turn a metric into weights or a matrix, so that every search is Euclidean.

    metric                squared distance            learned from the nominal rows
    euclidean             sum_k w_k (x_k - y_k)**2    -
    seuclidean            sum_k (x_k - y_k)**2 / V_k  variances V (ddof 1)
    mahalanobis           |L'(x - y)|**2, VI = L L'   inverse covariance VI (ddof 1)
    geodesic              as euclidean, w_k = 1       -

Geodesic distances go along a graph of nearest rows, whose edges are Euclidean. What a
linear scale learns is a weight as well, which a given one is multiplied with (`weights`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.model.learning.cholesky_factors import (
    cholesky,
    cholesky_of_inverse,
    dependent_columns,
)
from lpe_dask.model.lpe_parameters import (
    DEFAULT_GRAPH_NEIGHBORS,
    METRIC_PARAMS,
    ParameterError,
)
from lpe_dask.search import NeighborGraphParams
from lpe_dask.storage import single_line
from lpe_dask.tables import as_array

#: A column is a combination of others if less than this share of its variance is its own.
INDEPENDENT_SHARE = 1e-10


def graph_params(
    metric: str, metric_params: Mapping[str, Any] | None, n_reference: int
) -> NeighborGraphParams | None:
    """Return the neighbor graph of a metric; None if it has none.

    Raises
    ------
    ValueError
        If there are not enough rows for the edges that were asked for.
    """
    if metric != "geodesic":
        return None
    params = dict(metric_params or {})
    at_most = max(1, n_reference - 1)
    n_neighbors = int(params.get("n_neighbors", min(DEFAULT_GRAPH_NEIGHBORS, at_most)))
    if n_neighbors > at_most:
        raise ParameterError(
            f"metric_params['n_neighbors']={n_neighbors} needs at least {n_neighbors + 1} "
            f"nominal rows to link each to so many others; the rows that new ones are "
            f"measured among are {n_reference}. Lower it, or give more rows.",
            "metric_params",
        )
    return NeighborGraphParams(n_neighbors, params.get("graph", "directed"))


def validate_metric_param(
    metric: str, metric_params: Mapping[str, Any] | None, n_features: int, n_forms: int = 1
) -> NDArray[np.float64] | None:
    """Return the checked parameter of a linear metric, or None if it is to be learned.

    Parameters
    ----------
    metric, metric_params
        As for `LPE`.
    n_features : int
        Columns of the rows.
    n_forms : int
        In which the scale gives each of them. There is one weight w for a column, and V and
        VI are those of all forms.

    Raises
    ------
    ValueError
        For a wrong shape, or values that make no distance.
    """
    name = METRIC_PARAMS[metric][0]
    params = dict(metric_params or {})
    if name not in params:
        return None
    try:
        values = np.asarray(as_array(params[name]), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"metric_params[{name!r}] must be an array of numbers, for example a list of "
            f"one for each column: {single_line(error)}.",
            "metric_params",
        ) from None
    n_scaled = n_features if name == "w" else n_forms * n_features
    shape = (n_scaled, n_scaled) if name == "VI" else (n_scaled,)
    if values.shape != shape:
        scaled = f", which the scale makes {n_scaled}" if n_scaled != n_features else ""
        raise ParameterError(
            f"metric_params[{name!r}] has shape {values.shape}, but the rows have "
            f"{n_features} columns{scaled}: give an array of shape {shape}.",
            "metric_params",
        )
    if not np.isfinite(values).all():
        raise ParameterError(
            f"metric_params[{name!r}] holds NaN or inf; give finite numbers.",
            "metric_params",
        )
    _check_values(name, values)
    return values


def reorder_params(
    metric_params: Mapping[str, Any] | None, columns: Sequence[Any] | None
) -> None:
    """Raise ValueError if a parameter of pandas has the names of columns in another order.

    Parameters
    ----------
    metric_params : mapping, optional
    columns : sequence, optional
        The names of the measured columns; None: they have none.
    """
    for name, values in (metric_params or {}).items():
        if columns is None or not isinstance(values, pd.Series | pd.DataFrame):
            continue
        for axis, labels in enumerate(values.axes):
            is_numbered = isinstance(labels, pd.RangeIndex)
            if is_numbered or labels.equals(pd.Index(columns, tupleize_cols=False)):
                continue
            both = ", ".join([repr(list(columns))] * values.ndim)
            raise ParameterError(
                f"metric_params[{name!r}] must be in the order of the columns, "
                f"{list(columns)}, but axis {axis} of it names {list(labels)}. Give "
                f"{name}.loc[{both}], or a list in that order.",
                "metric_params",
            )


def _check_values(name: str, values: NDArray[np.float64]) -> None:
    if name == "w" and (values < 0).any():
        raise ParameterError(
            f"weights w must not be negative; the smallest is {values.min()}.",
            "metric_params",
        )
    if name == "V" and (values <= 0).any():
        raise ParameterError(
            f"variances V must be positive; the smallest is {values.min()}.",
            "metric_params",
        )
    if name == "VI" and not np.allclose(values, values.T, rtol=1e-8, atol=0):
        raise ParameterError(
            "the inverse covariance VI must be symmetric; give (VI + VI.T) / 2.",
            "metric_params",
        )


def mahalanobis_matrix(inverse_covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix for ``(x - y)' VI (x - y)``, by the Cholesky factor of VI.

    Raises
    ------
    ValueError
        If VI is not positive definite.
    """
    factor = cholesky(inverse_covariance)
    if factor is None:
        smallest = np.linalg.eigvalsh(inverse_covariance)[0]
        raise ParameterError(
            f"the inverse covariance VI must be positive definite; its smallest eigenvalue "
            f"is {smallest:.3g}. Leave out columns that others determine, or add a small "
            f"number to its diagonal.",
            "metric_params",
        )
    return factor


def learned_mahalanobis_matrix(
    covariance: NDArray[np.float64], is_constant: NDArray[np.bool_], columns: list[str]
) -> NDArray[np.float64]:
    """Return `mahalanobis_matrix` of the inverse of a covariance, which is not made.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
    is_constant : ndarray of bool of shape (n_features,)
        The variances of other columns may be 0, too, rounded to float64.
    columns : list of str
        What to call the columns in an error.

    Raises
    ------
    ValueError
        Naming the columns that are constant, that the others determine up to rounding, or
        whose variance is no usable float64.
    """
    if is_constant.any():
        raise ValueError(_singular(np.array(columns)[is_constant].tolist(), "constant"))
    variances = np.diag(covariance)
    tiny = np.finfo(np.float64).tiny
    is_usable = (variances >= tiny) & (variances <= 1 / tiny)
    if not is_usable.all():
        raise ValueError(_unusable(np.array(columns)[~is_usable].tolist()))
    deviations = np.sqrt(variances)
    correlation = covariance / np.outer(deviations, deviations)
    dependent = dependent_columns(correlation, INDEPENDENT_SHARE)
    factor = None if dependent else cholesky_of_inverse(correlation)
    if factor is None:
        names = [columns[i] for i in dependent] or columns
        raise ValueError(_singular(names, "determined by the other columns"))
    return factor / deviations[:, None]


def _unusable(columns: Sequence[str]) -> str:
    return (
        f"the variance of {', '.join(columns)} is too large or too small for float64 to "
        f"hold it and its inverse. Change the unit of these columns: multiply them by a "
        f"number that brings their values near 1, or use scale='minmax' (--scale minmax), "
        f"which does so for ranges from 1e-308 to 1e308. Or leave them out (columns=, "
        f"--columns)."
    )


def _singular(columns: list[str], why: str) -> str:
    return (
        f"the covariance of the nominal rows is singular, because {', '.join(columns)} "
        f"{'is' if len(columns) == 1 else 'are'} {why}. Leave such columns out (columns=, "
        f"--columns), use metric='seuclidean', or give metric_params={{'VI': ...}}."
    )

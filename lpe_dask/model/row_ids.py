"""Which rows of the input of a fit the rows of its reference are.

input     0 1 2 3 4 5 6     all rows, as they came
kept      0 1   2 3 4 5     without those that were dropped for NaN or inf
searched  0     1 2   3     those that new rows are measured among
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.calibration_split import CalibrationSplit
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.nominal_scores import NominalScores


def input_positions(fitted: Fitted, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places in the input of `LPE.fit` of rows of the reference.

    Parameters
    ----------
    fitted : Fitted
    numbers : ndarray of shape (n,)
        Of rows of the reference; -1 for none.

    Returns
    -------
    places : ndarray of shape (n,)
        -1 for none; all of them where a model that was loaded does not know: rows were
        drawn, and others dropped before or no ``random_state`` given.
    """
    searched = _searched(fitted)
    if searched is None:
        return np.full(numbers.shape, -1)
    return np.where(numbers < 0, -1, searched[np.maximum(numbers, 0)])


def reference_ids(fitted: Fitted, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers in the reference of rows of the input of `LPE.fit`.

    -1 for rows that are not in it.

    Raises
    ------
    ValueError
        For a model that does not know; see `input_positions`.
    """
    searched = _searched(fitted)
    if searched is None:
        raise ValueError(
            "the model does not know which nominal rows were drawn. Fit one with a "
            "random_state, and without rows to drop."
        )
    numbers = np.minimum(np.searchsorted(searched, places), len(searched) - 1)
    return np.where(searched[numbers] == places, numbers, -1)


def _searched(fitted: Fitted) -> NDArray[np.int64] | None:
    """Return the places of all rows of the reference, ascending; None if not known."""
    own = fitted.nominal_scores
    if isinstance(own, NominalScores) and own.numbers is not None:
        return np.flatnonzero(own.numbers.value >= 0)
    n_reference, division = fitted.reference.shape.n_reference, fitted.division
    if fitted.n_dropped == 0 and n_reference == fitted.n_samples:
        return np.arange(n_reference)
    if fitted.n_dropped == 0 and isinstance(division, CalibrationSplit):
        # Of a copy, as it does not stay with the numbers.
        return None if division.random_state is None else replace(division).reference
    # NaN for what was dropped, and for rows of small groups.
    statistic = (own.columns() or {}).get("statistic")
    places = np.empty(0, int) if statistic is None else np.flatnonzero(~np.isnan(statistic))
    return places if len(places) == n_reference else None

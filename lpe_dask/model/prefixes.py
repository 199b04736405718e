r"""Find how many columns have to be nominal so that a row is not flagged any longer.

    row x, nearest nominal row y, columns in an order
    x_j = x with the first j columns of y --scored exactly--> the least j with p > alpha

Most j need no score: R differs between two rows by no more than they are apart, so x_j is
flagged if R(x) - |x - x_j| is more than the largest R that is not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpe_dask.model.fitted import Fitted
from lpe_dask.search import squared_parts

#: Prefixes of each row that are tried first, and the most numbers that are tried at once.
FIRST_TRIED, TRIED_NUMBERS = 4, 2**21

#: By which share a bound has to be exceeded, so that rounding decides nothing; and by how
#: much, as squares of less may be 0.
_MARGIN, _UNDERFLOW = 1e-9, 1e-150


def shortest_prefixes(
    fitted: Fitted,
    rows: NDArray[np.generic],
    nominal: NDArray[np.float64],
    order: NDArray[np.int64],
    statistic: NDArray[np.float64],
    numbers: NDArray[np.int64] | None,
    most: int | None = None,
) -> NDArray[np.int64]:
    """Return for flagged rows how many columns are enough; computes.

    Parameters
    ----------
    fitted : Fitted
    rows, nominal : ndarray of shape (n, n_features)
        Rows and what is copied to them, with codes of categories; NaN is not copied.
    order : ndarray of shape (n, n_features)
        Columns of each row.
    statistic : ndarray of shape (n,)
        Of the rows among those that trials are measured among; ``inf`` where not known.
    numbers : ndarray of shape (n,), optional
        As in `Fitted.exactly`; not used along a graph, where copies are new rows.
    most : int, optional
        The longest prefix that is tried. None: all columns.

    Returns
    -------
    n_columns : ndarray of shape (n,)
        At least 1; -1 if not even all columns, or the most that are tried, are enough.
    """
    trials = _Trials(fitted, rows, nominal, order, statistic, numbers)
    enough, n_features = np.full(len(rows), -1), rows.shape[1]
    last = n_features if most is None else most
    open_rows, first, n_tried = np.arange(len(rows)), 1, FIRST_TRIED
    while len(open_rows) > 0 and first <= last:
        at_once = TRIED_NUMBERS // (n_features * len(open_rows))
        n_tried = max(1, min(n_tried, at_once, last + 1 - first))
        tried = np.arange(first, first + n_tried)
        if first == 1:  # where all columns are not enough, no prefix is
            is_enough = trials.are_enough(open_rows, np.union1d(tried, n_features))
            is_open = is_enough[:, -1]
            open_rows, is_enough = open_rows[is_open], is_enough[is_open, :n_tried]
            if last == n_features:
                enough[open_rows], last = n_features, n_features - 1
        else:
            is_enough = trials.are_enough(open_rows, tried)
        is_done = is_enough.any(axis=1)
        enough[open_rows[is_done]] = first + is_enough[is_done].argmax(axis=1)
        open_rows = open_rows[~is_done]
        first, n_tried = first + n_tried, 2 * n_tried
    return enough


class _Trials:
    """Rows of which columns are copied; parameters are those of `shortest_prefixes`."""

    def __init__(
        self,
        fitted: Fitted,
        rows: NDArray[np.generic],
        nominal: NDArray[np.float64],
        order: NDArray[np.int64],
        statistic: NDArray[np.float64],
        numbers: NDArray[np.int64] | None,
    ) -> None:
        self._fitted = fitted
        self._numbers = numbers if fitted.reference.graph is None else None
        self._rows = rows.astype(np.float64)
        self._copied = np.where(np.isnan(nominal), self._rows, nominal)
        self._rank = np.empty_like(order)
        np.put_along_axis(self._rank, order, np.arange(order.shape[1])[None, :], axis=1)
        self._statistic = statistic

    def are_enough(
        self, which: NDArray[np.int64], n_copied: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return whether prefixes are enough, of shape (n_which, n_prefixes)."""
        is_copied = self._rank[which][:, None, :] < n_copied[None, :, None]
        rows, copied = self._rows[which][:, None, :], self._copied[which][:, None, :]
        trials = np.where(is_copied, copied, rows).reshape(-1, self._rows.shape[1])
        places = np.repeat(which, len(n_copied))
        is_enough = np.zeros(len(trials), bool)
        some = np.flatnonzero(self._may_be_enough(places, trials))
        if len(some) > 0:
            own = None if self._numbers is None else self._numbers[places[some]]
            p_values, _ = self._fitted.exactly(trials[some], own)
            is_enough[some] = p_values >= self._fitted.offset
        return is_enough.reshape(len(which), -1)

    def _may_be_enough(
        self, places: NDArray[np.int64], trials: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Return which trials may be enough, as far as distances tell."""
        reference = self._fitted.reference
        bound = self._fitted.calibration.nominal_bound(self._fitted.offset)
        is_distance = self._fitted.n_neighbors is not None and reference.graph is None
        if bound is None or not is_distance:
            return np.ones(len(trials), bool)
        preparation, n_features = reference.space.preparation, trials.shape[1]
        prepared, other = preparation.apply(trials), preparation.apply(self._rows[places])
        # What is as far as the search has it: parts of correlated columns cancel out.
        straight = replace(preparation, matrix=None)
        apart = np.sqrt(squared_parts(straight, prepared, other, n_features).sum(axis=1))
        most = bound + _MARGIN * (bound + apart) + _UNDERFLOW
        statistic = self._statistic[places]  # of some it is not known, or overflows
        return ~(np.isfinite(statistic) & (statistic > most + apart))

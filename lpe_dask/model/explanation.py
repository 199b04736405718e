r"""Say why rows are anomalous: what each column adds to their distance, and what is usual.

    rows --search--> nearest nominal rows --> share of each column, beside the typical one
         --columns copied from the nearest nominal row, one after another--> enough of them

Columns come in the order of share over typical share: a wide one always adds much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from numpy.typing import NDArray

from lpe_dask.model.fitted import Fitted
from lpe_dask.model.numbering import input_places
from lpe_dask.model.prefixes import shortest_prefixes
from lpe_dask.search import restored
from lpe_dask.tables import (
    NamedTable,
    array_of,
    as_table,
    checked,
    is_paths,
    kinds_of,
    read_frame,
    select_columns,
)
from lpe_dask.tasks import at_once, compute

#: A typical share counts as this share of the largest, at least.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why some rows are as they are; columns in the order of the model.

    Attributes
    ----------
    columns : list
        Their names, or numbers.
    values : DataFrame of shape (n, n_features)
        As they came.
    nominal_values : DataFrame of shape (n, n_features)
        Those of the nearest nominal row.
    p_values, statistic : ndarray of shape (n,)
    shares : ndarray of shape (n, n_features)
    distances : ndarray of shape (n,)
        Those that the shares are of: there are none of 0 and ``inf``.
    typical_shares : ndarray of shape (n_features,)
    order : ndarray of shape (n, n_features)
        The columns of each row, the most telling one first.
    enough : ndarray of shape (n,)
        How many of the first columns, copied from the nearest nominal row, make a row that
        is not flagged; -1 if none of those that were tried do, and for a row that was not
        measured.
    """

    columns: list[Any]
    values: pd.DataFrame
    nominal_values: pd.DataFrame
    p_values: NDArray[np.float64]
    statistic: NDArray[np.float64]
    shares: NDArray[np.float64]
    distances: NDArray[np.float64]
    typical_shares: NDArray[np.float64]
    order: NDArray[np.int64]
    enough: NDArray[np.int64]

    def table(self, top: int) -> pd.DataFrame:
        """Return what `LPE.explain` does."""
        n_lines = min(top, len(self.columns))
        first = self.order[:, :n_lines].ravel()
        rows = np.repeat(np.arange(len(self.order)), n_lines)
        values, nominal_values = _in_one_form(self.values, self.nominal_values)
        lines = {
            "p_value": self.p_values[rows],
            "statistic": self.statistic[rows],
            "column": _index_of(self.columns).take(first).infer_objects(),
            "value": values[rows, first],
            "nominal_value": nominal_values[rows, first],
            "share": self.shares[rows, first],
            "typical_share": self.typical_shares[first],
            "enough": _whole_or_missing(self.enough[rows]),
        }
        return pd.DataFrame(lines).set_axis(self.values.index.take(rows), axis=0)

    def without(self, is_hidden: NDArray[np.bool_]) -> Explanation:
        """Return the same without some columns, as if there were none of these."""
        shown = np.flatnonzero(~is_hidden)
        numbers = np.cumsum(~is_hidden) - 1
        left = self.order[~is_hidden[self.order]].reshape(len(self.order), -1)
        return replace(
            self,
            columns=[self.columns[place] for place in shown],
            values=self.values.iloc[:, shown],
            nominal_values=self.nominal_values.iloc[:, shown],
            shares=self.shares[:, shown],
            typical_shares=self.typical_shares[shown],
            order=numbers[left],
        )


def _whole_or_missing(numbers: NDArray[np.int64]) -> Any:
    """Return whole numbers that may be missing, where they are -1."""
    return pd.arrays.IntegerArray(numbers.astype(np.int64), numbers < 0)


def _in_one_form(*frames: pd.DataFrame) -> Iterator[NDArray[Any]]:
    """Yield the values of frames, of one type, or True would stand beside 1.0."""
    dtypes = [dtype for frame in frames for dtype in frame.dtypes]
    is_numeric = all(map(pd.api.types.is_numeric_dtype, dtypes))
    dtype = np.float64 if is_numeric else object
    for frame in frames:  # a copy, as pandas cannot replace what is missing in its own
        yield frame.to_numpy(dtype, copy=True, na_value=np.nan)


@at_once()
def explain(fitted: Fitted, X: Any, top: int) -> pd.DataFrame:
    """Return what `LPE.explain` does; computes."""
    _check_count("top", top)
    values = _in_this_process(fitted, X)
    return explain_rows(fitted, values).table(int(top))


@at_once()
def explain_rows(
    fitted: Fitted,
    values: pd.DataFrame,
    known: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    numbers: NDArray[np.int64] | None = None,
    is_hidden: NDArray[np.bool_] | None = None,
    most_copied: int | None = None,
) -> Explanation:
    """Return why rows are as they are; computes.

    Parameters
    ----------
    fitted : Fitted
    values : DataFrame of shape (n, n_features)
        The rows.
    known : tuple of ndarray of shape (n,), optional
        Their p-values and statistic, if they have been measured.
    numbers : ndarray of shape (n,), optional
        Which row of the reference each of them is; -1 for a new one. None: all are new.
    is_hidden : ndarray of shape (n_features,), optional
        Columns that come last, whatever they say, and are copied with all others only.
    most_copied : int, optional
        Of how many columns, at most, it is tried whether they are enough. None: of all.
    """
    rows = _rows_of(fitted, values)
    if is_hidden is None:
        is_hidden = np.zeros(fitted.n_features, bool)
    n_shown = int((~is_hidden).sum())
    most = n_shown if most_copied is None else min(most_copied, n_shown)
    found, typical = fitted.reference.attributed(rows, numbers)
    p_values, statistic = known or fitted.exactly(found.rows, numbers)
    preparation = fitted.reference.space.preparation
    nominal = restored(preparation, found.nearest, fitted.n_features)
    # Of a Mahalanobis distance a typical share may be negative.
    ratio = np.nan_to_num(found.shares) / np.maximum(typical, typical.max() * _LEAST)
    order = np.argsort(np.where(is_hidden, np.inf, -ratio), axis=1, kind="stable")
    flagged = np.flatnonzero(p_values < fitted.offset)
    measured = statistic
    if fitted.calibration_kind == "split" and numbers is not None:
        # Some nominal rows were measured in the other half: that bounds nothing here.
        measured = np.where(numbers < 0, np.inf, statistic)
    enough = np.where(p_values >= fitted.offset, 0, -1)
    if len(flagged) > 0:
        enough[flagged] = shortest_prefixes(
            fitted, found.rows[flagged], nominal[flagged], order[flagged],
            measured[flagged], None if numbers is None else numbers[flagged], most,
        )  # fmt: skip
    return Explanation(
        fitted.columns or list(range(fitted.n_features)), values,
        _as_they_came(fitted, nominal), p_values, statistic, found.shares,
        found.distances, typical, order, enough,
    )  # fmt: skip


@at_once()
def nearest_nominal(fitted: Fitted, X: Any, n: int) -> pd.DataFrame:
    """Return what `LPE.nearest_nominal` does; computes."""
    _check_count("n", n)
    if n > (most := fitted.reference.shape.n_reference):
        raise ValueError(
            f"n={n} is more than the {most} nominal rows that rows are measured among. "
            f"Give {most} or less."
        )
    values = _in_this_process(fitted, X)
    rows = _rows_of(fitted, values)
    found, (in_numbers,) = fitted.reference.nearest(rows, int(n)), compute(rows)
    is_measured = np.isfinite(in_numbers).all(axis=1)
    distances = np.where(is_measured[:, None], found.distances, np.nan)
    numbers = input_places(fitted, found.numbers.ravel())
    return pd.DataFrame(
        {
            "rank": np.tile(np.arange(1, n + 1), len(values)),
            "nominal_row": _whole_or_missing(numbers),
            "distance": distances.ravel(),
        },
        values.index.repeat(n),
    )


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name}={count!r} must be a whole number of at least 1.")


def _in_this_process(fitted: Fitted, X: Any) -> pd.DataFrame:
    """Return rows of any kind as a frame of the columns that are measured; computes."""
    names = fitted.columns
    if is_paths(X):
        X = read_frame(X, columns=names, kinds=kinds_of(fitted.categories))
    X = as_table(X, names)
    fitted.table(X)  # which checks it
    if isinstance(X, NamedTable):
        X = X.frame
    is_frame = hasattr(X, "columns")
    if is_frame and names is not None:
        X = select_columns(X, names)
    if is_dask_collection(X):
        (X,) = compute(checked(X, kinds_of(fitted.categories)))
    if is_frame:
        return X
    frame = pd.DataFrame(np.asarray(array_of(X)))
    return frame if names is None else frame.set_axis(_index_of(names), axis=1)


def _index_of(names: list[Any]) -> pd.Index:
    """Return names of columns as they are, also where pandas would make others of them."""
    return pd.Index(names, dtype=object, tupleize_cols=False)


def _rows_of(fitted: Fitted, values: pd.DataFrame) -> da.Array:
    """Return rows as the model takes them: those of an array have no names."""
    return fitted.table(values.to_numpy() if fitted.columns is None else values).rows


def _as_they_came(fitted: Fitted, rows: NDArray[np.float64]) -> pd.DataFrame:
    """Return rows of numbers and codes with the values that were given for these."""
    categories = fitted.categories
    columns: dict[int, Any] = dict(enumerate(rows.T)) | fitted.minima.original(rows)
    places = () if categories is None else categories.places
    for place, levels in zip(places, categories.levels if categories else (), strict=True):
        named = np.array([*levels, None], dtype=object)  # the last for a row without one
        codes = np.where(np.isnan(rows[:, place]), -1, rows[:, place]).astype(np.int64)
        columns[place] = named[codes]
    return pd.DataFrame(columns)

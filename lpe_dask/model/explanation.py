r"""Say why rows are anomalous: what each column adds to their distance, and what is usual.

    rows --search--> K nearest nominal rows --> share of each column in the mean distance
    nominal rows --sample--> typical shares; quantiles, or the most frequent values

Where groups are searched each by itself, both are of the group of a row.

Columns come in the order of their shares. Those of one neighbor are noisy, and a share over
the typical one puts flags that hardly ever differ before what is far out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.model.arguments import Rows
from lpe_dask.model.fitted import Fitted
from lpe_dask.model.row_ids import input_positions, reference_ids
from lpe_dask.search import Attribution, Typical
from lpe_dask.tables import Table, select_rows, status_names
from lpe_dask.tasks import compute, eager_scope

logger = logging.getLogger(__name__)

#: P-values and statistic of some rows.
_Known = tuple[NDArray[np.float64], NDArray[np.float64]]

#: Characters of a frequent value.
_MAX_CHARACTERS = 40

#: A row is spread over many columns if none has this share.
MIN_SHARE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why some rows are as they are; columns in the order of the model.

    Columns without weight, and those that are hidden, are none of these.

    Attributes
    ----------
    columns : list
        Their names, or numbers.
    values : DataFrame of shape (n, n_columns)
        As they came.
    nominal_values : DataFrame of shape (n, n_columns)
        Those of the nearest nominal row.
    usual : ndarray of shape (n, n_columns)
        What is usual in each column, as text; of a row that is measured among no others,
        its status.
    p_values, statistic : ndarray of shape (n,)
    shares : ndarray of shape (n, n_columns)
    directions : ndarray of shape (n, n_columns)
        1 where a number is larger than those of its nearest nominal rows, -1 where smaller,
        and between: see `search.Attribution`.
    distances : ndarray of shape (n,)
        To the nearest nominal row.
    typical_shares : ndarray of shape (n, n_columns)
    order : ndarray of shape (n, n_columns)
        The columns of each row, the one with the largest share first.
    is_spread : ndarray of shape (n,)
        Whether no column of the model has a share of `MIN_SHARE`.
    """

    columns: list[Any]
    values: pd.DataFrame
    nominal_values: pd.DataFrame
    usual: NDArray[np.object_]
    p_values: NDArray[np.float64]
    statistic: NDArray[np.float64]
    shares: NDArray[np.float64]
    directions: NDArray[np.float64]
    distances: NDArray[np.float64]
    typical_shares: NDArray[np.float64]
    order: NDArray[np.int64]
    is_spread: NDArray[np.bool_]

    @classmethod
    @eager_scope()
    def of(
        cls,
        fitted: Fitted,
        values: pd.DataFrame,
        known: _Known | None = None,
        places: NDArray[np.int64] | None = None,
        is_hidden: NDArray[np.bool_] | None = None,
        names: Sequence[Any] | None = None,
        *,
        with_typical: bool = True,
    ) -> Self:
        """Return why rows are as they are; computes.

        Parameters
        ----------
        fitted : Fitted
        values : DataFrame of shape (n, n_features)
            The rows; with groups, then their columns as well, in the order of the model.
        known : tuple of ndarray of shape (n,), optional
            Their p-values and statistic, if they have been measured.
        places : ndarray of shape (n,), optional
            Of rows that were fitted, in the input of the fit; -1: a new one. None: all are.
        is_hidden : ndarray of shape (n_features,), optional
            Columns that are not to be shown; as in ``values``, there may be more.
        names : sequence, optional
            What to call the columns of a model without names; likewise. None: by their
            numbers.
        with_typical : bool, default=True
            Whether ``usual`` and ``typical_shares`` are wanted, which takes long where many
            groups are searched each by itself.

        Raises
        ------
        ValueError
            For a model that does not know which nominal rows were drawn.
        """
        parts = [
            cls._of(
                model, _rows_of(model, values, which),
                None if known is None else (known[0][which], known[1][which]),
                None if places is None else places[which], is_hidden, names,
                with_typical=with_typical,
            )
            for model, which in _models_of(fitted, values)
        ]  # fmt: skip
        if len(parts) == 1:
            return parts[0]
        order = np.concatenate([which for _, which in _models_of(fitted, values)])
        return cls._joined(parts, np.argsort(order))

    @classmethod
    def _joined(cls, parts: Sequence[Self], order: NDArray[np.int64]) -> Self:
        """Return the rows of all parts, in another order."""
        joined = {}
        for name in (of.name for of in fields(cls)):
            values = [getattr(part, name) for part in parts]
            if isinstance(values[0], pd.DataFrame):
                joined[name] = pd.concat(values).iloc[order]
            elif isinstance(values[0], np.ndarray):
                joined[name] = np.concatenate(values)[order]
            else:
                joined[name] = values[0]
        return cls(**joined)

    @classmethod
    def _of(
        cls,
        fitted: Fitted,
        values: pd.DataFrame,
        known: _Known | None,
        places: NDArray[np.int64] | None,
        is_hidden: NDArray[np.bool_] | None,
        names: Sequence[Any] | None,
        *,
        with_typical: bool,
    ) -> Self:
        """Return the same of the rows that a model measures itself."""
        numbers = None if places is None else reference_ids(fitted, places)
        table = fitted.table_of_values(values)
        found, typical = _attributed(fitted, table, numbers, with_typical=with_typical)
        p_values, statistic = known or fitted.exact_scores(found.rows)
        n_features, has_groups = fitted.n_features, fitted.has_groups
        preparation = fitted.reference.space.preparation
        is_shown = preparation.is_weighted(n_features + has_groups)[:n_features]
        if is_hidden is not None:
            is_shown &= ~is_hidden[:n_features]
        shown = np.flatnonzero(is_shown)
        shares = found.shares[:, shown]
        names = fitted.columns or list(names or range(n_features))
        in_input_types = partial(table.original, types=list(values.dtypes))
        nominal = in_input_types(found.nearest)
        usual, typical_shares = _of_rows(fitted, found.rows, typical, in_input_types)
        return cls(
            [names[place] for place in shown],
            values.iloc[:, shown],
            nominal.iloc[:, shown],
            usual[:, shown],
            p_values, statistic, shares, found.directions[:, shown], found.distances,
            typical_shares[:, shown],
            np.argsort(-np.nan_to_num(shares), axis=1, kind="stable"),
            np.all(found.shares < MIN_SHARE, axis=1),
        )  # fmt: skip

    def note(self, row: int) -> str | None:
        """Return why the columns of a row say little; None: they do not."""
        if np.isnan(self.shares[row]).any():
            return f"no shares: the distance is {self.distances[row]:g}"
        return "spread over many columns" if self.is_spread[row] else None

    def table(self, top: int) -> pd.DataFrame:
        """Return the result of `LPE.explain`."""
        n_lines = min(top, len(self.columns))
        first = self.order[:, :n_lines].ravel()
        rows = np.repeat(np.arange(len(self.order)), n_lines)
        values, nominal_values = _in_one_form(self.values, self.nominal_values)
        lines = {
            "p_value": self.p_values[rows],
            "statistic": self.statistic[rows],
            "column": _index_of(self.columns).take(first).infer_objects(),
            "value": values[rows, first],
            "usual": self.usual[rows, first],
            "nominal_value": nominal_values[rows, first],
            "share": self.shares[rows, first],
            "typical_share": self.typical_shares[rows, first],
            "is_spread": self.is_spread[rows],
        }
        return pd.DataFrame(lines).set_axis(self.values.index.take(rows), axis=0)


def _in_one_form(*frames: pd.DataFrame) -> Iterator[NDArray[Any]]:
    """Yield values of frames as floats; as objects if some are of another type."""
    dtypes = [dtype for frame in frames for dtype in frame.dtypes]
    dtype = np.float64 if all(map(pd.api.types.is_float_dtype, dtypes)) else object
    for frame in frames:  # a copy, as pandas cannot replace what is missing in its own
        yield frame.to_numpy(dtype, copy=True, na_value=np.nan)


@eager_scope()
def explain(fitted: Fitted, X: Any, top: int, rows: Rows | None = None) -> pd.DataFrame:
    """Return the result of `LPE.explain`; computes."""
    _check_count("top", top)
    found = Explanation.of(fitted, *_queries(fitted, X, rows))
    if rows is None:
        _warn_of_fitted_rows(found.distances)
    return found.table(int(top))


def _models_of(
    fitted: Fitted, values: pd.DataFrame
) -> list[tuple[Fitted, NDArray[np.int64]]]:
    """Return which rows a model measures itself, and which its pool; computes."""
    every = np.arange(len(values))
    if fitted.pool is None:
        return [(fitted, every)]
    table = fitted.table_of_values(values)
    for model in (fitted, fitted.pool):  # also the one that none of these rows needs:
        model.reference.keep_for(table)  # the next few rows are measured without tasks
    (rows,) = compute(table.rows)
    is_pooled = fitted.is_pooled(rows)
    parts = [(fitted, every[~is_pooled]), (fitted.pool, every[is_pooled])]
    return [part for part in parts if len(part[1]) > 0] or [(fitted, every)]


def _rows_of(model: Fitted, values: pd.DataFrame, which: NDArray[np.int64]) -> pd.DataFrame:
    """Return some rows as a model takes them."""
    n_columns = model.n_features + len(model.by)
    # To select from a table takes longer than to search for one row.
    is_whole = values.shape == (len(which), n_columns) and (np.diff(which) > 0).all()
    return values if is_whole else values.iloc[which, :n_columns]


def _attributed(
    fitted: Fitted,
    table: Table,
    numbers: NDArray[np.int64] | None,
    *,
    with_typical: bool,
) -> tuple[Attribution, dict[int | None, Typical]]:
    """Return why rows are so far, and what is typical of all, or of groups; computes."""
    reference, has_groups = fitted.reference, fitted.has_groups
    if reference.space.groups is not None:
        return reference.attributed_in_groups(
            table.rows, numbers, with_typical=with_typical
        )
    found, typical = reference.attributed(table.rows, numbers, has_groups=has_groups)
    return found, {None: typical}


def _of_rows(
    fitted: Fitted,
    rows: NDArray[np.generic],
    typical: dict[int | None, Typical],
    in_input_types: Any,
) -> tuple[NDArray[np.object_], NDArray[np.float64]]:
    """Return what is usual and the typical shares for each row, of all columns.

    The status, and NaN, for rows of groups of which nothing is known.
    """
    shape = len(rows), fitted.n_features
    if None in typical:
        texts = np.array(_usual_texts(typical[None].usual, in_input_types), object)
        return np.broadcast_to(texts, shape), np.broadcast_to(typical[None].shares, shape)
    usual, shares = np.empty(shape, object), np.full(shape, np.nan)
    usual[:] = status_names(fitted.status_codes(rows))[:, None]
    codes = rows[:, -1].astype(np.float64)
    for group in np.unique(codes[codes >= 0]).astype(int).tolist():
        if group in typical:
            usual[codes == group] = _usual_texts(typical[group].usual, in_input_types)
            shares[codes == group] = typical[group].shares
    return usual, shares


def _usual_texts(usual: Any, in_input_types: Any) -> list[str]:
    """Return the typical values of each column; see `TypicalValues`."""
    frequent = usual.frequent
    low, median, high = in_input_types(usual.quantiles).to_numpy(object)
    n_columns, most = len(frequent), max(map(len, frequent))  # with that of groups
    ranked = np.full((most, n_columns), np.nan)
    for place, of_column in enumerate(frequent):
        ranked[: len(of_column), place] = [value for value, _ in of_column]
    levels = in_input_types(ranked).to_numpy(object)
    texts = []
    for place, of_column in enumerate(frequent[: len(low)]):
        first, last, middle = _numbers([of[place] for of in (low, high, median)])
        shares = (
            f"{_level(levels[i, place])} {_percent(of[1])}"
            for i, of in enumerate(of_column)
        )
        text = ", ".join(shares) or f"{first} to {last}, median {middle}"
        if not of_column and 0 < usual.missing[place] < 1:
            text += f", missing {_percent(usual.missing[place])}"
        texts.append(text)
    return texts


def _numbers(quantiles: list[Any]) -> list[str]:
    """Return the least, the largest and another number, with as many digits as differ."""
    if not all(isinstance(number, float) for number in quantiles):
        return list(map(str, quantiles))
    extent, largest = quantiles[1] - quantiles[0], max(map(abs, quantiles))
    digits = 4
    if largest > 0 and extent > 0:
        whole = math.floor(math.log10(largest)) + 1
        digits = max(digits, whole, whole + 1 - math.floor(math.log10(extent)))
    return [f"{number:.{min(digits, 17)}g}" for number in quantiles]


def _level(value: Any) -> str:
    """Return a frequent value, shortened."""
    if pd.isna(value):
        return "missing"
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def _percent(share: float) -> str:
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


@eager_scope()
def nearest_nominal(
    fitted: Fitted, X: Any, n: int, rows: Rows | None = None
) -> pd.DataFrame:
    """Return the result of `LPE.nearest_nominal`; computes."""
    _check_count("n", n)
    most = fitted.most_neighbors - (rows is not None)
    if n > most:
        in_group = "" if fitted.reference.space.groups is None else " of the largest group"
        raise ValueError(
            f"n={n} is more than the {most} nominal rows{in_group} that rows are measured "
            f"among. Give {most} or less."
        )
    values, _, places = _queries(fitted, X, rows)
    found, order = [], []
    for model, which in _models_of(fitted, values):
        at = None if places is None else places[which]
        found.append(_nearest(model, _rows_of(model, values, which), int(n), at))
        order.append(np.repeat(which, n))
    return pd.concat(found).iloc[np.argsort(np.concatenate(order), kind="stable")]


def _nearest(
    fitted: Fitted, values: pd.DataFrame, n: int, places: NDArray[np.int64] | None
) -> pd.DataFrame:
    """Return the same of rows that a model measures itself."""
    own = None if places is None else reference_ids(fitted, places)
    queries = fitted.table_of_values(values).rows
    found, (in_numbers,) = fitted.reference.nearest(queries, n, own), compute(queries)
    is_measured = fitted.is_measured(in_numbers)
    if places is None:
        _warn_of_fitted_rows(found.distances[:, 0])
    distances = np.where(is_measured[:, None], found.distances, np.nan)
    numbers = np.where(is_measured[:, None], found.numbers, -1).ravel()
    numbers = input_positions(fitted, numbers)
    return pd.DataFrame(
        {
            "rank": np.tile(np.arange(1, n + 1), len(values)),
            "nominal_row": pd.arrays.IntegerArray(numbers.astype(np.int64), numbers < 0),
            "distance": distances.ravel(),
        },
        values.index.repeat(n),
    )


def _warn_of_fitted_rows(distances: NDArray[np.float64]) -> None:
    """Warn if each row is equal to a nominal one, as those are that were fitted."""
    if len(distances) > 0 and (distances == 0).all():
        logger.warning(
            "each of these rows is equal to a nominal one: if they were fitted, they are "
            "compared with themselves. Give their places instead: rows=[...]."
        )


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name}={count!r} must be a whole number of at least 1.")


def _queries(
    fitted: Fitted, X: Any, rows: Rows | None
) -> tuple[pd.DataFrame, _Known | None, NDArray[np.int64] | None]:
    """Return new rows, or fitted ones and what `Explanation.of` takes of them; computes."""
    if rows is None:
        return _collect_rows(fitted, X), None, None
    places = _places_of(fitted, X, rows)
    return *_fitted_rows(fitted, places), places


def _places_of(fitted: Fitted, X: Any, rows: Rows) -> NDArray[np.int64]:
    """Return the places of fitted rows; raises ValueError where they cannot be had."""
    origin = fitted.nominal.origin
    if X is not None:
        raise ValueError(
            "X, new rows, and rows=, places of rows that were fitted, were both given. "
            "Give one of them."
        )
    if origin is None or origin.rows is None:
        raise ValueError(
            f"rows={rows!r} are places of rows that were fitted, but a model that was "
            f"loaded or copied has only what it needs of these. Fit it again, or give "
            f"new rows as X."
        )
    places, n_input = np.asarray(rows), fitted.n_samples + fitted.n_dropped
    is_whole = places.ndim == 1 and len(places) > 0 and places.dtype.kind in "iu"
    if not is_whole or places.min() < 0 or places.max() >= n_input:
        raise ValueError(
            f"rows={rows!r} must be places of rows that were fitted: whole numbers from 0 "
            f"to {n_input - 1}, at least one. Give a list of them."
        )
    return places.astype(np.int64)


def _fitted_rows(fitted: Fitted, places: NDArray[np.int64]) -> tuple[pd.DataFrame, _Known]:
    """Return rows that were fitted, and their p-values and statistic; computes."""
    origin, own = fitted.nominal.origin, fitted.nominal_scores.known()
    assert origin is not None
    assert own.checksums is not None
    table = fitted.table(origin.rows)
    rows = table.validated_rows(own.chunks, own.checksums)
    ascending, back = np.unique(places, return_inverse=True)
    statistic, p_values = fitted.blocks()
    measured = (rows, p_values, statistic)
    found = compute(*(select_rows(values, ascending) for values in measured))
    taken, p_value, of_rows = (values[back] for values in found)
    values = table.original(taken)
    if fitted.has_groups:
        values = pd.concat([values, fitted.group_values(taken[:, -1])], axis=1)
    return _named(values.set_axis(places, axis=0), fitted), (p_value, of_rows)


def _collect_rows(fitted: Fitted, X: Any) -> pd.DataFrame:
    """Return rows of any kind as a frame of the columns that are measured; computes."""
    if X is None:
        raise ValueError(
            "there are no rows. Give new ones as X, or places of rows that were fitted "
            "(rows=)."
        )
    return _named(fitted.values(X), fitted)


def _named(frame: pd.DataFrame, fitted: Fitted) -> pd.DataFrame:
    """Return measured columns, and those of groups, with their names."""
    if fitted.columns is None:
        return frame
    return frame.set_axis(_index_of([*fitted.columns, *fitted.by]), axis=1)


def _index_of(names: list[Any]) -> pd.Index:
    """Return names of columns as they are, also where pandas would make others of them."""
    return pd.Index(names, dtype=object, tupleize_cols=False)

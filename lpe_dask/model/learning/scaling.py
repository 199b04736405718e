"""Learn the scaling and the metric of the nominal rows: the same bits for any chunks.

Rows are a dask array, of which results are computed, or within a task those of a group, an
array of NumPy.

    rows (n, d) --one reading--> ColumnFacts --client--> scaling, weights, matrix

Ranges are exact in any order. Means and covariances are fractions of exact sums, rounded
once (kernels/exact_moments.py): floating-point sums would change with chunks. What a metric
learns of rows by quantiles is that of the sample that these are learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lpe_dask import dask_array as da
from lpe_dask.kernels import Moments
from lpe_dask.model.learning.column_facts import AskedFacts, ColumnFacts, read_facts
from lpe_dask.model.learning.medians import Medians
from lpe_dask.model.learning.metrics import (
    learned_mahalanobis_matrix,
    mahalanobis_matrix,
    validate_metric_param,
)
from lpe_dask.model.learning.quantiles import knots_of
from lpe_dask.model.lpe_parameters import SCALES
from lpe_dask.search import Preparation, QuantileKnots, Scaling
from lpe_dask.tasks import new_array, to_task

#: A dask array, or one of NumPy, of shape (n_rows, n_columns).
Rows = Any

#: Significant bits of a learned weight.
LEARNED_BITS = 24


def learn_preparation(
    rows: Rows,
    scale: str | None,
    metric: str,
    metric_params: Mapping[str, Any] | None,
    columns: Sequence[str],
    categorical: Sequence[int] = (),
    random_state: int | None = None,
    sample: NDArray[np.generic] | None = None,
    group_role: str | None = None,
    known: ColumnFacts | None = None,
) -> Preparation:
    """Learn the scaling and the metric from the nominal rows; computes.

    Parameters
    ----------
    rows, scale, columns, random_state
        As for `learn_scaling`.
    metric : str
        A name of `metrics.METRIC_PARAMS`.
    metric_params : mapping, optional
        Its parameters, in scaled units. V and VI are learned where they are not given. A
        weight w is that of all forms of its column.
    categorical : sequence of int
        Columns that are codes of categories, ascending: nothing is learned from these, and
        weights are 1 if not given; for the Euclidean metric only.
    sample : ndarray of shape (n_sampled, n_features), optional
        Some of the rows, where missing values are measured, for this metric only: numbers
        count as the medians, which are learned first. None: no row has such values.
    group_role : {"separates", "dropped"}, optional
        What the last one of the categorical columns does, if it has the numbers of groups,
        which ``columns`` and weights leave out: it separates rows, or is dropped.
    known : ColumnFacts, optional
        What is known of the columns of numbers of these rows.

    Raises
    ------
    ValueError
        For a parameter of the wrong shape or without meaning, or columns that cannot be
        scaled or make the covariance singular.
    """
    codes = tuple(categorical)
    categorical = codes if group_role is None else codes[:-1]
    numbers, names = rows, list(columns)
    if codes:
        numbers = _numbers_only(rows, codes)
        names = [columns[i] for i in range(len(columns)) if i not in codes]
    given = None
    if metric != "geodesic":
        n_forms = len(SCALES[scale].forms)
        given = validate_metric_param(metric, metric_params, len(columns), n_forms)
    asked = AskedFacts.of(scale, metric, metric_params)
    gaps = None if sample is None else Medians.near(np.delete(sample, codes, 1), names)
    facts = read_facts(numbers, asked, known, gaps, random_state).filled()
    fill = facts.medians
    learned = _Columns(names, facts)
    if metric == "mahalanobis":
        mapped = _learn_mahalanobis(learned, scale, given)
        if group_role is None:
            return mapped
        return replace(mapped, categorical=codes, **_roles(group_role))
    of_codes, is_left_out = np.ones(len(categorical)), np.zeros(len(names), bool)
    if given is not None and metric == "euclidean":
        of_codes = given[list(categorical)]
        given = np.delete(given, categorical)
        is_left_out = given == 0
    if fill is not None:
        of_gaps = float((metric_params or {}).get("w_missing", 1.0))
        of_codes = np.append(of_codes, np.where(is_left_out, 0.0, of_gaps))
    if group_role == "separates":
        of_codes = np.append(of_codes, 1.0)
    scaling, weights = Scaling(), np.ones(0)
    if numbers.shape[1] > 0:
        scaling, weights = _learn_weights(learned, scale, metric, given)
    prepared = _prepared_with(scaling, weights, codes, of_codes)
    return replace(prepared, fill=fill, **_roles(group_role))


def _roles(group_role: str | None) -> dict[str, Any]:
    """Return what `Preparation` does about groups."""
    return {
        "separates": group_role == "separates", "drops_group": group_role == "dropped"
    }  # fmt: skip


def learn_map(
    rows: Rows,
    scale: str | None,
    columns: Sequence[str],
    categorical: Sequence[int] = (),
    random_state: int | None = None,
    sample: NDArray[np.generic] | None = None,
    known: ColumnFacts | None = None,
) -> Preparation:
    """Learn what takes rows to scaled units, for a metric that is learned later; computes.

    Parameters as for `learn_preparation`, the last one of ``categorical`` of which has the
    numbers of groups.
    """
    numbers, codes = _numbers_only(rows, tuple(categorical)), tuple(categorical)
    names = [columns[i] for i in range(len(columns)) if i not in categorical]
    gaps = None if sample is None else Medians.near(np.delete(sample, codes, 1), names)
    asked, scaling = AskedFacts.of(scale, "euclidean", None), Scaling()
    facts = read_facts(numbers, asked, known, gaps, random_state).filled()
    if numbers.shape[1] > 0:
        scaling = _scaling_of(_Columns(names, facts), scale)
    return Preparation(scaling, categorical=codes, fill=facts.medians)


def learn_metric(
    rows: Rows,
    mapped: Preparation,
    scale: str | None,
    metric: str,
    metric_params: Mapping[str, Any] | None,
    columns: Sequence[str],
) -> Preparation:
    """Learn the metric of rows that are scaled by their groups; computes.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_columns)
        In the units of the input.
    mapped : Preparation
        What scales them, and has the numbers of groups as the last of its categorical
        columns.
    scale, metric, metric_params, columns
        As for `learn_preparation`.
    """
    names = [columns[i] for i in range(len(columns)) if i not in mapped.categorical]
    labels = [f"{name}{form}" for form in SCALES[scale].forms for name in names]
    labels = labels or ["no column of numbers"]
    params = dict(metric_params or {})
    of_gaps = float(params.pop("w_missing", 1.0))
    if metric == "euclidean":
        given = validate_metric_param(metric, params, len(columns))
        every = np.ones(len(columns)) if given is None else given
        of_numbers = np.delete(every, mapped.categorical[:-1])
        of_codes = np.append(every[list(mapped.categorical[:-1])], 0.0)  # of groups: 0
        gaps = np.where(of_numbers == 0, 0.0, of_gaps)
        n_forms = len(SCALES[scale].forms)
        weights = np.tile(of_numbers, n_forms) if len(names) > 0 else np.ones(1)
        codes = of_codes if mapped.fill is None else np.append(of_codes, gaps)
        params = {"w": np.append(weights, codes)}
    scaled = _mapped(rows, mapped)
    last = range(len(labels), scaled.shape[1])
    every_label = [*labels, *map(str, last)] if metric == "euclidean" else labels
    role = None if metric == "euclidean" else "dropped"
    learned = learn_preparation(
        scaled, None, metric, params or None, every_label, last, group_role=role
    )
    of_all = learned.weights
    if role is not None:  # the numbers of groups stay, without weight
        of_all = np.append(learned.weights_of(learned.n_numbers(scaled.shape[1])), 0.0)
    return replace(mapped, matrix=learned.matrix, factor=learned.factor, weights=of_all)


def _mapped(rows: Rows, mapped: Preparation) -> da.Array:
    """Return prepared rows, lazily."""
    entered = to_task(mapped, "lpe-scaling")
    tasks = ((_prepare, entered.key, (rows.name, i, 0)) for i in range(rows.numblocks[0]))
    chunks = (rows.chunks[0], (mapped.n_prepared(rows.shape[1]),))
    return new_array("scaled", tasks, [rows, entered], chunks, np.empty((0, 0)))


def _learn_weights(
    columns: _Columns,
    scale: str | None,
    metric: str,
    given: NDArray[np.float64] | None,
) -> tuple[Scaling, NDArray[np.float64]]:
    """Return the forms of columns that are numbers, and their weights; may compute."""
    forms = SCALES[scale].forms
    labels = [f"{column}{form}" for form in forms for column in columns.names]
    if metric == "seuclidean" and given is None:
        # Variances make up for linear scales; what these learn cancels out.
        kept = scale if SCALES[scale].has_quantiles else None
        scaling, _ = _weights_of(columns, kept)
        scaled = columns if kept is None else columns.scaled(scaling, labels)
        return scaling, learned_weights(scaled.variances(ddof=1), labels)
    scaling, weights = _weights_of(columns, scale)
    if given is None:
        return scaling, weights
    is_weight = metric != "seuclidean"  # else a variance
    given = np.tile(given, len(forms)) if is_weight else given
    with np.errstate(over="ignore", under="ignore"):
        weighted = weights * given if is_weight else weights / given
    is_exact = is_weight & ((weights == 1) | (given == 0))
    _check_normal(np.where(is_exact, 1.0, weighted), labels)
    return scaling, weighted


def _prepared_with(
    scaling: Scaling,
    weights: NDArray[np.float64],
    categorical: tuple[int, ...],
    of_codes: NDArray[np.float64],
) -> Preparation:
    """Return the preparation that gives distances with these weights."""
    factors, left = as_factors(weights)
    kept = left[factors != 0]
    of_numbers = kept if len(kept) > 0 else np.ones(1)  # of a column of zeros
    every = np.append(of_numbers, of_codes)
    return Preparation(
        scaling,
        factor=None if (factors == 1).all() else factors,
        categorical=categorical,
        weights=None if (every == 1).all() else every,
    )


def _learn_mahalanobis(
    columns: _Columns, scale: str | None, given: NDArray[np.float64] | None
) -> Preparation:
    scaling = _scaling_of(columns, scale)
    if given is not None:
        return Preparation(scaling, mahalanobis_matrix(given))
    chosen, divisors = SCALES[scale], None
    labels = [f"{name}{form}" for form in chosen.forms for name in columns.names]
    if chosen.has_quantiles:
        columns = columns.scaled(scaling, labels)
    elif chosen.linear is not None:
        divisors = LINEAR_FORMS[chosen.linear].divisors(columns)
    assert columns.facts.moments is not None
    covariance, is_constant = columns.facts.moments.covariance(1, divisors)
    matrix = learned_mahalanobis_matrix(covariance, is_constant, labels)
    return Preparation(scaling, matrix)


def _numbers_only(rows: Rows, categorical: tuple[int, ...]) -> Rows:
    """Return the columns that are no codes, lazily for Dask."""
    if isinstance(rows, np.ndarray):
        return np.delete(rows, categorical, axis=1)
    n_numbers = rows.shape[1] - len(categorical)
    tasks = (
        (np.delete, (rows.name, i, 0), categorical, 1) for i in range(rows.numblocks[0])
    )
    chunks, meta = (rows.chunks[0], (n_numbers,)), np.empty((0, 0), rows.dtype)
    return new_array("numbers", tasks, [rows], chunks, meta)


def check_determined(n_rows: int, n_features: int) -> None:
    """Raise ValueError if so many rows are too few to learn a covariance from."""
    if n_rows <= n_features:
        raise ValueError(
            f"the covariance of {n_features} columns is singular if it is learned from no "
            f"more than {n_features} rows, and there are {n_rows} to learn it from (with "
            f"calibration='conformal' the nominal rows that are not calibration rows). "
            f"Give more rows, fewer columns (columns=, --columns) or a smaller "
            f"calibration_size, use metric='seuclidean', or give metric_params={{'VI': "
            f"...}}."
        )


def _weights_of(
    columns: _Columns, scale: str | None
) -> tuple[Scaling, NDArray[np.float64]]:
    """Return the forms of columns and their weights.

    Squared differences are multiplied by ``1 / (max - min)**2``, or by ``1 / variance``
    with ddof 0, or are those of a line through knots; see `search.quantile_scale`. A
    constant column keeps its unit. With both forms, those of all columns by knots come
    last.

    Raises
    ------
    ValueError
        Naming columns whose range or deviation is no usable float64.
    """
    chosen, weights = SCALES[scale], []
    if chosen.linear is not None:
        weights.append(LINEAR_FORMS[chosen.linear].weights(columns))
    if chosen.linear is None or chosen.has_quantiles:
        weights.append(np.ones(len(columns.names)))
    knots = columns.knots if chosen.has_quantiles else None
    return Scaling(knots=knots, has_both=len(weights) == 2), np.concatenate(weights)


def learn_scaling(
    rows: Rows,
    scale: str | None,
    columns: Sequence[str],
    random_state: int | None = None,
) -> Scaling:
    """Learn what takes rows to scaled units, before a matrix; computes.

    Columns become ``(x - min) * (1 / (max - min))`` or ``(x - mean) / std``; or values on
    lines through knots; see `search.quantile_scale`.

    Parameters
    ----------
    rows : dask array of shape (n_rows, n_features)
        Finite, with known chunks and one chunk of features.
    scale : {None, "minmax", "standard", "quantile", "minmax+quantile"}
        A key of `SCALES`.
    columns : sequence of str
        What to call the columns in an error.
    random_state : int, optional
        Decides from which rows quantiles are learned, if there are many; None: as for 0.

    Raises
    ------
    ValueError
        Naming columns whose range or deviation is no usable float64.
    """
    asked = AskedFacts.of(scale, "euclidean", None)
    facts = read_facts(rows, asked, random_state=random_state)
    return _scaling_of(_Columns(columns, facts), scale)


def _scaling_of(columns: _Columns, scale: str | None) -> Scaling:
    chosen = SCALES[scale]
    knots = columns.knots if chosen.has_quantiles else None
    if chosen.linear is None:
        return Scaling(knots=knots)
    mapped = LINEAR_FORMS[chosen.linear].scaling(columns)
    return replace(mapped, knots=knots, has_both=chosen.has_quantiles)


@dataclass(frozen=True)
class _Columns:
    """Columns of numbers and what is known of them, checked when it is first asked for.

    Attributes
    ----------
    names : sequence of str
    facts : ColumnFacts
        Without gaps.
    """

    names: Sequence[str]
    facts: ColumnFacts

    @cached_property
    def ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the largest values."""
        low, high = self.facts.low, self.facts.high
        assert low is not None
        assert high is not None
        with np.errstate(over="ignore", divide="ignore"):
            extent = np.where(low == high, 1.0, 1.0 / (high - low))
        _check_float_range(extent, self.names, "range")
        return low, high

    def variances(self, ddof: int) -> NDArray[np.float64]:
        """Return the variance of each column; 1 for a constant one."""
        assert self.facts.moments is not None
        variances, is_constant = self.facts.moments.variances(ddof)
        variances = np.where(is_constant, 1.0, variances)
        _check_float_range(variances, self.names, "variance")
        return variances

    @cached_property
    def knots(self) -> QuantileKnots:
        """The lines of a form by quantiles."""
        assert self.facts.sample is not None
        return knots_of(self.facts.sample, *self.ranges)

    def scaled(self, scaling: Scaling, names: Sequence[str]) -> _Columns:
        """Return the columns of the sample as they are scaled, with their moments."""
        assert self.facts.sample is not None
        moments = Moments.of(scaling.apply(self.facts.sample), has_products=True)
        return _Columns(names, ColumnFacts(moments=moments))


def _range_weights(columns: _Columns) -> NDArray[np.float64]:
    ranges = _range_divisors(columns)
    with np.errstate(over="ignore", under="ignore"):
        return learned_weights(ranges * ranges, columns.names)


def _range_scaling(columns: _Columns) -> Scaling:
    return Scaling(columns.ranges[0], 1.0 / _range_divisors(columns))


def _range_divisors(columns: _Columns) -> NDArray[np.float64]:
    low, high = columns.ranges
    return np.where(low == high, 1.0, high - low)


def _variance_weights(columns: _Columns) -> NDArray[np.float64]:
    return learned_weights(columns.variances(ddof=0), columns.names)


def _variance_scaling(columns: _Columns) -> Scaling:
    assert columns.facts.moments is not None
    return Scaling(columns.facts.moments.means(), divisor=_deviations(columns))


def _deviations(columns: _Columns) -> NDArray[np.float64]:
    return np.sqrt(columns.variances(ddof=0))


class LinearForm(NamedTuple):
    """A linear form of columns: as weights of squares, as a map of rows, and its divisors.

    Attributes
    ----------
    weights : callable
        Returns the weights of squared differences; what a matrix follows needs the map.
    scaling : callable
        Returns the same as a map of rows, which centers them, too.
    divisors : callable
        Returns what the map divides columns by.
    """

    weights: Callable[[_Columns], NDArray[np.float64]]
    scaling: Callable[[_Columns], Scaling]
    divisors: Callable[[_Columns], NDArray[np.float64]]


#: What a linear form is learned from -> the form.
LINEAR_FORMS = {
    "ranges": LinearForm(_range_weights, _range_scaling, _range_divisors),
    "variances": LinearForm(_variance_weights, _variance_scaling, _deviations),
}


def learned_weights(
    squares: NDArray[np.float64], columns: Sequence[str]
) -> NDArray[np.float64]:
    """Return ``1 / squares``, rounded to `LEARNED_BITS` significant bits.

    The square of a whole number times such a weight, and sums of such products, are then
    exact as long as they are below ``2**(53 - LEARNED_BITS)`` weights: columns of one range
    tie wherever they tie without a scale.
    """
    with np.errstate(over="ignore", divide="ignore"):
        weights = 1.0 / squares
    _check_normal(weights, columns)
    mantissas, exponents = np.frexp(weights)
    wholes = np.rint(np.ldexp(mantissas, LEARNED_BITS))
    rounded: NDArray[np.float64] = np.ldexp(wholes, exponents - LEARNED_BITS)
    return rounded


def as_factors(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return powers of two for the columns, and the weights from 1 to 4 that are left then.

    A column times ``2**p`` with its weight times ``2**(-2 p)`` makes the same distances,
    bit for bit, where nothing overflows or underflows. With weights from 1 to 4, a square
    overflows only if the distance does. A weight of 0 gives the factor 0.
    """
    mantissas, exponents = np.frexp(weights)
    powers = (exponents - 1) // 2
    factors = np.where(mantissas == 0, 0.0, np.ldexp(1.0, powers))
    return factors, np.ldexp(mantissas, exponents - 2 * powers)


def _check_normal(weights: NDArray[np.float64], columns: Sequence[str]) -> None:
    """Refuse weights that have not all their digits, too."""
    is_small = weights < np.finfo(np.float64).tiny
    _check_float_range(np.where(is_small, 0.0, weights), columns, "weight")


def _check_float_range(
    values: NDArray[np.float64], columns: Sequence[str], what: str
) -> None:
    bad = ~np.isfinite(values) | (values == 0)
    if bad.any():
        names = ", ".join(name for name, is_bad in zip(columns, bad, strict=True) if is_bad)
        raise ValueError(
            f"the {what} of {names} is too large or too small for float64, so it cannot "
            f"scale them. Change the unit of these columns (multiply them by a number that "
            f"brings their values near 1), or leave them out (columns=, --columns)."
        )


# The functions below run inside tasks: NumPy in, NumPy out.


def _prepare(preparation: Preparation, rows: NDArray[np.generic]) -> NDArray[np.float64]:
    return preparation.apply(rows)

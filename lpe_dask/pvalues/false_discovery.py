r"""Build the Dask graph that controls the false discovery rate, without a shuffle.

    p-values      p0     p1     p2    ...
                   |      |      |
    histograms    h0     h1     h2            distinct p-values and their counts
                    \     |     /
    merge          tree of merges             MERGED_HISTOGRAMS a task
                          |
    cut-off             float                 the largest p-value that is flagged
                    /     |     \
    flags      p0 <= .  p1 <= .  p2 <= .

Whether a row is flagged depends on all other rows, but only through one number, the
cut-off, which is computed from the histograms of the partitions. For adjusted p-values, a
step function of the p-value takes the place of the cut-off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import uuid4

import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from lpe_dask.pvalues.decisions import (
    Adjustment,
    Histogram,
    check_level,
    discoveries,
    histogram_of,
    merge_histograms,
)
from lpe_dask.tables import from_library, map_values
from lpe_dask.tasks import merge_tasks

if TYPE_CHECKING:  # users see these types
    import dask.array as da
    import dask.dataframe as dd

    _Kind = TypeVar("_Kind", NDArray[Any], da.Array, dd.Series, pd.Series)
else:
    from lpe_dask import dask_array as da

#: Histograms that one task merges.
MERGED_HISTOGRAMS = 8


@overload
def false_discovery_control(
    p_values: _Kind, q: float = 0.1, *, adjusted: bool = False
) -> _Kind: ...
@overload
def false_discovery_control(
    p_values: Any, q: float = 0.1, *, adjusted: bool = False
) -> Any: ...
def false_discovery_control(
    p_values: Any, q: float = 0.1, *, adjusted: bool = False
) -> Any:
    r"""Return which rows are anomalies at the false discovery rate ``q``, lazily for Dask.

    The procedure of Benjamini and Hochberg. Of m p-values all up to the largest v are
    flagged for which

    .. math:: v \cdot \frac{m}{\#\{p \le v\}} \le q

    With ``adjusted=True`` it returns the smallest rate at which each row is flagged, its
    adjusted p-value or q-value.

    Among the rows flagged, on average at most the share q is then nominal, if the p-values
    are independent or positively dependent. Those of one model are compared with the same
    nominal rows, for which see the notes.

    Parameters
    ----------
    p_values : array-like, Series, dask array or dask Series of shape (n_rows,)
        In [0, 1], as `score` and `LPE.score_samples` return them. NaN, for a row that was
        not measured, is not counted. Chunk sizes and divisions may be unknown.
    q : float, default=0.1
        In (0, 1).
    adjusted : bool, default=False
        Whether to return adjusted p-values, for which ``q`` does not matter.

    Returns
    -------
    is_anomaly : ndarray, Series, dask array or dask Series of bool of shape (n_rows,)
        Of the kind of ``p_values``, with its index, divisions and chunks; False for NaN.
        Without ``adjusted``.
    q_value : ndarray, Series, dask array or dask Series of float64 of shape (n_rows,)
        Likewise, with ``adjusted``; NaN for NaN. For float64 without NaN it equals,
        rounding and ties included, ``scipy.stats.false_discovery_control(p_values)``, and
        ``q_value <= q`` is what is flagged at ``q``.

    Raises
    ------
    TypeError
        For p-values that are not real numbers.
    ValueError
        For another number of dimensions, ``q`` outside (0, 1), or p-values outside [0, 1];
        the latter, for Dask, when the result is computed.

    Notes
    -----
    Nothing is sorted or moved as a whole: each partition gives its distinct p-values with
    their counts, and a tree of tasks merges these. p-values of `LPE` against n nominal rows
    take at most n + 1 values, so no histogram is longer, at 16 bytes a value; a task holds
    at most 8 of them and what they make. For b partitions there are b tasks that count, b
    that flag, and b / 8, b / 64, ... (each rounded up) down to one that merge. All that
    flag read one number; with ``adjusted`` 16 bytes for each q-value that there is.

    Of p-values that come from elsewhere and are all different, histograms are as long as
    the table, and so can be the list of its q-values: the last task then holds about 75
    bytes a row of the table, and each worker 16. Where that is too much, round them (up,
    so that they stay valid).

    The p-values are needed twice, to count and to flag, but computed once: the workers hold
    them, 8 bytes a row, until the last has been counted. Where they are too many for that,
    write them first, for example to Parquet, and pass what is read back.

    Conformal p-values of independent rows are positively dependent [2]_, which is enough:
    ``calibration="conformal"`` is the form to use here. With ``"loo"`` the rate holds only
    about, and not where far more rows are scored than are nominal: a nominal row has p = 0
    about once in n + 1, and 0 is flagged whatever ``q`` is (`score_files` warns then, which
    here cannot be known). Its p-values of rows against
    themselves (`score` without nominal rows, ``p_values_``) are ranks, evenly spread
    whatever the rows are: none is flagged.

    With ``by`` the rate holds over all groups together if these are conformal with their
    own calibration: p-values of different groups are independent given the rows that are
    searched. It does not without ``"calibration"`` in ``own``, unless rows to score have
    each group as often as nominal rows do, nor for rows of ``small_groups="pool"``, and
    less than otherwise with ``"loo"``, as a group has fewer nominal rows.

    References
    ----------
    .. [1] Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate: a practical
       and powerful approach to multiple testing", Journal of the Royal Statistical Society
       B 57 (1995).
    .. [2] S. Bates, E. Candes, L. Lei, Y. Romano and M. Sesia, "Testing for outliers with
       conformal p-values", Annals of Statistics 51 (2023).

    Examples
    --------
    >>> p_values = [0.01, 0.5, 0.04, 0.9]
    >>> false_discovery_control(p_values, q=0.1)
    array([ True, False,  True, False])
    >>> false_discovery_control(p_values, adjusted=True).round(2)
    array([0.04, 0.67, 0.08, 0.9 ])
    """
    check_level("q", q)
    if (found := from_library(p_values)) is not None:
        array, restore = found
        flags = false_discovery_control(array, q, adjusted=adjusted)
        return restore(flags, "q_value" if adjusted else "is_anomaly")
    p_values = _checked(p_values)
    if adjusted:
        steps = _from_all(p_values, Adjustment.of)
        return map_values(p_values, _q_values, steps, name="q_value", dtype=np.float64)
    limit = _from_all(p_values, _cut_off, float(q))
    return map_values(p_values, discoveries, limit, name="is_anomaly", dtype=np.bool_)


def adjustment(p_values: da.Array) -> Delayed:
    """Return the step function from p-values to adjusted p-values, lazily.

    Parameters
    ----------
    p_values : dask array of shape (n_rows,)
        Of real numbers; ValueError is raised when the result is computed if one is outside
        [0, 1]. Chunk sizes may be unknown.

    Returns
    -------
    adjustment : Delayed
        A `decisions.Adjustment`, at most 16 bytes for each distinct p-value.
    """
    return _from_array(p_values, Adjustment.of)


def _checked(p_values: Any) -> Any:
    """Return p-values in one of the kinds that `map_values` accepts, one number per row."""
    if is_dask_collection(p_values):
        is_frame = isinstance(getattr(p_values, "divisions", None), tuple)
        if not is_frame and not isinstance(p_values, da.Array):
            raise TypeError(
                f"p-values came as {type(p_values).__name__}, but can be an array, a "
                f"Series, a dask array or a dask Series. Convert them, for example with "
                f"dask.array.from_delayed(p_values, (n_rows,), float)."
            )
    elif not isinstance(p_values, pd.Series):
        p_values = np.asarray(p_values)
    if p_values.ndim != 1:
        raise ValueError(
            f"p-values must be one number a row, of 1 dimension, but have {p_values.ndim}. "
            f"Choose a column, for example frame['p_value'] or array[:, 0]."
        )
    types, dtype = pd.api.types, p_values.dtype
    is_other = types.is_bool_dtype(dtype) or types.is_complex_dtype(dtype)
    if is_other or not types.is_numeric_dtype(dtype):
        raise TypeError(
            f"p-values must be real numbers, but have dtype {p_values.dtype}. Convert "
            f"them, for example with p_values.astype(float)."
        )
    return p_values


def _from_all(p_values: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(histogram, *arguments)``, or for Dask a task that gives it."""
    if isinstance(p_values, (np.ndarray, pd.Series)):
        return function(_histogram(np.asarray(p_values)), *arguments)
    if isinstance(p_values, da.Array):
        return _from_array(p_values, function, *arguments)
    # An expression of the Series itself, so that Dask sees both uses of its partitions and
    # computes them once: a graph beside it would have other names for the same partitions.
    return p_values.reduction(
        _frame_histogram,
        combine=_from_frames,
        combine_kwargs={"function": _as_frame},
        aggregate=_from_frames,
        aggregate_kwargs={"function": function, "arguments": arguments},
        meta=0.0,  # one value, whatever it is
        split_every=MERGED_HISTOGRAMS,
        token="lpe-cut-off",
    )


def _from_array(
    p_values: da.Array, function: Callable[..., Any], *arguments: Any
) -> Delayed:
    name = f"lpe-histogram-{uuid4().hex}"
    counted = {
        f"{name}-of-{i}": (_histogram, (p_values.name, i))
        for i in range(p_values.numblocks[0])
    }
    merged, keys = merge_tasks(name, list(counted), merge_histograms, MERGED_HISTOGRAMS)
    last = f"lpe-cut-off-{uuid4().hex}"
    tasks = counted | merged | {last: (_from_parts, keys, function, *arguments)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[p_values])
    return Delayed(last, graph, layer=name)


# The functions below run inside tasks: NumPy in, NumPy out; or pandas for a dask Series,
# which joins histograms one below the other.


def _histogram(p_values: NDArray[np.number]) -> Histogram:
    histogram = histogram_of(p_values)
    values = histogram.values
    if len(values) and not 0 <= values[0] <= values[-1] <= 1:
        raise ValueError(
            f"p-values must lie in [0, 1], or be NaN, but some go from {values[0]} to "
            f"{values[-1]}. Pass what score or score_samples returns, not statistics or "
            f"labels."
        )
    return histogram


def _cut_off(histogram: Histogram, q: float) -> float:
    return Adjustment.of(histogram).cut_off(q)


def _q_values(p_values: NDArray[np.number], adjustment: Adjustment) -> NDArray[np.float64]:
    return adjustment.q_values(p_values)


def _from_parts(
    parts: Sequence[Histogram], function: Callable[..., Any], *arguments: Any
) -> Any:
    return function(merge_histograms(parts), *arguments)


def _frame_histogram(p_values: pd.Series) -> pd.DataFrame:
    return _as_frame(_histogram(p_values.to_numpy()))


def _from_frames(
    frame: pd.DataFrame, function: Callable[..., Any], arguments: tuple[Any, ...] = ()
) -> Any:
    parts = Histogram(frame["values"].to_numpy(), frame["counts"].to_numpy())
    return function(merge_histograms([parts]), *arguments)


def _as_frame(histogram: Histogram) -> pd.DataFrame:
    return pd.DataFrame(histogram._asdict())

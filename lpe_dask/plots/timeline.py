"""p-values along time, and which rows are flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lpe_dask.plots.style import LEVEL, add_legend, axes_or_new, draw_rows, literal
from lpe_dask.plots.values import KnownRows, aligned, check_alpha, in_memory, known_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_timeline(
    p_values: Any,
    time: Any = None,
    *,
    alpha: float = 0.05,
    is_flagged: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw p-values along time, with crosses for the rows that are flagged.

    Small p-values are what matters, so their axis is logarithmic, down to the smallest one
    above 0, and linear from there to 0. Each row is a point.

    Parameters
    ----------
    p_values : array, Series or Dask collection of shape (n,)
        As in `plot_scores`.
    time : array, Series or Dask collection of shape (n,), optional
        Times or numbers, in any order. Times with a time zone are drawn in UTC, periods at
        their start, and durations in seconds. None: the index if it is one of these, else
        the places of the rows, from 0.
    alpha : float, default=0.05
        Rows with ``p <= alpha`` are flagged, and the level is drawn, from 0 to 1.
    is_flagged : array, Series or Dask collection of shape (n,), optional
        In the place of ``alpha``: True or 1 for flagged rows, such as those of
        `false_discovery_control`.
    ax : Axes, optional
        As in `plot_scores`.

    Returns
    -------
    ax : Axes
        Those that were drawn on.

    Raises
    ------
    ValueError
        For p-values outside [0, 1], no p-value at all, flags or times of another length or
        kind, or a missing time.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> hours = pd.date_range("2026-11-20", periods=4, freq="h")
    >>> ax = plot_timeline([0.5, 0.01, 0.3, 0.8], hours, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['alpha = 0.05', 'nominal (3 rows)', 'flagged (1 row)']
    """
    given = in_memory(p_values)
    rows = known_rows(given, is_flagged, name="is_flagged")
    check_alpha(alpha)
    if time is None:
        index = getattr(given, "index", None)
        time = index if _is_of_times(index) else pd.RangeIndex(len(rows.where), name="row")
    times, label = _times(time, rows)
    flagged = rows.p_values <= alpha if rows.labels is None else rows.labels
    ax = axes_or_new(ax)
    if rows.labels is None:
        ax.axhline(alpha, label=f"alpha = {alpha:g}", **LEVEL)
    draw_rows(ax, times, rows.p_values, flagged)
    least = rows.p_values[rows.p_values > 0].min(initial=0.5)
    ax.set_yscale("symlog", linthresh=least, linscale=0.4)
    ax.set_ylim(-0.1 * least, 1.25)
    ticks = [0.0, *10.0 ** np.arange(np.ceil(np.log10(least)), 1)]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set(xlabel=label, ylabel="p-value (share of nominal rows)")
    if np.issubdtype(times.dtype, np.datetime64):
        from matplotlib import dates

        concise: Any = dates.ConciseDateFormatter  # has no types
        locator = ax.xaxis.get_major_locator()
        ax.xaxis.set_major_formatter(concise(locator))
    add_legend(ax, rows.n_missing, loc="best")
    return ax


def _is_of_times(index: pd.Index | None) -> bool:
    """Return whether an index has times, durations or periods."""
    dtype = getattr(index, "dtype", None)
    return isinstance(dtype, pd.PeriodDtype) or getattr(dtype, "kind", "") in ("M", "m")


def _times(time: Any, rows: KnownRows) -> tuple[NDArray[Any], str]:
    """Return times or numbers of the rows with a p-value, and the label of their axis."""
    given = in_memory(time)
    if not isinstance(given, pd.Series | pd.Index):
        given = np.asarray(given)
    aligned("time", given, rows.where)  # raises if it is of another shape
    series = pd.Series(given).infer_objects()
    label = "time" if series.name is None else literal(series.name)
    if isinstance(series.dtype, pd.PeriodDtype):
        series = pd.Series(pd.PeriodIndex(series).to_timestamp())
    elif series.dtype.kind == "m":
        series, label = series.dt.total_seconds(), f"{label} [s]"
    elif series.dtype.kind == "M":
        of_arrow = getattr(series.dtype, "pyarrow_dtype", series.dtype)
        label += " (UTC)" if getattr(of_arrow, "tz", None) else ""
        series = pd.to_datetime(series, utc=True).dt.tz_convert(None)
    values = series.to_numpy()[rows.where]
    if values.dtype.kind not in "iufM":
        raise ValueError(
            f"time has the type {series.dtype}; it takes datetimes of one zone, periods, "
            f"durations or numbers. Convert texts, dates and datetimes of several zones "
            f"with pandas.to_datetime(time, utc=True)."
        )
    if pd.isna(values).any():
        raise ValueError(
            f"time is missing for {pd.isna(values).sum()} rows that have a p-value. Leave "
            f"these rows out of p_values and time, or leave out time to draw rows by place."
        )
    return values, label

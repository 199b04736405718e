"""Pairs of columns, with the level set of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from lpe_dask.model import fitted_of
from lpe_dask.plots.style import (
    ANOMALY_BARS,
    BARS,
    draw_rows,
    label_with_count,
    literal,
    pyplot,
)
from lpe_dask.plots.surface import check_has_axes, corners, draw_surface
from lpe_dask.plots.values import check_count, computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from lpe_dask.model import LPE

#: With more panels than that of so many columns, they are too small to read.
_MOST_COLUMNS = 6

#: Parameters of the metric that have an entry for each column.
_OF_ALL_COLUMNS = ("w", "V", "VI")


def plot_pairs(
    model: LPE,
    nominal: Any,
    X: Any,
    *,
    columns: Sequence[Hashable] | None = None,
    resolution: int = 60,
    figure: Figure | SubFigure | None = None,
) -> NDArray[np.object_]:
    """Draw rows in the planes of pairs of columns, each with its level set; computes.

    Crosses are rows that the model flags, by all of its columns. Shades and line are those
    of another model, fitted on the two columns of the panel alone, with the same arguments:
    a plane has no level set of a model of more columns. So a cross outside of the line is
    anomalous in these two columns already, and one that is inside in all panels is so by a
    combination of more columns, or by one that is not drawn. On the diagonal are the
    densities of each column.

    Parameters
    ----------
    model : LPE
        Fitted on two columns of numbers or more, without ``by``.
    nominal : array-like, DataFrame or Dask collection of shape (n, n_features)
        The rows that the model was fitted on: it keeps scaled ones only. A lazy table is
        read twice for each pair of columns: ``persist`` it where that takes long.
    X : array-like, DataFrame or Dask collection of shape (n_rows, n_features)
        Rows to draw, all of which come to this process. Those without a p-value are left
        out, and the legend says how many. With ``missing="measure"`` a row is drawn where
        both of its values are finite.
    columns : sequence, optional
        Two to six columns of numbers: names, or positions where an array was fitted. None:
        all of them.
    resolution : int, default=60
        As in `plot_level_set`, in each panel.
    figure : Figure, optional
        None: a new one.

    Returns
    -------
    axes : ndarray of Axes of shape (n_columns, n_columns)
        Those above the diagonal are empty.

    Raises
    ------
    ValueError
        For a model with groups (``by``), an ``anomaly_log_density``, or weights, variances
        or an inverse covariance in ``metric_params``, all of which are of all columns; for
        columns that the model does not have, that are categories or whole numbers beyond
        2**53, or in which no row has a value; and for ``resolution`` below 2.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from lpe_dask import LPE
    >>> nominal = np.random.default_rng(0).standard_normal((200, 3))
    >>> model = LPE().fit(nominal)
    >>> plot_pairs(model, nominal, nominal[:50] + 1, resolution=9, figure=Figure()).shape
    (3, 3)
    """
    check_is_fitted(model)
    check_count("resolution", resolution, least=2)
    places, names = _places(model, columns)
    fitted = fitted_of(model)
    values = fitted.values(X)  # once: lazy rows may be others when they are read again
    p_values = model.score_samples(values if fitted.columns else values.to_numpy())
    p_values, rows = computed(p_values), computed(fitted.table_of_values(values).rows)
    is_known = ~np.isnan(p_values)
    n_missing = int((~is_known).sum())
    rows = rows[is_known][:, places].astype(np.float64)
    rows[~np.isfinite(rows)] = np.nan
    is_flagged = p_values[is_known] < model.offset_
    if n_missing == len(p_values):
        raise ValueError(
            f"X has {len(p_values)} rows, but none of them has a p-value: there is nothing "
            f"to draw. Give rows without NaN."
        )
    for name, has_none in zip(names, np.isnan(rows).all(axis=0), strict=True):
        if has_none:
            raise ValueError(
                f"no row of X has a value in {name!r}: there is nothing to draw. Leave it "
                f"out of columns=."
            )
    low, high = corners(rows, None)
    learned = fitted.table(nominal).rows[:, places]
    if figure is None:
        size = 2.6 * len(places)
        figure = pyplot().figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots(len(places), len(places), sharex="col", squeeze=False)
    for i, j in combinations(range(len(places)), 2):
        pair = [i, j]
        of_pair = clone(model).set_params(categorical=None).fit(learned[:, pair])
        shades = draw_surface(axes[j, i], of_pair, (low[pair], high[pair]), resolution)
        draw_rows(axes[j, i], rows[:, i], rows[:, j], is_flagged)
        axes[i, j].set_axis_off()
    for i in range(len(places)):
        _draw_densities(axes[i, i], rows[:, i], is_flagged)
        axes[i, i].set_xlim(low[i], high[i])
        axes[i, 0].set_ylabel(literal(names[i]) if i else "density")
        axes[-1, i].set_xlabel(literal(names[i]))
        for ax in axes[i, 1:i]:
            ax.tick_params(labelleft=False)
    handles, labels = axes[1, 0].get_legend_handles_labels()
    title = label_with_count("left out: NaN", n_missing) if n_missing else None
    axes[0, 1].legend(handles, labels, loc="center", fontsize="small", title=title)
    bar = figure.colorbar(shades, ax=axes, shrink=0.6)
    bar.set_label("p-value in the pair of columns")
    return axes


def _places(model: LPE, columns: Sequence[Hashable] | None) -> tuple[list[int], list[str]]:
    """Return the positions of the columns to draw among those of the model, and names."""
    fitted = fitted_of(model)
    if fitted.has_groups:
        raise ValueError(
            f"the model divides rows into groups by {fitted.by}, each of which has level "
            f"sets of its own. Fit an LPE without by= on the rows of one group."
        )
    of_all = [name for name in _OF_ALL_COLUMNS if name in (model.metric_params or {})]
    if model.anomaly_log_density is not None:
        of_all.append("anomaly_log_density")
    if of_all:
        raise ValueError(
            f"the model has {', '.join(of_all)} of all its columns, which a pair of them "
            f"cannot have. Fit an LPE on two columns, with theirs, and draw plot_level_set."
        )
    known = fitted.columns or list(range(model.n_features_in_))
    chosen = known if columns is None else list(columns)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"columns={columns!r}: the model has no {unknown}, but {known}.")
    if not 2 <= len(set(chosen)) == len(chosen) <= _MOST_COLUMNS:
        raise ValueError(
            f"{chosen} are {len(chosen)} columns; pairs are drawn of 2 to {_MOST_COLUMNS} "
            f"different ones. Name these with columns=."
        )
    places = [known.index(name) for name in chosen]
    remedy = "Leave it out of columns=; the model measures it all the same"
    check_has_axes(fitted, places, chosen, remedy)
    if fitted.columns is None:
        return places, [f"feature {place + 1}" for place in places]
    return places, [str(name) for name in chosen]


def _draw_densities(ax: Axes, values: NDArray[np.float64], is_flagged: Any) -> None:
    """Draw the densities of a column, of flagged rows and of the others."""
    has_value = np.isfinite(values)
    edges = np.histogram_bin_edges(values[has_value], 20).tolist()
    for chosen, look in [(~is_flagged, BARS), (is_flagged, ANOMALY_BARS)]:
        drawn = values[has_value & chosen]
        if len(drawn):
            ax.hist(drawn, edges, density=True, histtype="stepfilled", **look)
    ax.set_yticks([])

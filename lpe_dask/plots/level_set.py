"""The level set: the region of a plane in which a model finds rows nominal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from lpe_dask.model import fitted_of
from lpe_dask.plots.style import add_legend, axes_or_new, draw_rows, literal
from lpe_dask.plots.surface import check_has_axes, corners, draw_surface
from lpe_dask.plots.values import check_count, computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lpe_dask.model import LPE


def plot_level_set(
    model: LPE,
    X: Any = None,
    *,
    box: tuple[tuple[float, float], tuple[float, float]] | None = None,
    resolution: int = 150,
    ax: Axes | None = None,
) -> Axes:
    """Draw the region in which a model of two features finds rows nominal; computes.

    The shades are the p-values of the plane, dark for low ones, with a scale beside it; the
    line bounds the region ``p > alpha``, at the model's ``offset_``.

    Parameters
    ----------
    model : LPE
        Fitted on two features.
    X : array-like, DataFrame or Dask collection of shape (n, 2), optional
        Rows to draw: circles, and crosses for those that the model flags. Rows with NaN or
        inf are left out, and the legend says how many.
    box : ((left, right), (bottom, top)), optional
        The region to show. None: the rows ``X`` and a tenth of their range around them.
    resolution : int, default=150
        Points of the grid along each side, at least 2; all of them are scored.
    ax : Axes, optional
        As in `plot_scores`.

    Returns
    -------
    ax : Axes
        Those that were drawn on.

    Raises
    ------
    ValueError
        For a model of another number of features, with groups (``by``), categories or whole
        numbers beyond 2**53; with neither ``X`` nor ``box``; or ``resolution`` below 2.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from lpe_dask import LPE
    >>> rows = np.random.default_rng(0).standard_normal((100, 2))
    >>> ax = plot_level_set(LPE().fit(rows), rows, resolution=20, ax=Figure().subplots())
    >>> ax.get_xlabel()
    'feature 1'
    """
    check_is_fitted(model)
    check_count("resolution", resolution, least=2)
    rows = _checked_rows(model, np.empty((0, 2)) if X is None else X)
    is_whole = np.isfinite(rows).all(axis=1)
    ax = axes_or_new(ax)
    shades = draw_surface(ax, model, corners(rows[is_whole], box), resolution)
    bar = ax.figure.colorbar(shades, ax=ax)
    bar.set_label("p-value (share of nominal rows)")
    if X is not None:
        drawn = rows[is_whole]
        draw_rows(ax, drawn[:, 0], drawn[:, 1], model.predict(drawn) == -1)
    names = getattr(model, "feature_names_in_", ("feature 1", "feature 2"))
    ax.set(xlabel=literal(names[0]), ylabel=literal(names[1]))
    add_legend(ax, int((~is_whole).sum()), loc="best")
    return ax


def _checked_rows(model: LPE, X: Any) -> NDArray[np.float64]:
    """Return the rows that a model of two features can score, NaN and inf included."""
    fitted = fitted_of(model)
    if fitted.has_groups:
        raise ValueError(
            f"the model divides rows into groups by {fitted.by}, each of which has a level "
            f"set of its own. Fit an LPE without by= on the rows of one group, or draw "
            f"plot_scores."
        )
    if model.n_features_in_ != 2:
        raise ValueError(
            f"the model has {model.n_features_in_} features; a level set is drawn for 2. "
            f"Fit an LPE on two of the columns, or draw plot_scores."
        )
    names = getattr(model, "feature_names_in_", (0, 1))
    remedy = "Fit an LPE on two columns of other numbers, or draw plot_scores"
    check_has_axes(fitted, (0, 1), names, remedy)
    rows = computed(fitted.table(X).rows)
    return rows.astype(np.float64)

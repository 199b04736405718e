"""The ROC curve: anomalies found against nominal rows flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import auc, roc_curve

from lpe_dask.plots.style import CURVE_STYLES, add_legend, axes_or_new
from lpe_dask.plots.values import aligned, known_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The gid of our curves, which are counted to choose the style of the next one.
_CURVE_ID = "lpe-dask-roc"


def plot_roc(
    p_values: Any,
    is_anomaly: Any,
    *,
    statistic: Any = None,
    graph: Literal["knn", "radius"] = "knn",
    label: str = "LPE",
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of anomalies found against the share of nominal rows flagged.

    A low p-value is anomalous. Rows of equal p-value are flagged together, which gives a
    straight piece of curve, such as that of the rows with p = 0; ``statistic`` ranks them.
    Further calls on the same Axes add curves of other styles.

    Parameters
    ----------
    p_values : array, Series or Dask collection of shape (n,)
        As in `plot_scores`.
    is_anomaly : array, Series or Dask collection of shape (n,)
        True or 1 for known anomalies; both kinds of rows are needed.
    statistic : array, Series or Dask collection of shape (n,), optional
        As `LPE.statistic` gives it for the same rows.
    graph : {"knn", "radius"}, default="knn"
        That of the model: a large statistic is anomalous for "knn", a small one for
        "radius". Ignored without ``statistic``.
    label : str, default="LPE"
        For the legend, before the area under the curve (AUC).
    ax : Axes, optional
        As in `plot_scores`.

    Returns
    -------
    ax : Axes
        Those that were drawn on.

    Raises
    ------
    ValueError
        For p-values outside [0, 1], labels of another length or kind, rows of one kind
        only, or a statistic that contradicts the p-values.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_roc([0.0, 0.3, 0.2, 0.9], [1, 1, 0, 0], ax=Figure().subplots())
    >>> ax.get_legend().get_texts()[0].get_text()
    'LPE: AUC 0.750'
    """
    rows = known_rows(p_values, is_anomaly)
    is_found = rows.labels
    if is_found is None or is_found.all() or not is_found.any():
        raise ValueError(
            f"is_anomaly has {0 if is_found is None else is_found.sum()} anomalies among "
            f"{len(rows.p_values)} rows with a p-value; a ROC curve needs anomalies and "
            f"nominal rows. Give both, or draw plot_scores."
        )
    rank = rows.p_values
    if statistic is not None:
        given = aligned("statistic", statistic, rows.where).astype(np.float64)
        rank = _ranking(rank, given, graph)
    ax = axes_or_new(ax)
    order = np.unique(rank, return_inverse=True)[1]  # finite, as scikit-learn demands
    curve = roc_curve(is_found, -order, drop_intermediate=False)[:2]
    left_out = f", {rows.n_missing} NaN left out" if rows.n_missing else ""
    n_before = sum(line.get_gid() == _CURVE_ID for line in ax.get_lines())
    if n_before == 0:
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=1)  # chance
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        ax.set_xlabel("false-alarm rate (share of nominal rows)")
        ax.set_ylabel("detection rate (share of anomalies)")
    color, line, marker = CURVE_STYLES[n_before % len(CURVE_STYLES)]
    ax.plot(
        *curve, color=color, linestyle=line, marker=marker, markersize=5, linewidth=1.4,
        markevery=(0.02 * (n_before + 1), 0.15), gid=_CURVE_ID,
        label=f"{label}: AUC {auc(*curve):.3f}{left_out}",
    )  # fmt: skip
    add_legend(ax, 0, loc="lower right")
    return ax


def _ranking(
    p_values: NDArray[np.float64], statistic: NDArray[np.float64], graph: str
) -> NDArray[np.float64]:
    """Return the statistic, with its sign such that rows flagged first rank lowest."""
    if graph not in ("knn", "radius"):
        raise ValueError(f"graph={graph!r} is unknown; it is 'knn' or 'radius'.")
    rank = -statistic if graph == "knn" else statistic
    if np.isnan(rank).any():
        raise ValueError(
            f"statistic is NaN for {np.isnan(rank).sum()} rows that have a p-value. Give "
            f"the statistic of the same rows, in the same order."
        )
    if (np.diff(rank[np.lexsort((rank, p_values))]) < 0).any():
        raise ValueError(
            f"statistic contradicts p_values for graph={graph!r}: a row has a lower "
            f"p-value than another, and a less anomalous statistic. Give the statistic of "
            f"the same rows and the graph of the model; with anomaly_log_density, leave it "
            f"out."
        )
    return rank

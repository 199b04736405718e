"""Pictures of p-values: their densities, a level set, the ROC curve, the calibration.

Each function draws on the given Axes, or on those of a new figure, and returns them. Parts
differ by line style, marker or hatch, not only by color. Matplotlib is imported when the
first picture is drawn, which raises ImportError if it is missing.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import auc, roc_curve
from sklearn.utils.validation import check_is_fitted

from lpe_dask.model import fitted_of
from lpe_dask.pvalues import checked_p_values, dkw_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lpe_dask.model import LPE

#: Color, line style and marker of successive curves; they also differ in gray.
CURVE_STYLES = (
    ("black", "-", "o"),
    ("#d55e00", "--", "s"),
    ("#0072b2", "-.", "^"),
    ("#777777", ":", "D"),
    ("#009e73", (0, (8, 2)), "v"),
    ("#aa4488", (0, (3, 1, 1, 1, 1, 1)), "x"),
    ("#333333", (0, (1, 3)), "+"),
    ("#b8860b", (0, (12, 3, 2, 3)), "*"),
)

#: The gid of our curves, which are counted to choose the style of the next one.
_CURVE_ID = "lpe-dask-roc"


def plot_scores(
    p_values: Any,
    is_anomaly: Any = None,
    *,
    alpha: float | None = None,
    bins: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of p-values; that of anomalies separately if there are labels.

    Parameters
    ----------
    p_values : array, Series or Dask collection of shape (n,)
        In [0, 1], as `LPE.score_samples` gives them; computed if lazy. NaN is left out, and
        the legend says how many.
    is_anomaly : array, Series or Dask collection of shape (n,), optional
        True or 1 for known anomalies.
    alpha : float, optional
        A false-alarm level to mark, from 0 to 1.
    bins : int, default=20
        Bars between 0 and 1.
    ax : Axes, optional
        None: those of a new figure.

    Returns
    -------
    ax : Axes

    Raises
    ------
    ValueError
        For p-values outside [0, 1], no p-value at all, or labels of another length or kind.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_scores([0.0, 0.01, 0.4, 0.8], [1, 1, 0, 0], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['nominal (2 rows)', 'anomalies (2 rows)', 'uniform']
    """
    known = _known(p_values, is_anomaly)
    if alpha is not None:
        _check_level(alpha)
    groups = [("rows", known.p_values, "0.8", "-", "")]
    if known.is_anomaly is not None:
        groups = [
            ("nominal", known.p_values[~known.is_anomaly], "0.8", "-", ""),
            ("anomalies", known.p_values[known.is_anomaly], "none", "--", "///"),
        ]
    ax = _axes(ax)
    for name, values, face, line, hatch in groups:
        if len(values):
            ax.hist(
                values, bins=bins, range=(0.0, 1.0), density=True, histtype="stepfilled",
                facecolor=face, edgecolor="black", linestyle=line, linewidth=1.2,
                hatch=hatch, label=_label_with_count(name, len(values)),
            )  # fmt: skip
    ax.axhline(1.0, color="black", linewidth=0.8, linestyle=":", label="uniform")
    if alpha is not None:
        ax.axvline(alpha, color="black", linewidth=1.5, label=f"alpha = {alpha:g}")
    ax.set(xlim=(0.0, 1.0), xlabel="p-value (share of nominal rows)")
    ax.set_ylabel("density (per unit of p)")
    _add_legend(ax, known.n_missing, loc="upper right")
    return ax


def plot_level_set(
    model: LPE,
    X: Any = None,
    *,
    box: tuple[tuple[float, float], tuple[float, float]] | None = None,
    resolution: int = 150,
    ax: Axes | None = None,
) -> Axes:
    """Draw the region in which a model of two features finds rows nominal; computes.

    The grays are the p-values of the plane, dark for low ones, with a scale beside it; the
    line bounds the region ``p > alpha``, at the model's ``offset_``. The Axes are returned,
    as by `plot_scores`.

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
        Points of the grid along each side; all of them are scored.
    ax : Axes, optional
        As in `plot_scores`.

    Raises
    ------
    ValueError
        For a model of another number of features or with groups (``by``), or with neither
        ``X`` nor ``box``.

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
    rows = _checked_rows(model, np.empty((0, 2)) if X is None else X)
    is_whole = np.isfinite(rows).all(axis=1)
    x, y = np.linspace(*_corners(rows[is_whole], box), resolution).T
    ax = _axes(ax)
    plane = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    p_values = model.score_samples(plane).reshape(resolution, resolution)
    grays = ax.contourf(
        x, y, p_values, levels=np.linspace(0.0, 1.0, 11), cmap="gray", vmin=-1.0, vmax=1.0
    )
    bar = ax.figure.colorbar(grays, ax=ax)
    bar.set_label("p-value (share of nominal rows)")
    # There is a line to draw only if p-values on both sides of it are in view.
    if p_values.min() < model.offset_ <= p_values.max():
        ax.contour(x, y, p_values, levels=[model.offset_], colors="black", linewidths=1.8)
    alpha = np.nextafter(model.offset_, -np.inf)  # as it was when the model was fitted
    ax.plot([], [], color="black", linewidth=1.8, label=f"p = alpha = {alpha:g}")
    if X is not None:
        _draw_rows(ax, model, rows[is_whole])
    names = getattr(model, "feature_names_in_", ("feature 1", "feature 2"))
    ax.set(xlim=x[[0, -1]], ylim=y[[0, -1]], xlabel=names[0], ylabel=names[1])
    _add_legend(ax, int((~is_whole).sum()), loc="best")
    return ax


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
    Further calls on the same Axes, which are returned, add curves of other styles.

    Parameters
    ----------
    p_values, is_anomaly, ax
        As in `plot_scores`; both kinds of rows are needed.
    statistic : array, Series or Dask collection of shape (n,), optional
        As `LPE.statistic` gives it for the same rows.
    graph : {"knn", "radius"}, default="knn"
        That of the model: a large statistic is anomalous for "knn", a small one for
        "radius". Ignored without ``statistic``.
    label : str, default="LPE"
        For the legend, before the area under the curve (AUC).

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
    known = _known(p_values, is_anomaly)
    is_found = known.is_anomaly
    if is_found is None or is_found.all() or not is_found.any():
        raise ValueError(
            f"is_anomaly has {0 if is_found is None else is_found.sum()} anomalies among "
            f"{len(known.p_values)} rows with a p-value; a ROC curve needs anomalies and "
            f"nominal rows. Give both, or draw plot_scores."
        )
    rank = known.p_values
    if statistic is not None:
        given = _aligned("statistic", statistic, known.rows).astype(np.float64)
        rank = _ranking(rank, given, graph)
    ax = _axes(ax)
    order = np.unique(rank, return_inverse=True)[1]  # finite, as scikit-learn demands
    curve = roc_curve(is_found, -order, drop_intermediate=False)[:2]
    left_out = f", {known.n_missing} NaN left out" if known.n_missing else ""
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
    _add_legend(ax, 0, loc="lower right")
    return ax


def plot_calibration(p_values: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the share of nominal rows with ``p <= alpha`` against alpha, both logarithmic.

    On the diagonal, alpha is the rate of false alarms. The band is that of Dvoretzky,
    Kiefer and Wolfowitz: n independent uniform p-values stay within
    ``sqrt(log(2 / 0.05) / (2 n))`` of it, at all alphas at once, with a probability of at
    least 95 %. p-values of held-out rows share one nominal set, which adds to the scatter;
    with few nominal rows a line that leaves the band a little proves nothing.

    Parameters
    ----------
    p_values, ax
        As in `plot_scores`, of nominal rows that were not fitted, or `LPE.p_values_`; the
        result and errors are as there.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_calibration(np.linspace(0.01, 1, 100), ax=Figure().subplots())
    >>> ax.get_xlabel()
    'alpha (false-alarm level)'
    """
    known = _known(p_values, None)
    n = len(known.p_values)
    least = min(0.01, 10.0 ** np.floor(np.log10(1 / n)))  # the left and the lower edge
    alphas = np.geomspace(least, 1.0, 200)
    level, half = dkw_band(n)
    # The shares as steps, which begin at the left edge and end at the right one.
    steps = np.union1d(known.p_values, [least, 1.0])
    steps = steps[steps >= least]
    shares = np.searchsorted(np.sort(known.p_values), steps, side="right") / n
    ax = _axes(ax)
    ax.fill_between(
        alphas, np.maximum(alphas - half, least / 10), np.minimum(alphas + half, 1.0),
        facecolor="0.9", edgecolor="0.5", linewidth=0.6,
        label=f"{level:.0%} band if uniform",
    )  # fmt: skip
    ax.plot(alphas, alphas, color="black", linestyle="--", linewidth=1, label="uniform")
    ax.plot(
        steps, shares, color="black", linewidth=1.6, drawstyle="steps-post",
        label=_label_with_count("observed", n),
    )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=(least, 1.0), ylim=(least, 1.0))
    ax.set(xlabel="alpha (false-alarm level)", ylabel="share of rows with p at most alpha")
    _add_legend(ax, known.n_missing, loc="lower right")
    return ax


class _Known(NamedTuple):
    """The rows with a p-value, and their labels."""

    p_values: NDArray[np.float64]
    is_anomaly: NDArray[np.bool_] | None
    rows: NDArray[np.bool_]  # among all that were given

    @property
    def n_missing(self) -> int:
        return int((~self.rows).sum())


def _known(p_values: Any, is_anomaly: Any) -> _Known:
    values = checked_p_values(_computed(p_values))
    rows = ~np.isnan(values)
    if not rows.any():
        raise ValueError(
            f"p_values has {len(values)} rows, but none of them is a number: there is "
            f"nothing to draw. Give at least one p-value."
        )
    if is_anomaly is None:
        return _Known(values[rows], None, rows)
    labels = pd.Series(_aligned("is_anomaly", is_anomaly, rows))
    others = labels[~labels.isin([0, 1])].unique().tolist()
    if others:
        raise ValueError(
            f"is_anomaly contains {', '.join(map(repr, others[:3]))}; it takes True or 1 "
            f"for anomalies and False or 0 for nominal rows. For labels of predict give "
            f"labels == -1."
        )
    return _Known(values[rows], labels.to_numpy(bool), rows)


def _computed(values: Any) -> NDArray[Any]:
    """Return values of any kind as an array in memory."""
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


def _aligned(name: str, values: Any, rows: NDArray[np.bool_]) -> NDArray[Any]:
    """Return values given in addition to p-values, of the rows that have a p-value."""
    computed = _computed(values)
    if computed.shape != rows.shape:
        raise ValueError(
            f"{name} has the shape {computed.shape}, and p_values {rows.shape}. Give one "
            f"of each per row."
        )
    return computed[rows]


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
    rows = _computed(fitted.table(X).rows)
    return rows.astype(np.float64)


def _check_level(alpha: Any) -> None:
    if not isinstance(alpha, Real) or not 0 <= float(alpha) <= 1:
        raise ValueError(f"alpha={alpha!r} must be between 0 and 1.")


def _corners(rows: NDArray[np.float64], box: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest corner of the region to show."""
    if box is not None:
        low, high = np.asarray(box, np.float64).T
        return low, high
    if len(rows) == 0:
        raise ValueError(
            "there are no rows, so it is unknown which part of the plane to show. Give "
            "rows as X, or box=((left, right), (bottom, top))."
        )
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = np.where(high > low, 0.1 * (high - low), 1.0)
    return low - margin, high + margin


def _axes(ax: Axes | None) -> Axes:
    """Return the Axes that were given, or those of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            'pictures need matplotlib, which is not installed: pip install "lpe-dask[plot]"'
        ) from error
    return pyplot.subplots()[1] if ax is None else ax


def _label_with_count(name: str, n: int) -> str:
    return f"{name} ({n} row{'' if n == 1 else 's'})"


def _add_legend(
    ax: Axes, n_missing: int, loc: Literal["best", "lower right", "upper right"]
) -> None:
    if n_missing:
        ax.plot([], [], linestyle="", label=_label_with_count("left out: NaN", n_missing))
    ax.legend(loc=loc, fontsize="small", framealpha=0.9)


def _draw_rows(ax: Axes, model: LPE, rows: NDArray[np.float64]) -> None:
    is_flagged = model.predict(rows) == -1
    for name, chosen, marker, face, edge, size in [
        ("nominal", ~is_flagged, "o", "white", "black", 4),
        ("flagged", is_flagged, "X", "black", "white", 8),
    ]:
        ax.plot(
            *rows[chosen].T, linestyle="", marker=marker, markersize=size,
            markerfacecolor=face, markeredgecolor=edge, markeredgewidth=0.7,
            label=_label_with_count(name, int(chosen.sum())),
        )  # fmt: skip

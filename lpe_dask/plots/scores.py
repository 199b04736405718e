"""The density of p-values, beside that of uniform ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lpe_dask.plots.style import (
    ANOMALY_BARS,
    BAND,
    BARS,
    LEVEL,
    UNIFORM,
    add_legend,
    axes_or_new,
    label_with_count,
)
from lpe_dask.plots.values import check_alpha, check_count, known_rows
from lpe_dask.pvalues import bar_densities, uniform_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_scores(
    p_values: Any,
    is_anomaly: Any = None,
    *,
    alpha: float | None = None,
    bins: int = 20,
    n_calibration: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the density of p-values, with the band in which it is for nominal rows.

    With ``calibration="conformal"``, distances without ties and ``n_calibration``, the bars
    of new rows like the nominal ones are all in the band at once with a probability of at
    least 95 %: beta-binomial intervals, as all rows are compared with the same calibration
    rows, with Bonferroni's correction for the number of bars. Without ``n_calibration`` the
    intervals are binomial, those of independent uniform p-values: too narrow unless there
    are many more calibration rows than rows drawn. With ``calibration="loo"`` p-values
    scatter more: with K = 1 and 200 nominal rows all bars are in the band for about three
    of four nominal sets. `LPE.p_values_` of it are ranks among themselves and always flat.

    Parameters
    ----------
    p_values : array, Series or Dask collection of shape (n,)
        In [0, 1], as `LPE.score_samples` gives them; computed if lazy. NaN is left out, and
        the legend says how many.
    is_anomaly : array, Series or Dask collection of shape (n,), optional
        True or 1 for known anomalies, which have bars of their own; the band is then for
        the other rows.
    alpha : float, optional
        A false-alarm level to mark, from 0 to 1.
    bins : int, default=20
        Bars between 0 and 1. Each has its right edge, as ``p <= alpha`` is flagged; the
        first also has p = 0.
    n_calibration : int, optional
        With how many nominal rows the p-values compare, ``len(model.calibration_)``.
    ax : Axes, optional
        None: those of a new figure.

    Returns
    -------
    ax : Axes
        Those that were drawn on.

    Raises
    ------
    ValueError
        For p-values outside [0, 1], no p-value at all, labels of another length or kind, or
        numbers of bars or calibration rows below 1.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_scores([0.0, 0.01, 0.4, 0.8], [1, 1, 0, 0], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['nominal (2 rows)', 'anomalies (2 rows)', 'uniform', '95% band if uniform']
    """
    rows = known_rows(p_values, is_anomaly)
    if alpha is not None:
        check_alpha(alpha)
    check_count("bins", bins)
    if n_calibration is not None:
        check_count("n_calibration", n_calibration)
    groups = [("rows", rows.p_values, BARS)]
    if rows.labels is not None:
        groups = [
            ("nominal", rows.p_values[~rows.labels], BARS),
            ("anomalies", rows.p_values[rows.labels], ANOMALY_BARS),
        ]
    ax = axes_or_new(ax)
    edges = np.arange(bins + 1) / bins
    heights = []
    for name, values, look in groups:
        if len(values):
            heights.append(bar_densities(values, bins))
            ax.hist(
                edges[:-1], bins=edges.tolist(), weights=heights[-1],
                histtype="stepfilled", label=label_with_count(name, len(values)), **look,
            )  # fmt: skip
    ax.axhline(1.0, label="uniform", **UNIFORM)
    n_nominal = len(groups[0][1])
    if n_nominal:
        level = 0.95
        low, high = uniform_band(n_nominal, bins, n_calibration, level)
        heights.append(high)
        ax.fill_between(
            edges, np.append(low, low[-1]), np.append(high, high[-1]), step="post",
            label=f"{level:.0%} band if uniform", **BAND,
        )  # fmt: skip
    if alpha is not None:
        ax.axvline(alpha, label=f"alpha = {alpha:g}", **LEVEL)
    highest_right = max(of[bins // 2 :].max() for of in heights)
    ax.set_ylim(top=max(ax.get_ylim()[1], 1.6 * highest_right))  # room for the legend
    ax.set(xlim=(0.0, 1.0), xlabel="p-value (share of nominal rows)")
    ax.set_ylabel("density (per unit of p)")
    add_legend(ax, rows.n_missing, loc="upper right")
    return ax

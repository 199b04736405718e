"""The calibration: how often nominal rows have a p-value of at most alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lpe_dask.plots.style import BAND, UNIFORM, add_legend, axes_or_new, label_with_count
from lpe_dask.plots.values import known_rows
from lpe_dask.pvalues import dkw_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_calibration(p_values: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the share of nominal rows with ``p <= alpha`` against alpha, both logarithmic.

    On the diagonal, alpha is the rate of false alarms. The band is that of Dvoretzky,
    Kiefer and Wolfowitz: n independent uniform p-values stay within
    ``sqrt(log(2 / 0.05) / (2 n))`` of it, at all alphas at once, with a probability of at
    least 95 %. p-values of held-out rows share one nominal set, which adds to the scatter;
    with few nominal rows a line that leaves the band a little proves nothing.

    Parameters
    ----------
    p_values : array, Series or Dask collection of shape (n,)
        As in `plot_scores`, of nominal rows that were not fitted, or `LPE.p_values_`.
    ax : Axes, optional
        As in `plot_scores`.

    Returns
    -------
    ax : Axes
        Those that were drawn on.

    Raises
    ------
    ValueError
        As `plot_scores`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = plot_calibration(np.linspace(0.01, 1, 100), ax=Figure().subplots())
    >>> ax.get_xlabel()
    'alpha (false-alarm level)'
    """
    rows = known_rows(p_values, None)
    n = len(rows.p_values)
    least = min(0.01, 10.0 ** np.floor(np.log10(1 / n)))  # the left and the lower edge
    alphas = np.geomspace(least, 1.0, 200)
    level, half = dkw_band(n)
    # The shares as steps, which begin at the left edge and end at the right one.
    steps = np.union1d(rows.p_values, [least, 1.0])
    steps = steps[steps >= least]
    shares = np.searchsorted(np.sort(rows.p_values), steps, side="right") / n
    ax = axes_or_new(ax)
    ax.fill_between(
        alphas, np.maximum(alphas - half, least / 10), np.minimum(alphas + half, 1.0),
        label=f"{level:.0%} band if uniform", **BAND,
    )  # fmt: skip
    ax.plot(alphas, alphas, label="uniform", **UNIFORM)
    ax.plot(
        steps, shares, color="black", linewidth=1.6, drawstyle="steps-post",
        label=label_with_count("observed", n),
    )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=(least, 1.0), ylim=(least, 1.0))
    ax.set(xlabel="alpha (false-alarm level)", ylabel="share of rows with p at most alpha")
    add_legend(ax, rows.n_missing, loc="lower right")
    return ax

"""How plots look: what differs in color also differs in line, marker or hatch.

Colors are those of Okabe and Ito, which the color-blind tell apart, or grays. Matplotlib is
imported when the first plot is drawn, which raises ImportError if it is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

#: Bars of all or of nominal rows, and of anomalies or flagged ones over these.
BARS: dict[str, Any] = {"facecolor": "0.82", "edgecolor": "black", "linewidth": 1.1}
ANOMALY_BARS: dict[str, Any] = {
    "facecolor": "none", "edgecolor": "#d55e00", "linewidth": 1.4,
    "linestyle": "--", "hatch": "///",
}  # fmt: skip

#: What is left of bars that are not drawn.
OTHER_BARS: dict[str, Any] = {**BARS, "facecolor": "white", "hatch": "..."}

#: What uniform p-values stay in, and the line around which it is.
BAND: dict[str, Any] = {
    "facecolor": ("#0072b2", 0.25), "edgecolor": "#0072b2", "linewidth": 1.2
}  # fmt: skip
UNIFORM: dict[str, Any] = {"color": "black", "linewidth": 1.0, "linestyle": "--"}

#: The level at which rows are flagged.
LEVEL: dict[str, Any] = {"color": "black", "linewidth": 1.8}

#: p-values of a plane: the lower, the darker.
SURFACE: dict[str, Any] = {"cmap": "Blues_r", "vmin": -1.6, "vmax": 1.0}

_FEW_ROWS = 500


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the Axes that were given, or those of a new figure with room for labels."""
    return pyplot().subplots(layout="constrained")[1] if ax is None else ax


def pyplot() -> Any:
    """Return the module of Matplotlib that makes figures."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib, which is not installed: pip install "lpe-dask[plot]"'
        ) from error
    return pyplot


def draw_rows(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], is_flagged: NDArray[np.bool_]
) -> None:
    """Draw rows as points, with the numbers of flagged and of other rows for the legend."""
    for name, chosen in [("nominal", ~is_flagged), ("flagged", is_flagged)]:
        n = int(chosen.sum())
        look = _points(n, is_flagged=name == "flagged")
        ax.plot(x[chosen], y[chosen], label=label_with_count(name, n), **look)


def _points(n_rows: int, *, is_flagged: bool) -> dict[str, Any]:
    """Return how points of rows look: circles, and crosses of flagged rows.

    Those of many rows are small and without edges, so that they become no black area.
    """
    few = n_rows <= _FEW_ROWS
    # Those of many rows are an image: else a PDF has a path for each row.
    look: dict[str, Any] = {"linestyle": "", "rasterized": not few}
    if is_flagged:
        return look | {
            "marker": "X", "markersize": 7.5 if few else 4, "markerfacecolor": "#d55e00",
            "markeredgecolor": "black", "markeredgewidth": 0.6 if few else 0, "zorder": 3,
        }  # fmt: skip
    return look | {
        "marker": "o", "markersize": 4 if few else 2.2,
        "markerfacecolor": "white" if few else "0.45", "markeredgecolor": "0.15",
        "markeredgewidth": 0.7 if few else 0, "zorder": 2.5,
    }  # fmt: skip


def literal(name: Any, longest: int = 30) -> str:
    """Return a name or value of data as text that is drawn as it is, and fits.

    Between two ``$`` Matplotlib reads formulas. Of long texts both ends are left, as names
    of many columns begin alike.
    """
    text = str(name)
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text.replace("$", r"\$")


def label_with_count(name: str, n: int) -> str:
    """Return a name for the legend with a number of rows."""
    return f"{name} ({n} row{'' if n == 1 else 's'})"


def add_legend(
    ax: Axes, n_missing: int, loc: Literal["best", "lower right", "upper right"]
) -> None:
    """Add a legend, which says how many rows are left out."""
    if n_missing:
        ax.plot([], [], linestyle="", label=label_with_count("left out: NaN", n_missing))
    ax.legend(loc=loc, fontsize="small", framealpha=0.9)

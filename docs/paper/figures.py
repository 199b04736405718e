"""What several figures draw in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lpe_dask.paper.fits import Floats
from lpe_dask.plots import draw_curve
from lpe_dask.pvalues import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def make_figure(n_panels: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Return a new figure of a size in inches, and its panels from left to right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(1, n_panels, squeeze=False)[0])


def draw_plane(
    ax: Axes, title: str, dots: tuple[str, Floats], crosses: tuple[str, Floats],
    **cross_style: Any,
) -> None:  # fmt: skip
    """Draw two sets of rows of two features: (label, rows) as dots and as crosses."""
    ax.plot(*dots[1].T, "k.", markersize=5, label=dots[0])
    ax.plot(*crosses[1].T, "+", color="#d55e00", label=crosses[0], **cross_style)
    ax.set(xlabel="feature 1", ylabel="feature 2", title=title)
    ax.legend(fontsize="small", framealpha=0.9)


def draw_curves(ax: Axes, title: str, curves: Mapping[str, Curve]) -> None:
    """Draw labeled ROC curves."""
    for label, curve in curves.items():
        draw_curve(ax, curve, label)
    ax.set_title(title)
    ax.legend(fontsize="small", loc="lower right")

"""What several figures draw in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper.fits import Floats
from paper.roc import Curve

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


def make_figure(n_panels: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Return a new figure of a size in inches, and its panels from left to right."""
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
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=1)  # chance
    named = zip(curves.items(), CURVE_STYLES, strict=False)
    for number, ((label, curve), (color, line, marker)) in enumerate(named, start=1):
        ax.plot(
            *curve, color=color, linestyle=line, marker=marker, markersize=5, linewidth=1.4,
            markevery=(0.02 * number, 0.15), label=label,
        )  # fmt: skip
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), title=title)
    ax.set(xlabel="false-alarm rate", ylabel="detection rate")
    ax.legend(fontsize="small", loc="lower right")

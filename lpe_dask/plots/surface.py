"""The p-values of a plane, and the line that bounds what is nominal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lpe_dask.plots.style import LEVEL, SURFACE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lpe_dask.model import LPE, Fitted


def draw_surface(ax: Axes, model: LPE, box: tuple[Any, Any], resolution: int) -> Any:
    """Draw the p-values of a model of two features, and the line at its ``offset_``.

    Returns what a color bar is made for.
    """
    x, y = np.linspace(*box, resolution).T
    plane = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    p_values = model.score_samples(plane).reshape(resolution, resolution)
    shades = ax.contourf(x, y, p_values, levels=np.linspace(0.0, 1.0, 11), **SURFACE)
    # There is a line to draw only if p-values on both sides of it are in view.
    if p_values.min() < model.offset_ <= p_values.max():
        look = {"colors": LEVEL["color"], "linewidths": LEVEL["linewidth"]}
        ax.contour(x, y, p_values, levels=[model.offset_], **look)
    name = "alpha" if model.confidence is None else "cut-off"  # which is below alpha
    ax.plot([], [], label=f"p = {name} = {model.offset_:g}", **LEVEL)
    ax.set(xlim=x[[0, -1]], ylim=y[[0, -1]])
    return shades


def corners(rows: NDArray[np.float64], box: Any) -> tuple[Any, Any]:
    """Return the lowest and the highest corner of the region to show."""
    if box is not None:
        low, high = np.asarray(box, np.float64).T
        return low, high
    if len(rows) == 0:
        raise ValueError(
            "there are no rows, so it is unknown which part of the plane to show. Give "
            "rows as X, or box=((left, right), (bottom, top))."
        )
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    margin = np.where(high > low, 0.1 * (high - low), 1.0)
    return low - margin, high + margin


def check_has_axes(
    fitted: Fitted, places: Iterable[int], names: Iterable[Any], remedy: str
) -> None:
    """Raise ValueError for columns that are not measured as the numbers that they hold."""
    codes = set(fitted.reference.space.preparation.categorical)
    shifted = set(fitted.minima.places)
    for place, name in zip(places, names, strict=True):
        if place in codes | shifted:
            what = "categories" if place in codes else "whole numbers beyond 2**53"
            raise ValueError(
                f"column {name!r} holds {what}, which have no axis to be drawn on. "
                f"{remedy}."
            )

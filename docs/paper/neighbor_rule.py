"""The claim that K around n^(2/5) is generally effective: against other K, on all data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper import banana, clairvoyant, real_data
from paper.claims import Average, Row, all_of, average_lead, is_close, with_error
from paper.data import load_banana
from paper.fits import Parts, fit_and_score, generators

#: K, as multiples of n^(2/5).
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)

#: Training rows of equation (f0f1): the larger n of Figure 3.
N_OF_MIXTURE = clairvoyant.SIZES[1]

#: Returns the parts of one draw.
Draw = Callable[[np.random.Generator], Parts]

#: Name of a data set -> AUC, one row a draw and one column a multiple of n^(2/5).
Areas = dict[str, pd.DataFrame]


def find_areas(n_draws: int, folder: Path | None) -> Areas:
    """Return the AUC of each K on each data set."""
    draws: dict[str, Draw] = {
        "equation (f0f1)": partial(clairvoyant.draw_parts, n=N_OF_MIXTURE),
        "Banana": partial(load_banana(folder).draw, banana.SIZES),
    }
    for setting in real_data.SETTINGS:
        if "n_neighbors" in setting.parameters:
            data = setting.load_scaled(folder)
            draws[setting.name] = partial(data.draw, setting.sizes)
    return {name: _areas(draw, n_draws) for name, draw in draws.items()}


def _areas(draw: Draw, n_draws: int) -> pd.DataFrame:
    return pd.DataFrame(
        {factor: _area(parts, factor) for factor in FACTORS}
        for parts in map(draw, generators(7, n_draws))
    )


def _area(parts: Parts, factor: float) -> float:
    n_neighbors = max(1, round(factor * len(parts[0]) ** 0.4))
    return fit_and_score(*parts, n_neighbors=n_neighbors).area()


def _behind(areas: pd.DataFrame) -> Average:
    """Return by how much the rule is behind the best multiple, on the same draws."""
    return average_lead(areas[areas.mean().idxmax()], areas[1.0])


def rule_row(all_areas: Areas) -> Row:
    """Return the row on the rule for K: the data set where it is farthest behind."""
    behind = {name: _behind(areas) for name, areas in all_areas.items()}
    most = max(behind.values(), key=lambda average: average.mean)
    listed = ", ".join(f"{name} {with_error(here)}" for name, here in behind.items())
    multiples = ", ".join(f"{factor:g}" for factor in FACTORS)
    return Row(
        "neighbor-rule", "Sec. 4",
        "K around n^(2/5) is generally effective: AUC behind the best K, where it is most",
        "effective", most,
        f"{most.n_draws} draws of each data set, Euclidean distance; K of n^(2/5) times "
        f"{multiples}",
        *all_of(
            [is_close(here, "") for here in behind.values()],
            f"effective means within 0.02 of the best multiple on each data set: {listed}",
        ),
    )  # fmt: skip


def draw_rule(ax: Axes, all_areas: Areas) -> None:
    """Draw the mean AUC of each data set against the multiple of n^(2/5)."""
    for (name, areas), marker in zip(all_areas.items(), "osD^", strict=False):
        ax.plot(
            FACTORS, areas.mean(), marker=marker, color="black", markerfacecolor="white",
            label=name,
        )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set(xlabel="K as a multiple of n^(2/5)", ylabel="AUC", title="(b) the rule for K")
    ax.legend(fontsize="small")

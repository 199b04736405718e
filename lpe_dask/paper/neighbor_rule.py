"""The claim that K around n^(2/5) is generally effective: beside other K, on all data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lpe_dask.paper import banana, clairvoyant, real_data
from lpe_dask.paper.claims import Average, Row, all_of, average_lead, is_close, with_error
from lpe_dask.paper.data import DataMissing, load_banana
from lpe_dask.paper.fits import Parts, fit_and_score, generators

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: K, as multiples of n^(2/5).
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)

#: Training rows of equation (f0f1): the larger n of Figure 3.
N_OF_MIXTURE = clairvoyant.SIZES[1]

#: Gives the parts of a draw.
Draw = Callable[[np.random.Generator], Parts]


class Found(NamedTuple):
    """What the draws of one data set give.

    Attributes
    ----------
    name : str
    areas : dict
        Multiple of n^(2/5) -> AUC of each draw.
    """

    name: str
    areas: dict[float, list[float]]

    @property
    def means(self) -> dict[float, float]:
        """The mean AUC of each multiple."""
        return {factor: float(np.mean(areas)) for factor, areas in self.areas.items()}

    def behind(self) -> Average:
        """Return by how much the rule is behind the best multiple, on the same draws."""
        best = max(FACTORS, key=self.means.__getitem__)
        return average_lead(self.areas[best], self.areas[1.0])


def find(n_draws: int, folder: Path | None) -> list[Found]:
    """Return what each data set that can be had gives."""
    found = []
    for name, load in _loaders(folder):
        try:
            draw = load()
        except DataMissing:
            continue  # the experiment with its figure says so
        found.append(Found(name, _areas(draw, n_draws)))
    return found


def _loaders(folder: Path | None) -> list[tuple[str, Callable[[], Draw]]]:
    """Return names, and what loads a data set and returns how it is drawn from."""
    return [
        ("equation (f0f1)", lambda: partial(clairvoyant.draw_parts, n=N_OF_MIXTURE)),
        ("Banana", lambda: partial(load_banana(folder).draw, banana.SIZES)),
        *(
            (setting.name, partial(_draw_of, setting, folder))
            for setting in real_data.SETTINGS
            if "n_neighbors" in setting.parameters
        ),
    ]


def _draw_of(setting: real_data.Setting, folder: Path | None) -> Draw:
    return partial(setting.load_scaled(folder).draw, setting.sizes)


def _areas(draw: Draw, n_draws: int) -> dict[float, list[float]]:
    areas: dict[float, list[float]] = {factor: [] for factor in FACTORS}
    for rng in generators(7, n_draws):
        parts = draw(rng)
        for factor in FACTORS:
            n_neighbors = max(1, round(factor * len(parts[0]) ** 0.4))
            scored = fit_and_score(*parts, n_neighbors=n_neighbors)
            areas[factor].append(scored.area())
    return areas


def rule_row(all_found: Sequence[Found]) -> Row:
    """Return the row on the rule for K: the data set where it is farthest behind."""
    behind = {found.name: found.behind() for found in all_found}
    worst = max(behind, key=lambda name: behind[name].mean)
    listed = ", ".join(f"{name} {with_error(here)}" for name, here in behind.items())
    multiples = ", ".join(f"{factor:g}" for factor in FACTORS)
    return Row(
        "neighbor-rule", "Sec. 4",
        "K around n^(2/5) is generally effective: AUC behind the best K, where it is most",
        "effective", behind[worst],
        f"{behind[worst].n_draws} draws of each data set, Euclidean distance; K of n^(2/5) "
        f"times {multiples}",
        *all_of(
            [is_close(here, "") for here in behind.values()],
            f"effective means within 0.02 of the best multiple on each data set: {listed}",
        ),
    )  # fmt: skip


def draw_rule(ax: Axes, all_found: Sequence[Found]) -> None:
    """Draw the mean AUC of each data set against the multiple of n^(2/5)."""
    for found, marker in zip(all_found, "osD^", strict=False):
        ax.plot(
            FACTORS, list(found.means.values()), marker=marker, color="black",
            markerfacecolor="white", label=found.name,
        )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set(xlabel="K as a multiple of n^(2/5)", ylabel="AUC", title="(b) the rule for K")
    ax.legend(fontsize="small")

"""Claims about growing n: K-LPE tends to the level sets, its type II error to the least.

For each n, K is that of the rule, as the theorem takes K = c m^(2/5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lpe_dask.paper.boxes import (
    HALF_SIDE,
    Contours,
    by_box,
    contour_gaps,
    in_boxes,
    over_boxes,
)
from lpe_dask.paper.claims import Average, Row, Verdict, average, vanishes
from lpe_dask.paper.densities import Cells, LevelSets, draw_nominal, nominal_log_density
from lpe_dask.paper.fits import fit_and_score, generators

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALPHA = 0.05

#: Nominal rows, each time four times as many.
SIZES = (50, 200, 800, 3200)

#: Test rows of each kind.
N_OF_EACH = 500


class Trial(NamedTuple):
    """What one draw gives.

    Attributes
    ----------
    error : float
        Mean distance of nominal p-values from the exact ones.
    rates : dict
        Half side of the box -> false-alarm rate, and detection rate of uniform rows.
    """

    error: float
    rates: dict[float, tuple[float, float]]


#: n -> what each draw gives.
Trials = dict[int, list[Trial]]


def run_trials(n_draws: int, cells: Cells) -> Trials:
    """Return the draws of all sizes."""
    trials: Trials = {n: [] for n in SIZES}
    level_sets = LevelSets.of(cells.nominal)
    for rng in generators(5, n_draws):
        for n in SIZES:
            trials[n].append(_trial(rng, n, level_sets))
    return trials


def _trial(rng: np.random.Generator, n: int, level_sets: LevelSets) -> Trial:
    training, nominal = draw_nominal(rng, n), draw_nominal(rng, N_OF_EACH)
    scored = fit_and_score(training, nominal, in_boxes(rng.uniform(-1, 1, (N_OF_EACH, 2))))
    exact = level_sets.p_values(nominal_log_density(nominal))
    return Trial(
        float(np.abs(scored.p_values[:N_OF_EACH] - exact).mean()),
        {side: of_box.flagged(ALPHA) for side, of_box in by_box(scored).items()},
    )


def consistency_row(trials: Trials) -> Row:
    """Return the row on theorem 2."""
    errors = [[trial.error for trial in of_size] for of_size in trials.values()]
    return Row(
        "consistent", "Sec. 3, theorem 2",
        "scores tend to the p-values of the level sets of f0: mean distance", "to 0",
        average(errors[-1]), f"{_procedure(trials)}; nominal rows; exact by a grid",
        *vanishes(errors, SIZES),
    )  # fmt: skip


def type_2_row(trials: Trials, exact: Contours) -> Row:
    """Return the row on the type II error, judged in each box."""

    def judge(half_side: float) -> tuple[Average, Verdict]:
        gaps = type_2_gaps(trials, exact, half_side)
        return average(gaps[-1]), vanishes(gaps, SIZES)

    gap, verdict = over_boxes(judge)
    return Row(
        "type-2", "Fig. 1, sec. 2 and 3",
        "the type II error is minimal as n grows: uniform rows that the exact contour "
        "finds beyond K-LPE",
        "minimal", gap,
        f"{_procedure(trials)}; contour of the same false-alarm rate, box ±{HALF_SIDE:g}",
        *verdict,
    )  # fmt: skip


def _procedure(trials: Trials) -> str:
    largest = SIZES[-1]
    return (
        f"{len(trials[largest])} draws for each n: equation (f0f1), K by the rule n^(2/5), "
        f"no scaling, {N_OF_EACH} test rows of each kind; the number is that of n={largest}"
    )


def type_2_gaps(trials: Trials, exact: Contours, half_side: float) -> list[list[float]]:
    """Return what the exact contour finds beyond K-LPE, for each n and draw."""
    return [
        contour_gaps(exact[half_side], [trial.rates[half_side] for trial in of_size])
        for of_size in trials.values()
    ]


def draw_growth(ax: Axes, trials: Trials, exact: Contours) -> None:
    """Draw both numbers against n, with bars of one standard error."""
    errors = [[trial.error for trial in of_size] for of_size in trials.values()]
    for values, marker, name in [
        (errors, "o", "distance from exact p-values"),
        (type_2_gaps(trials, exact, HALF_SIDE), "s", "type II error beyond the least"),
    ]:
        averages = [average(of_size) for of_size in values]
        ax.errorbar(
            SIZES, [here.mean for here in averages],
            [here.standard_error for here in averages],
            marker=marker, color="black", markerfacecolor="white", label=name,
        )  # fmt: skip
    ax.set(xscale="log", xlabel="nominal rows n", ylabel="mean over draws")
    ax.set_title("(a) growing n")
    ax.legend(fontsize="small")

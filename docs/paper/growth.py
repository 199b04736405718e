"""Claims about growing n: scores converge to the level sets, type II errors to the least.

For each n, K is given by the rule n^(2/5), as the theorem takes K = c m^(2/5).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from paper import boxes
from paper.boxes import HALF_SIDE
from paper.claims import Row, average, vanishes
from paper.densities import Cells, LevelSets, draw_nominal, nominal_log_density
from paper.fits import fit_and_score, generators

ALPHA = 0.05

#: Nominal rows, each time four times as many.
SIZES = (50, 200, 800, 3200)

#: Test rows of each kind.
N_OF_EACH = 500


#: For each of `SIZES`, a number of each draw.
Numbers = list[list[float]]


class Trials(NamedTuple):
    """Results of all draws.

    Attributes
    ----------
    errors : list of list of float
        Mean distance of nominal p-values from the exact ones.
    gaps : dict
        Half side of the box -> detection rate of the exact contour minus that of K-LPE.
    """

    errors: Numbers
    gaps: dict[float, Numbers]


def run_trials(n_draws: int, cells: Cells) -> Trials:
    """Return the results of all sizes."""
    level_sets = LevelSets.of(cells.nominal)
    draws = [[_trial(rng, n, level_sets) for n in SIZES] for rng in generators(5, n_draws)]
    by_size = list(zip(*draws, strict=True))
    errors = [[error for error, _ in of_size] for of_size in by_size]
    gaps = {
        side: [
            boxes.contour_gaps(contour, [rates[side] for _, rates in of_size])
            for of_size in by_size
        ]
        for side, contour in boxes.contours(cells).items()
    }
    return Trials(errors, gaps)


def _trial(
    rng: np.random.Generator, n: int, level_sets: LevelSets
) -> tuple[float, dict[float, tuple[float, float]]]:
    """Return the error of nominal p-values, and both rates for each box."""
    training, nominal = draw_nominal(rng, n), draw_nominal(rng, N_OF_EACH)
    scored = fit_and_score(
        training, nominal, boxes.in_boxes(rng.uniform(-1, 1, (N_OF_EACH, 2)))
    )
    exact = level_sets.p_values(nominal_log_density(nominal))
    error = float(np.abs(scored.p_values[:N_OF_EACH] - exact).mean())
    return error, {
        side: in_box.flagged(ALPHA) for side, in_box in boxes.by_box(scored).items()
    }


def consistency_row(trials: Trials) -> Row:
    """Return the row on theorem 2."""
    return Row(
        "consistent", "Sec. 3, theorem 2",
        "scores tend to the p-values of the level sets of f0: mean distance", "to 0",
        average(trials.errors[-1]), f"{_procedure(trials)}; nominal rows; exact by a grid",
        *vanishes(trials.errors, SIZES),
    )  # fmt: skip


def type_2_row(trials: Trials) -> Row:
    """Return the row on the type II error, judged in each box."""
    gap, verdict = boxes.over_boxes(
        lambda side: (average(trials.gaps[side][-1]), vanishes(trials.gaps[side], SIZES))
    )
    return Row(
        "type-2", "Fig. 1, sec. 2 and 3",
        "the type II error is minimal as n grows: uniform rows that the exact contour "
        "finds beyond K-LPE",
        "minimal", gap,
        f"{_procedure(trials)}; contour of the same false-alarm rate, box ±{HALF_SIDE:g}",
        *verdict,
    )  # fmt: skip


def _procedure(trials: Trials) -> str:
    return (
        f"{len(trials.errors[-1])} draws for each n: equation (f0f1), K by the rule "
        f"n^(2/5), no scaling, {N_OF_EACH} test rows of each kind; the number is that of "
        f"n={SIZES[-1]}"
    )


def draw_growth(ax: Axes, trials: Trials) -> None:
    """Draw both numbers against n, with bars of one standard error."""
    for numbers, marker, name in [
        (trials.errors, "o", "distance from exact p-values"),
        (trials.gaps[HALF_SIDE], "s", "type II error beyond the least"),
    ]:
        averages = [average(of_size) for of_size in numbers]
        ax.errorbar(
            SIZES, [here.mean for here in averages],
            [here.standard_error for here in averages],
            marker=marker, color="black", markerfacecolor="white", label=name,
        )  # fmt: skip
    ax.set(xscale="log", xlabel="nominal rows n", ylabel="mean over draws")
    ax.set_title("(a) growing n")
    ax.legend(fontsize="small")

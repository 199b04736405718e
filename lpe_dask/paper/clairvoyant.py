"""Figure 3: K-LPE on the densities of equation (f0f1), beside the clairvoyant ROC curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lpe_dask.paper import claims
from lpe_dask.paper.claims import Experiment, Row
from lpe_dask.paper.densities import (
    clairvoyant_curve,
    draw_anomalous,
    draw_nominal,
    level_set_curve,
    make_cells,
)
from lpe_dask.paper.fits import Parts, Scored, fit_and_score, generators
from lpe_dask.plots import draw_curve
from lpe_dask.pvalues import Curve, area, most_false_alarms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_NEIGHBORS, ALPHA = 6, 0.05

#: Nominal rows to learn from, in increasing order.
SIZES = (40, 160)

#: Trials that the paper averages over.
N_PAPER_TRIALS = 15

#: Test rows of each kind in a trial; the paper does not say.
N_OF_EACH = 500

#: n -> what each trial gives.
Trials = dict[int, list[Scored]]


def run(n_draws: int = 300) -> Experiment:
    """Return Figure 3 and its rows of the table; ``n_draws`` is at least 2."""
    from matplotlib.figure import Figure

    cells = make_cells()
    clairvoyant = clairvoyant_curve(cells.nominal, cells.anomalous)
    limit = level_set_curve(cells.nominal, cells.anomalous)
    trials: Trials = {n: [] for n in SIZES}
    for rng in generators(3, n_draws):
        for n in SIZES:
            trials[n].append(fit_and_score(*draw_parts(rng, n), n_neighbors=N_NEIGHBORS))
    n_few = min(N_PAPER_TRIALS, n_draws)
    figure = Figure(figsize=(15, 4.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_configuration(left)
    for ax, letter, n_trials in [(middle, "b", n_few), (right, "c", n_draws)]:
        first = {n: of_size[:n_trials] for n, of_size in trials.items()}
        _draw_curves(ax, clairvoyant, limit, first)
        ax.set_title(f"({letter}) averages over {n_trials} trials")
    return Experiment(
        3,
        "The clairvoyant ROC curve",
        f"(a) Nominal rows and anomalies of one trial. (b) ROC curves averaged over "
        f"{n_few} trials, and (c) over {n_draws}. The clairvoyant curve is that of the "
        f"likelihood ratio; that of the level sets of f0 is what K-LPE tends to as it is "
        f"not told f1.",
        figure,
        _rows(trials, clairvoyant, limit),
    )


def draw_parts(rng: np.random.Generator, n: int) -> Parts:
    """Return n training rows, nominal test rows and anomalies."""
    training, test = draw_nominal(rng, n), draw_nominal(rng, N_OF_EACH)
    return training, test, draw_anomalous(rng, N_OF_EACH)


# The table


def _rows(trials: Trials, clairvoyant: Curve, limit: Curve) -> list[Row]:
    procedure = (
        f"equation (f0f1), K={N_NEIGHBORS}, no scaling, {N_OF_EACH} test rows of each kind "
        f"in each of {len(trials[SIZES[0]])} trials (the paper averages {N_PAPER_TRIALS}); "
        f"ROC by the p-value"
    )
    return [
        *_area_rows(trials, procedure),
        _growth_row(trials, procedure),
        _gap_row(trials, clairvoyant, limit, procedure),
        *_false_alarm_rows(trials, procedure),
    ]


def _areas(of_size: list[Scored]) -> list[float]:
    return [scored.area() for scored in of_size]


def _area_rows(trials: Trials, procedure: str) -> list[Row]:
    return [
        Row(
            f"auc-{n}", "Fig. 3 (b)", f"AUC with n={n}", "-",
            claims.average(_areas(of_size)), procedure,
            *claims.not_judged("the figure shows no number"),
        )
        for n, of_size in trials.items()
    ]  # fmt: skip


def _growth_row(trials: Trials, procedure: str) -> Row:
    few, many = (_areas(trials[n]) for n in SIZES)
    gain = claims.average_lead(many, few)
    return Row(
        "larger-n", "Fig. 3 (b)",
        f"larger n results in a better ROC curve: gain of AUC, n={SIZES[0]} to {SIZES[1]}",
        "better", gain, procedure, *claims.is_greater(gain, "gain"),
    )  # fmt: skip


def _gap_row(trials: Trials, clairvoyant: Curve, limit: Curve, procedure: str) -> Row:
    of_size = trials[SIZES[1]]
    mean = claims.average_curve([scored.curve() for scored in of_size])
    gaps = claims.at_levels(clairvoyant).detection - mean.detection
    gap = claims.average(area(clairvoyant) - auc for auc in _areas(of_size))
    return Row(
        "clairvoyant", "Fig. 3 (b)",
        f"the ROC curve with n={SIZES[1]} is very close to the clairvoyant one: mean gap",
        "very close", gap, f"{procedure}; clairvoyant curve from both densities on a grid",
        *claims.is_close(
            gap,
            f"AUC of the clairvoyant curve {area(clairvoyant):.4f}, of the level sets of "
            f"f0 {area(limit):.4f}; the widest gap is {gaps.max():.3f}, at a false-alarm "
            f"rate of {mean.false_alarm[gaps.argmax()]:.3f}",
        ),
    )  # fmt: skip


def _false_alarm_rows(trials: Trials, procedure: str) -> list[Row]:
    return [
        Row(
            f"type-1-{n}", "Sec. 2", f"false-alarm rate at alpha = {ALPHA:g}, n={n}", "-",
            claims.average(scored.flagged(ALPHA)[0] for scored in of_size), procedure,
            *claims.not_judged(
                f"control of false alarms is judged with Fig. 1; the bound here is "
                f"{most_false_alarms(ALPHA, n):.4f}"
            ),
        )
        for n, of_size in trials.items()
    ]  # fmt: skip


# The figure


def _draw_configuration(ax: Axes) -> None:
    (rng,) = generators(3, 1)
    nominal, anomalies = draw_nominal(rng, SIZES[1]), draw_anomalous(rng, SIZES[1])
    ax.plot(*anomalies.T, "k.", markersize=5, label=f"f1 ({SIZES[1]} rows)")
    ax.plot(*nominal.T, "+", color="#d55e00", markersize=8, label=f"f0 ({SIZES[1]} rows)")
    ax.set(xlabel="feature 1", ylabel="feature 2", title="(a) configuration")
    ax.legend(fontsize="small", framealpha=0.9)


def _draw_curves(ax: Axes, clairvoyant: Curve, limit: Curve, trials: Trials) -> None:
    draw_curve(
        ax, claims.at_levels(clairvoyant), f"clairvoyant: AUC {area(clairvoyant):.3f}"
    )
    draw_curve(ax, claims.at_levels(limit), f"level sets of f0: AUC {area(limit):.3f}")
    for n, of_size in trials.items():
        curve = claims.average_curve([scored.curve() for scored in of_size])
        draw_curve(ax, curve, f"K-LPE, n = {n}: AUC {np.mean(_areas(of_size)):.3f}")
    ax.legend(fontsize="small", loc="lower right")

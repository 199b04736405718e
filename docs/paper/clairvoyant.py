"""Figure 3: K-LPE on the densities of equation (f0f1), beside the clairvoyant ROC curve.

(a) Nominal rows and anomalies of one trial. (b) ROC curves averaged over few trials, and
(c) over all. The clairvoyant curve is that of the likelihood ratio; that of the level sets
of f0 is what K-LPE tends to, which does not know f1.
"""

from __future__ import annotations

import numpy as np

from paper import claims, densities
from paper.claims import Experiment, Row
from paper.figures import draw_curves, draw_plane, make_figure
from paper.fits import Parts, Scored, fit_and_score, generators
from paper.roc import Curve, area

N_NEIGHBORS, ALPHA = 6, 0.05

#: Numbers of training rows, in increasing order.
SIZES = (40, 160)

#: Trials that the paper averages over.
N_PAPER_TRIALS = 15

#: Test rows of each kind in a trial; the paper does not say.
N_OF_EACH = 500

#: n -> the scores of each trial.
Trials = dict[int, list[Scored]]


def run(n_draws: int = 300) -> Experiment:
    """Return Figure 3 and its rows of the table; ``n_draws`` is at least 2."""
    cells = densities.make_cells()
    clairvoyant = densities.clairvoyant_curve(cells.nominal, cells.anomalous)
    limit = densities.level_set_curve(cells.nominal, cells.anomalous)
    trials: Trials = {n: [] for n in SIZES}
    for rng in generators(3, n_draws):
        for n in SIZES:
            trials[n].append(fit_and_score(*draw_parts(rng, n), n_neighbors=N_NEIGHBORS))
    n_few = min(N_PAPER_TRIALS, n_draws)
    figure, (left, *others) = make_figure(3, (15, 4.8))
    (rng,), n = generators(3, 1), SIZES[1]
    nominal, anomalies = densities.draw_nominal(rng, n), densities.draw_anomalous(rng, n)
    draw_plane(
        left, "(a) configuration", (f"f1 ({n} rows)", anomalies),
        (f"f0 ({n} rows)", nominal), markersize=8,
    )  # fmt: skip
    exact = {
        f"clairvoyant: AUC {area(clairvoyant):.3f}": claims.at_levels(clairvoyant),
        f"level sets of f0: AUC {area(limit):.3f}": claims.at_levels(limit),
    }
    for ax, letter, n_trials in zip(others, "bc", (n_few, n_draws), strict=True):
        first = {n: of_size[:n_trials] for n, of_size in trials.items()}
        averaged = {
            f"K-LPE, n = {n}: AUC {np.mean(_areas(of_size)):.3f}": _mean_curve(of_size)
            for n, of_size in first.items()
        }
        draw_curves(ax, f"({letter}) averages over {n_trials} trials", exact | averaged)
    return Experiment(figure, _rows(trials, clairvoyant, limit))


def draw_parts(rng: np.random.Generator, n: int) -> Parts:
    """Return n training rows, nominal test rows and anomalies."""
    training, test = densities.draw_nominal(rng, n), densities.draw_nominal(rng, N_OF_EACH)
    return training, test, densities.draw_anomalous(rng, N_OF_EACH)


def _areas(of_size: list[Scored]) -> list[float]:
    return [scored.area() for scored in of_size]


def _mean_curve(of_size: list[Scored]) -> Curve:
    return claims.average_curve([scored.curve() for scored in of_size])


# The table


def _rows(trials: Trials, clairvoyant: Curve, limit: Curve) -> list[Row]:
    few, many = (_areas(trials[n]) for n in SIZES)
    gain = claims.average_lead(many, few)
    procedure = (
        f"equation (f0f1), K={N_NEIGHBORS}, no scaling, {N_OF_EACH} test rows of each kind "
        f"in each of {len(few)} trials (the paper averages {N_PAPER_TRIALS}); ROC by the "
        f"p-value"
    )
    return [
        *(
            Row(
                f"auc-{n}", "Fig. 3 (b)", f"AUC with n={n}", "-",
                claims.average(_areas(of_size)), procedure,
                *claims.not_judged("the figure shows no number"),
            )
            for n, of_size in trials.items()
        ),
        Row(
            "larger-n", "Fig. 3 (b)",
            f"larger n results in a better ROC curve: gain of AUC, n={SIZES[0]} to "
            f"{SIZES[1]}",
            "better", gain, procedure, *claims.is_greater(gain, "gain"),
        ),
        _gap_row(trials[SIZES[1]], clairvoyant, limit, procedure),
        *(_false_alarm_row(n, of_size, procedure) for n, of_size in trials.items()),
    ]  # fmt: skip


def _gap_row(
    of_size: list[Scored], clairvoyant: Curve, limit: Curve, procedure: str
) -> Row:
    mean = _mean_curve(of_size)
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


def _false_alarm_row(n: int, of_size: list[Scored], procedure: str) -> Row:
    return Row(
        f"type-1-{n}", "Sec. 2", f"false-alarm rate at alpha = {ALPHA:g}, n={n}", "-",
        claims.average(scored.flagged(ALPHA)[0] for scored in of_size), procedure,
        *claims.not_judged(
            f"control of false alarms is judged with Fig. 1; the bound here is "
            f"{claims.false_alarm_bound(ALPHA, n):.4f}"
        ),
    )  # fmt: skip

"""Figure 1: K-LPE on the mixture of equation (f0f1), beside the exact level set.

(a) Level sets of f0 that hold 50, 80, 95 and 99 % of its mass. (b) One draw: rows flagged
by K-LPE at 0.05 are crosses; the line is the exact level set of f0 of mass 0.95. (c)
Densities of the p-values of all draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import kstest

from lpe_dask import plot_scores
from paper import boxes, claims, densities
from paper.boxes import HALF_SIDE
from paper.claims import Average, Experiment, Judged, Row
from paper.densities import Cells
from paper.figures import make_figure
from paper.fits import Floats, Scored, fit_and_score, generators

N_TRAINING, N_NEIGHBORS, ALPHA = 200, 6, 0.05

#: Test rows of each kind: the paper's 150 are an equal mixture.
N_OF_EACH = 75

#: Decisions and the exact contour are consistent if they agree on this share of the rows.
AGREEMENT = 0.95

#: Levels around alpha, and how many times more than alpha rates may change between them.
NEAR_LEVELS, LARGEST_FACTOR = (0.04, 0.06), 2.0

#: Draws of uniform ranks for the expected distance from the uniform distribution.
N_RANK_DRAWS = 4000


class _Draw(NamedTuple):
    training: Floats
    nominal: Floats
    uniform: Floats  # in the square of half side 1
    scored: dict[float, Scored]  # by the half side of the box

    def rows(self, half_side: float = HALF_SIDE) -> Floats:
        """Return the test rows for one box."""
        return np.concatenate([self.nominal, half_side * self.uniform])


def run(n_draws: int = 1000) -> Experiment:
    """Return Figure 1 and its rows of the table; ``n_draws`` is at least 2."""
    cells = densities.make_cells()
    draws = [_draw(rng) for rng in generators(1, n_draws)]
    level = densities.density_level(cells.nominal, 1 - ALPHA)
    figure, (left, middle, right) = make_figure(3, (13, 4.2))
    _draw_levels(left)
    _draw_decisions(middle, draws[0], level)
    all_scored = [draw.scored[HALF_SIDE] for draw in draws]
    plot_scores(
        np.concatenate([scored.p_values for scored in all_scored]),
        np.concatenate([scored.is_anomaly for scored in all_scored]),
        alpha=ALPHA, ax=right,
    )  # fmt: skip
    right.set_title(f"(c) p-values of {n_draws} draws")
    return Experiment(figure, _rows(draws, cells, level))


def _draw(rng: np.random.Generator) -> _Draw:
    training, nominal = (
        densities.draw_nominal(rng, N_TRAINING),
        densities.draw_nominal(rng, N_OF_EACH),
    )
    uniform = rng.uniform(-1, 1, (N_OF_EACH, 2))
    scored = fit_and_score(
        training, nominal, boxes.in_boxes(uniform), n_neighbors=N_NEIGHBORS, alpha=ALPHA
    )
    return _Draw(training, nominal, uniform, boxes.by_box(scored))


# The table


def _rows(draws: list[_Draw], cells: Cells, level: float) -> list[Row]:
    procedure = (
        f"{len(draws)} draws: n={N_TRAINING} nominal rows of (f0f1), K={N_NEIGHBORS}, no "
        f"scaling; {N_OF_EACH} nominal test rows and {N_OF_EACH} uniform on "
        f"[-{HALF_SIDE:g}, {HALF_SIDE:g}]^2"
    )
    return [
        _false_alarm_row(draws, procedure),
        _agreement_row(draws, level, procedure),
        _contour_row(draws, cells, procedure),
        _uniformity_row(draws, procedure),
        *_change_rows(draws, procedure),
    ]


def _false_alarm_row(draws: list[_Draw], procedure: str) -> Row:
    here = claims.average(draw.scored[HALF_SIDE].flagged(ALPHA)[0] for draw in draws)
    verdict = claims.is_controlled(here, ALPHA, claims.false_alarm_bound(ALPHA, N_TRAINING))
    claim = "alpha = 0.05 controls the type I error: false-alarm rate"
    return Row("type-1", "Fig. 1, sec. 2", claim, "about 0.05", here, procedure, *verdict)


def _agreement_row(draws: list[_Draw], level: float, procedure: str) -> Row:
    def judge(half_side: float) -> Judged:
        agreement = claims.average(
            np.mean(
                (densities.nominal_log_density(draw.rows(half_side)) < level)
                == (draw.scored[half_side].p_values <= ALPHA)
            )
            for draw in draws
        )
        reason = f"consistent means at least {AGREEMENT:g}"
        return agreement, claims.is_within(agreement, AGREEMENT, 1.0, reason)

    here, verdict = boxes.over_boxes(judge)
    return Row(
        "agreement", "Fig. 1 (middle)",
        "decisions are consistent with the exact contour: share of equal decisions",
        "consistent", here, f"{procedure}; contour of f0-mass 0.95, by a grid", *verdict,
    )  # fmt: skip


def _contour_row(draws: list[_Draw], cells: Cells, procedure: str) -> Row:
    gaps = {}
    for side, contour in boxes.contours(cells).items():
        rates = [draw.scored[side].flagged(ALPHA) for draw in draws]
        gaps[side] = claims.average(boxes.contour_gaps(contour, rates))
    listed = ", ".join(f"±{side:g} {gap.mean:.4f}" for side, gap in gaps.items())
    return Row(
        "contour-gap", "Fig. 1, sec. 2",
        f"uniform rows that the exact contour finds beyond K-LPE, n={N_TRAINING}", "-",
        gaps[HALF_SIDE], f"{procedure}; contour of the same false-alarm rate, by a grid",
        *claims.not_judged(f"the type II error is judged over n; by the box: {listed}"),
    )  # fmt: skip


def _uniformity_row(draws: list[_Draw], procedure: str) -> Row:
    here = claims.average(
        _uniform_distance(draw.scored[HALF_SIDE].p_values[:N_OF_EACH]) for draw in draws
    )
    expected = _expected_distance()
    excess = here.minus(expected)
    return Row(
        "uniform", "Fig. 1 (right)",
        "nominal scores are about uniform: Kolmogorov-Smirnov distance",
        "approximately uniform", here, procedure,
        *claims.is_close(
            excess,
            f"{claims.with_error(excess)} against {expected.mean:.4f} of independent "
            f"uniform ranks of {N_OF_EACH} among {N_TRAINING} rows ({N_RANK_DRAWS} draws)",
        ),
    )  # fmt: skip


def _uniform_distance(p_values: Floats) -> float:
    """Return the Kolmogorov-Smirnov distance of p-values from the uniform distribution."""
    # How its own p-value is computed makes no difference here, but for the time.
    return float(kstest(p_values, "uniform", method="asymp").statistic)


def _expected_distance() -> Average:
    """Return the expected distance of p-values if all radii were independent.

    Radii of neighboring rows are not, which makes the distance a little larger.
    """
    rng = np.random.default_rng((1, N_RANK_DRAWS))
    distances = []
    for _ in range(N_RANK_DRAWS):
        calibration = np.sort(rng.random(N_TRAINING))
        ranks = np.searchsorted(calibration, rng.random(N_OF_EACH))
        distances.append(_uniform_distance(ranks / N_TRAINING))
    return claims.average(distances)


def _change_rows(draws: list[_Draw], procedure: str) -> list[Row]:
    low, high = NEAR_LEVELS
    bound = LARGEST_FACTOR * (high - low)

    def judge(half_side: float, which: int) -> Judged:
        all_scored = [draw.scored[half_side] for draw in draws]
        more, fewer = ([s.flagged(a)[which] for s in all_scored] for a in (high, low))
        change, small = claims.average_lead(more, fewer), f"small means at most {bound:g}"
        return change, claims.is_within(change, -np.inf, bound, small)

    judged = {
        "alarms": ("false-alarm rate", judge(HALF_SIDE, 0)),
        "misses": ("rate of misses", boxes.over_boxes(lambda side: judge(side, 1))),
    }
    return [
        Row(
            f"change-{key}", "Sec. 2",
            f"small changes of alpha change little, alpha {low:g} to {high:g}: {rate}",
            "small", change, procedure, *verdict,
        )
        for key, (rate, (change, verdict)) in judged.items()
    ]  # fmt: skip


# The figure


def _plane() -> tuple[Floats, Floats]:
    ends = np.linspace(-1.15 * HALF_SIDE, 1.15 * HALF_SIDE, 300)
    rows = np.stack(np.meshgrid(ends, ends), axis=-1)
    return ends, densities.nominal_log_density(rows)


def _draw_levels(ax: Axes) -> None:
    ends, log_density = _plane()
    shares = (0.99, 0.95, 0.8, 0.5)
    cells = densities.make_cells(HALF_SIDE * 1.5, 0.1)
    levels = [densities.density_level(cells.nominal, share) for share in shares]
    lines = ax.contour(
        ends, ends, log_density, levels=levels, colors="black", linestyles="-"
    )
    names = {level: f"{share:.0%}" for level, share in zip(levels, shares, strict=True)}
    ax.clabel(lines, fmt=names, fontsize="small")
    ax.set(xlabel="feature 1", ylabel="feature 2", title="(a) level sets of f0, by mass")


def _draw_decisions(ax: Axes, draw: _Draw, level: float) -> None:
    ends, log_density = _plane()
    ax.contour(ends, ends, log_density, levels=[level], colors="black", linestyles=":")
    ax.plot([], [], color="black", linestyle=":", label="exact level set, 0.95")
    is_flagged = draw.scored[HALF_SIDE].p_values <= ALPHA
    for name, chosen, marker, size in [
        ("flagged", is_flagged, "x", 6),
        ("not flagged", ~is_flagged, "o", 4),
    ]:
        ax.plot(
            *draw.rows()[chosen].T, linestyle="", marker=marker, markersize=size,
            color="black", markerfacecolor="none", label=name,
        )  # fmt: skip
    ax.set(xlabel="feature 1", ylabel="feature 2", title="(b) one draw")
    ax.set_ylim(-1.8 * HALF_SIDE, 1.15 * HALF_SIDE)  # room for the legend below all rows
    ax.legend(fontsize="small", loc="lower center")

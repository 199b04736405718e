"""Figure 4: Wine, Ionosphere and USPS, with Euclidean and geodesic distance.

ROC curves, averaged over all splits, and the mean rates at alpha. Curves average the
detection rates at equal false-alarm rates, points both rates at equal alpha, so that a
point may lie off its curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from paper import claims
from paper.claims import Average, Experiment, Row, Verdict
from paper.data import Labelled, load_ionosphere, load_usps, load_wine
from paper.figures import draw_curves, make_figure
from paper.fits import Floats, Scored, fit_and_score, generators
from paper.one_class_svm import svm_rates

ALPHA = 0.05

#: Neighbors of the graph that geodesic distances run along; the paper does not say.
N_LINKS = 5

#: Name -> parameters of `LPE`.
METRICS: Mapping[str, Mapping[str, Any]] = {
    "Euclidean": {},
    "geodesic": {"metric": "geodesic", "metric_params": {"n_neighbors": N_LINKS}},
}

#: The distance with which the paper's numbers were obtained.
PAPER_METRIC = "geodesic"

#: Of the one-class SVM on USPS: nu, and the width c of its kernel exp(-|x - y|^2 / c) for
#: gray levels in [0, 1]. Its authors took c = 256 / 2, half of the number of pixels, for
#: levels in [-1, 1], where distances are twice as long.
SVM_NU, SVM_WIDTH = 0.05, 0.5 * 256 / 4


@dataclass(frozen=True)
class Setting:
    """One of the three data sets, and how it is split."""

    name: str
    load: Callable[[Path | None], Labelled]
    scaled: str
    sizes: tuple[int, int, int]  # training rows, nominal test rows, anomalies
    parameters: Mapping[str, Any]
    is_scaled_by_column: bool = True
    reported: tuple[float, float] | None = None  # the paper's false alarms and misses
    svm_reported: tuple[float, float] | None = None

    def named(self) -> str:
        """Return the parameters as text."""
        return ", ".join(f"{name}={value}" for name, value in self.parameters.items())

    def load_scaled(self, folder: Path | None) -> Labelled:
        """Return the data set, its rows in [0, 1]."""
        data = self.load(folder)
        rows = to_unit_range(data.rows, by_column=self.is_scaled_by_column)
        return replace(data, rows=rows)


BY_COLUMN = "min-max of each column over all rows"

SETTINGS = (
    Setting(
        "Wine", load_wine, BY_COLUMN, (39, 20, 119),
        {"graph": "radius", "radius": 0.9},
    ),
    Setting("Ionosphere", load_ionosphere, BY_COLUMN, (175, 50, 126), {"n_neighbors": 9}),
    Setting(
        "USPS", load_usps, "grey levels over their range", (400, 367, 33),
        {"n_neighbors": 9}, False, (0.057, 0.061), (0.09, 0.07),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class _Found:
    """Results of the splits of one data set."""

    setting: Setting
    scored: Mapping[str, list[Scored]]  # by metric
    svm: list[tuple[float, float]]  # shares flagged of nominal rows and of anomalies


def run(n_draws: int = 100, folder: Path | None = None) -> Experiment:
    """Return Figure 4 and its rows of the table; ``n_draws`` is at least 2."""
    found = [_find(setting, n_draws, folder) for setting in SETTINGS]
    figure, axes = make_figure(len(found), (5 * len(found), 4.8))
    for ax, of_set in zip(axes, found, strict=True):
        _draw_curves(ax, of_set)
    return Experiment(figure, [row for of_set in found for row in _rows(of_set)])


def _find(setting: Setting, n_draws: int, folder: Path | None) -> _Found:
    data = setting.load_scaled(folder)
    scored: dict[str, list[Scored]] = {metric: [] for metric in METRICS}
    svm = []
    for rng in generators(4, n_draws):
        parts = data.draw(setting.sizes, rng)
        for metric, parameters in METRICS.items():
            given = {**setting.parameters, **parameters}
            scored[metric].append(fit_and_score(*parts, **given))
        if setting.svm_reported is not None:
            svm.append(svm_rates(parts, SVM_WIDTH, SVM_NU))
    return _Found(setting, scored, svm)


def to_unit_range(rows: Floats, *, by_column: bool) -> Floats:
    """Return rows scaled to [0, 1], by the range of each column or of all columns.

    A constant column becomes 0.
    """
    axis = 0 if by_column else None
    low, high = rows.min(axis=axis), rows.max(axis=axis)
    extent = np.where(high > low, high - low, 1.0)
    return np.asarray((rows - low) / extent)


# The table


def _rows(found: _Found) -> list[Row]:
    rows = [row for metric in METRICS for row in _metric_rows(found, metric)]
    if found.setting.svm_reported is not None:
        rows += _svm_rows(found, found.setting.svm_reported)
    return rows


def _procedure(found: _Found) -> str:
    n, n_test, n_anomalies = found.setting.sizes
    return (
        f"{len(found.scored['Euclidean'])} splits: n={n}, {n_test} nominal test rows, "
        f"{n_anomalies} anomalies; {found.setting.scaled}"
    )


def _metric_rows(found: _Found, metric: str) -> list[Row]:
    setting, all_scored = found.setting, found.scored[metric]
    procedure = _metric_procedure(found, metric)
    key, of_set = f"{setting.name}-{metric}".lower(), f"{setting.name}, {metric} distance"
    areas = claims.average(scored.area() for scored in all_scored)
    rows = [
        Row(
            f"{key}-auc", "Fig. 4", f"{of_set}: AUC", "-", areas, procedure,
            *claims.not_judged("the figure shows no number"),
        )
    ]  # fmt: skip
    for which, (name, rates) in enumerate(_errors(_rates(all_scored)).items()):
        here = claims.average(rates)
        shown, verdict = _judged_error(setting, metric, which, here)
        claim = f"{of_set}: {name} at alpha = {ALPHA:g}"
        rows.append(
            Row(f"{key}-{which}", "Sec. 4", claim, shown, here, procedure, *verdict)
        )
    return rows


def _rates(all_scored: list[Scored]) -> list[tuple[float, float]]:
    return [scored.flagged(ALPHA) for scored in all_scored]


def _errors(rates: list[tuple[float, float]]) -> dict[str, list[float]]:
    """Return both kinds of errors in each split, from the shares that are flagged."""
    return {
        "false-alarm rate": [false_alarm for false_alarm, _ in rates],
        "missed anomalies": [1 - detection for _, detection in rates],
    }


def _judged_error(
    setting: Setting, metric: str, which: int, here: Average
) -> tuple[str, Verdict]:
    """Return the number of the paper, and the verdict."""
    if setting.reported is None:
        bound = claims.false_alarm_bound(ALPHA, setting.sizes[0])
        of_alarms = f"; the bound (floor(a n) + 1) / (n + 1) is {bound:.4f}"
        return "-", claims.not_judged(f"the paper gives none{'' if which else of_alarms}")
    reported = setting.reported[which]
    if metric != PAPER_METRIC:
        return "-", claims.not_judged(
            f"the paper's {reported:g} is with {PAPER_METRIC} distance"
        )
    return f"{reported:g}", claims.agrees_with_one_draw(here, reported)


def _metric_procedure(found: _Found, metric: str) -> str:
    links = f", K'={N_LINKS} (the paper does not say)" if metric == "geodesic" else ""
    procedure = (
        f"{_procedure(found)}; {found.setting.named()}, {metric} distance{links}; ROC by "
        f"the p-value"
    )
    unable = np.mean([scored.least_p_value > ALPHA for scored in found.scored[metric]])
    if unable:
        procedure += (
            f"; in {unable:.0%} of the splits no row can be flagged at {ALPHA:g}, as more "
            f"nominal rows than that reach fewer than K others along the graph"
        )
    return procedure


def _svm_rows(found: _Found, reported: tuple[float, float]) -> list[Row]:
    """Return the rows on the SVM: against the paper's numbers for it, and against K-LPE."""
    name, key = found.setting.name, f"{found.setting.name}-".lower()
    procedure = (
        f"{_procedure(found)}; one-class SVM with nu={SVM_NU:g} and the kernel "
        f"exp(-|x-y|^2/c), c={SVM_WIDTH:g}, at its own threshold"
    )
    ours, of_svm = _errors(_rates(found.scored[PAPER_METRIC])), _errors(found.svm)
    rows, contrasts = [], []
    for which, (kind, rates) in enumerate(of_svm.items()):
        here, less = claims.average(rates), claims.average_lead(rates, ours[kind])
        rows.append(
            Row(
                f"{key}svm-{which}", "Sec. 4", f"{name}, one-class SVM: {kind}",
                f"{reported[which]:g}", here, procedure,
                *claims.agrees_with_one_draw(here, reported[which]),
            )
        )  # fmt: skip
        contrasts.append(
            Row(
                f"{key}contrast-{which}", "Sec. 4",
                f"{name}, {PAPER_METRIC} distance: K-LPE errs less than the one-class SVM, "
                f"{kind} of the SVM minus that of K-LPE",
                "less", less, f"{procedure}; on the same splits",
                *claims.is_greater(less, "less by"),
            )
        )  # fmt: skip
    return [*rows, *contrasts]


# The figure


def _draw_curves(ax: Axes, found: _Found) -> None:
    curves = {}
    for metric, all_scored in found.scored.items():
        mean = np.mean([scored.area() for scored in all_scored])
        curves[f"{metric}: AUC {mean:.3f}"] = claims.average_curve(
            [scored.curve() for scored in all_scored]
        )
    draw_curves(ax, f"{found.setting.name} ({found.setting.named()})", curves)
    for metric, all_scored in found.scored.items():
        rates = np.mean(_rates(all_scored), axis=0)
        marker = "P" if metric == "Euclidean" else "*"
        ax.plot(
            *rates, marker=marker, markersize=11, color="black", linestyle="",
            markerfacecolor="white", label=f"{metric}, alpha = {ALPHA:g}",
        )  # fmt: skip
    ax.legend(fontsize="small", loc="lower right")

"""The claims of the paper about all n, which it shows without a figure: here Figure 5.

(a) K-LPE on equation (f0f1) beside the exact level sets, with K by the rule. (b) AUC
against K on each data set.
"""

from __future__ import annotations

from pathlib import Path

from paper import growth, manifold, neighbor_rule
from paper.claims import Experiment
from paper.densities import make_cells
from paper.figures import make_figure

#: The largest number of draws of the claims that take the most time.
_FEWER = 60


def run(n_draws: int = 300, folder: Path | None = None) -> Experiment:
    """Return Figure 5 and its rows of the table; ``n_draws`` is at least 2."""
    n_few = min(_FEWER, n_draws)
    trials = growth.run_trials(n_draws, make_cells())
    areas = neighbor_rule.find_areas(n_few, folder)
    figure, (left, right) = make_figure(2, (11, 4.5))
    growth.draw_growth(left, trials)
    neighbor_rule.draw_rule(right, areas)
    return Experiment(
        figure,
        [
            growth.consistency_row(trials),
            growth.type_2_row(trials),
            manifold.faster_row(n_few),
            neighbor_rule.rule_row(areas),
        ],
    )

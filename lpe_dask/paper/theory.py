"""What the paper claims for all n, without a figure: drawn here as a fifth one."""

from __future__ import annotations

from pathlib import Path

from lpe_dask.paper import growth, manifold, neighbor_rule
from lpe_dask.paper.boxes import contours
from lpe_dask.paper.claims import Experiment
from lpe_dask.paper.densities import make_cells

#: Draws of the claims that take the most time, at most.
_FEWER = 60


def run(n_draws: int = 300, folder: Path | None = None) -> Experiment:
    """Return Figure 5 and its rows of the table; ``n_draws`` is at least 2."""
    from matplotlib.figure import Figure

    cells = make_cells()
    trials, exact = growth.run_trials(n_draws, cells), contours(cells)
    found = neighbor_rule.find(min(_FEWER, n_draws), folder)
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    growth.draw_growth(left, trials, exact)
    neighbor_rule.draw_rule(right, found)
    return Experiment(
        5,
        "What is claimed without a figure",
        f"(a) K-LPE on equation (f0f1) beside the exact level sets, with K by the rule. "
        f"(b) AUC against K on each data set, {min(_FEWER, n_draws)} draws.",
        figure,
        [
            growth.consistency_row(trials),
            growth.type_2_row(trials, exact),
            manifold.faster_row(min(_FEWER, n_draws)),
            neighbor_rule.rule_row(found),
        ],
    )

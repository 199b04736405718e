"""Work out what a search costs among all rows, from trials on a sample of them.

    sample, and parts of it --Trial--> pairs, cells, seconds of a query
                            -------->  how these grow with the rows

A query is compared with rows, in pairs, and meets cells, of whose rows it may leave out all
or most. Nothing here is looked up: what a pair costs depends on the processor, the columns,
K and how the rows lie.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from lpe_dask.search import Cost, SampledRows, Trial

#: Times that brute force goes through the sample, as if it were so many times as large.
MOST_COPIES = 8

#: How many times fewer rows the trials of pruning have, the last one all.
SHARES = (8, 4, 2, 1)


def search_cost(
    sampled: SampledRows,
    queries: NDArray[np.floating] | None,
    n_reference: int,
    density: float,
) -> Cost:
    """Return about what a query costs among ``n_reference`` rows.

    Brute force is tried among the sample, and among several copies of it; what it costs
    beyond grows in proportion. That the copies are no new rows does not matter: there are
    as many near rows among them as there would be.

    Pruning is tried among the sample and among parts of it. Pairs and cells are taken to
    grow on by the powers of the rows that they grew by, and seconds to be so many for each
    of both, as they were.

    Parameters
    ----------
    sampled : SampledRows
    queries : ndarray of shape (n_queries, n_features), optional
        Prepared rows like those to measure. None: those of the reference.
    n_reference : int
    density : float
        Queries that are put into tiles together, for each row of the reference where they
        lie.
    """
    rows = sampled.reference[:n_reference]
    is_whole = len(rows) == n_reference
    if is_whole and sampled.space.prunes:
        return Trial(sampled, rows, queries, density).cost()
    if sampled.space.prunes:
        trials = [Trial(sampled, rows[::n], queries, density).cost(1) for n in SHARES]
        return _pruned_cost(trials, len(rows), n_reference)
    trial = Trial(sampled, rows, queries, density)
    one = trial.cost()
    if is_whole:
        return Cost(float(n_reference), one.seconds)
    ratio = n_reference / len(rows)
    n_copies = min(MOST_COPIES, math.ceil(ratio))
    step = max(0.0, trial.cost(n_copies).seconds - one.seconds) / (n_copies - 1)
    return Cost(float(n_reference), one.seconds + (ratio - 1) * step)


def _pruned_cost(trials: list[Cost], n_rows: int, n_reference: int) -> Cost:
    """Return what a query costs, by trials among `SHARES` of so many rows."""
    _, smaller, _, whole = trials
    scale = math.log(n_reference / n_rows) / math.log(SHARES[1])
    pairs = whole.pairs * _growth(smaller.pairs, whole.pairs) ** scale
    cells = whole.cells * _growth(smaller.cells, whole.cells) ** scale
    seconds = np.array([trial.seconds for trial in trials])
    causes = np.array([[1.0, trial.pairs, trial.cells] for trial in trials])
    # All errors are to be alike in proportion.
    prices, _ = nnls(causes / seconds[:, None], np.ones(len(trials)))
    total = prices @ np.array([1.0, pairs, cells])
    return Cost(min(pairs, float(n_reference)), float(total), cells)


def _growth(small: float, large: float) -> float:
    """Return how many times more there are: not fewer, and no more than in proportion."""
    return min(float(SHARES[1]), max(1.0, large / small))

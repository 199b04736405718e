"""Choose the space of a search, and whether boxes are to leave out pairs.

    sample --tried with both exact algorithms, on a worker--> the one that takes less time
           --few rows, no compiled kernels yet-->             by how the rows are spread

Pruning leaves out pairs, but every query has to be held against the boxes of cells, and
rows are rotated and sorted first. Which one is chosen changes no result.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, Basis
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.groups import SearchGroups
from lpe_dask.search.join import JoinSpec
from lpe_dask.search.plan import SearchPlan, sample_neighbors
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.trial import Cost, SampledRows
from lpe_dask.tasks import compute, new_tasks, to_task

logger = logging.getLogger(__name__)

#: Rows that both exact algorithms are tried on, at least and at most; the part of all rows,
#: and pairs of all rows for each product, from which on a trial takes too long. (To rotate
#: rows, products grow with the square of the columns.)
MIN_TRIED_ROWS, MAX_TRIED_ROWS, TRIAL_FRACTION, TRIED_PAIRS = 2048, 16_384, 5, 1000

#: Part of the time of brute force that pruning may take by a trial, and is then chosen. A
#: trial does not count that pruning divides rows among regions first, nor that brute force
#: among many columns may sum each pair once for both of its rows.
MAX_PRUNED_RATIO = 0.7

#: Tiles of queries in a trial: it hardly matters which where all pairs are compared.
TRIED_TILES = {"brute": 3, "pruned": 4}

#: Reference rows below which either is done before a choice is.
MIN_ROWS_FOR_TRIAL = 2048

#: The same for the products that brute force takes in all: some 20 ms of one thread, and as
#: many times more as a trial takes longer, as the square of these features does: rows are
#: rotated.
FEW_PRODUCTS, TRIAL_FEATURES = 2_000_000_000, 24

#: Features up to which pruning pays whatever the rows are, unless they are few.
PRUNED_FEATURES = 6

#: The same for more features, of at least so many rows for each corner of a box: if their
#: columns are independent, pruning is about as fast as brute force there, whatever K, and
#: faster with more rows. Of more features a trial takes nothing beside such a search.
CORNER_ROWS, MAX_CORNER_FEATURES = 8, 12

#: Products that a pair takes beside one for each feature: to be looked at.
PAIR_PRODUCTS = 16


def choose_space(
    sample: NDArray[np.generic],
    preparation: Preparation,
    plan: SearchPlan,
    algorithm: str,
    groups: SearchGroups | None = None,
) -> Space:
    """Return the space to search in, with the algorithm to search with.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_features)
        Rows of all parts of the reference.
    preparation : Preparation
    plan : SearchPlan
    algorithm : str
        A name of `kernels.ALGORITHMS`, or "auto": what is expected to be faster.
    groups : SearchGroups, optional
        Where groups are searched each by itself: boxes then leave out the others.
    """
    if algorithm == "auto" and groups is not None:
        algorithm = "pruned"
    if algorithm == "auto":
        algorithm, reason = choose_algorithm(sample, preparation, plan)
        logger.info("algorithm=%s: %s", algorithm, reason)
    kernel = ALGORITHMS[algorithm]
    if not kernel.KEEPS_NEAR_ROWS_TOGETHER:
        sample = Basis.training_rows(sample)  # others would be prepared for nothing
    prepared = preparation.apply(sample)
    if preparation.groups is not None:  # of some nothing may have been learned
        prepared = prepared[np.isfinite(prepared).all(axis=1)]
    n_codes, separates = preparation.n_codes, preparation.separates
    if preparation.groups is not None and separates:
        of_groups = preparation.groups.points()
        n_numbers = prepared.shape[1] - n_codes
        prepared[:, :n_numbers] = of_groups.moved(prepared[:, :n_numbers], prepared[:, -1])
        basis = kernel.basis(prepared, preparation.weights, n_codes, separates=separates)
        # Rows are moved once: the error of points is that of one step.
        basis = replace(basis, center=np.zeros(n_numbers), groups=of_groups)
    else:
        basis = kernel.basis(prepared, preparation.weights, n_codes, separates=separates)
    is_sampled = sample_neighbors(plan.shape.n_listed_neighbors) is not None
    return Space(
        algorithm, preparation, basis, is_sampled and groups is None, groups=groups
    )


def choose_algorithm(
    sample: NDArray[np.generic], preparation: Preparation, plan: SearchPlan
) -> tuple[str, str]:
    """Return the exact algorithm that is expected to be faster, and why.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_features)
    preparation : Preparation
    plan : SearchPlan
    """
    n_reference, n_features = plan.shape.n_reference, plan.shape.n_features
    decided = choice_without_trial(n_reference, n_features)
    if decided is not None:
        return decided
    tried = _try_exact(sample, preparation, plan)
    if tried is None:
        return "brute", "kernels are not compiled yet, and all pairs are few"
    seconds = {name: cost.seconds + cost.pack_seconds for name, cost in tried.items()}
    reason = (
        f"by a trial, a query takes {1e6 * seconds['pruned']:.3g} us among {n_reference} "
        f"rows of {n_features} features with pruning, {1e6 * seconds['brute']:.3g} us "
        f"without"
    )
    is_worth_it = seconds["pruned"] < MAX_PRUNED_RATIO * seconds["brute"]
    return ("pruned" if is_worth_it else "brute"), reason


def choice_without_trial(n_reference: int, n_features: int) -> tuple[str, str] | None:
    """Return the choice, and its reason, where that needs no trial."""
    n_products = n_reference**2 * (n_features + PAIR_PRODUCTS)
    few = "brute", f"{n_reference} reference rows x {n_features} features are few"
    if n_reference <= MIN_ROWS_FOR_TRIAL:
        return few
    clear = "pruned", f"of {n_features} features, boxes leave out most pairs"
    if n_features <= PRUNED_FEATURES:
        return clear
    if n_products <= FEW_PRODUCTS * (1 + (n_features / TRIAL_FEATURES) ** 2):
        return few
    has_few_corners = CORNER_ROWS * 2**n_features <= n_reference
    return clear if n_features <= MAX_CORNER_FEATURES and has_few_corners else None


def _try_exact(
    sample: NDArray[np.generic], preparation: Preparation, plan: SearchPlan
) -> dict[str, Cost] | None:
    """Return the cost of a query by each exact algorithm; on workers, if there are any.

    None where the search is done in NumPy so far: all rows are compared then, and times say
    nothing about kernels.
    """
    n_reference, n_features = plan.shape.n_reference, plan.shape.n_features
    worth = min(n_reference // TRIAL_FRACTION, n_reference**2 // (TRIED_PAIRS * n_features))
    n_rows = min(len(sample), MAX_TRIED_ROWS, max(MIN_TRIED_ROWS, worth))
    some = sample[np.arange(n_rows) * len(sample) // n_rows]
    rows = preparation.apply_float32(some)
    # As many of the rows, in proportion, are nearer as among all: boxes leave out as many.
    n_neighbors = -(-plan.shape.n_listed_neighbors * n_rows // n_reference) or None
    statistic = replace(plan.shape.statistic, n_neighbors=n_neighbors)
    search = JoinSpec(statistic, pass_rows=1, work=plan.shape.calibration_work)
    # Both at once, as nothing else is done yet: each is timed by its own thread.
    entered = to_task(rows, "lpe-tried")
    columns = preparation.weights, preparation.n_codes
    tasks = (
        (_try_one, name, entered.key, *columns, search, n_reference) for name in TRIED_TILES
    )
    costs = compute(*new_tasks("try", tasks, [entered]))
    tried = dict(zip(TRIED_TILES, costs, strict=True))
    return None if None in costs else tried


# Run inside a task, on a worker.


def _try_one(
    name: str,
    rows: NDArray[np.floating],
    weights: NDArray[np.float64] | None,
    n_codes: int,
    search: JoinSpec,
    n_reference: int,
) -> Cost | None:
    search.expect()
    if not search.runs_compiled():
        return None
    basis = ALGORITHMS[name].basis(rows, weights, n_codes)
    with_samples = sample_neighbors(search.n_listed_neighbors) is not None
    sampled = SampledRows(rows, Space(name, Preparation(), basis, with_samples), search)
    return sampled.cost(n_reference, n_tiles=TRIED_TILES[name], seconds=0.0)

"""Choose the space of a search, and whether boxes are to leave out pairs.

    sample --tried with both exact algorithms, on a worker--> the one that takes less time
           --few rows, no compiled kernels yet-->             by how the rows are spread

Pruning leaves out pairs, but every query has to be held against the boxes of cells, and
rows are rotated and sorted first. Which one is chosen changes no result.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, Basis
from lpe_dask.search.blocks.packing import Space
from lpe_dask.search.groups import SearchGroups
from lpe_dask.search.join import JoinSpec
from lpe_dask.search.plan import SearchPlan, sample_neighbors
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.trial import Cost, SampledRows
from lpe_dask.tasks import active_client, compute, new_tasks, to_task

logger = logging.getLogger(__name__)

#: Rows that both exact algorithms are tried on, at least and at most; the part of all rows,
#: and pairs of all rows for each product, from which on a trial takes too long. (To rotate
#: rows, products grow with the square of the columns.)
MIN_TRIED_ROWS, MAX_TRIED_ROWS, TRIAL_FRACTION, TRIED_PAIRS = 2048, 16_384, 5, 1000

#: Part of the time of brute force that pruning may take by a trial, and is then chosen. A
#: trial leaves out what it takes to divide rows among regions, half as long as to pack them
MAX_PRUNED_RATIO = 0.8

#: Where brute force sums each pair once it is faster than its trial: measured 1.15 times of
#: 62 features, 1.25 of 128, 1.45 of 200, 1.65 of 384.
ONCE_FEATURES, MAX_ONCE_RATIO = 450, 1.8

#: Tiles of queries in a trial: it hardly matters which where all pairs are compared.
TRIED_TILES = {"brute": 3, "pruned": 4}

#: Reference rows below which either is done before a choice is.
MIN_ROWS_FOR_TRIAL = 2048

#: The same for the products that brute force takes in all: some 20 ms of one thread, and as
#: many times more as a trial takes longer, as the square of these features does: rows are
#: rotated.
FEW_PRODUCTS, TRIAL_FEATURES = 2_000_000_000, 24

#: Rows for each corner of a box from which on pruning pays whatever the rows are: measured
#: of independent columns, .9 to 1.05 times as fast with 8 for each and more with more. Of
#: more features than so many, a trial takes next to nothing beside what such rows take.
CLEAR_CORNER_ROWS, CLEAR_FEATURES = 8, 12

#: Features up to which that is so of any rows that are not few.
FLAT_FEATURES = 6

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
    if plan.may_sum_pairs_once:
        seconds["brute"] /= min(MAX_ONCE_RATIO, 1 + n_features / ONCE_FEATURES)
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
    if n_features <= FLAT_FEATURES:
        return clear
    if n_products <= FEW_PRODUCTS * (1 + (n_features / TRIAL_FEATURES) ** 2):
        return few
    n_corners = 2 ** min(n_features, CLEAR_FEATURES)
    is_clear = n_features <= CLEAR_FEATURES and n_reference >= CLEAR_CORNER_ROWS * n_corners
    return clear if is_clear else None


def _try_exact(
    sample: NDArray[np.generic], preparation: Preparation, plan: SearchPlan
) -> dict[str, Cost] | None:
    """Return the cost of a query by each exact algorithm; on a worker, if there is any.

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
    columns = preparation.weights, preparation.n_codes
    if active_client() is None:
        return _try_each(rows, *columns, search, n_reference)
    entered = to_task(rows, "lpe-tried")
    task = _try_each, entered.key, *columns, search, n_reference
    (tried,) = compute(*new_tasks("try", [task], [entered]))
    return cast(dict[str, Cost] | None, tried)


# Run inside a task, on a worker.


def _try_each(
    rows: NDArray[np.floating],
    weights: NDArray[np.float64] | None,
    n_codes: int,
    search: JoinSpec,
    n_reference: int,
) -> dict[str, Cost] | None:
    search.expect()
    if not search.runs_compiled():
        return None
    with_samples = sample_neighbors(search.n_listed_neighbors) is not None

    def try_one(name: str) -> Cost:
        basis = ALGORITHMS[name].basis(rows, weights, n_codes)
        space = Space(name, Preparation(), basis, with_samples=with_samples)
        sampled = SampledRows(rows, space, search)
        return sampled.cost(n_reference, n_tiles=TRIED_TILES[name], seconds=0.0)

    # At once, as nothing else is done yet: each is timed by its own thread.
    with ThreadPoolExecutor(len(TRIED_TILES)) as threads:
        return dict(zip(TRIED_TILES, threads.map(try_one, TRIED_TILES), strict=True))

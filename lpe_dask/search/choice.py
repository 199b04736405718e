"""Choose the space of a search, and whether boxes are to leave out pairs.

    sample --tried with both exact algorithms, on a worker--> the one that takes less time

Pruning leaves out pairs, but every query has to be held against the boxes of cells, and
rows are rotated and sorted first. Which one is chosen changes no result.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, LEARNED_ROWS, NearestState, narrow
from lpe_dask.search.join import Search
from lpe_dask.search.locality import learn_split
from lpe_dask.search.packing import Space
from lpe_dask.search.plan import SearchPlan, sample_neighbors
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.trial import Cost, SampledRows
from lpe_dask.tasks import active_client, compute, enter, new_tasks

logger = logging.getLogger(__name__)

#: Rows that both exact algorithms are tried on, at least and at most; the part of all rows,
#: and pairs of all rows for each product, from which on a trial takes too long. (To rotate
#: rows, products grow with the square of the columns.)
FEWEST_ROWS, MOST_ROWS, TRIED_PART, TRIED_PAIRS = 2048, 16_384, 4, 1000

#: Part of what brute force takes that pruning may take by a trial, which flatters it.
MOST_PRUNED = 0.85

#: Tiles of queries in a trial: it hardly matters which where all pairs are compared.
TRIED_TILES = {"brute": 2, "pruned": 4}

#: Rows in a trial for each neighbor: among fewer it is further away than among all rows.
ROWS_PER_NEIGHBOR = 256

#: How many times faster an approximate search has to be for "auto" to take it, and the part
#: of all pairs below which boxes leave so few that it is not looked at.
WORTH, FEW_PAIRS = 2.0, 0.2

#: Nanoseconds of an approximate search: to index a row, and each of its columns; pairs that
#: a query meets, one of these, and each of its columns; to compile pynndescent, once in a
#: process. (Zen 5, tables of 64 to 768 columns; memory decides, so that processors differ
#: less than in what else is compared here.)
INDEXED, LED, COMPILED = (50e3, 120.0), (4500, 32.0, 0.04), 25e9

#: Rows whose nearest ones of the sample tell how many directions there are near a row, how
#: many of these, and the most directions for which a graph leads to nearest rows. (Among
#: 100,000 Gaussian rows, by the same estimate: 19, of 24 columns, are found with wide
#: beams; 24, of 32, are not, nor are 26, of 50 clusters of 64 columns.)
DIRECTED_ROWS, DIRECTING_ROWS, MOST_DIRECTIONS = 512, 5, 21

#: Reference rows below which either is done before a choice is.
FEW_ROWS = 2048

#: The same for the products that brute force takes in all: some 20 ms of one thread, and as
#: many times more as a trial takes longer, as the square of these features does: rows are
#: rotated.
FEW_PRODUCTS, TRIAL_FEATURES = 1_000_000_000, 24

#: Features up to which pruning pays whatever the rows are.
CLEAR_FEATURES = 6

#: Products that a pair takes beside one for each feature: to be looked at.
PAIR_PRODUCTS = 16


def choose_space(
    sample: NDArray[np.generic], preparation: Preparation, plan: SearchPlan, algorithm: str
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
    """
    if algorithm == "auto":
        algorithm, reason = choose_algorithm(sample, preparation, plan)
        logger.info("algorithm=%s: %s", algorithm, reason)
    kernel = ALGORITHMS[algorithm]
    if not kernel.KEEPS_NEAR_ROWS_TOGETHER:
        sample = _some(sample, LEARNED_ROWS)  # others would be prepared for nothing
    prepared = preparation.apply(sample)
    basis = kernel.basis(prepared, preparation.weights)
    is_sampled = sample_neighbors(plan.shape.listed_neighbors) is not None
    space = Space(algorithm, preparation, basis, None, is_sampled)
    if not space.prunes or plan.n_blocks == 1:
        return space
    return replace(space, split=learn_split(basis.points(prepared), plan.n_blocks))


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
    decided = clear_choice(n_reference, n_features)
    if decided is not None:
        return decided
    seconds = {
        name: cost.seconds + cost.pack_seconds
        for name, cost in _try_exact(sample, preparation, plan).items()
    }
    reason = (
        f"by a trial, a query takes {1e6 * seconds['pruned']:.3g} us among {n_reference} "
        f"rows of {n_features} features with pruning, {1e6 * seconds['brute']:.3g} us "
        f"without"
    )
    is_worth_it = seconds["pruned"] < MOST_PRUNED * seconds["brute"]
    return ("pruned" if is_worth_it else "brute"), reason


def choose_approximate(
    sample: NDArray[np.generic],
    preparation: Preparation,
    plan: SearchPlan,
    n_exact: int,
    n_waiting: int,
) -> tuple[bool, str]:
    """Return whether an approximate search is expected to be worth it, and why.

    For as many rows to score as the reference has.

    Parameters
    ----------
    sample : ndarray of shape (n_rows, n_features)
    preparation : Preparation
    plan : SearchPlan
    n_exact : int
        Rows that are measured exactly all the same.
    n_waiting : int
        Threads that wait while pynndescent is compiled.
    """
    n_reference, n_features = plan.shape.n_reference, plan.shape.n_features
    decided = clear_choice(n_reference, n_features)
    if decided is not None:
        return False, decided[1]
    tried = _try_exact(sample, preparation, plan)
    exactly = 1e9 * min(cost.seconds for cost in tried.values())
    pairs = tried["pruned"].pairs
    if pairs < FEW_PAIRS * n_reference:
        return False, f"boxes leave {pairs / n_reference:.0%} of all pairs"
    led = index_nanoseconds(n_features) + led_nanoseconds(n_features)
    led += exactly * n_exact / n_reference + COMPILED * n_waiting / n_reference
    reason = (
        f"a query takes {exactly / 1000:.3g} us among {n_reference} rows of {n_features} "
        f"features, and about {led / 1000:.3g} us along a graph, what is measured exactly "
        f"included"
    )
    if exactly < WORTH * led:
        return False, reason
    directions = intrinsic_dimension(preparation.apply(_some(sample, 4096)))
    if directions > MOST_DIRECTIONS:
        return False, (
            f"rows vary in about {directions:.0f} directions near each other, and a graph "
            f"does not lead to the nearest ones where these are more than "
            f"{MOST_DIRECTIONS}"
        )
    return True, reason


def intrinsic_dimension(sample: NDArray[np.floating]) -> float:
    """Return in about how many directions rows vary near each other.

    By the estimate of Levina and Bickel (Maximum likelihood estimation of intrinsic
    dimension, NIPS 2004), from the distances of some rows to their nearest others; too low
    for many directions, as a sample is thin. ``inf`` where most rows are equal to others,
    or as far from one as from the next.

    Examples
    --------
    >>> around = np.random.default_rng(0).standard_normal((2000, 2))
    >>> round(intrinsic_dimension(around @ np.ones((2, 100)) / 10))
    1
    """
    distances, _ = _nearest(sample, None, DIRECTED_ROWS, DIRECTING_ROWS)
    is_between = (distances[:, 0] > 0) & np.isfinite(distances[:, -1])
    between = distances[is_between]
    if 2 * len(between) < len(distances):
        return math.inf
    mean = np.log(between[:, -1:] / between[:, :-1]).mean()
    return float(1 / mean) if mean > 0 else math.inf


def index_nanoseconds(n_features: int) -> float:
    """Return about what a row takes one thread to be indexed."""
    row, column = INDEXED
    return row + column * n_features


def led_nanoseconds(n_features: int) -> float:
    """Return about what a query takes one thread along the graphs of indexes."""
    n_pairs, pair, column = LED
    return n_pairs * (pair + column * n_features)


def clear_choice(n_reference: int, n_features: int) -> tuple[str, str] | None:
    """Return what to choose, and why, where that needs no trial."""
    n_products = n_reference**2 * (n_features + PAIR_PRODUCTS)
    few = "brute", f"{n_reference} reference rows x {n_features} features are few"
    if n_reference <= FEW_ROWS:
        return few
    if n_features <= CLEAR_FEATURES:
        return "pruned", f"of {n_features} features, boxes leave out most pairs"
    most = FEW_PRODUCTS * (1 + (n_features / TRIAL_FEATURES) ** 2)
    return few if n_products <= most else None


def _some(rows: NDArray[np.generic], n_rows: int) -> NDArray[np.generic]:
    return rows[:: -(-len(rows) // n_rows)]


def _nearest(
    sample: NDArray[np.floating],
    weights: NDArray[np.float64] | None,
    n_queries: int,
    n_neighbors: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far the nearest others of some rows are, ascending, and these rows.

    Of shape (about n_queries, n_neighbors) and (about n_queries, n_features), both in the
    unit of a basis, in which nothing overflows.
    """
    rows, numbers = narrow(sample), np.arange(len(sample))
    space = Space("brute", Preparation(), ALGORITHMS["brute"].basis(rows, weights))
    some = numbers[:: -(-len(numbers) // n_queries)]
    queries = space.tiles(rows[some], some)
    state = NearestState(queries, space.basis, n_neighbors)
    state.fold(space.pack(rows, numbers).block)
    distances = queries.restored(np.sqrt(state.squares()))
    return np.ldexp(distances, space.basis.exponent), space.basis.points(rows[some])


def _try_exact(
    sample: NDArray[np.generic], preparation: Preparation, plan: SearchPlan
) -> dict[str, Cost]:
    """Return what a query costs with each exact algorithm; on a worker, if there is any."""
    n_reference, n_features = plan.shape.n_reference, plan.shape.n_features
    worth = min(n_reference // TRIED_PART, n_reference**2 // (TRIED_PAIRS * n_features))
    n_rows = min(len(sample), MOST_ROWS, max(FEWEST_ROWS, worth))
    some = sample[np.arange(n_rows) * len(sample) // n_rows]
    rows = narrow(preparation.apply(some))
    weights, most = preparation.weights, max(1, n_rows // ROWS_PER_NEIGHBOR)
    n_neighbors = min(plan.shape.listed_neighbors, most) or None
    search = Search(replace(plan.shape.statistic, n_neighbors=n_neighbors), pass_rows=1)
    if active_client() is None:
        return _try_each(rows, weights, search, n_reference)
    entered = enter(rows, "lpe-tried")
    task = _try_each, entered.key, weights, search, n_reference
    (tried,) = compute(*new_tasks("try", [task], [entered]))
    return cast(dict[str, Cost], tried)


# Run inside a task, on a worker.


def _try_each(
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    search: Search,
    n_reference: int,
) -> dict[str, Cost]:
    tried = {}
    with_samples = sample_neighbors(search.listed_neighbors) is not None
    for name, n_tiles in TRIED_TILES.items():
        basis = ALGORITHMS[name].basis(rows, weights)
        space = Space(name, Preparation(), basis, with_samples=with_samples)
        sampled = SampledRows(rows, space, search)
        tried[name] = sampled.cost(n_reference, n_tiles=n_tiles, seconds=0.0)
    return tried

"""Choose the space of a search, and whether boxes are to leave out pairs.

    sample --some tiles of queries--> pairs, cells --costs--> the algorithm that costs less

Pruning leaves out pairs, but every query has to be held against the boxes of cells, and
rows are rotated and sorted first. A sample of s of n rows, searched for K s / n neighbors
in cells of as many times fewer rows, shows about the share of pairs that would be left;
where that would be less than a group, cells are larger, and the share is corrected.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lpe_dask.kernels import ALGORITHMS, LANES, LEARNED_ROWS, NearestState, narrow
from lpe_dask.search.costs import machine_costs
from lpe_dask.search.join import Search
from lpe_dask.search.locality import learn_split
from lpe_dask.search.packing import Space
from lpe_dask.search.plan import SearchPlan, sample_neighbors
from lpe_dask.search.preparation import Preparation
from lpe_dask.search.trial import SampledRows, Trial

logger = logging.getLogger(__name__)

#: Rows of the sample that are searched for neighbors, and among.
QUERY_ROWS, SAMPLE_ROWS = 512, 4096

#: Part of what brute force takes that a trial may take, and the fewest rows that tell.
TRIAL_SHARE, FEWEST_ROWS = 1 / 30, 1024

#: To learn a rotation takes as long as to rotate so many rows for each feature.
LEARNING = 2

#: Where a trial takes more: rows whose nearest of `FEWEST_ROWS` is looked for, and the part
#: of the distance between any two from which on it is too far for boxes to leave out much.
#: By trials of 27 tables, those from .44 on were no faster with pruning, most below were.
GLANCED_ROWS, FAR_NEIGHBOR = 128, 0.43

#: Part of what brute force takes from which on the rotation alone decides against pruning.
MOST_ROTATION = 0.4

#: Part of what brute force takes that pruning may take. To sort and pack rows comes on top,
#: and cells that few queries of a tile meet cost more than the same pairs elsewhere.
MOST_PRUNED = 0.8

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
#: many times more as a trial takes longer, which these features make twice as long.
FEW_PRODUCTS, TRIAL_FEATURES = 1_000_000_000, 60

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
    costs = machine_costs()
    brute = costs.of_brute(n_features, n_reference)
    rotation = costs.of_rotation(n_features)
    if rotation > MOST_ROTATION * brute:
        return "brute", (
            f"to rotate rows of {n_features} features takes {rotation / brute:.0%} of the "
            f"time of {n_reference} comparisons"
        )
    learning = LEARNING * n_features * rotation
    affordable = TRIAL_SHARE * n_reference * brute / plan.threads - learning
    n_affordable = affordable / (rotation + costs.of_rows(n_features, QUERY_ROWS))
    if n_affordable < FEWEST_ROWS:
        few = preparation.apply(_some(sample, FEWEST_ROWS))
        nearest = _nearest_share(few, preparation.weights)
        if nearest >= FAR_NEIGHBOR:
            return "brute", (
                f"of {FEWEST_ROWS} rows of {n_features} features, the nearest one is at "
                f"{nearest:.0%} of the distance between any two"
            )
    n_sampled = round(max(FEWEST_ROWS, min(SAMPLE_ROWS, n_affordable)))
    some = preparation.apply(_some(sample, n_sampled))
    pairs, cells = _pruned_counts(some, preparation.weights, plan)
    pruned = costs.of_pruned(n_features, pairs, cells)
    reason = (
        f"by a trial, a query meets {cells:.0f} cells and {pairs / n_reference:.0%} of all "
        f"rows of {n_features} features: {pruned / 1000:.3g} us with pruning, "
        f"{brute / 1000:.3g} us without"
    )
    return ("pruned" if pruned < MOST_PRUNED * brute else "brute"), reason


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
    costs = machine_costs()
    exactly = costs.of_brute(n_features, n_reference)
    if choose_algorithm(sample, preparation, plan)[0] == "pruned":
        some = preparation.apply(_some(sample, SAMPLE_ROWS))
        pairs, cells = _pruned_counts(some, preparation.weights, plan)
        if pairs < FEW_PAIRS * n_reference:
            return False, f"boxes leave {pairs / n_reference:.0%} of all pairs"
        exactly = costs.of_pruned(n_features, pairs, cells)
    led = index_nanoseconds(n_features) + led_nanoseconds(n_features)
    led += exactly * n_exact / n_reference + COMPILED * n_waiting / n_reference
    reason = (
        f"a query takes {exactly / 1000:.3g} us among {n_reference} rows of {n_features} "
        f"features, and about {led / 1000:.3g} us along a graph, what is measured exactly "
        f"included"
    )
    if exactly < WORTH * led:
        return False, reason
    directions = intrinsic_dimension(preparation.apply(_some(sample, SAMPLE_ROWS)))
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
    most = FEW_PRODUCTS * (1 + n_features / TRIAL_FEATURES)
    return few if n_products <= most else None


def share_among(more_cells: float, share: float) -> float:
    """Return the share of all rows that a query meets among so many times more cells.

    Smaller cells leave out more. The odds that a row is met fell with the root of the
    number of cells, in ten tables of 8 to 40 features, normal and as logs have them: from
    64 cells to 390 the share came out within .1 of what it was, but for few far too high.

    Examples
    --------
    >>> share_among(4.0, 0.5), share_among(100.0, 1.0)
    (0.333..., 1.0)
    """
    root = math.sqrt(more_cells)
    return share / (share + (1.0 - share) * root)


def _some(rows: NDArray[np.generic], n_rows: int) -> NDArray[np.generic]:
    return rows[:: -(-len(rows) // n_rows)]


def _nearest_share(sample: NDArray[np.floating], weights: NDArray[np.float64]) -> float:
    """Return how far the nearest row is, as a share of what is between any two: medians."""
    distances, points = _nearest(sample, weights, GLANCED_ROWS, 1)
    nearest = np.median(distances)
    # Rows that come one after another may be nearer than any two.
    others = np.roll(points, len(points) // 2, axis=0)
    between = np.median(np.linalg.norm(points - others, axis=1))
    return float(nearest / between) if between > 0 else 0.0


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


def _pruned_counts(
    sample: NDArray[np.floating], weights: NDArray[np.float64], plan: SearchPlan
) -> tuple[float, float]:
    """Return about how many rows, in how many cells, a query meets among all rows."""
    n_reference, n_neighbors = plan.shape.n_reference, plan.shape.listed_neighbors
    kernel = ALGORITHMS["pruned"]
    # The sample of a table may be larger than the part of it that is searched.
    sampled = min(1.0, len(sample) / n_reference)
    cell_rows = max(LANES, round(kernel.CELL_ROWS * sampled))
    expected = max(1, round(n_neighbors * sampled)) if n_neighbors > 0 else None
    search = Search(replace(plan.shape.statistic, n_neighbors=expected), pass_rows=1)
    space = Space("pruned", Preparation(), kernel.basis(sample, weights))
    rows, n_tiles = SampledRows(sample, space, search), max(1, QUERY_ROWS // cell_rows)
    pairs, cells = Trial(rows, sample, n_tiles=n_tiles, cell_rows=cell_rows).counts()
    more_cells = n_reference / kernel.CELL_ROWS / (len(sample) / cell_rows)
    share = share_among(more_cells, pairs / len(sample))
    return share * n_reference, cells * more_cells

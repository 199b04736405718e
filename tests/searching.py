"""Search as the library does, in one process: rows in blocks, folded one after another."""

import functools
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import numpy as np

from lpe_dask.kernels.accumulators import CountAccumulator, KNearestAccumulator, QueryTiles
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.kernels.basis import Basis
from lpe_dask.kernels.blocks import Block

#: Names of the algorithms without an index: all have to give the bits of the definition.
EXACT = sorted(name for name, module in ALGORITHMS.items() if not module.neighbor_lists)


@dataclass(frozen=True)
class Reference:
    """The rows of a reference in blocks, as one algorithm orders them."""

    module: ModuleType
    basis: Basis
    blocks: list[Block]


@functools.cache
def normal_basis(algorithm, n_features):
    """Return the basis of normally distributed rows; for 700 columns it takes a while."""
    sample = np.random.default_rng(0).standard_normal((100, n_features))
    return ALGORITHMS[algorithm].basis(sample)


def in_blocks(
    algorithm, rows, parts=None, *, cell_rows=64, sample=None, basis=None, weights=(),
    w=None,
):  # fmt: skip
    """Put rows into blocks: one for each array of row numbers in ``parts``, or one alone.

    ``sample`` are the rows that the basis is learned from, if it is not given; None: all.
    ``weights`` are those of the codes in the last columns, ``w`` those of the numbers.
    """
    module = ALGORITHMS[algorithm]
    if basis is None:
        w = np.ones(rows.shape[1] - len(weights)) if w is None else w
        of_columns = np.append(w, weights)
        sample = rows if sample is None else sample
        basis = module.basis(sample, of_columns, len(weights))
    blocks = []
    for numbers in [np.arange(len(rows))] if parts is None else parts:
        arrange = partial(module.arrange, cell_rows=cell_rows)
        slab_rows = 2 * cell_rows if module.SLAB_ROWS else None
        blocks.append(Block.build(rows[numbers], numbers, arrange, basis, slab_rows))
    return Reference(module, basis, blocks)


def parts_of(n_rows, n_parts):
    """Cut the numbers of rows into runs of about equal length."""
    return np.array_split(np.arange(n_rows), n_parts)


def query_tiles(reference, rows, numbers=None, *, tile_rows=QueryTiles.TILE_ROWS):
    """Put queries into tiles; ``numbers`` says which reference rows they are themselves."""
    points = reference.basis.points(rows)
    tiles = reference.module.tile(points, tile_rows)
    return QueryTiles(rows, points, tiles, numbers, reference.basis)


def folded(state, reference):
    """Fold all blocks, and return the state."""
    for block in reference.blocks:
        state.fold(block)
    return state


def search_nearest(reference, rows, n_neighbors, numbers=None, *, with_numbers=False):
    """Search for the nearest rows of each query; return the state."""
    queries = query_tiles(reference, rows, numbers)
    state = KNearestAccumulator(
        queries, reference.basis, n_neighbors, with_numbers=with_numbers
    )
    return folded(state, reference)


def search_within(reference, rows, radius, numbers=None, *, enough=None):
    """Count the rows within the radius of each query; return the state."""
    queries = query_tiles(reference, rows, numbers)
    return folded(CountAccumulator(queries, reference.basis, radius, enough), reference)


def all_squares(queries, reference, weights=(), w=None):
    """Return the squared distances of all pairs, summed as in `definitions.distance`."""
    queries, reference = np.asarray(queries, float), np.asarray(reference, float)
    squares = np.zeros((len(queries), len(reference)))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        n_numbers = reference.shape[1] - len(weights)
        w = np.ones(n_numbers) if w is None else w
        for k in range(n_numbers):
            differences = queries[:, k, None] - reference[:, k]
            squares += differences * differences * w[k]
        for k, weight in enumerate(weights, start=n_numbers):
            squares += np.where(queries[:, k, None] != reference[:, k], weight, 0.0)
    return squares


def all_distances(queries, reference, *, exclude_self=False, weights=(), w=None):
    """Return `definitions.distance` of all pairs."""
    distances = np.sqrt(all_squares(queries, reference, weights, w))
    if exclude_self:
        distances[np.arange(len(queries)), np.arange(len(queries))] = np.inf
    return distances


def smallest(distances, n_neighbors):
    """Return the K smallest of each row and their columns, by (distance, column).

    ``inf`` and -1 where there are no more, or their distances overflow.
    """
    shape = (len(distances), n_neighbors)
    values, columns = np.full(shape, np.inf), np.full(shape, -1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    n_found = order.shape[1]
    values[:, :n_found] = np.take_along_axis(distances, order, axis=1)
    columns[:, :n_found] = order
    columns[np.isinf(values)] = -1
    return values, columns


def _hard_points():
    def normal(seed, *shape):
        return np.random.default_rng(seed).standard_normal(shape)

    def with_rows(points, *rows):
        return np.concatenate([points, np.array(rows)])

    rng = np.random.default_rng(0)
    return {
        "offset": normal(1, 150, 4) + 1e7,
        "far tight clusters": np.concatenate(
            [normal(2, 70, 4) * 1e-3 + 1e6, normal(3, 70, 4) * 1e-3 - 1e6]
        ),
        "duplicates": np.repeat(normal(4, 4, 3), 40, axis=0),
        "lattice": rng.integers(0, 4, (200, 3)) * 0.1,
        "outliers at 1e6": with_rows(normal(5, 100, 2), *[[1e6, -1e6]] * 2),
        # Just short of, at, and beyond the distance from which on float32 is not trusted.
        "outliers at 2**40": with_rows(normal(6, 140, 1), *2.0 ** np.c_[38:47:0.25]),
        "outliers at 1e30": with_rows(normal(7, 90, 2), [1e30, 0], [1e30, 1e26], [0, 9e29]),
        # Whole cells of them, to which gaps overflow in float32.
        "cells at 1e25": with_rows(
            normal(16, 80, 2), *(np.c_[1e25, 1e25] + 1e23 * normal(17, 300, 2))
        ),
        "one row at 1e300": with_rows(normal(8, 150, 2), [1e300, 0.0]),
        "underflow": normal(9, 90, 2) * 1e-170,
        # Squares of the short distances are about the smallest number of float32.
        "underflow of float32": with_rows(
            rng.permuted(np.r_[-75:75])[:, None] * 3e-23 + normal(14, 150, 1) * 1e-23,
            [0.9],
            [-0.9],
        ),
        "overflow": normal(10, 90, 2) * 1e160,
        "largest": normal(11, 90, 2) * 1e300 + 1.7e308,
        "mixed magnitudes": normal(12, 130, 3) * 10.0 ** rng.integers(-30, 30, (130, 3)),
        "constant columns": normal(13, 100, 3) * [0.0, 1.0, 0.0] + [0.1, 0.0, 1e7],
        # Scaled by the spread of the others, the first column would overflow.
        "largest beside small": normal(15, 150, 3) * [0, 1e-9, 1e-9] + [1.7e308, 0, 0],
        "one point": np.full((70, 3), 0.1),
    }


#: Rows on which filters are easily wrong.
HARD_POINTS = _hard_points()

#: How many of them a basis is learned from: it may not have seen the outliers at the end.
SAMPLES = {"seen": None, "unseen": 64}

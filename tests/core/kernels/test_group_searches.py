"""Searches in which a code separates rows, and each query has a K, radius and weights."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.kernels.accumulators import CountAccumulator, KNearestAccumulator, QueryTiles
from lpe_dask.kernels.algorithms import ALGORITHMS
from lpe_dask.kernels.basis import GroupPoints
from lpe_dask.kernels.blocks import Block
from lpe_dask.kernels.initial_limits import MAX_SEEDED

pytestmark = pytest.mark.usefixtures("either_way")


def squares(rows, queries, weights, own):
    """The squared distance of each pair; inf in another group, or of a row to itself."""
    d = rows.shape[1] - 1
    of_pairs = np.zeros((len(queries), len(rows)))
    for k in range(d):  # added in the order of the columns
        delta = queries[:, None, k] - rows[None, :, k]
        of_pairs += delta * delta * weights[:, k, None]
    of_pairs[queries[:, None, d] != rows[None, :, d]] = np.inf
    if own is not None:
        of_pairs[np.arange(len(queries)), own] = np.inf
    return of_pairs


def folded(algorithm, rows, queries, own, make, weights=None, tables=None):
    """Fold all rows, in two blocks, into a state of the queries."""
    module = ALGORITHMS[algorithm]
    basis = module.basis(rows, None, 1, separates=True)
    if weights is not None:  # as `choose_space` does
        of_groups = GroupPoints(np.zeros((len(weights), 2)), weights[:, :-1])
        basis = replace(basis, center=np.zeros(2), groups=of_groups)
    points = basis.points(queries)
    numbers = np.full(len(queries), -1) if own is None else own
    tiles = QueryTiles(
        queries, points, module.tile(points, QueryTiles.TILE_ROWS), numbers, basis,
        tables, weights,
    )  # fmt: skip
    state = make(tiles, basis)
    for part in np.array_split(np.arange(len(rows)), 2):
        block = Block.build(rows[part], part, module.arrange, basis, module.SLAB_ROWS)
        if len(part) and state.may_need(*block.box()):
            state.fold(block)
    return state.finish()


@pytest.mark.parametrize("algorithm", ["brute", "pruned"])
@given(seed=st.integers(0, 10**6), with_own=st.booleans(), n_groups=st.integers(1, 9))
def test_searches__keep_to_the_group_with_its_k_and_radius(
    algorithm, seed, with_own, n_groups
):
    """On a grid: ties, repeated rows, groups without rows, K around `MAX_SEEDED`."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(2, 260))
    rows = rng.integers(0, 5, (n_rows, 3)).astype(float)
    rows[:, 2] = rng.integers(0, n_groups, n_rows)
    own, queries = np.arange(n_rows), rows
    if not with_own:
        own, queries = None, rng.integers(-1, 7, (70, 3)).astype(float)
        queries[:, 2] = rng.integers(0, n_groups + 1, 70)
    codes = queries[:, 2].astype(int)
    of_groups = rng.choice([1, 2, 7, MAX_SEEDED, MAX_SEEDED + 1], n_groups + 1)
    wanted, radii = of_groups[codes], rng.choice([0.0, 1.0, 2.5], n_groups + 1)[codes]
    ones = np.ones((len(queries), 2))
    expected = np.sort(squares(rows, queries, ones, own), axis=1)
    expected = np.hstack([expected, np.full((len(queries), MAX_SEEDED + 1), np.inf)])

    radius = folded(
        algorithm, rows, queries, own, lambda *on: KNearestAccumulator(*on, wanted)
    )
    counts = folded(algorithm, rows, queries, own, lambda *on: CountAccumulator(*on, radii))

    kth = np.sqrt(expected[np.arange(len(queries)), wanted - 1])
    np.testing.assert_array_equal(radius, kth)
    within = (expected <= (radii * radii)[:, None]).sum(axis=1)
    np.testing.assert_array_equal(counts, within)


@pytest.mark.parametrize("algorithm", ["brute", "pruned"])
@pytest.mark.parametrize("n_groups", [1, 6])
def test_searches__weigh_columns_by_the_group(algorithm, n_groups):
    rng = np.random.default_rng(n_groups)
    rows = np.c_[rng.standard_normal((400, 2)), rng.integers(0, n_groups, 400)]
    weights = np.c_[rng.uniform(1, 4, (n_groups, 2)), np.full(n_groups, np.inf)]
    codes = rows[:, 2].astype(int)
    wanted = np.array([3, 5, 8, 1, 2, 4])[codes]
    own = np.arange(400)

    found = folded(
        algorithm, rows, rows, own, lambda *on: KNearestAccumulator(*on, wanted),
        weights, codes,
    )  # fmt: skip

    expected = np.sort(squares(rows, rows, weights[codes], own), axis=1)
    kth = np.sqrt(expected[own, wanted - 1])
    np.testing.assert_array_equal(found, kth)

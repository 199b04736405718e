"""Each pair summed once for both rows: the bits of the definition from half the pairs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from choosing import mostly_dealt
from lpe_dask.kernels import PairSearch, merged
from lpe_dask.kernels.initial_limits import MAX_SEEDED
from searching import HARD_POINTS, SAMPLES, all_distances, in_blocks, parts_of, smallest
from strategies import point_sets, row_parts

AGGREGATIONS = ("kth", "mean")


def measured(reference, n_neighbors, aggregation="kth", n_shares=1):
    """Return the statistic of all rows from all pairs of blocks, and pairs compared."""
    search, blocks = PairSearch(reference.basis, n_neighbors), reference.blocks
    within = [search.within(block) for block in blocks]
    limits = [search.limits(squares) for squares in within]
    parts = [[squares] for squares in within]
    for i, j in combinations(range(len(blocks)), 2):
        edges = np.arange(n_shares + 1) * blocks[i].n_rows // n_shares
        found = [
            search.between(blocks[i], blocks[j], slice(*which), limits[i], limits[j])
            for which in np.stack([edges[:-1], edges[1:]], axis=1)
        ]
        parts[i].append(np.concatenate([own for own, _ in found]))
        parts[j].extend(others for _, others in found)
    statistic = np.empty(sum(block.n_rows for block in blocks))
    for block, of_block in zip(blocks, parts, strict=True):
        statistic[block.numbers] = merged(of_block, n_neighbors, aggregation)
    return statistic, search.n_compared


def kth_distances(rows, n_neighbors, **weights):
    distances = all_distances(rows, rows, exclude_self=True, **weights)
    return smallest(distances, n_neighbors)[0][:, -1]


@given(data=st.data(), points=point_sets())
def test_pairs__equal_definition_for_any_blocks(data, points):
    n_neighbors = data.draw(st.integers(1, 6))
    parts = data.draw(row_parts(len(points)))
    n_shares = data.draw(st.integers(1, 3))
    radii = {"kth": definitions.knn_radii, "mean": definitions.mean_radii}

    for aggregation in AGGREGATIONS:
        reference = in_blocks("brute", points, parts)
        actual, _ = measured(reference, n_neighbors, aggregation, n_shares)

        expected = radii[aggregation](points, points, n_neighbors, exclude_self=True)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("name", "sample", "n_blocks"), mostly_dealt(HARD_POINTS, SAMPLES, (1, 3))
)
def test_pairs__equal_definition_on_hard_data(name, sample, n_blocks):
    points = HARD_POINTS[name]
    parts = parts_of(len(points), n_blocks)
    reference = in_blocks("brute", points, parts, sample=points[: SAMPLES[sample]])

    for n_neighbors in (1, 3, PairSearch.MAX_NEIGHBORS):
        actual, _ = measured(reference, n_neighbors, n_shares=2)

        np.testing.assert_array_equal(actual, kth_distances(points, n_neighbors))


def many_rows(kind, n_features):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((700, n_features))
    if kind == "ties":  # more of them than a reservoir has places
        rows[::2] = rows[rng.integers(5, size=350) * 2]
    elif kind == "ascending":  # each row is nearer to the next than to all before
        rows = rows * 1e-3 + np.arange(700)[:, None] ** 1.5
    elif kind == "equal":
        rows[:] = rows[0]
    return rows.astype(np.float32)


@pytest.mark.parametrize("n_features", [3, 70, 300])
@pytest.mark.parametrize("kind", ["normal", "ties", "ascending", "equal"])
def test_pairs__fill_reservoirs_and_parts_of_features(kind, n_features):
    rows = many_rows(kind, n_features)

    for n_blocks in (1, 2):
        reference = in_blocks("brute", rows, parts_of(700, n_blocks), cell_rows=256)
        actual, _ = measured(reference, 20, n_shares=2)

        np.testing.assert_array_equal(actual, kth_distances(rows, 20))


def test_pairs__heed_weights():
    rows = many_rows("normal", 5)
    w = np.array([1.0, 4.0, 0.0, 2.0, 1.0])
    reference = in_blocks("brute", rows, parts_of(700, 2), w=w)

    actual, _ = measured(reference, 7)

    np.testing.assert_array_equal(actual, kth_distances(rows, 7, w=w))


def test_pairs__are_compared_once():
    """But for the tile, and the group, of rows that a row itself is in."""
    n_rows = 4096
    rows = np.random.default_rng(0).standard_normal((n_rows, 3))

    for n_blocks in (1, 2, 4):
        reference = in_blocks("brute", rows, parts_of(n_rows, n_blocks), cell_rows=1024)
        _, n_compared = measured(reference, 5)

        n_pairs = n_rows * (n_rows - 1) // 2
        assert n_pairs <= n_compared <= n_pairs + n_rows * (256 / 2 + 64)


def test_pairs__that_can_change_nothing_are_left_out():
    """Where each row has K equal ones in its own block, none of another is compared."""
    rows = np.repeat(np.random.default_rng(0).standard_normal((20, 3)), 40, axis=0)
    parts = [np.arange(i, 800, 2) for i in range(2)]
    reference = in_blocks("brute", rows, parts)
    search, (own, others) = PairSearch(reference.basis, 10), reference.blocks
    limits = [search.limits(search.within(block)) for block in (own, others)]
    n_within = search.n_compared

    found = search.between(own, others, slice(0, 400), *limits)

    assert search.n_compared == n_within > 0
    assert all(np.isinf(squares).all() for squares in found)


def test_most_neighbors__are_those_that_first_rows_give_limits_for():
    assert PairSearch.MAX_NEIGHBORS <= MAX_SEEDED

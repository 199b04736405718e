"""Counts that are told what is enough: the same decisions, and less to compare."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from searching import EXACT, all_distances, in_blocks, parts_of, search_within
from strategies import point_sets, row_parts

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.mark.parametrize("algorithm", EXACT)
@given(data=st.data(), points=point_sets(max_rows=20))
def test_fold_counts__decides_alike_when_told_what_is_enough(algorithm, data, points):
    radius = data.draw(st.sampled_from(np.unique(all_distances(points, points))))
    enough = data.draw(st.integers(1, len(points) + 1))
    parts = data.draw(row_parts(len(points)))
    reference = in_blocks(algorithm, points, parts)
    numbers = np.arange(len(points))

    counts = search_within(reference, points, radius, numbers, enough=enough).finish()

    expected = definitions.neighbor_counts(points, points, radius, exclude_self=True)
    np.testing.assert_array_equal(counts >= enough, expected >= enough)
    np.testing.assert_array_equal(counts[expected < enough], expected[expected < enough])


@pytest.mark.parametrize("algorithm", EXACT)
def test_fold_counts__leaves_out_queries_that_have_enough(algorithm):
    """A count of pairs, not a time: what is decided is not looked at again."""
    rng = np.random.default_rng(0)
    dense, sparse = 0.1 * rng.standard_normal((3000, 2)), 9 * rng.standard_normal((200, 2))
    points = rng.permutation(np.concatenate([dense, sparse]))
    reference = in_blocks(algorithm, points, parts_of(3200, 4))
    numbers = np.arange(3200)

    all_counted = search_within(reference, points, 0.3, numbers)
    decided = search_within(reference, points, 0.3, numbers, enough=20)

    is_enough = all_counted.finish() >= 20
    assert 0 < is_enough.sum() < 3200
    np.testing.assert_array_equal(decided.finish() >= 20, is_enough)
    assert decided.n_compared < all_counted.n_compared / 3

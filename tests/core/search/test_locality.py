"""Regions of near rows: every point gets one, about as many points each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.search.locality import by_nearest_box, learn_regions
from strategies import point_sets


def regions_of(points, boxes):
    """Return the number of the region of each point."""
    order, starts = by_nearest_box(points, boxes)
    assert sorted(order) == list(range(len(points)))
    regions = np.empty(len(points), int)
    regions[order] = np.repeat(np.arange(len(boxes[0])), np.diff(starts))
    return regions


@given(data=st.data(), points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_regions__are_the_nearest_and_do_not_depend_on_other_points(
    data, points, n_regions
):
    """A region can be found chunk by chunk; what is equal is not divided."""
    lows, highs = boxes = learn_regions(points, n_regions)
    queries = data.draw(point_sets(max_rows=20, n_features=points.shape[1]))
    cut = data.draw(st.integers(0, len(queries)))

    regions = regions_of(queries, boxes)

    assert 1 <= len(lows) <= min(n_regions, len(points))
    parts = [regions_of(part, boxes) for part in (queries[:cut], queries[cut:])]
    np.testing.assert_array_equal(regions, np.concatenate(parts))
    gaps = queries[:, None] - np.clip(queries[:, None], lows, highs)
    squares = (gaps**2).sum(axis=2)
    of_regions = squares[np.arange(len(queries)), regions]
    np.testing.assert_allclose(of_regions, squares.min(axis=1))


@given(points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_learn_regions__has_a_box_around_every_point(points, n_regions):
    lows, highs = learn_regions(points, n_regions)

    is_within = ((lows <= points[:, None]) & (points[:, None] <= highs)).all(axis=2)
    assert is_within.any(axis=1).all()


@pytest.mark.parametrize("n_regions", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("n_features", [1, 5])
def test_regions__hold_about_as_many_points_each(n_regions, n_features):
    points = np.random.default_rng(0).standard_normal((5000, n_features))

    boxes = learn_regions(points, n_regions)

    sizes = np.bincount(regions_of(points, boxes), minlength=n_regions)
    assert len(boxes[0]) == n_regions
    assert sizes.min() >= 0.8 * 5000 / n_regions - 2
    assert sizes.max() <= 1.2 * 5000 / n_regions + 2


def test_regions__hold_about_as_many_new_points_each():
    sample, points = np.random.default_rng(0).standard_normal((2, 20_000, 5))

    regions = regions_of(points, learn_regions(sample[:2000], 16))

    sizes = np.bincount(regions, minlength=16)
    assert sizes.min() >= 0.5 * len(points) / 16
    assert sizes.max() <= 2 * len(points) / 16

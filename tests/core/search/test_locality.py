"""Parts of near rows: every point gets one, about as many points each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.search.locality import learn_split
from strategies import point_sets


@given(points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_regions__give_every_point_one_region(points, n_regions):
    split = learn_split(points, n_regions)

    regions = split.regions(points)

    assert regions.shape == (len(points),)
    assert 1 <= split.n_regions <= n_regions
    assert ((regions >= 0) & (regions < split.n_regions)).all()


@given(points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_regions__are_the_same_for_equal_points(points, n_regions):
    """However many there are: what is equal is not divided."""
    split = learn_split(points, n_regions)

    regions = split.regions(np.concatenate([points, points[::-1]]))

    for point in points:
        is_equal = (np.concatenate([points, points[::-1]]) == point).all(axis=1)
        assert len(np.unique(regions[is_equal])) == 1


@given(data=st.data(), points=point_sets(max_rows=20), n_regions=st.integers(1, 30))
def test_regions__do_not_depend_on_the_other_points(data, points, n_regions):
    """A region can be found chunk by chunk."""
    split = learn_split(points, n_regions)
    cut = data.draw(st.integers(0, len(points)))

    regions = [*split.regions(points[:cut]), *split.regions(points[cut:])]

    np.testing.assert_array_equal(regions, split.regions(points))


@pytest.mark.parametrize("n_regions", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("n_features", [1, 5])
def test_regions__hold_about_as_many_points_each(n_regions, n_features):
    points = np.random.default_rng(0).standard_normal((5000, n_features))

    split = learn_split(points, n_regions)

    sizes = np.bincount(split.regions(points), minlength=n_regions)
    assert split.n_regions == n_regions
    assert sizes.min() >= 0.8 * 5000 / n_regions - 2
    assert sizes.max() <= 1.2 * 5000 / n_regions + 2


def test_regions__hold_near_points():
    """Four clusters, four regions: each cluster is one."""
    cluster = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], 50))
    centers = np.array([[0.0, 0.0], [0.0, 100.0], [900.0, 0.0], [900.0, 100.0]])
    points = centers[cluster] + np.random.default_rng(1).standard_normal((200, 2))

    regions = learn_split(points, 4).regions(points)

    np.testing.assert_array_equal([len(set(regions[cluster == c])) for c in range(4)], 1)
    assert len(set(regions)) == 4


def test_regions__of_no_points():
    split = learn_split(np.arange(10.0)[:, None], 4)

    assert split.regions(np.empty((0, 1))).shape == (0,)

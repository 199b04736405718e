"""Parts of near rows: every point gets one, about as many points each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpe_dask.search.locality import learn_split
from strategies import point_sets


@given(points=point_sets(max_rows=20), n_parts=st.integers(1, 30))
def test_parts__give_every_point_one_part(points, n_parts):
    split = learn_split(points, n_parts)

    parts = split.parts(points)

    assert parts.shape == (len(points),)
    assert 1 <= split.n_parts <= n_parts
    assert ((parts >= 0) & (parts < split.n_parts)).all()


@given(points=point_sets(max_rows=20), n_parts=st.integers(1, 30))
def test_parts__are_the_same_for_equal_points(points, n_parts):
    """However many there are: what is equal is not divided."""
    split = learn_split(points, n_parts)

    parts = split.parts(np.concatenate([points, points[::-1]]))

    for point in points:
        is_equal = (np.concatenate([points, points[::-1]]) == point).all(axis=1)
        assert len(np.unique(parts[is_equal])) == 1


@given(data=st.data(), points=point_sets(max_rows=20), n_parts=st.integers(1, 30))
def test_parts__do_not_depend_on_the_other_points(data, points, n_parts):
    """A part can be found chunk by chunk."""
    split = learn_split(points, n_parts)
    cut = data.draw(st.integers(0, len(points)))

    parts = [*split.parts(points[:cut]), *split.parts(points[cut:])]

    np.testing.assert_array_equal(parts, split.parts(points))


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("n_features", [1, 5])
def test_parts__hold_about_as_many_points_each(n_parts, n_features):
    points = np.random.default_rng(0).standard_normal((5000, n_features))

    split = learn_split(points, n_parts)

    sizes = np.bincount(split.parts(points), minlength=n_parts)
    assert split.n_parts == n_parts
    assert sizes.min() >= 0.8 * 5000 / n_parts - 2
    assert sizes.max() <= 1.2 * 5000 / n_parts + 2


def test_parts__are_about_even_for_points_that_the_sample_did_not_hold():
    rng = np.random.default_rng(0)
    split = learn_split(rng.standard_normal((4000, 3)), 8)

    sizes = np.bincount(split.parts(rng.standard_normal((20_000, 3))), minlength=8)

    assert 0.8 * 2500 < sizes.min() <= sizes.max() < 1.2 * 2500


def test_parts__hold_near_points():
    """Four clusters, four parts: each cluster is one."""
    cluster = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], 50))
    centers = np.array([[0.0, 0.0], [0.0, 100.0], [900.0, 0.0], [900.0, 100.0]])
    points = centers[cluster] + np.random.default_rng(1).standard_normal((200, 2))

    parts = learn_split(points, 4).parts(points)

    np.testing.assert_array_equal([len(set(parts[cluster == c])) for c in range(4)], 1)
    assert len(set(parts)) == 4


def test_learn_split__has_no_more_parts_than_points():
    points = np.arange(3.0)[:, None]

    split = learn_split(points, 10)

    assert split.n_parts == 3
    np.testing.assert_array_equal(np.sort(split.parts(points)), [0, 1, 2])


@pytest.mark.parametrize("n_parts", [1, 2, 8])
def test_learn_split__of_equal_points_has_them_in_one_part(n_parts):
    points = np.full((50, 2), 0.1)

    split = learn_split(points, n_parts)

    assert len(set(split.parts(points))) == 1
    assert split.n_parts <= n_parts


def test_parts__of_no_points():
    split = learn_split(np.arange(10.0)[:, None], 4)

    assert split.parts(np.empty((0, 1))).shape == (0,)

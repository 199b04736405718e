"""What is learned from the nominal rows: exact, and the same bits for any chunks."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import definitions
from lpe_dask.model.learning.scaling import learn_covariance, learn_scaling, learn_variances
from strategies import point_sets, row_chunks


@given(
    data=st.data(), points=point_sets(), scale=st.sampled_from([None, "minmax", "standard"])
)
def test_learn_scaling__equals_definition_for_any_chunks(data, points, scale):
    chunks = data.draw(row_chunks(len(points)))
    queries = np.concatenate([points, points[:1] + 0.7])

    scaling = learn_scaling(da.from_array(points, chunks=(chunks, -1)), scale, "abc")

    expected = definitions.scaled(queries, points, scale)
    np.testing.assert_array_equal(scaling.apply(queries), expected)


@given(data=st.data(), points=point_sets(min_rows=2))
def test_learn_covariance__equals_definition_for_any_chunks(data, points):
    chunks = data.draw(row_chunks(len(points)))

    actual, is_constant = learn_covariance(da.from_array(points, chunks=(chunks, -1)))

    expected = [[definitions.covariance(a, b, ddof=1) for b in points.T] for a in points.T]
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(is_constant, (points == points[0]).all(axis=0))


def test_learn_covariance__is_that_of_numpy():
    points = np.random.default_rng(0).standard_normal((500, 4)) * [1, 2, 3, 100] + 50

    actual, _ = learn_covariance(da.from_array(points, chunks=(77, -1)))

    np.testing.assert_allclose(actual, np.cov(points.T), rtol=1e-12)


def test_learn_variances__of_a_constant_column_is_1():
    points = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])

    variances = learn_variances(da.from_array(points, chunks=(2, -1)), ["a", "b"])

    np.testing.assert_array_equal(variances, [1.0, 1.0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.bool_])
@pytest.mark.parametrize("scale", ["minmax", "standard"])
def test_learn_scaling__widens_before_it_subtracts(dtype, scale):
    points = np.array([[0, 1], [1, 1], [100, 0], [255, 1]]).astype(dtype)

    scaling = learn_scaling(da.from_array(points, chunks=(3, -1)), scale, "ab")

    expected = definitions.scaled(points, points, scale)
    np.testing.assert_array_equal(scaling.apply(points), expected)
    assert scaling.apply(points).dtype == np.float64


# The threads of Dask 2026.1 and before do not know the np.errstate of who computes.
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize(
    ("scale", "column", "what"),
    [
        ("minmax", [-1.7e308, 1.7e308, 0.0], "range of big"),
        ("minmax", [0.0, 5e-324, 0.0], "range of big"),
        ("standard", [-1.7e308, 1.7e308, 0.0], "variance of big"),
        ("standard", [0.0, 1e-200, 0.0], "variance of big"),
    ],
)
def test_learn_scaling__says_which_column_cannot_be_scaled(scale, column, what):
    points = da.from_array(np.array([column, [1.0, 2.0, 3.0]]).T, chunks=(2, -1))

    with pytest.raises(ValueError, match=what):
        learn_scaling(points, scale, ["big", "plain"])

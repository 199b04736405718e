"""Means, variances and covariances from exact sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import definitions
from lpe_dask.kernels import exact_moments
from lpe_dask.kernels.exact_moments import Moments

pytestmark = pytest.mark.usefixtures("either_way")

EXTREMES = [0.0, -0.0, 5e-324, -1e-310, 1.0, 1 / 3, -1e9, 2.0**53, 1e200, -1.7e308]
NUMBERS = st.sampled_from(EXTREMES) | st.floats(-10, 10)
ROWS = npst.arrays(
    np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=NUMBERS
)


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("has_products", [False, True])
@given(rows=ROWS, cut=st.integers(0, 12), ddof=st.integers(0, 1))
def test_moments__are_the_definitions_however_rows_are_cut(
    few, has_products, rows, cut, ddof
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_moments, "FEW", few)
        parts = [
            Moments.of(part, has_products=has_products) for part in (rows[:cut], rows[cut:])
        ]
    moments = Moments.add(parts)

    expected = [definitions.mean(column) for column in rows.T]
    np.testing.assert_array_equal(moments.means(), expected)
    variances, is_constant = moments.variances(ddof)
    expected = [definitions.covariance(column, column, ddof) for column in rows.T]
    np.testing.assert_array_equal(variances, expected)
    np.testing.assert_array_equal(is_constant, (rows == rows[0]).all(axis=0))
    if has_products:
        divisors = np.array([3.0, 1e-200, 0.7][: rows.shape[1]])
        for given_divisors in (None, divisors):
            used = np.ones(len(divisors)) if given_divisors is None else divisors
            expected = [
                [
                    definitions.covariance(a, b, ddof, (u, v))
                    for b, v in zip(rows.T, used, strict=False)
                ]
                for a, u in zip(rows.T, used, strict=False)
            ]
            covariance, found = moments.covariance(ddof, given_divisors)
            np.testing.assert_array_equal(covariance, expected)
            np.testing.assert_array_equal(found, is_constant)


@given(rows=ROWS, data=st.data())
def test_moments__with_gaps_are_those_of_what_fills_them(rows, data):
    is_gap = data.draw(npst.arrays(bool, rows.shape))
    values = data.draw(npst.arrays(np.float64, rows.shape[1], elements=NUMBERS))
    gappy, filled = np.where(is_gap, np.nan, rows), np.where(is_gap, values, rows)

    moments = Moments.of(gappy)

    assert moments.n_gaps == tuple(is_gap.sum(axis=0).tolist())
    assert moments.filled(values) == Moments.of(filled)


def test_moments__are_short_for_ordinary_numbers():
    rows = np.random.default_rng(0).standard_normal((5000, 3)) * 1000.0

    moments = Moments.of(rows, has_products=True)

    assert max(whole.bit_length() for whole in moments.products) < 300
    np.testing.assert_allclose(moments.covariance(1)[0], np.cov(rows.T), rtol=1e-9)


def test_moments__of_numbers_far_from_zero_lose_no_digit():
    """Differences from a rounded mean would."""
    rows = np.array([[1e15 + 0.125], [1e15 + 0.25], [1e15 + 0.375]])

    variances, _ = Moments.of(rows).variances(ddof=1)

    assert variances == 0.125**2

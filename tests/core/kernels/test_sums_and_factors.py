"""Exact sums of products, and triangular factors."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import lapack

import definitions
from lpe_dask.kernels import (
    cholesky,
    cholesky_of_inverse,
    dependent_columns,
)
from lpe_dask.kernels.exact_sums import N_LIMBS, Totals, as_float, sum_of_products

pytestmark = pytest.mark.usefixtures("either_way")

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(pairs=st.lists(st.tuples(numbers, numbers), max_size=30), data=st.data())
def test_sum_of_products__is_exact_however_it_is_cut(pairs, data):
    left = np.array([a for a, _ in pairs], dtype=float)
    right = np.array([b for _, b in pairs], dtype=float)
    cut = data.draw(st.integers(0, len(pairs)))

    parts = [
        sum_of_products(left[part], right[part]) for part in (slice(cut), slice(cut, None))
    ]
    actual = as_float(sum(parts))

    exact = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert actual == expected


@pytest.mark.parametrize("extreme", [5e-324, 2.2e-308, 1.7e308, -1.7e308, 0.0, -0.0])
def test_sum_of_products__holds_the_extremes_of_float64(extreme):
    limbs = sum_of_products(np.full(1000, extreme), np.full(1000, extreme))

    expected = 1000 * Fraction(extreme) ** 2
    assert sum(int(limb) << (32 * i) for i, limb in enumerate(limbs)) == expected * 2**2148
    assert limbs.shape == (N_LIMBS,)


def test_sum_of_products__of_many_rows_carries(monkeypatch):
    monkeypatch.setattr("lpe_dask.kernels.exact_sums.ROWS_BETWEEN_CARRIES", 7)
    values = np.random.default_rng(0).standard_normal(1000)

    actual = as_float(sum_of_products(values, np.ones(1000)))

    assert actual == math.fsum(values)


@given(data=st.data(), n_totals=st.integers(1, 4), n_parts=st.integers(1, 4))
def test_totals__are_exact_without_the_limbs_they_do_not_need(data, n_totals, n_parts):
    """Of any magnitudes and signs, also where parts cancel."""
    factors = st.lists(
        st.lists(
            numbers | st.sampled_from([0.0, 1.0, -1.0, 1e-300]), min_size=2, max_size=2
        ),
        min_size=n_totals,
        max_size=n_totals,
    )
    parts = [data.draw(factors) for _ in range(n_parts)]
    split = data.draw(st.integers(1, n_totals))

    def compact(part):
        pairs = [(np.array([a]), np.array([b])) for a, b in part]
        return Totals.join(
            [Totals.of_products(some) for some in (pairs[:split], pairs[split:]) if some]
        )

    actual = Totals.add(compact(part) for part in parts).as_floats()

    for k in range(n_totals):
        limbs = sum(
            sum_of_products(np.array([part[k][0]]), np.array([part[k][1]]))
            for part in parts
        )
        assert actual[k] == as_float(limbs)


def test_totals__of_ordinary_numbers_are_short():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 50, 1000)) * 1000.0

    totals = Totals.of_products(zip(left, right, strict=True))

    assert totals.limbs.shape[1] <= 8
    np.testing.assert_allclose(totals.as_floats(), (left * right).sum(axis=1), rtol=1e-9)


# Triangular factors: their definition in plain loops, and what is singular


def correlations(n_features, spread, seed=0):
    """Correlations with eigenvalues from 1 down to about 10**-spread."""
    rng = np.random.default_rng(seed)
    axes, _ = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    covariance = (axes * np.logspace(0, -spread, n_features)) @ axes.T
    deviations = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviations, deviations)
    return np.tril(correlation) + np.tril(correlation, -1).T


@pytest.mark.parametrize("n_features", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("spread", [0, 4, 8])
def test_factors__equal_plain_loops_bit_for_bit(n_features, spread):
    matrix = correlations(n_features, spread)

    np.testing.assert_array_equal(cholesky(matrix), definitions.cholesky(matrix))
    np.testing.assert_array_equal(
        cholesky_of_inverse(matrix), definitions.cholesky_of_inverse(matrix.tolist())
    )


@pytest.mark.parametrize("spread", [0, 4, 8])
def test_cholesky_of_inverse__is_as_near_as_that_of_lapack(spread):
    """Of random directions, whose squared length the last step of neither knows."""
    matrix = correlations(12, spread, seed=1)
    directions = np.random.default_rng(2).standard_normal((200, 12))

    lengths = ((directions @ cholesky_of_inverse(matrix)) ** 2).sum(axis=1)

    expected = (directions * np.linalg.solve(matrix, directions.T).T).sum(axis=1)
    np.testing.assert_allclose(lengths, expected, rtol=10.0 ** (spread - 14))


@pytest.mark.parametrize("n_features", [2, 5, 9])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-6, 1e-4, 1e-2])
def test_dependent_columns__equal_those_of_lapack(n_features, noise):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n_free = int(rng.integers(1, n_features + 1))
        rows = rng.standard_normal((50, n_free)) @ rng.standard_normal((n_free, n_features))
        correlation = np.corrcoef((rows + noise * rng.standard_normal(rows.shape)).T)

        actual = dependent_columns(correlation, 1e-10)

        _, pivots, rank, _ = lapack.dpstrf(correlation, tol=1e-10, lower=1)
        assert sorted(actual) == sorted(pivots[rank:] - 1)
        assert actual or cholesky_of_inverse(correlation) is not None


@pytest.mark.parametrize(
    "matrix", [[[0.0]], [[-1.0]], [[1.0, 2.0], [2.0, 1.0]], [[1e-300, 1e10], [1e10, 1.0]]]
)
def test_cholesky__of_what_is_not_positive_definite(matrix):
    assert cholesky(np.array(matrix)) is None
    assert cholesky_of_inverse(np.array(matrix)) is None

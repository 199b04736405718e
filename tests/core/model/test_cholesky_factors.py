"""Triangular factors: their definition in plain loops, and what is singular."""

import numpy as np
import pytest
from scipy.linalg import lapack

import definitions
from lpe_dask.model.learning.cholesky_factors import (
    cholesky,
    cholesky_of_inverse,
    dependent_columns,
)


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

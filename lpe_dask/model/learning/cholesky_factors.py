r"""Triangular factors of small symmetric matrices, the same bits on every machine.

LAPACK adds up in the order that suits the processor, and p-values compare distances for
equality. Here a step takes one column out of all that remains, number by number, by
operations that IEEE 754 rounds in one way only::

    rest (d, d) --column k / sqrt(pivot)--> factor[:, k];  rest - column column'

There are no sums of NumPy in it, which have an order of their own, nor BLAS.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def cholesky(matrix: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the lower triangular L with ``matrix = L L'`` and a positive diagonal.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Symmetric and finite.

    Returns
    -------
    factor : ndarray of shape (d, d), or None
        None if the matrix is not positive definite, or not up to rounding.

    Examples
    --------
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 10.0]]))
    array([[2., 0.],
           [1., 3.]])
    """
    rest, factor = matrix.copy(), np.zeros_like(matrix)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(len(matrix)):
            pivot = rest[k, k]
            if not 0 < pivot < math.inf:
                return None
            root = math.sqrt(pivot)
            column = rest[k:, k] / root
            column[0] = root
            factor[k:, k] = column
            rest[k:, k:] -= column[:, None] * column
    return factor


def cholesky_of_inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return `cholesky` of the inverse of ``matrix``, without the inverse.

    The last column is taken out first: ``matrix = U U'`` for an upper triangular U, and the
    transposed inverse of U is lower triangular.

    Examples
    --------
    >>> factor = cholesky_of_inverse(np.array([[4.0, 2.0], [2.0, 10.0]]))
    >>> np.linalg.inv(factor @ factor.T).round(6)
    array([[ 4.,  2.],
           [ 2., 10.]])
    """
    factor = cholesky(matrix[::-1, ::-1])
    if factor is None:
        return None
    inverse = np.eye(len(matrix))
    for k in range(len(matrix)):
        inverse[k] /= factor[k, k]
        inverse[k + 1 :] -= factor[k + 1 :, k, None] * inverse[k]
    return np.ascontiguousarray(inverse[::-1, ::-1].T)


def dependent_columns(covariance: NDArray[np.float64], share: float) -> list[int]:
    """Return columns of which the others leave a variance of at most ``share``.

    Of those that remain the column of the largest variance is taken out first, so that few
    are left, and these are the ones that others determine best.

    Parameters
    ----------
    covariance : ndarray of shape (d, d)
        Symmetric and finite.
    share : float

    Examples
    --------
    >>> covariance = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    >>> dependent_columns(covariance, share=1e-10)
    [2]
    """
    rest, left = covariance.copy(), list(range(len(covariance)))
    while left:
        variances = rest.diagonal()[left]
        k = left[int(np.argmax(variances))]
        if not rest[k, k] > share:
            break
        column = rest[:, k] / math.sqrt(rest[k, k])
        rest -= column[:, None] * column
        left.remove(k)
    return left

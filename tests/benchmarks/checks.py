"""Whether a result is right. A time counts only if its result passed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.contract import Array, Problem

#: Rows that are compared with the definition.
N_JUDGED = 100


def check_radii(
    result: Array, problem: Problem, expected: Array | None, tolerance: float
) -> dict[str, float]:
    """Raise AssertionError where a radius is farther off than a relative tolerance.

    Compared are all rows with those of the first contender, if it had the same problem
    (``expected``), and otherwise a few rows with the definition.
    """
    actual, desired = _side_by_side(result, problem, expected)
    np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=0)
    return {}


def share_off(result: Array, problem: Problem, expected: Array | None) -> dict[str, float]:
    """Return the share of rows whose radius is ``off`` by more than a hundredth."""
    actual, desired = _side_by_side(result, problem, expected)
    return {"off": float(np.mean(np.abs(actual - desired) > 0.01 * desired))}


def reorder_params(result: Array, problem: Problem) -> dict[str, float]:
    """Check p-values or labels: of two judged rows, the farther one has no larger value."""
    rows, queries = problem.rows, problem.queries
    if ("scale", "standard") in problem.arguments:
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    measured = rows if queries is None else queries
    judged = _judged(len(measured))
    own_rows = judged if queries is None else None
    radii = knn_radii(measured[judged], rows, problem.n_neighbors, own_rows)
    # Scaled coordinates differ in the last bits between two implementations.
    is_farther = radii[:, None] > radii * (1 + 1e-9)
    values = result[judged]
    assert np.isfinite(result).all()
    assert (values[:, None] <= values)[is_farther].all(), "farther rows have larger values"
    return {}


def _side_by_side(
    result: Array, problem: Problem, expected: Array | None
) -> tuple[Array, Array]:
    """Return the radii to compare, and those to compare them with."""
    numbers = problem.numbers
    assert len(result) == len(numbers)
    if expected is not None:
        return result, expected[numbers]
    judged = _judged(len(numbers))
    own_rows = numbers[judged]
    rows = problem.rows
    return result[judged], knn_radii(rows[own_rows], rows, problem.n_neighbors, own_rows)


def _judged(n_rows: int) -> NDArray[np.integer]:
    return np.random.default_rng(0).choice(n_rows, min(N_JUDGED, n_rows), replace=False)


def knn_radii(
    queries: Array,
    reference: Array,
    n_neighbors: int,
    own_rows: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Return the distance from each query to its K-th nearest reference row, in float64.

    `definitions.knn_radii` loops over the coordinates of every pair; here NumPy does the
    same sums, in the same order, for one query and all rows at once. A test holds the two
    together.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
    reference : ndarray of shape (n_reference, n_features)
    n_neighbors : int
        K, less than ``n_reference``.
    own_rows : ndarray of shape (n_queries,), optional
        Given when the queries are reference rows: their numbers. A row is no neighbor of
        itself.

    Returns
    -------
    radii : ndarray of shape (n_queries,)
    """
    columns = np.ascontiguousarray(reference.T, dtype=np.float64)
    radii = np.empty(len(queries))
    for i, query in enumerate(queries.astype(np.float64)):
        squares = np.zeros(len(reference))
        for column, coordinate in zip(columns, query, strict=True):
            difference = column - coordinate
            squares += difference * difference
        if own_rows is not None:
            squares[own_rows[i]] = np.inf
        radii[i] = np.sqrt(np.partition(squares, n_neighbors - 1)[n_neighbors - 1])
    return radii

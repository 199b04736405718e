"""Whether a result is right. A time counts only if its result passed.

Each check takes an `Answer`. It raises AssertionError, or returns what there is to tell of
the result, by name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks import strict
from benchmarks.contract import Answer, Check, Problem

#: Rows that are compared with the definition.
N_JUDGED = 100

#: What float32 sums of squared differences can be off by, relative to a distance: half of
#: d + 2 roundings of 6e-8, at the eight features that trees are given at most. Sums in
#: float64 that are rounded to float32 at the end are closer.
DIFFERENCES = 1e-6

#: The same for ``|x|^2 - 2 x.y + |y|^2`` in float32. Its error is absolute, some 1e-7 of
#: the squared norms, so the densest rows are the worst: a K-th distance of 0.03 at norms of
#: 1 (two features, 100,000 rows) may be off by 1e-4, and a few by more. The ``deviation``
#: that is recorded tells how far they really are.
PRODUCTS = 1e-3


def equal_radii(answer: Answer) -> dict[str, float]:
    """Check for equality of every bit: with the first result, else with the definition."""
    if answer.expected is not None:
        np.testing.assert_array_equal(answer.result, answer.expected)
        return {}
    judged, radii = _judged_radii(answer.problem)
    assert len(answer.result) == len(answer.problem.rows)
    np.testing.assert_array_equal(answer.result[judged], radii)
    return {}


def close_radii(tolerance: float) -> Check:
    """Return the check for equality up to a relative ``tolerance``.

    It tells the largest relative ``deviation``. Without a first result to compare with, the
    definition judges a few rows.
    """

    def check(answer: Answer) -> dict[str, float]:
        actual, desired = _side_by_side(answer)
        np.testing.assert_allclose(actual, desired, rtol=tolerance)
        return {"deviation": float(np.max(np.abs(actual / desired - 1)))}

    return check


def share_off(answer: Answer) -> dict[str, float]:
    """Tell the share of rows whose radius is off by more than a hundredth."""
    actual, desired = _side_by_side(answer)
    return {"off": float(np.mean(np.abs(actual - desired) > 0.01 * desired))}


def falling_with_radii(answer: Answer) -> dict[str, float]:
    """Check p-values or labels: of two judged rows, the farther one has no larger value."""
    judged, radii = _judged_radii(answer.problem)
    # Scaled coordinates differ in the last bits between two implementations.
    is_farther = radii[:, None] > radii * (1 + 1e-9)
    values = answer.result[judged]
    assert np.isfinite(answer.result).all()
    assert (values[:, None] <= values)[is_farther].all(), "farther rows have larger values"
    return {}


def p_values_of_labels(answer: Answer) -> dict[str, float]:
    """Check p-values, also against the labels that are ``expected``."""
    if answer.expected is not None:
        labels = np.where(answer.result <= answer.problem.arguments["alpha"], -1, 1)
        np.testing.assert_array_equal(labels, answer.expected)
    return falling_with_radii(answer)


def _side_by_side(answer: Answer) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return the radii to compare, and those to compare them with."""
    result, problem, sample, expected = answer
    rows = np.arange(len(problem.rows)) if sample is None else sample
    assert len(result) == len(rows)
    if expected is not None:
        return result, expected[rows]
    step = -(-len(rows) // N_JUDGED)
    judged = rows[::step]
    desired = strict.knn_radii(
        problem.rows[judged], problem.rows, problem.n_neighbors, judged
    )
    return result[::step], desired


def _judged_radii(problem: Problem) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return numbers of some rows (or queries) and their radii by the definition."""
    rows, queries = problem.rows, problem.queries
    if problem.arguments.get("scale") == "standard":
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    n_judgeable = len(rows) if queries is None else len(queries)
    n_judged = min(N_JUDGED, n_judgeable)
    judged = np.random.default_rng(0).choice(n_judgeable, n_judged, replace=False)
    if queries is None:
        radii = strict.knn_radii(rows[judged], rows, problem.n_neighbors, judged)
    else:
        radii = strict.knn_radii(queries[judged], rows, problem.n_neighbors)
    return judged, radii

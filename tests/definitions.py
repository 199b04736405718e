"""The definitions, written as plainly as possible: what the library is tested against.

Everything here is quadratic, in double precision or exact fractions, imports nothing from
lpe_dask, and must stay readable beside the paper. Speed is no concern.
"""

import math
from fractions import Fraction

import numpy as np


def distance(x, y):
    """Euclidean: squared differences summed in coordinate order, each step in float64."""
    total = 0.0
    for a, b in zip(x, y, strict=True):
        difference = float(a) - float(b)
        total += difference * difference
    return math.sqrt(total)


def knn_radii(queries, reference, n_neighbors, exclude_self=False):
    """R_S of each query: the distance to its K-th nearest reference row; inf if none."""
    radii = []
    for i, query in enumerate(queries):
        distances = sorted(
            distance(query, row)
            for j, row in enumerate(reference)
            if not (exclude_self and i == j)
        )
        radii.append(
            distances[n_neighbors - 1] if len(distances) >= n_neighbors else math.inf
        )
    return np.array(radii, dtype=float)


def neighbor_counts(queries, reference, radius, exclude_self=False):
    """N_S of each query: the reference rows in the closed ball around it."""
    counts = []
    for i, query in enumerate(queries):
        within = [
            distance(query, row) <= radius
            for j, row in enumerate(reference)
            if not (exclude_self and i == j)
        ]
        counts.append(sum(within))
    return np.array(counts, dtype=float)


def knn_p_value(radius, nominal_radii):
    """Equation (1): the share of nominal rows with R_S(x_i) >= R_S(eta)."""
    return sum(bool(r >= radius) for r in nominal_radii) / len(nominal_radii)


def radius_p_value(count, nominal_counts):
    """Equation (2): the share of nominal rows with N_S(x_i) <= N_S(eta)."""
    return sum(bool(c <= count) for c in nominal_counts) / len(nominal_counts)


def neighbors_rule(n):
    return max(1, min(n - 1, round(n**0.4)))


def radius_rule(n, d):
    return n ** (-3 / (5 * d)) * math.sqrt(d / (2 * math.pi * math.e))


def mean(values):
    """The exact sum, rounded once, divided by the number; a constant's mean is itself."""
    if min(values) == max(values):
        return float(values[0])
    return float(sum(Fraction(float(v)) for v in values)) / len(values)


def covariance(left, right, ddof):
    """The exact sum of products of (rounded) differences from the means, rounded once."""
    left_mean, right_mean = mean(left), mean(right)
    total = Fraction(0)
    for a, b in zip(left, right, strict=True):
        total += Fraction(float(a) - left_mean) * Fraction(float(b) - right_mean)
    return float(total) / (len(left) - ddof)


def scaled(rows, nominal, scale):
    """Columns scaled by what the nominal rows say; a constant column keeps its unit."""
    result = np.array(rows, dtype=float)
    for k in range(result.shape[1]):
        column = [float(value) for value in nominal[:, k]]
        low, high = min(column), max(column)
        for i in range(len(result)):
            x = result[i, k]
            if scale is None:
                continue
            if low == high:
                result[i, k] = x - low
            elif scale == "minmax":
                result[i, k] = (x - low) * (1.0 / (high - low))
            elif scale == "standard":
                deviation = math.sqrt(covariance(column, column, ddof=0))
                result[i, k] = (x - mean(column)) / deviation
    return result


def weighted(rows, weights):
    """z = sqrt(w) x."""
    return np.array(
        [
            [math.sqrt(w) * float(x) for w, x in zip(weights, row, strict=True)]
            for row in rows
        ]
    )


def standardized(rows, variances):
    """z = x / sqrt(V)."""
    return np.array(
        [
            [float(x) / math.sqrt(v) for v, x in zip(variances, row, strict=True)]
            for row in rows
        ]
    )


def whitened(rows, inverse_covariance):
    """z = L' x with VI = L L', summed in column order."""
    factor = np.linalg.cholesky(inverse_covariance)
    result = []
    for row in rows:
        z = []
        for j in range(len(row)):
            total = 0.0
            for i, x in enumerate(row):
                total += float(x) * float(factor[i, j])
            z.append(total)
        result.append(z)
    return np.array(result)

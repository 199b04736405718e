"""The definitions, written as plainly as possible: what the library is tested against.

Everything here is quadratic, in double precision or exact fractions, imports nothing from
lpe_dask, and must stay readable beside the paper. Speed is no concern.
"""

import math
from fractions import Fraction

import numpy as np


def distance(x, y, weights=(), w=None):
    """Euclidean: squared differences times w, summed in coordinate order, in float64.

    The last len(weights) values are categories: each that differs then adds its weight. A
    column of weight 0 is left out.
    """
    total = 0.0
    n_numbers = len(x) - len(weights)
    w = [1.0] * n_numbers if w is None else w
    for a, b, factor in zip(x[:n_numbers], y[:n_numbers], w, strict=True):
        if factor != 0:
            difference = float(a) - float(b)
            total += difference * difference * float(factor)
    for a, b, weight in zip(x[n_numbers:], y[n_numbers:], weights, strict=True):
        if a != b:
            total += float(weight)
    return math.sqrt(total)


def knn_radii(queries, reference, n_neighbors, exclude_self=False, weights=(), w=None):
    """R_S of each query: the distance to its K-th nearest reference row; inf if none."""
    radii = []
    for i, query in enumerate(queries):
        distances = sorted(
            distance(query, row, weights, w)
            for j, row in enumerate(reference)
            if not (exclude_self and i == j)
        )
        radii.append(
            distances[n_neighbors - 1] if len(distances) >= n_neighbors else math.inf
        )
    return np.array(radii, dtype=float)


def mean_of_smallest(distances, n_neighbors):
    """The mean of the K smallest, added ascending from 0.0; inf if fewer are finite."""
    smallest = sorted(d for d in distances if d < math.inf)[:n_neighbors]
    if len(smallest) < n_neighbors:
        return math.inf
    total = 0.0
    for d in smallest:
        total += d
    return total / n_neighbors


def mean_radii(queries, reference, n_neighbors, exclude_self=False, weights=(), w=None):
    """R_S of each query as the mean of the distances to its K nearest reference rows."""
    means = []
    for i, query in enumerate(queries):
        distances = [
            distance(query, row, weights, w)
            for j, row in enumerate(reference)
            if not (exclude_self and i == j)
        ]
        means.append(mean_of_smallest(distances, n_neighbors))
    return np.array(means, dtype=float)


def neighbor_counts(queries, reference, radius, exclude_self=False, weights=(), w=None):
    """N_S of each query: the reference rows in the closed ball around it."""
    counts = []
    for i, query in enumerate(queries):
        within = [
            distance(query, row, weights, w) <= radius
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


def possible_p_values(n_calibration, includes_self=0):
    """Of new rows, ascending: as anomalous as 0, 1, ... nominal rows."""
    counts = range(includes_self, n_calibration + includes_self + 1)
    return np.array([count / (n_calibration + includes_self) for count in counts])


def neighbors_rule(n):
    return max(1, min(n - 1, round(n**0.4)))


def radius_rule(n, d):
    return n ** (-3 / (5 * d)) * math.sqrt(d / (2 * math.pi * math.e))


def mean(values):
    """The exact mean, rounded once."""
    return float(sum(Fraction(float(v)) for v in values) / len(values))


def median(values):
    """The value in the middle of those that are not missing, or the mean of two."""
    ordered = sorted(float(x) for x in values if not math.isnan(x))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else low / 2 + high / 2


def without_gaps(rows, nominal):
    """Numbers, each that is missing as the median of the nominal ones of its column."""
    fill = [median(column) for column in np.array(nominal, dtype=float).T]
    return np.array(
        [
            [f if math.isnan(x) else float(x) for x, f in zip(row, fill, strict=True)]
            for row in rows
        ]
    ).reshape(len(rows), len(fill))


def covariance(left, right, ddof, divisors=(1.0, 1.0)):
    """The exact covariance of columns, each divided by a number, rounded once."""
    left, right = (
        [Fraction(float(x)) / Fraction(divisor) for x in column]
        for column, divisor in zip((left, right), divisors, strict=True)
    )
    left_mean, right_mean = sum(left) / len(left), sum(right) / len(right)
    total = sum(
        (a - left_mean) * (b - right_mean) for a, b in zip(left, right, strict=True)
    )
    exact = total / max(1, len(left) - ddof)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def covariances(nominal, scale):
    """Those of all columns as a scale divides them, or, by quantiles, as it maps them."""
    columns = np.transpose(nominal)
    divisors = [1.0] * len(columns)
    if scale in ("quantile", "minmax+quantile"):
        columns = scaled(nominal, nominal, scale).T
        divisors = [1.0] * len(columns)
    elif scale is not None:
        divisors = [divisor(column, scale) for column in columns]
    return [
        [covariance(a, b, 1, (u, v)) for b, v in zip(columns, divisors, strict=True)]
        for a, u in zip(columns, divisors, strict=True)
    ]


def divisor(column, scale):
    """What a linear scale divides a column by."""
    low, high = float(min(column)), float(max(column))
    if low == high:
        return 1.0
    return high - low if scale == "minmax" else math.sqrt(covariance(column, column, 0))


def sampled_rows(nominal, n_sampled, seed=0):
    """Nominal rows that are drawn without replacement; all of them, if no more."""
    n_drawn = min(n_sampled, len(nominal))
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(nominal), n_drawn, replace=False, shuffle=False)
    return [nominal[number] for number in sorted(drawn)]


def share_below(x, sample):
    """G: the share of a sample below x, and half of the share that equals x."""
    return (sum(v < x for v in sample) + sum(v <= x for v in sample)) / (2 * len(sample))


def knots(column, sample, n_knots=1000):
    """The distinct values of a sample, or order statistics, and the ends of the column."""
    ordered = sorted(sample)
    values = set(ordered)
    if len(values) > n_knots:
        n, last = len(ordered), n_knots - 1
        values = {ordered[round(j * (n - 1) / last)] for j in range(n_knots)}
    return sorted(values | {min(column), max(column)})


def height(x, column, sample, n_knots=1000):
    """F: linear between knots, where it is G, and beyond the ends with slope 1 / range."""
    values = knots(column, sample, n_knots)
    low, high = values[0], values[-1]
    if low == high:
        found = x - low
    elif x < low:
        found = share_below(low, sample) + (x - low) / (high - low)
    elif x >= high:
        found = share_below(high, sample) + (x - high) / (high - low)
    else:
        j = max(j for j, v in enumerate(values) if v <= x)
        v, after = values[j], values[j + 1]
        y, y_after = share_below(v, sample), share_below(after, sample)
        found = min(y_after, y + (y_after - y) * ((x - v) / (after - v)))
    largest = float(np.finfo(float).max)
    return found if math.isinf(x) else min(max(found, -largest), largest)


def quantiles(rows, nominal, sample=None, n_knots=1000):
    """Columns as the share of (a sample of) the nominal rows below them."""
    sample = nominal if sample is None else sample
    columns = [
        [
            float(x)
            if math.isnan(x)
            else height(
                float(x), list(map(float, column)), list(map(float, of_sample)), n_knots
            )
            for x in numbers
        ]
        for numbers, column, of_sample in zip(
            np.transpose(rows), np.transpose(nominal), np.transpose(sample), strict=True
        )
    ]
    return np.array(columns).T.reshape(np.shape(rows))


def forms(rows, nominal, scale, sample=None):
    """What is subtracted: columns as they are, as shares of the nominal rows, or both."""
    rows = np.array(rows, dtype=float)
    if scale == "quantile":
        return quantiles(rows, nominal, sample)
    if scale == "minmax+quantile":
        return np.hstack([rows, quantiles(rows, nominal, sample)])
    return rows


def rounded(x, n_bits=24):
    """A positive number with so many significant bits, the even one of two as near."""
    exponent = math.frexp(x)[1] - n_bits
    return math.ldexp(round(math.ldexp(x, -exponent)), exponent)


def weights_of_forms(nominal, scale, metric="euclidean", params=None):
    """The weight of the squared differences of each form of each column.

    1 / range**2 or 1 / variance, times a given w or 1 / V. Variances that are learned are
    those of the forms; a linear scale cancels out.
    """
    params = params or {}
    columns = [list(map(float, column)) for column in forms(nominal, nominal, scale).T]
    if metric == "seuclidean" and "V" not in params:
        return [
            1.0 if min(c) == max(c) else rounded(1 / covariance(c, c, 1)) for c in columns
        ]
    n_linear = nominal.shape[1]
    learned = [1.0] * len(columns)
    for k, column in enumerate(columns[:n_linear]):
        extent = max(column) - min(column)
        if extent == 0:
            continue
        if scale in ("minmax", "minmax+quantile"):
            learned[k] = rounded(1 / (extent * extent))
        if scale == "standard":
            learned[k] = rounded(1 / covariance(column, column, 0))
    if metric == "seuclidean":
        return [a / float(v) for a, v in zip(learned, params["V"], strict=True)]
    given = list(params.get("w", [1.0] * n_linear)) * (len(columns) // n_linear)
    return [a * float(w) for a, w in zip(learned, given, strict=True)]


def scaled(rows, nominal, scale, sample=None):
    """Columns scaled by what the nominal rows say, as a matrix takes them.

    A constant column keeps its unit.

    For quantiles a sample of the nominal rows says it, if one is given.
    """
    if scale == "quantile":
        return quantiles(rows, nominal, sample)
    if scale == "minmax+quantile":
        both = scaled(rows, nominal, "minmax"), quantiles(rows, nominal, sample)
        return np.hstack(both)
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
                result[i, k] = (x - mean(column)) / divisor(column, scale)
    return result


def cholesky(matrix):
    """Lower triangular L with matrix = L L', products subtracted in column order."""
    n = len(matrix)
    factor = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            left = float(matrix[i][j])
            for k in range(j):
                left -= factor[i][k] * factor[j][k]
            factor[i][j] = math.sqrt(left) if i == j else left / factor[j][j]
    return factor


def cholesky_of_inverse(matrix):
    """Lower triangular L with (L L') matrix = 1, from the last column to the first."""
    n = len(matrix)
    factor = cholesky([row[::-1] for row in matrix[::-1]])
    inverse = [[float(i == j) for j in range(n)] for i in range(n)]
    for i in range(n):
        for j in range(i + 1):
            for k in range(i):
                inverse[i][j] -= factor[i][k] * inverse[k][j]
            inverse[i][j] /= factor[i][i]
    return [[inverse[n - 1 - j][n - 1 - i] for j in range(n)] for i in range(n)]


def whitened(rows, inverse_covariance):
    """z = L' x with VI = L L'."""
    return mapped(rows, cholesky(inverse_covariance))


def mapped(rows, factor):
    """z = L' x, summed in column order."""
    result = []
    for row in rows:
        z = []
        for j in range(len(row)):
            total = 0.0
            for i, x in enumerate(row):
                total += float(x) * factor[i][j]
            z.append(total)
        result.append(z)
    return np.array(result)


def benjamini_hochberg(p_values, q):
    """Flag all p-values up to the largest with p (m / rank) <= q; NaN is none of them.

    The rank of a p-value is the number of p-values that are at most as large.
    """
    known = [p for p in p_values if not math.isnan(p)]
    largest = -math.inf
    for p in known:
        rank = sum(other <= p for other in known)
        if p * (len(known) / rank) <= q:
            largest = max(largest, p)
    return [bool(p <= largest) for p in p_values]


# Geodesic distance: shortest paths along a graph of nearest neighbors.


def nearest_rows(query, reference, n_neighbors, left_out=None, weights=(), w=None):
    """(distance, number) of the K' nearest rows, ties by number; none at distance inf."""
    pairs = sorted(
        (distance(query, row, weights, w), j)
        for j, row in enumerate(reference)
        if j != left_out
    )
    return [(d, j) for d, j in pairs[:n_neighbors] if d < math.inf]


def neighbor_edges(reference, n_neighbors, union=False, w=None):
    """{(i, j): length} of the K'-NN graph; with ``union`` in both directions."""
    edges = {}
    for i, row in enumerate(reference):
        for length, j in nearest_rows(row, reference, n_neighbors, left_out=i, w=w):
            edges[i, j] = length
            if union:
                edges[j, i] = length
    return edges


def path_distances(start, edges, n_reference):
    """From ``{row: distance}``: shortest paths to all rows, relaxed until nothing moves.

    A path is summed from its start on, so this is the least fixed point of
    d(j) = min(d(j), d(i) + length(i, j)).
    """
    distances = [start.get(j, math.inf) for j in range(n_reference)]
    moved = True
    while moved:
        moved = False
        for (i, j), length in edges.items():
            if distances[i] + length < distances[j]:
                distances[j] = distances[i] + length
                moved = True
    return distances


def geodesic_distances(
    queries, reference, n_neighbors, union=False, exclude_self=False, w=None
):
    """For each query its geodesic distances to all (other) rows of the reference."""
    edges = neighbor_edges(reference, n_neighbors, union, w)
    result = []
    for i, query in enumerate(queries):
        if exclude_self:
            start = {i: 0.0}
        else:
            nearest = nearest_rows(query, reference, n_neighbors, w=w)
            start = {j: d for d, j in nearest}
        distances = path_distances(start, edges, len(reference))
        result.append([d for j, d in enumerate(distances) if not (exclude_self and i == j)])
    return result


def geodesic_radii(distances, n_neighbors):
    """R_S from geodesic distances: the K-th smallest of each query; inf if none."""
    padding = [math.inf] * n_neighbors
    return [sorted([*row, *padding])[n_neighbors - 1] for row in distances]


def geodesic_means(distances, n_neighbors):
    """R_S from geodesic distances: the mean of the K smallest of each query."""
    return [mean_of_smallest(row, n_neighbors) for row in distances]


def geodesic_counts(distances, radius):
    """N_S from geodesic distances: how many are at most the radius."""
    return [sum(d <= radius for d in row) for row in distances]


# Other calibrations, and a known density of the anomalies.


def conformal_p_value(n_as_anomalous, n_calibration):
    """(1 + count) / (m + 1), for the number of calibration rows at least as anomalous."""
    return (1 + n_as_anomalous) / (n_calibration + 1)


def log_weighted_radius(radius, log_density, n_features):
    """log(f1 R**d), the larger the more anomalous; 0 density is as nominal as can be."""
    if log_density == -math.inf:
        return -math.inf
    if radius in (0, math.inf):
        return -math.inf if radius == 0 else math.inf
    return log_density + n_features * math.log(radius)


def log_weighted_count(count, log_density):
    """log(N / f1), the smaller the more anomalous."""
    if log_density == -math.inf:
        return math.inf
    return (math.log(count) if count > 0 else -math.inf) - log_density


# Reasons: what each column has to do with a distance, and what it has typically.


def status(row):
    """Whether a row is measured; if not, why."""
    if any(math.isinf(x) for x in row):
        return "infinite value"
    return "missing value" if any(math.isnan(x) for x in row) else "ok"


def squared_parts(x, y, n_columns, weights=(), w=None):
    """What columns add to a squared distance: w_c delta_c**2, or that of a mismatch.

    Values beyond the first n_columns numbers are those columns in another form, again; the
    last len(weights) are categories, as columns of their own.
    """
    n_numbers = len(x) - len(weights)
    parts = [0.0] * (n_columns + len(weights))
    w = [1.0] * n_numbers if w is None else w
    for place in range(n_numbers):
        difference = float(x[place]) - float(y[place])
        if w[place] != 0:
            parts[place % n_columns] += difference * difference * w[place]
    for place, weight in enumerate(weights):
        if x[n_numbers + place] != y[n_numbers + place]:
            parts[n_columns + place] = float(weight)
    return parts


def mahalanobis_parts(x, y, inverse_covariance, n_columns):
    """What columns add to delta' VI delta: delta_c (VI delta)_c, which may be negative."""
    delta = [float(a) - float(b) for a, b in zip(x, y, strict=True)]
    parts = [0.0] * n_columns
    for place, row in enumerate(inverse_covariance):
        product = sum(
            float(v) * difference for v, difference in zip(row, delta, strict=True)
        )
        parts[place % n_columns] += delta[place] * product
    return parts


def shares(distances, parts):
    """The share of each column in the mean distance to some rows; None if there is none.

    The sum over all rows of delta_kc**2 / d_k, by the sum of the d_k. Those at distance 0
    add nothing, those at inf are left out. parts[k][c] is delta_kc**2.
    """
    result = [0.0] * len(parts[0]) if parts else []
    total = sum(d for d in distances if d < math.inf)
    if total == 0:
        return None
    for d, of_row in zip(distances, parts, strict=True):
        for column, part in enumerate(of_row):
            if 0 < d < math.inf:
                result[column] += part / d
    return [share / total for share in result]


def typical_rows(n_rows, most=256, of=4096):
    """The numbers of the rows whose shares are typical: some of those that are usual."""
    drawn = np.random.default_rng(0).choice(n_rows, min(n_rows, of), replace=False)
    return sorted(map(int, drawn))[:: math.ceil(len(drawn) / most)]


def typical_shares(of_rows, n_columns):
    """The mean of shares of rows, and of one more row that has the same of each column."""
    known = [row for row in of_rows if row is not None] + [[1 / n_columns] * n_columns]
    return [sum(row[column] for row in known) / len(known) for column in range(n_columns)]


def telling_order(of_row):
    """The columns by share, falling; equal ones as they stand."""
    return sorted(range(len(of_row)), key=lambda column: -of_row[column])

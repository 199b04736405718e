"""Simulate how often nominal rows are flagged, where scale or metric are learned from rows.

    python tests/false_alarms.py OUT.csv [--rows 50,100] [--columns 2,5] [--draws 20000]

For each number of rows and columns, kind of rows, and what is learned: the share of new
rows with p <= alpha for "loo" and for "conformal", over what is promised, with standard
errors over nominal sets; and what "auto" takes. `make false-alarms` runs all of it, which
takes hours, and prints what docs/calibration.md says.

P-values of few rows are worked out here, by one matrix of distances: a fit of the library
takes longer than all of that (test_false_alarms.py compares the two). Radii of many rows
are the library's.
"""

import argparse
import csv
import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.linalg import solve_triangular

from lpe_dask import LPE
from lpe_dask.model.parameters import neighbors_by_rule
from lpe_dask.model.quantiles import _knots_of_column
from lpe_dask.pvalues.validity import choose_calibration, enough_rows, most_false_alarms
from lpe_dask.search import Knots
from lpe_dask.search.preparation import LinearMap, Preparation, Scaling

ALPHAS = (0.01, 0.05, 0.1)
ROWS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 100_000)
COLUMNS = (2, 5, 10, 20, 50, 100, 200)

#: New rows, and calibration rows of large nominal sets: more would take hours a cell.
MOST_ROWS = 20_000

#: Nominal rows from which on the library is faster than one matrix of distances.
MANY_ROWS = 3000

#: Other rows that quantiles are learned from, to compare with.
OTHER_ROWS = 10_000

#: Nominal sets of a cell at least and at most.
LEAST_SETS, MOST_SETS = 3, 20_000


def normal(rng, n_features):
    return lambda n_rows: rng.standard_normal((n_rows, n_features))


def heavy_tailed(rng, n_features):
    return lambda n_rows: rng.standard_t(3, (n_rows, n_features))


def clustered(rng, n_features):
    """Ten clusters, five times as far from each other as they are wide."""
    centers = 5 * rng.standard_normal((10, n_features))
    return lambda n_rows: (
        centers[rng.integers(10, size=n_rows)] + rng.standard_normal((n_rows, n_features))
    )


KINDS = {"normal": normal, "heavy-tailed": heavy_tailed, "clustered": clustered}


def no_preparation(rows):
    return Preparation()


def by_ranges(rows):
    low, high = rows.min(axis=0), rows.max(axis=0)
    return Preparation(Scaling(shift=low, factor=1 / (high - low)))


def by_variances(rows):
    return Preparation(Scaling(shift=rows.mean(axis=0), divisor=rows.std(axis=0)))


def by_covariance(rows):
    factor = np.linalg.cholesky(np.cov(rows.T).reshape(rows.shape[1], -1))
    inverse = solve_triangular(factor, np.eye(rows.shape[1]), lower=True)
    return Preparation(linear_map=LinearMap(matrix=inverse.T))


def by_quantiles(rows):
    return Preparation(Scaling(knots=knots_of(rows)))


def by_both(rows):
    return Preparation(replace(by_ranges(rows).scaling, knots=knots_of(rows)))


def knots_of(rows):
    """Those of `learn_knots`, of few rows."""
    values, ranks = zip(*(_knots_of_column(column) for column in rows.T), strict=True)
    return Knots(values, ranks, len(rows))


LEARNED = {
    "ranges": by_ranges, "quantiles": by_quantiles, "ranges and quantiles": by_both,
    "variances": by_variances, "covariance": by_covariance,
}  # fmt: skip


def radii(new, reference, n_neighbors, n_own=0):
    """Distances to the K-th nearest: of the first reference rows, sorted, and of new."""
    if len(reference) >= MANY_ROWS:
        model = LPE(n_neighbors, calibration_size=max(n_own, 1)).fit(reference)
        return model.calibration_, model.statistic(new)
    own = nearest(reference[:n_own], reference, n_neighbors, np.arange(n_own))
    return np.sort(own), nearest(new, reference, n_neighbors)


def nearest(queries, reference, n_neighbors, own=None):
    """Distances to the K-th nearest; without the rows of the numbers ``own``."""
    queries, reference = queries.astype(np.float32), reference.astype(np.float32)
    distances = (reference**2).sum(axis=1) - 2 * (queries @ reference.T)
    distances += (queries**2).sum(axis=1)[:, None]
    if own is not None:
        distances[np.arange(len(queries)), own] = np.inf
    distances.partition(n_neighbors - 1, axis=1)
    return np.sqrt(distances[:, n_neighbors - 1])


def applied(preparation, rows):
    """What `Preparation.apply` gives, by BLAS: no tie decides anything here."""
    scaled = preparation.scaling.apply(rows)
    matrix = preparation.linear_map.matrix
    return scaled if matrix is None else scaled @ matrix


def given_by(learned, draw):
    """What "loo" is compared with: nothing learned, or quantiles of other rows.

    Quantiles make other distances, which a linear scale of like columns hardly does.
    """
    if "quantiles" not in learned:
        return no_preparation
    preparation = LEARNED[learned](draw(OTHER_ROWS))
    return lambda rows: preparation


def loo(learn, nominal, new):
    """P-values of new rows, times m, and m."""
    preparation = learn(nominal)
    reference = applied(preparation, nominal)
    m, k = min(len(nominal), MOST_ROWS), neighbors_by_rule(len(nominal))
    calibration, found = radii(applied(preparation, new), reference, k, m)
    return m - np.searchsorted(calibration, found), m


def conformal(learn, nominal, new):
    """P-values of new rows, times m + 1, and m + 1."""
    m = (len(nominal) + 1) // 2
    preparation = learn(nominal[m:])
    reference = applied(preparation, nominal[m:])
    k = neighbors_by_rule(len(reference))
    m = min(m, MOST_ROWS)
    held_out = applied(preparation, np.vstack([nominal[:m], new]))
    calibration, found = np.split(radii(held_out, reference, k)[1], [m])
    return 1 + m - np.searchsorted(np.sort(calibration), found), m + 1


def shares(counts, n):
    return np.array([(counts / n <= alpha).mean() for alpha in ALPHAS])


def cell(kind, learned, n_rows, n_features, n_draws):
    """One line of the table; None where there are not rows enough to learn anything.

    What learning adds to "loo" is the difference to the same rows with nothing learned from
    them, of which it is proven that they keep the bound: it varies less from set to set.
    """
    if learned == "covariance" and n_rows <= n_features + 1:
        return None
    rng = np.random.default_rng([0, n_rows, n_features, *learned.encode()])
    n_new = min(n_rows, MOST_ROWS)
    n_sets = min(MOST_SETS, max(LEAST_SETS, math.ceil(n_draws / n_new)))
    taken = choose_calibration(learned, n_rows, n_features)[0]
    measures_conformal = taken == "conformal" and (
        learned != "covariance" or n_rows // 2 > n_features + 1
    )
    found = {"loo": [], "added": [], "conformal": []}
    for _ in range(n_sets):
        draw = KINDS[kind](rng, n_features)
        nominal, new = draw(n_rows), draw(n_new)
        counts, m = loo(LEARNED[learned], nominal, new)
        bounds = np.array([most_false_alarms(alpha, m) for alpha in ALPHAS])
        with_learned = shares(counts, m) / bounds
        found["loo"].append(with_learned)
        given = shares(*loo(given_by(learned, draw), nominal, new)) / bounds
        found["added"].append(1 + with_learned - given)
        if measures_conformal:
            counts, n = conformal(LEARNED[learned], nominal, new)
            found["conformal"].append(shares(counts, n) / ALPHAS)
    line = {
        "rows": n_rows, "columns": n_features, "kind": kind, "learned": learned,
        "auto": taken, "sets": n_sets, "draws": n_sets * n_new,
    }  # fmt: skip
    for name, values in found.items():
        for i, alpha in enumerate(ALPHAS):
            of_level = np.array(values)[:, i] if values else np.array([np.nan])
            line[f"{name}_{alpha}"] = round(float(of_level.mean()), 4)
            error = of_level.std(ddof=min(1, len(of_level) - 1)) / len(of_level) ** 0.5
            line[f"{name}_{alpha}_error"] = round(float(error), 4)
    return line


def whole_numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=whole_numbers)
    parser.add_argument("--columns", type=whole_numbers, default=COLUMNS)
    parser.add_argument("--draws", type=int, default=20_000)
    given = parser.parse_args()
    cells = [
        (n_rows, n_features, kind, learned)
        for n_features, kind, learned in itertools.product(given.columns, KINDS, LEARNED)
        # Also as few rows as "auto" takes "loo" for.
        for n_rows in given.rows or (*ROWS, int(enough_rows(learned, n_features)))
    ]
    writer = None
    with given.output.open("w", newline="") as file:
        for n_rows, n_features, kind, learned in sorted(cells):
            line = cell(kind, learned, n_rows, n_features, given.draws)
            if line is None:
                continue
            if writer is None:
                writer = csv.DictWriter(file, list(line))
                writer.writeheader()
            writer.writerow(line)
            file.flush()
            print(line["rows"], line["columns"], kind, learned, file=sys.stderr)


if __name__ == "__main__":
    main()

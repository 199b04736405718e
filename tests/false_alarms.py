"""Simulate how often nominal rows are flagged, where scale or metric are learned from rows.

    python tests/false_alarms.py OUT.csv [--rows 50,100] [--columns 2,5] [--draws 20000]

For each number of rows and columns, kind of rows, and what is learned: the share of new
rows with p <= alpha for "loo" and for "conformal", over what is promised, with standard
errors over nominal sets; and what "auto" takes. `make false-alarms` runs all of it, which
takes hours, and prints what docs/guide/calibration.md says.
"""

import argparse
import csv
import itertools
import logging
import math
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np

from lpe_dask import LPE
from lpe_dask.model.learning.scaling import learn_scaling
from lpe_dask.model.validity import (
    choose_calibration,
    false_alarm_bound,
    min_rows_for_loo,
)

ALPHAS = (0.01, 0.05, 0.1)
ROWS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 100_000)
COLUMNS = (2, 5, 10, 20, 50, 100, 200)

#: New rows, and calibration rows of large nominal sets: more would take hours a cell.
MAX_ROWS = 20_000

#: Nominal rows from which on threads are worth their while.
MANY_ROWS = 3000

#: Other rows that quantiles are learned from, to compare with.
OTHER_ROWS = 10_000

#: Nominal sets of a cell at least and at most.
MIN_SETS, MAX_SETS = 3, 20_000

#: What is learned -> the arguments of `LPE` that ask for it.
LEARNED = {
    "ranges": {"scale": "minmax"},
    "quantiles": {"scale": "quantile"},
    "ranges and quantiles": {"scale": "minmax+quantile"},
    "variances": {"scale": "standard"},
    "covariance": {"metric": "mahalanobis"},
}


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


def shares(calibration, nominal, new, arguments=None):
    """Shares of new rows that are flagged, and the number of calibration rows."""
    most = len(nominal) if calibration == "loo" else (len(nominal) + 1) // 2
    size = None if most <= MAX_ROWS else MAX_ROWS
    model = LPE(
        calibration=calibration, calibration_size=size, random_state=0, **arguments or {}
    )
    is_small = len(nominal) < MANY_ROWS
    with dask.config.set(scheduler="sync" if is_small else "threads"):
        p_values = model.fit(nominal).score_samples(new)
    flagged = np.array([(p_values <= alpha).mean() for alpha in ALPHAS])
    return flagged, len(model.calibration_)


def shares_where_given(learned, draw, nominal, new):
    """What "loo" is compared with: nothing learned, or quantiles of other rows.

    Quantiles make other distances, which a linear scale of like columns hardly does.
    """
    if "quantiles" in learned:
        others, names = da.from_array(draw(OTHER_ROWS)), list(map(str, range(new.shape[1])))
        scaling = learn_scaling(others, LEARNED[learned]["scale"], names)
        nominal, new = scaling.apply(nominal), scaling.apply(new)
    return shares("loo", nominal, new)[0]


def cell(kind, learned, n_rows, n_features, n_draws):
    """One line of the table; None where there are not rows enough to learn anything.

    What learning adds to "loo" is the difference to the same rows with nothing learned from
    them, of which it is proven that they keep the bound: it varies less from set to set.
    """
    if learned == "covariance" and n_rows <= n_features + 1:
        return None
    rng = np.random.default_rng([0, n_rows, n_features, *learned.encode()])
    n_new = min(n_rows, MAX_ROWS)
    n_sets = min(MAX_SETS, max(MIN_SETS, math.ceil(n_draws / n_new)))
    taken = choose_calibration(learned, n_rows, n_features)[0]
    measures_conformal = taken == "conformal" and (
        learned != "covariance" or n_rows // 2 > n_features + 1
    )
    found = {"loo": [], "added": [], "conformal": []}
    for _ in range(n_sets):
        draw = KINDS[kind](rng, n_features)
        nominal, new = draw(n_rows), draw(n_new)
        with_learned, m = shares("loo", nominal, new, LEARNED[learned])
        bounds = np.array([false_alarm_bound(alpha, m) for alpha in ALPHAS])
        found["loo"].append(with_learned / bounds)
        given = shares_where_given(learned, draw, nominal, new)
        found["added"].append(1 + (with_learned - given) / bounds)
        if measures_conformal:
            flagged, _ = shares("conformal", nominal, new, LEARNED[learned])
            found["conformal"].append(flagged / ALPHAS)
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
    logging.disable()  # an explicit "loo" warns of what is simulated
    cells = [
        (n_rows, n_features, kind, learned)
        for n_features, kind, learned in itertools.product(given.columns, KINDS, LEARNED)
        # Also as few rows as "auto" takes "loo" for.
        for n_rows in given.rows or (*ROWS, int(min_rows_for_loo(learned, n_features)))
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

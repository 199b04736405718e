"""Simulate several runs whose rows are all compared with one calibration set.

    python tests/shared_calibration.py [--sets 2000]

Conformal p-values without ties have one law for all scores, so scores are drawn here, not
rows: what is said of them holds for each metric, graph and K. Three tables: tests of many
runs where all rows are nominal; false discoveries over the union of runs; and procedures
that decide row by row. `make promises` prints them, in a minute.
"""

import argparse

import numpy as np
from scipy import stats

from promises import print_table

N_RUNS, RUN_ROWS = 30, 1000
CALIBRATION_ROWS = (1000, 10_000, 100_000)
ALPHA, Q = 0.05, 0.1

#: By how many standard deviations the scores of anomalies are higher.
SHIFT = 4.0

#: Shares of q that are spent on the first row, the second, and so on, as in LORD.
_T = np.arange(1, 10_001)
GAMMA = np.log(np.maximum(_T, 2)) / (_T * np.exp(np.sqrt(np.log(_T))))
GAMMA /= GAMMA.sum()


def conformal(calibration, scores):
    """(1 + calibration scores that are at least as large) / (m + 1)."""
    order = np.sort(calibration)
    m = len(order)
    return (1 + m - np.searchsorted(order, scores)) / (m + 1)


def flagged_places(m, alpha=ALPHA):
    """How many of the p-values 1 / (m + 1), 2 / (m + 1), ... are at most alpha."""
    return int((np.arange(1, m + 2) / (m + 1) <= alpha).sum())


# Tests of many runs: flagged rows of each -> p-value of "all rows are nominal".


def as_if_independent(counts, m):
    """All rows against the binomial law of independent ones."""
    return stats.binom.sf(counts.sum() - 1, counts.size * RUN_ROWS, ALPHA)


def fisher(counts, m):
    """Binomial tests of single runs, combined as if they were independent."""
    return stats.combine_pvalues(stats.binom.sf(counts - 1, RUN_ROWS, ALPHA)).pvalue


def fisher_of_exact(counts, m):
    """The same of exact tests of single runs: each is right, together they are not."""
    k = flagged_places(m)
    of_runs = stats.betabinom.sf(counts - 1, RUN_ROWS, k, m + 1 - k)
    return stats.combine_pvalues(of_runs).pvalue


def runs_above(counts, m):
    """Runs above the 95 % quantile of the binomial law, as if independent."""
    most = stats.binom.ppf(0.95, RUN_ROWS, ALPHA)
    chance = stats.binom.sf(most, RUN_ROWS, ALPHA)
    return stats.binom.sf((counts > most).sum() - 1, len(counts), chance)


def all_rows(counts, m):
    """All rows against the beta-binomial law: exact."""
    k = flagged_places(m)
    return stats.betabinom.sf(counts.sum() - 1, counts.size * RUN_ROWS, k, m + 1 - k)


def bonferroni(counts, m):
    """The exact test of the worst run, times the number of runs: for any dependence."""
    k = flagged_places(m)
    of_runs = stats.betabinom.sf(counts - 1, RUN_ROWS, k, m + 1 - k)
    return min(1, len(counts) * of_runs.min())


TESTS = {
    "all rows, binomial": as_if_independent,
    "binomial tests of runs, combined by Fisher": fisher,
    "beta-binomial tests of runs, combined by Fisher": fisher_of_exact,
    "number of runs above a quantile, binomial": runs_above,
    "all rows, beta-binomial": all_rows,
    "beta-binomial tests of runs, by Bonferroni": bonferroni,
}


def nominal_counts(rng, m, n_runs=N_RUNS):
    """How many rows each run flags at alpha, all of them nominal."""
    p_values = conformal(rng.random(m), rng.random((n_runs, RUN_ROWS)))
    return (p_values <= ALPHA).sum(axis=1)


def rejections(rng, tests, m, n_sets):
    """In how many sets each test rejects at the level 0.05."""
    found = np.zeros(len(tests), int)
    for _ in range(n_sets):
        counts = nominal_counts(rng, m)
        found += [test(counts, m) <= 0.05 for test in tests]
    return found


# False discoveries: scores (runs, rows), with anomalies among them.


def benjamini_hochberg(p_values, q):
    """Which are flagged, along the last axis."""
    return stats.false_discovery_control(p_values, axis=-1) <= q


def false_share(is_flagged, is_anomaly, axis=None):
    false = (is_flagged & ~is_anomaly).sum(axis=axis)
    return false / np.maximum(1, is_flagged.sum(axis=axis))


DISCOVERIES = {
    "all rows at once, q": lambda p: benjamini_hochberg(p.ravel(), Q).reshape(p.shape),
    "each run, q / 30": lambda p: benjamini_hochberg(p, Q / N_RUNS),
    "each run, q": lambda p: benjamini_hochberg(p, Q),
}

#: Runs with anomalies: 1 % of the rows of each of these.
WHERE = {"in every run": N_RUNS, "in one run": 1, "in none": 0}


def discoveries(rng, m, n_anomalous, n_sets):
    """For each procedure and set: false share of the union, mean of runs, share found."""
    is_anomaly = np.zeros((N_RUNS, RUN_ROWS), bool)
    is_anomaly[:n_anomalous, : RUN_ROWS // 100] = True
    found = []
    for _ in range(n_sets):
        scores = rng.standard_normal(is_anomaly.shape) + SHIFT * is_anomaly
        p_values = conformal(rng.standard_normal(m), scores)
        flags = [procedure(p_values) for procedure in DISCOVERIES.values()]
        found.append([
            (
                false_share(flagged, is_anomaly),
                false_share(flagged, is_anomaly, axis=1).mean(),
                (flagged & is_anomaly).sum() / max(1, is_anomaly.sum()),
            )
            for flagged in flags
        ])  # fmt: skip
    return np.moveaxis(found, 0, -1)


# Row by row: p-values (sets, rows) of rows in their order.


def lond(p_values):
    """Javanmard and Montanari (2015): a level grows with the number of discoveries."""
    n_found = np.zeros(len(p_values))
    is_flagged = np.zeros(p_values.shape, bool)
    for t, p in enumerate(p_values.T):
        is_flagged[:, t] = p <= Q * GAMMA[t] * (n_found + 1)
        n_found += is_flagged[:, t]
    return is_flagged


def lord(p_values):
    """LORD++ (Ramdas and others, 2017): a discovery earns what later rows spend."""
    is_flagged = np.zeros(p_values.shape, bool)
    start = Q / 2
    first = np.full(len(p_values), -1)
    for t, p in enumerate(p_values.T):
        earned = Q * is_flagged[:, :t] @ GAMMA[:t][::-1]
        earned -= np.where(first >= 0, start * GAMMA[t - first - 1], 0)
        is_flagged[:, t] = p <= start * GAMMA[t] + earned
        first[is_flagged[:, t] & (first < 0)] = t
    return is_flagged


def row_by_row(rng, procedure, m, share, is_shared, n_sets, n_rows=RUN_ROWS):
    """The false shares of sets, each with its calibration set, or with one for each row."""
    is_anomaly = rng.random((n_sets, n_rows)) < share
    scores = rng.standard_normal(is_anomaly.shape) + SHIFT * is_anomaly
    if is_shared:
        p_values = np.stack([conformal(rng.standard_normal(m), row) for row in scores])
    else:
        larger = rng.binomial(m, stats.norm.sf(scores))
        p_values = (1 + larger) / (m + 1)
    return false_share(procedure(p_values), is_anomaly, axis=1)


def lines_of_tests(rng, n_sets):
    columns = [
        rejections(rng, TESTS.values(), m, n_sets) / n_sets for m in CALIBRATION_ROWS
    ]
    for name, shares in zip(TESTS, np.transpose(columns), strict=True):
        yield name, *(f"{100 * share:.1f} %" for share in shares)


def lines_of_discoveries(rng, n_sets):
    for m in CALIBRATION_ROWS:
        for where, n_anomalous in WHERE.items():
            found = discoveries(rng, m, n_anomalous, n_sets)
            for name, (union, of_runs, power) in zip(DISCOVERIES, found, strict=True):
                values = (
                    union.mean(), union.std() / n_sets**0.5, of_runs.mean(),
                    np.quantile(of_runs, 0.95), power.mean(),
                )  # fmt: skip
                yield m, where, name, *(f"{value:.3f}" for value in values)


def lines_row_by_row(rng, n_sets):
    for procedure in (lond, lord):
        for m in (50, 200, 1000):
            for share in (0.1, 0.5):
                shares = [
                    row_by_row(rng, procedure, m, share, is_shared, n_sets)
                    for is_shared in (True, False)
                ]
                values = (
                    f"{of.mean():.4f} ({of.std() / n_sets**0.5:.4f})" for of in shares
                )
                yield procedure.__name__, m, share, *values


def print_tables(n_sets):
    rng = np.random.default_rng(0)
    print_table(
        ["test at 0.05, all rows nominal", *(f"m = {m}" for m in CALIBRATION_ROWS)],
        lines_of_tests(rng, n_sets),
    )
    print_table(
        ["m", "anomalies", "Benjamini-Hochberg over", "false share of the union", "error",
         "mean of runs", "its 95 % quantile", "found"],
        lines_of_discoveries(rng, n_sets),
    )  # fmt: skip
    print_table(
        ["procedure", "m", "anomalies", "FDR (error), one set", "FDR (error), a set a row"],
        lines_row_by_row(rng, n_sets),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    print_tables(parser.parse_args().sets)


if __name__ == "__main__":
    main()

"""Simulate for one nominal set how often its rate of false alarms is above alpha.

    python tests/promises.py [--kinds normal,sites] [--rows 50,200] [--sets 99] [--columns]

The rate is that of new nominal rows where k of the m + 1 places are flagged, the largest k
such that the quantile of Beta(k, m + 1 - k) at `confidence` is at most alpha. Printed is
the share of nominal sets whose rate is above alpha, in percent, with an exact band of
99.9 %. For "conformal" it is at most 1 - confidence, as its rate has this law; "loo" and
"split" are tried in its place. Rates of one column and of grids are exact: what is flagged
is a union of intervals, or some of the cells. With `--columns` rows are drawn, and the
share is that of their counts, beside what the beta-binomial law says.
`make promises` prints these tables and those of several runs, in some minutes.
"""

import argparse
import itertools
import math
from functools import partial

import numpy as np
from scipy import spatial, special, stats

ROWS = (50, 200, 299, 500, 1000, 2000, 5000)
LEVELS = tuple(itertools.product((0.01, 0.05), (0.9, 0.95)))  # alpha, confidence

#: Numbers drawn at a time.
CHUNK = 1_000_000

#: New rows of each set where rates are not exact.
NEW_ROWS = 10_000

CENTERS = 5 * np.random.default_rng(0).standard_normal((10, 5))

#: How far rounded rows go, in steps, by columns.
STEPS = {1: (0.1, 40), 2: (0.5, 8)}


def places(m, alpha, confidence):
    """The largest k such that Beta(k, m + 1 - k) is at most alpha with this confidence."""
    k = np.arange(1, max(1, math.ceil(alpha * (m + 1))) + 1)
    return int((stats.beta.ppf(confidence, k, m + 1 - k) <= alpha).sum())


def neighbors_by_rule(m):
    return round(m**0.4)


# Rows of one column: how they are drawn, and their distribution function.


def normal(n_rows, n_neighbors):
    return np.random.Generator.standard_normal, special.ndtr


def uniform(n_rows, n_neighbors):
    return np.random.Generator.random, lambda x: np.clip(x, 0, 1)


def heavy_tailed(n_rows, n_neighbors):
    return lambda rng, shape: rng.standard_t(3, shape), stats.t(3).cdf


def clustered(n_rows, n_neighbors):
    """Ten clusters, five times as far from each other as they are wide."""
    centers = CENTERS[:, 0]

    def draw(rng, shape):
        return centers[rng.integers(10, size=shape)] + rng.standard_normal(shape)

    return draw, lambda x: special.ndtr(np.subtract.outer(x, centers)).mean(axis=-1)


def sites(n_rows, n_neighbors):
    """So many small clusters that one in 20 has fewer than K nominal rows."""
    n_sites = math.ceil(n_rows / stats.gamma.isf(0.05, n_neighbors))

    def draw(rng, shape):
        return 1000.0 * rng.integers(n_sites, size=shape) + rng.random(shape)

    def cdf(x):
        site = np.floor(np.clip(x, -1, 1000 * n_sites) / 1000)
        return (site + np.clip(x - 1000 * site, 0, 1)).clip(0, n_sites) / n_sites

    return draw, cdf


KINDS = {
    "normal": normal, "uniform": uniform, "heavy-tailed": heavy_tailed,
    "clustered": clustered, "sites": sites,
}  # fmt: skip


# Statistics and exact rates of sorted rows of one column, of many sets at once.


def leave_one_out(rows, n_neighbors):
    """Distance to the K-th nearest other row: K + 1 rows in order include it and these."""
    size = rows.shape[1] - n_neighbors
    first, last = rows[:, :size], rows[:, n_neighbors:]
    found = np.full(rows.shape, np.inf)
    for i in range(n_neighbors + 1):
        row, best = rows[:, i : i + size], found[:, i : i + size]
        np.minimum(best, np.maximum(row - first, last - row), out=best)
    return found


def of_others(queries, rows, n_neighbors):
    """Distance to the K-th nearest of the rows of the same set."""
    ends = np.full((len(rows), n_neighbors), np.inf)
    padded = np.concatenate([-ends, rows, ends], axis=1)
    place = np.stack([np.searchsorted(*pair) for pair in zip(rows, queries, strict=True)])
    found = np.full(queries.shape, np.inf)
    for i in range(n_neighbors + 1):
        first = np.take_along_axis(padded, place + i, axis=1)
        last = np.take_along_axis(padded, place + i + n_neighbors - 1, axis=1)
        np.minimum(found, np.maximum(queries - first, last - queries), out=found)
    return found


def rates(rows, n_neighbors, distance, cdf):
    """How probable a new row is that has fewer than K rows within the distance.

    A row has K of them if it is in [x_(i + K - 1) - distance, x_i + distance] for an i. The
    ends of these intervals are in the order of i, so gaps are between one and the next.
    """
    n_sets, n_rows = rows.shape
    k = np.broadcast_to(n_neighbors, n_sets)[:, None]
    distance = np.broadcast_to(distance, n_sets)[:, None]
    last = np.arange(n_rows) + k - 1
    low = np.take_along_axis(rows, np.clip(last, 0, n_rows - 1), axis=1) - distance
    high = rows + distance
    is_interval = (last < n_rows) & (low <= high)
    end = np.maximum.accumulate(np.where(is_interval, high, -np.inf), axis=1)
    before = np.concatenate([np.full((n_sets, 1), -np.inf), end[:, :-1]], axis=1)
    of_set, i = np.nonzero(is_interval & (low > before))
    gaps = cdf(low[of_set, i]) - cdf(before[of_set, i])
    rate = np.bincount(of_set, gaps, n_sets) + 1 - cdf(end[:, -1])
    return np.where(k[:, 0] == 0, 0.0, rate)


def largest(statistics, k):
    return np.partition(statistics, -k, axis=1)[:, -k]


def rates_of_sets(rng, kind, n_rows, n_neighbors, levels, n_sets):
    """Exact rates of "conformal", "loo" and "split" for one column: (3, levels, sets)."""
    draw, cdf = kind(n_rows, n_neighbors)
    ks = [places(n_rows, *level) for level in levels]
    found = []
    for size in chunks(n_sets, n_rows):
        rows, others = np.sort(draw(rng, (2, size, n_rows)), axis=-1)
        statistics = (
            of_others(others, rows, n_neighbors), leave_one_out(rows, n_neighbors),
            leave_one_out(others, n_neighbors),
        )  # fmt: skip
        found.append([
            [rates(rows, n_neighbors, largest(values, k), cdf) for k in ks]
            for values in statistics
        ])  # fmt: skip
    return np.concatenate(found, axis=-1)


def counting_rates(rng, kind, n_rows, n_neighbors, levels, n_sets):
    """The same for graph="radius": a row is flagged if it has fewer rows than the k-th."""
    draw, cdf = kind(n_rows, n_neighbors)
    pilot = np.sort(draw(rng, (1, n_rows)))
    radius = np.quantile(leave_one_out(pilot, n_neighbors), 0.95)
    ks = [places(n_rows, *level) for level in levels]

    def counts(queries, rows):
        return np.stack([
            np.searchsorted(within, values + radius, "right")
            - np.searchsorted(within, values - radius)
            for values, within in zip(queries, rows, strict=True)
        ])  # fmt: skip

    found = []
    for size in chunks(n_sets, n_rows):
        rows, others = np.sort(draw(rng, (2, size, n_rows)), axis=-1)
        of_kinds = counts(others, rows), counts(rows, rows) - 1, counts(others, others) - 1
        found.append([
            [rates(rows, -largest(-values, k), radius, cdf) for k in ks]
            for values in of_kinds
        ])  # fmt: skip
    return np.concatenate(found, axis=-1)


def chunks(n_sets, n_rows):
    size = max(1, CHUNK // n_rows)
    return [min(size, n_sets - start) for start in range(0, n_sets, size)]


# Rounded normal rows: what is true of a cell is true of all its rows.


def rounded_rates(rng, n_columns, n_rows, n_neighbors, levels, n_sets):
    """Exact rates of "conformal" and "loo" on a grid."""
    step, end = STEPS[n_columns]
    line = np.arange(-end, end + 1)
    cuts = special.ndtr(np.r_[-np.inf, (line[:-1] + 0.5) * step, np.inf])
    cells = np.array(list(itertools.product(line, repeat=n_columns)))
    chance = np.diff(cuts)
    if n_columns == 2:
        chance = np.outer(chance, chance).ravel()
    squared = ((cells[:, None] - cells) ** 2).sum(axis=-1)
    order = np.argsort(squared, axis=1, kind="stable")
    squared = np.take_along_axis(squared, order, axis=1)
    ks = [places(n_rows, *level) for level in levels]
    found = []
    for _ in range(n_sets):
        rows, others = rng.multinomial(n_rows, chance, size=2)
        within = rows[order].cumsum(axis=1)
        new, own = (
            np.take_along_axis(squared, (within >= n).argmax(axis=1)[:, None], axis=1)[:, 0]
            for n in (n_neighbors, n_neighbors + 1)
        )
        found.append([
            [chance[new > limit].sum() for limit in largest_of_cells(values, counts, ks)]
            for values, counts in ((new, others), (own, rows))
        ])  # fmt: skip
    return np.moveaxis(found, 0, -1)


def largest_of_cells(values, counts, ks):
    """The k-th largest value of rows, for each k, where cells have some rows each."""
    order = np.argsort(-values)
    return values[order[np.searchsorted(counts[order].cumsum(), ks)]]


# Several columns: rows are drawn, and counted.


def draw_rows(rng, kind, shape):
    if kind == "uniform":
        return rng.random(shape)
    if kind == "heavy-tailed":
        return rng.standard_t(3, shape)
    rows = rng.standard_normal(shape)
    if kind == "clustered":
        rows += CENTERS[rng.integers(10, size=shape[0]), : shape[1]]
    return rows


def flagged_counts(rng, kind, n_columns, n_rows, n_neighbors, levels, n_sets):
    """How many of `NEW_ROWS` new rows "loo" flags, of each level and set."""
    ks = [places(n_rows, *level) for level in levels]
    found = []
    for _ in range(n_sets):
        rows = draw_rows(rng, kind, (n_rows, n_columns))
        new = draw_rows(rng, kind, (NEW_ROWS, n_columns))
        tree = spatial.cKDTree(rows)
        limits = np.sort(tree.query(rows, k=[n_neighbors + 1])[0][:, 0])[[-k for k in ks]]
        end = np.nextafter(limits.max(), np.inf)  # beyond it distances are infinite
        new = tree.query(new, k=[n_neighbors], distance_upper_bound=end)[0]
        found.append((new > limits).sum(axis=0))
    return np.transpose(found)


# Tables.


def share(is_above, risk=0.001):
    """A share in percent, and an exact band that misses the true one by this risk."""
    n, total = int(np.sum(is_above)), len(is_above)
    band = stats.binomtest(n, total).proportion_ci(1 - risk, "exact")
    return f"{100 * n / total:.1f} ({100 * band.low:.1f}-{100 * band.high:.1f})"


def cells(given):
    """Yield names, and a function of rng, rows, K, levels and sets, for each simulation."""
    for m in given.rows:
        k_of = {"1": 1, "5": 5, "rule": neighbors_by_rule(m)}
        for kind, (name, n_neighbors) in itertools.product(given.kinds, k_of.items()):
            if kind == "rounded":
                for d in STEPS:
                    yield kind, d, name, m, n_neighbors, partial(rounded_rates, n_columns=d)
                continue
            yield kind, 1, name, m, n_neighbors, partial(rates_of_sets, kind=KINDS[kind])
            if name == "rule":
                simulate = partial(counting_rates, kind=KINDS[kind])
                yield kind, 1, "radius", m, n_neighbors, simulate


def lines_of_sets(given):
    """Exact shares, and variances of rates over that of Beta(k, m + 1 - k)."""
    for kind, d, name, m, n_neighbors, simulate in cells(given):
        levels = [level for level in LEVELS if places(m, *level)]
        if not levels:
            continue
        rng = np.random.default_rng([m, d, *kind.encode(), *name.encode()])
        found = simulate(
            rng, n_rows=m, n_neighbors=n_neighbors, levels=levels, n_sets=given.sets
        )
        for level, of_level in zip(levels, np.moveaxis(found, 1, 0), strict=True):
            k = places(m, *level)
            shares = [share(of_kind > level[0]) for of_kind in of_level]
            factors = np.var(of_level, axis=1) / stats.beta.var(k, m + 1 - k)
            yield (
                kind, d, name, m, *level, k, *shares, *["-"] * (3 - len(shares)),
                " ".join(f"{factor:.2f}" for factor in factors),
            )  # fmt: skip


def lines_of_columns(given):
    """What new rows add to the variance of counts is taken out of that of rates."""
    for m, kind, d in itertools.product(given.rows, given.kinds, (2, 5)):
        levels = [level for level in LEVELS if places(m, *level)]
        if kind in {"sites", "rounded"} or not levels:
            continue
        for n_neighbors in (1, 5, neighbors_by_rule(m)):
            rng = np.random.default_rng([m, d, n_neighbors, *kind.encode()])
            found = flagged_counts(rng, kind, d, m, n_neighbors, levels, given.sets)
            for level, counts in zip(levels, found, strict=True):
                k, most = places(m, *level), level[0] * NEW_ROWS
                by_law = stats.betabinom.sf(most, NEW_ROWS, k, m + 1 - k)
                squared = (counts * (counts - 1)).mean() / (NEW_ROWS * (NEW_ROWS - 1))
                variance = squared - (counts.mean() / NEW_ROWS) ** 2
                yield (
                    kind, d, n_neighbors, m, *level, k, share(counts > most),
                    f"{100 * by_law:.1f}", f"{variance / stats.beta.var(k, m + 1 - k):.2f}",
                )  # fmt: skip


def print_table(head, lines):
    for line in (head, ["---"] * len(head), *lines):
        print("|", " | ".join(map(str, line)), "|", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", type=lambda t: t.split(","), default=[*KINDS, "rounded"])
    parser.add_argument(
        "--rows", type=lambda t: [int(n) for n in t.split(",")], default=ROWS
    )
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--columns", action="store_true", help="2 and 5 columns instead")
    given = parser.parse_args()
    cell = ["rows", "d", "K", "m", "alpha", "confidence", "k"]
    if given.columns:
        head = [*cell, "loo above alpha, %", "by the law, %", "variance"]
        print_table(head, lines_of_columns(given))
    else:
        head = [*cell, "conformal above alpha, %", "loo", "split", "variances"]
        print_table(head, lines_of_sets(given))


if __name__ == "__main__":
    main()

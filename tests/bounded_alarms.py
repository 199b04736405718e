"""Simulate how often more flagged rows are false alarms than a run says at most.

    python tests/bounded_alarms.py [--sets 4000] [--seed 0]

For each share of anomalies, by alpha and by a false discovery rate, with and without
groups: the share of nominal sets, with rows, in which there are more, in percent, with an
exact band of 99.9 %, and beside it the bound over the number that there is, on average.
p-values are conformal ones of rows that are independent, which is all that they depend on;
anomalies are beyond most nominal rows. `make promises` prints this, too.
"""

import argparse
import itertools

import numpy as np
from scipy import stats

from lpe_dask import false_discovery_control
from lpe_dask.model.false_alarms import false_alarms_at_most, false_discoveries_at_most
from lpe_dask.model.validity import flagged_places

ALPHA, Q = 0.01, 0.1
SHARES = (0.0, 0.01, 0.1)

#: Calibration rows and rows of each group.
GROUPS = {
    "one group": ((5000,), (10_000,)),
    "few rows": ((300,), (2000,)),
    "five groups": ((5000, 1000, 300, 150, 3000), (8000, 3000, 2000, 1500, 500)),
}


def p_values(rng, n_nominal, n_anomalous, m):
    calibration = np.sort(rng.random(m))
    rows = np.append(rng.random(n_nominal), 1 - 1e-3 * rng.random(n_anomalous) ** 3)
    return (1 + m - np.searchsorted(calibration, rows)) / (m + 1)


def n_false_and_bound(rng, decides, n, n_anomalous, m, fixed, confidence):
    sizes = list(zip(n - n_anomalous, n_anomalous, m, strict=True))
    found = [p_values(rng, *of) for of in sizes]
    if decides == "alpha":
        n_false = sum(
            (p[:a] <= ALPHA).sum() for p, (a, _, _) in zip(found, sizes, strict=True)
        )
        return n_false, fixed
    joined = np.concatenate(found)
    is_flagged = false_discovery_control(joined, Q)
    if not is_flagged.any():
        return 0, 0
    is_nominal = np.concatenate([np.arange(a + b) < a for a, b, _ in sizes])
    cut_off = joined[is_flagged].max()
    bound = false_discoveries_at_most(cut_off, Q, n, m, confidence)
    return (is_flagged & is_nominal).sum(), bound


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(
        "decides, rows, confidence, anomalies: exceeded, %, (band); bound / number; flags"
    )
    for cell in itertools.product(("alpha", "fdr"), GROUPS, (0.9, 0.95), SHARES):
        decides, name, confidence, share = cell
        m, n = map(np.array, GROUPS[name])
        places = flagged_places(ALPHA, m, includes_self=True)
        fixed = false_alarms_at_most(n, places, m, confidence)
        rng, n_anomalous = np.random.default_rng(given.seed), (share * n).astype(int)
        pairs = np.array(
            [
                n_false_and_bound(rng, decides, n, n_anomalous, m, fixed, confidence)
                for _ in range(given.sets)
            ]
        )
        k, flags = (pairs[:, 0] > pairs[:, 1]).sum(), pairs[:, 1] > 0
        low, high = stats.binomtest(int(k), given.sets).proportion_ci(0.999)
        ratio = pairs[flags, 1].sum() / max(1, pairs[flags, 0].sum())
        print(
            f"{decides:5} {name:11} {confidence:.2f} {share:4.0%}: {k / given.sets:6.2%} "
            f"({low:.2%} to {high:.2%}); {ratio:.2f}; {flags.mean():.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
